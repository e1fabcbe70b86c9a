// SPDX-License-Identifier: MIT OR Apache-2.0

package ringdb

// #include "bridge.h"
import "C"

import (
	"runtime"
	"time"
)

// A Batch is writes that happen together or not at all, in any keyspaces of one store, in the order in which they were
// added. It is for one goroutine at a time. What is wrong with one of its writes is told when it is written.
type Batch struct {
	c  *batchMemory
	at *place // nil: the default keyspace
}

// batchMemory is what the batches of [Batch.In] share.
type batchMemory struct {
	ptr   *C.ringdb_batch
	first error
}

// NewBatch returns an empty batch whose writes go to the default keyspace, if not said otherwise by [Batch.In].
func NewBatch() *Batch {
	c := &batchMemory{ptr: C.ringdb_batch_new()}
	runtime.AddCleanup(c, func(ptr *C.ringdb_batch) { C.ringdb_batch_free(ptr) }, c.ptr)
	return &Batch{c: c}
}

// In is the same batch, with writes that go to a keyspace.
func (b *Batch) In(space Space) *Batch { return &Batch{b.c, space.space()} }

// ready is the batch for C, if nothing is wrong with it.
func (b *Batch) ready() (*C.ringdb_batch, error) {
	if b == nil || b.c == nil {
		return nil, invalid("this batch was not made by NewBatch")
	}
	return b.c.ptr, b.c.first
}

// add runs f, which adds a write.
func (b *Batch) add(f func(*C.ringdb_batch, *C.ringdb_db, *C.ringdb_error) C.int32_t) {
	ptr, err := b.ready()
	if err != nil {
		return
	}
	var db *C.ringdb_db
	if b.at != nil {
		db = b.at.ptr
	}
	b.c.first = call(func(err *C.ringdb_error) C.int32_t { return f(ptr, db, err) })
	runtime.KeepAlive(b)
}

// Put sets a key.
func (b *Batch) Put(key, value []byte) {
	b.add(func(batch *C.ringdb_batch, db *C.ringdb_db, err *C.ringdb_error) C.int32_t {
		return C.ringdb_batch_put(batch, db, pointer(key), C.size_t(len(key)), pointer(value), C.size_t(len(value)), err)
	})
}

// PutTTL sets a key for so long, from when the batch is written.
func (b *Batch) PutTTL(key, value []byte, ttl time.Duration) {
	ms, wrong := millis(ttl)
	if wrong != nil {
		if _, err := b.ready(); err == nil {
			b.c.first = wrong
		}
		return
	}
	b.add(func(batch *C.ringdb_batch, db *C.ringdb_db, err *C.ringdb_error) C.int32_t {
		return C.ringdb_batch_put_with_ttl(batch, db, pointer(key), C.size_t(len(key)), pointer(value),
			C.size_t(len(value)), ms, err)
	})
}

// Delete deletes a key, which need not be there.
func (b *Batch) Delete(key []byte) {
	b.add(func(batch *C.ringdb_batch, db *C.ringdb_db, err *C.ringdb_error) C.int32_t {
		return C.ringdb_batch_delete(batch, db, pointer(key), C.size_t(len(key)), err)
	})
}

// Merge merges an operand into the value of a key.
func (b *Batch) Merge(key, operand []byte) {
	b.add(func(batch *C.ringdb_batch, db *C.ringdb_db, err *C.ringdb_error) C.int32_t {
		return C.ringdb_batch_merge(batch, db, pointer(key), C.size_t(len(key)), pointer(operand), C.size_t(len(operand)),
			err)
	})
}

// DeleteRange deletes the keys of a range.
func (b *Batch) DeleteRange(span Range) {
	r, wrong := span.forward()
	if wrong != nil {
		if _, err := b.ready(); err == nil {
			b.c.first = wrong
		}
		return
	}
	b.add(func(batch *C.ringdb_batch, db *C.ringdb_db, err *C.ringdb_error) C.int32_t {
		return C.ringdb_go_batch_delete_range(batch, db, pointer(r.from), pointer(r.to), &r.c, err)
	})
}

// Len says how many writes it has.
func (b *Batch) Len() int {
	if b == nil || b.c == nil {
		return 0
	}
	var n C.size_t
	C.ringdb_batch_size(b.c.ptr, &n, nil, nil)
	runtime.KeepAlive(b.c)
	return int(n)
}

// Clear takes the writes out, and what was wrong with them.
func (b *Batch) Clear() {
	if b == nil || b.c == nil {
		return
	}
	b.c.first = call(func(err *C.ringdb_error) C.int32_t { return C.ringdb_batch_clear(b.c.ptr, err) })
	runtime.KeepAlive(b.c)
}
