// SPDX-License-Identifier: MIT OR Apache-2.0

package ringdb

// #include "bridge.h"
// #include <stdlib.h>
import "C"

import (
	"iter"
	"runtime"
	"time"
	"unsafe"
)

// A Durability says what a write survives when its call has returned.
type Durability int32

// How durable a write may be.
const (
	Default Durability = C.RINGDB_DURABILITY_DEFAULT // as the store's options say
	None    Durability = C.RINGDB_DURABILITY_NONE    // not logged: lost with the process unless flushed
	Process Durability = C.RINGDB_DURABILITY_PROCESS // survives the death of the process
	Sync    Durability = C.RINGDB_DURABILITY_SYNC    // on the device
)

// one is the durability of a call that may say one.
func one(how []Durability) (C.int32_t, error) {
	switch len(how) {
	case 0:
		return C.int32_t(Default), nil
	case 1:
		return C.int32_t(how[0]), nil
	}
	return 0, invalid("a write has one durability")
}

// millis is a time to live for C.
func millis(ttl time.Duration) (C.uint64_t, error) {
	if ttl <= 0 {
		return 0, invalid("a time to live is more than 0")
	}
	// Rounded up: what is asked to live a microsecond does not live for 0 milliseconds.
	return C.uint64_t((ttl-1)/time.Millisecond + 1), nil
}

// A writer is what stores and keyspaces can do.
type writer struct{ reader }

// A Space is where a write goes: a [DB] (its default keyspace) or a [Keyspace].
type Space interface{ space() *place }

func (w writer) space() *place { return w.p }

// A write is a call that may say how durable it is.
func (w writer) write(how []Durability, f func(*C.ringdb_db, C.int32_t, *C.ringdb_error) C.int32_t) error {
	d, err := one(how)
	if err != nil {
		return err
	}
	return w.p.do(func(db *C.ringdb_db, err *C.ringdb_error) C.int32_t { return f(db, d, err) })
}

// Put sets a key.
func (w writer) Put(key, value []byte, how ...Durability) error {
	return w.write(how, func(db *C.ringdb_db, d C.int32_t, err *C.ringdb_error) C.int32_t {
		return C.ringdb_go_put(db, pointer(key), C.size_t(len(key)), pointer(value), C.size_t(len(value)), d, err)
	})
}

// PutTTL sets a key for so long, in whole milliseconds, rounded up: from then on it counts as deleted, what was put
// before does not come back, and the space does, by itself. By the wall clock, as of the write.
func (w writer) PutTTL(key, value []byte, ttl time.Duration, how ...Durability) error {
	ms, err := millis(ttl)
	if err != nil {
		return err
	}
	return w.write(how, func(db *C.ringdb_db, d C.int32_t, err *C.ringdb_error) C.int32_t {
		return C.ringdb_go_put_with_ttl(db, pointer(key), C.size_t(len(key)), pointer(value), C.size_t(len(value)), ms, d,
			err)
	})
}

// Delete deletes a key, which need not be there.
func (w writer) Delete(key []byte, how ...Durability) error {
	return w.write(how, func(db *C.ringdb_db, d C.int32_t, err *C.ringdb_error) C.int32_t {
		return C.ringdb_go_delete(db, pointer(key), C.size_t(len(key)), d, err)
	})
}

// Merge merges an operand into the value of a key, which need not be there, without reading it: the keyspace's merge
// operator makes one of both when the key is read, or compacted.
func (w writer) Merge(key, operand []byte, how ...Durability) error {
	return w.write(how, func(db *C.ringdb_db, d C.int32_t, err *C.ringdb_error) C.int32_t {
		return C.ringdb_go_merge(db, pointer(key), C.size_t(len(key)), pointer(operand), C.size_t(len(operand)), d, err)
	})
}

// DeleteRange deletes the keys of a range: atomically, and at the same cost however many there are.
func (w writer) DeleteRange(span Range, how ...Durability) error {
	b, err := span.forward()
	if err != nil {
		return err
	}
	return w.write(how, func(db *C.ringdb_db, d C.int32_t, err *C.ringdb_error) C.int32_t {
		return C.ringdb_go_delete_range(db, pointer(b.from), pointer(b.to), &b.c, d, err)
	})
}

// CompareAndSwap sets a key to value (nil: deletes it) if its value is old (nil: there is none), at one moment, and says
// whether it was.
func (w writer) CompareAndSwap(key, old, value []byte) (bool, error) {
	var there C.uint32_t
	if old != nil {
		there |= C.RINGDB_GO_FROM
	}
	if value != nil {
		there |= C.RINGDB_GO_TO
	}
	var code C.int32_t
	err := w.p.do(func(db *C.ringdb_db, err *C.ringdb_error) C.int32_t {
		code = C.ringdb_go_compare_and_swap(db, pointer(key), C.size_t(len(key)), pointer(old), C.size_t(len(old)),
			pointer(value), C.size_t(len(value)), there, err)
		return code
	})
	return code == 1, err
}

// Write commits a batch, which stays as it is: to be cleared, or, after an error of the kind [Retry], written again. An
// empty one that is to be durable makes durable what was written before.
func (w writer) Write(batch *Batch, how ...Durability) error {
	b, err := batch.ready()
	if err != nil {
		return err
	}
	defer runtime.KeepAlive(batch.c)
	return w.write(how, func(db *C.ringdb_db, d C.int32_t, err *C.ringdb_error) C.int32_t {
		return C.ringdb_go_write(db, b, d, err)
	})
}

// Compact compacts the tables that hold a range of keys of this keyspace, down to the last level; flushes first.
func (w writer) Compact(span Range) error {
	b, err := span.forward()
	if err != nil {
		return err
	}
	return w.p.do(func(db *C.ringdb_db, err *C.ringdb_error) C.int32_t {
		return C.ringdb_go_compact(db, pointer(b.from), pointer(b.to), &b.c, err)
	})
}

// Alter changes settings of this keyspace; those that are not said stay. Of the default keyspace they are the store's:
// they hold for keyspaces that have none of their own. A merge operator, once there, stays.
func (w writer) Alter(settings string) error {
	return w.p.named(settings, func(db *C.ringdb_db, toml *C.char, err *C.ringdb_error) C.int32_t {
		return C.ringdb_keyspace_alter(db, toml, err)
	})
}

// Ingest makes tables of pairs, past the log: all of them at once, or none, in place of older values, durable on return.
// The keys have to ascend. It is the fastest way to fill a store. It returns how many pairs there were. An error that the
// sequence yields ends it, and nothing is written.
func (w writer) Ingest(pairs iter.Seq2[Pair, error]) (uint64, error) {
	var in *C.ringdb_ingester
	err := w.p.do(func(db *C.ringdb_db, err *C.ringdb_error) C.int32_t { return C.ringdb_ingester_open(db, &in, err) })
	if err != nil {
		return 0, err
	}
	defer C.ringdb_ingester_free(in)
	for pair, err := range pairs {
		if err != nil {
			return 0, err
		}
		key, value := pair.Key, pair.Value
		err = call(func(err *C.ringdb_error) C.int32_t {
			return C.ringdb_ingester_add(in, pointer(key), C.size_t(len(key)), pointer(value), C.size_t(len(value)), err)
		})
		if err != nil {
			return 0, err
		}
	}
	var n C.uint64_t
	err = call(func(err *C.ringdb_error) C.int32_t { return C.ringdb_ingester_finish(in, &n, err) })
	return uint64(n), err
}

// ImportTables ingests all pairs of an export; every byte is checked. It returns how many there were.
func (w writer) ImportTables(path string) (uint64, error) {
	text := C.CString(path)
	defer C.free(unsafe.Pointer(text))
	var n C.uint64_t
	err := w.p.do(func(db *C.ringdb_db, err *C.ringdb_error) C.int32_t {
		return C.ringdb_import_tables(db, text, &n, err)
	})
	return uint64(n), err
}
