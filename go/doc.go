// SPDX-License-Identifier: MIT OR Apache-2.0

// Package ringdb is an embedded, ordered, persistent key-value store for Linux, over the C interface of the Rust library.
//
//	db, err := ringdb.Open("fruit")
//	if err != nil {
//		return err
//	}
//	defer db.Close()
//	err = db.Put([]byte("apple"), []byte("red"))
//	value, err := db.Get([]byte("apple")) // nil: there is none
//	for pair, err := range db.Items(ringdb.Range{Prefix: []byte("a")}) {
//		...
//	}
//
// # Memory
//
// Every slice that this package returns is the caller's own, and what is passed in is copied or used during the call only:
// nothing of Go's memory is kept by the library. A nil value says that a key is absent; a value that is empty is not nil.
//
// # Goroutines
//
// A [DB], a [Keyspace] and a [Snapshot] serve all goroutines at once. A [Batch] and a [Tx] are for one at a time.
//
// # Handles
//
// [DB.Close] closes a store, whatever is left of it: all later calls fail with [Closed]. A store that is dropped without it is
// closed when the garbage collector notices, without a flush; nothing is lost that was durable. A [Snapshot] keeps old
// versions on the disk until its Close.
//
// # Errors
//
// Errors of the library are an [*Error] with a [Code] (what happened) and a [Kind] (what to do about it). [errors.Is] takes
// both: errors.Is(err, ringdb.Conflict), errors.Is(err, ringdb.Retry).
//
// # Contexts
//
// Calls named ...Context give up when their context ends and return its error. They are the library's asynchronous
// calls: a goroutine that waits in one holds no thread of the operating system.
package ringdb

// #cgo pkg-config: ringdb
// #include "bridge.h"
import "C"

// Version returns the version of the library that is linked, for example "0.1.0".
func Version() string {
	return C.GoString(C.ringdb_version())
}
