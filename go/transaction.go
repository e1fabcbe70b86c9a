// SPDX-License-Identifier: MIT OR Apache-2.0

package ringdb

// #include "bridge.h"
import "C"

import (
	"context"
	"errors"
	"iter"
	"runtime"
	"sync"
	"time"
	"unsafe"
)

// A Tx is reads and writes that happen at one moment, or not at all: serializable. It sees the store as it was when it
// began, and its own writes. Nobody is blocked: the commit is a [Conflict] (of the kind [Retry]) if something that was read
// has been written since; then nothing of it was written: begin again, as [DB.Update] does.
type Tx struct {
	c  *txMemory
	at *place
}

// txMemory is what the transactions of [Tx.In] share. The lock keeps two goroutines from meeting in it.
type txMemory struct {
	lock    sync.Mutex
	ptr     *C.ringdb_transaction // nil: it has ended
	cleanup runtime.Cleanup
}

// Begin begins a transaction, whose calls go to this keyspace, if not said otherwise by [Tx.In]. It ends with a Commit or a
// Rollback.
func (w writer) Begin() (*Tx, error) {
	var out *C.ringdb_transaction
	err := w.p.do(func(db *C.ringdb_db, err *C.ringdb_error) C.int32_t {
		return C.ringdb_transaction_begin(db, &out, err)
	})
	if err != nil {
		return nil, err
	}
	c := &txMemory{ptr: out}
	c.cleanup = runtime.AddCleanup(c, func(ptr *C.ringdb_transaction) { C.ringdb_transaction_free(ptr) }, out)
	return &Tx{c, w.p}, nil
}

// Update runs f in a transaction and commits it, again and again as long as others are in the way ([Conflict],
// [KeyLocked]) and the context lasts. An error of f ends it, and nothing was written; so does a panic.
func (w writer) Update(ctx context.Context, f func(*Tx) error) error {
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		err := w.once(f)
		if !errors.Is(err, Conflict) && !errors.Is(err, KeyLocked) {
			return err
		}
	}
}

func (w writer) once(f func(*Tx) error) error {
	tx, err := w.Begin()
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if err := f(tx); err != nil {
		return err
	}
	return tx.Commit()
}

// In is the same transaction, with calls that go to a keyspace.
func (t *Tx) In(space Space) *Tx { return &Tx{t.c, space.space()} }

// do runs f with the transaction and the keyspace.
func (t *Tx) do(f func(*C.ringdb_transaction, *C.ringdb_db, *C.ringdb_error) C.int32_t) error {
	t.c.lock.Lock()
	defer t.c.lock.Unlock()
	if t.c.ptr == nil {
		return ended("the transaction")
	}
	defer runtime.KeepAlive(t)
	return t.at.do(func(db *C.ringdb_db, err *C.ringdb_error) C.int32_t { return f(t.c.ptr, db, err) })
}

// Get returns the value of a key, or nil if there is none.
func (t *Tx) Get(key []byte) ([]byte, error) {
	var out *C.ringdb_value
	err := t.do(func(tx *C.ringdb_transaction, db *C.ringdb_db, err *C.ringdb_error) C.int32_t {
		return C.ringdb_transaction_get(tx, db, pointer(key), C.size_t(len(key)), &out, err)
	})
	if err != nil {
		return nil, err
	}
	return taken(out), nil
}

// Put sets a key.
func (t *Tx) Put(key, value []byte) error {
	return t.do(func(tx *C.ringdb_transaction, db *C.ringdb_db, err *C.ringdb_error) C.int32_t {
		return C.ringdb_transaction_put(tx, db, pointer(key), C.size_t(len(key)), pointer(value), C.size_t(len(value)), err)
	})
}

// Delete deletes a key, which need not be there.
func (t *Tx) Delete(key []byte) error {
	return t.do(func(tx *C.ringdb_transaction, db *C.ringdb_db, err *C.ringdb_error) C.int32_t {
		return C.ringdb_transaction_delete(tx, db, pointer(key), C.size_t(len(key)), err)
	})
}

// Merge merges an operand into the value of a key. It is no read: transactions that merge into one key do not conflict.
func (t *Tx) Merge(key, operand []byte) error {
	return t.do(func(tx *C.ringdb_transaction, db *C.ringdb_db, err *C.ringdb_error) C.int32_t {
		return C.ringdb_transaction_merge(tx, db, pointer(key), C.size_t(len(key)), pointer(operand),
			C.size_t(len(operand)), err)
	})
}

// Lock locks keys until the transaction has ended: no other one locks them meanwhile. It waits for those who have, as
// long as wait says (0: five seconds), and is [KeyLocked] then, or at once if they wait for this one. The transaction goes on
// from now. Best called first, and not while an iterator of it is open.
func (t *Tx) Lock(wait time.Duration, keys ...[]byte) error {
	if wait < 0 {
		return invalid("nobody waits for less than no time")
	}
	bytes, lens := flat(keys)
	us := C.uint64_t((wait + time.Microsecond - 1) / time.Microsecond)
	return t.do(func(tx *C.ringdb_transaction, db *C.ringdb_db, err *C.ringdb_error) C.int32_t {
		return C.ringdb_go_lock(tx, db, pointer(bytes), unsafe.SliceData(lens), C.size_t(len(lens)), us, err)
	})
}

// Items goes through the pairs of a range, as [DB.Items] does, and sees what the transaction writes ahead of it, too. What it
// goes through counts as read: its first pairs as soon as it begins, and up to some hundred pairs ahead of the loop.
func (t *Tx) Items(span Range) iter.Seq2[Pair, error] {
	open := func(b *bounds, back C.int32_t, out **C.ringdb_go_iter) error {
		return t.do(func(tx *C.ringdb_transaction, db *C.ringdb_db, err *C.ringdb_error) C.int32_t {
			return C.ringdb_go_iter_open(db, tx, pointer(b.from), pointer(b.to), &b.c, back, out, err)
		})
	}
	return items(context.Background(), span, open, func(f func(*C.ringdb_error) C.int32_t) error {
		return t.do(func(_ *C.ringdb_transaction, _ *C.ringdb_db, err *C.ringdb_error) C.int32_t { return f(err) })
	})
}

// Commit commits, and ends the transaction however the commit ends.
func (t *Tx) Commit(how ...Durability) error {
	d, err := one(how)
	if err != nil {
		return err
	}
	defer t.Rollback()
	return t.do(func(tx *C.ringdb_transaction, _ *C.ringdb_db, err *C.ringdb_error) C.int32_t {
		return C.ringdb_go_commit(tx, d, err)
	})
}

// Rollback ends a transaction that was not committed, which has done nothing then. After a Commit it does nothing.
func (t *Tx) Rollback() {
	t.c.lock.Lock()
	defer t.c.lock.Unlock()
	if t.c.ptr != nil {
		t.c.cleanup.Stop()
		C.ringdb_transaction_free(t.c.ptr)
		t.c.ptr = nil
	}
}
