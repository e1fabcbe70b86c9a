// SPDX-License-Identifier: MIT OR Apache-2.0

package ringdb

// #include "bridge.h"
import "C"

import (
	"context"
	"runtime"
	"runtime/cgo"
	"unsafe"
)

// An answer is what a callback brings: one per request, by a channel with room for it.
type answer[T any] struct {
	value T
	err   error
}

// request starts an asynchronous call and waits for its answer, or for the end of the context. The callback gets the
// channel by a handle, which it gives back; if the request could be cancelled, nobody else will.
func request[T any](ctx context.Context, p *place,
	start func(*C.ringdb_db, C.uintptr_t, **C.ringdb_request, *C.ringdb_error) C.int32_t) (none T, err error) {
	if err := ctx.Err(); err != nil {
		return none, err
	}
	came := make(chan answer[T], 1)
	handle := cgo.NewHandle(came)
	var pending *C.ringdb_request
	err = p.do(func(db *C.ringdb_db, err *C.ringdb_error) C.int32_t {
		return start(db, C.uintptr_t(handle), &pending, err)
	})
	if err != nil {
		handle.Delete()
		return none, err
	}
	defer C.ringdb_request_free(pending)
	select {
	case a := <-came:
		return a.value, a.err
	case <-ctx.Done():
		if C.ringdb_request_cancel(pending) == 1 {
			handle.Delete()
			return none, ctx.Err()
		}
		a := <-came // it is about to be called, or was
		return a.value, a.err
	}
}

// deliver brings an answer to who waits.
func deliver[T any](user C.uintptr_t, value T, err error) {
	handle := cgo.Handle(user)
	came := handle.Value().(chan answer[T])
	handle.Delete()
	came <- answer[T]{value, err}
}

//export ringdbGoGot
func ringdbGoGot(user C.uintptr_t, code C.int32_t, value *C.ringdb_value, err *C.ringdb_error) {
	deliver(user, taken(value), failure(code, err))
}

//export ringdbGoGotMany
func ringdbGoGotMany(user C.uintptr_t, code C.int32_t, values *C.ringdb_values, err *C.ringdb_error) {
	if err := failure(code, err); err != nil {
		deliver[[][]byte](user, nil, err)
		return
	}
	deliver(user, takenAll(values), nil)
}

//export ringdbGoDone
func ringdbGoDone(user C.uintptr_t, code C.int32_t, err *C.ringdb_error) {
	deliver(user, struct{}{}, failure(code, err))
}

// GetContext is Get until the context ends. Goroutines that miss the same block share its read.
func (r reader) GetContext(ctx context.Context, key []byte) ([]byte, error) {
	if ctx.Done() == nil {
		return r.Get(key)
	}
	return request[[]byte](ctx, r.p,
		func(db *C.ringdb_db, h C.uintptr_t, out **C.ringdb_request, err *C.ringdb_error) C.int32_t {
			return C.ringdb_go_get_async(db, pointer(key), C.size_t(len(key)), h, out, err)
		})
}

// MultiGetContext is MultiGet until the context ends.
func (r reader) MultiGetContext(ctx context.Context, keys [][]byte) ([][]byte, error) {
	bytes, lens := flat(keys)
	return request[[][]byte](ctx, r.p,
		func(db *C.ringdb_db, h C.uintptr_t, out **C.ringdb_request, err *C.ringdb_error) C.int32_t {
			return C.ringdb_go_multi_get_async(db, pointer(bytes), unsafe.SliceData(lens), C.size_t(len(lens)), h, out, err)
		})
}

// WriteContext is Write until the context ends: what was written then may have happened, or not. Goroutines that wait for
// the device share its writes.
func (w writer) WriteContext(ctx context.Context, batch *Batch, how ...Durability) error {
	b, err := batch.ready()
	if err != nil {
		return err
	}
	d, err := one(how)
	if err != nil {
		return err
	}
	defer runtime.KeepAlive(batch.c)
	_, err = request[struct{}](ctx, w.p,
		func(db *C.ringdb_db, h C.uintptr_t, out **C.ringdb_request, err *C.ringdb_error) C.int32_t {
			return C.ringdb_go_write_async(db, b, d, h, out, err)
		})
	return err
}

// SyncContext is Sync until the context ends.
func (db *DB) SyncContext(ctx context.Context) error {
	_, err := request[struct{}](ctx, db.p,
		func(db *C.ringdb_db, h C.uintptr_t, out **C.ringdb_request, err *C.ringdb_error) C.int32_t {
			return C.ringdb_go_sync_async(db, h, out, err)
		})
	return err
}
