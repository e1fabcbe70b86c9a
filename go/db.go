// SPDX-License-Identifier: MIT OR Apache-2.0

package ringdb

// #include "bridge.h"
// #include <stdlib.h>
import "C"

import (
	"runtime"
	"sync"
	"unsafe"
)

// A place is a handle of C: what reads and writes go to. It is released when nothing in Go can reach it any more, so
// no call can meet a released one; a snapshot's can be released earlier, which its gate keeps from those in a call.
type place struct {
	ptr      *C.ringdb_db
	cleanup  runtime.Cleanup
	gate     *sync.RWMutex // of snapshots
	released bool
}

func newPlace(open func(**C.ringdb_db, *C.ringdb_error) C.int32_t) (*place, error) {
	p := new(place)
	var out *C.ringdb_db
	if err := call(func(err *C.ringdb_error) C.int32_t { return open(&out, err) }); err != nil || out == nil {
		return nil, err
	}
	p.ptr = out
	// The last handle of a store waits for its threads: that must not hold up the cleanups of others.
	p.cleanup = runtime.AddCleanup(p, func(ptr *C.ringdb_db) { go C.ringdb_release(ptr) }, out)
	return p, nil
}

// enter is the handle, until leave.
func (p *place) enter() (*C.ringdb_db, error) {
	if p == nil {
		return nil, invalid("this handle was not made by Open, Keyspace or Snapshot")
	}
	if p.gate != nil {
		p.gate.RLock()
		if p.released {
			p.gate.RUnlock()
			return nil, ended("the snapshot")
		}
	}
	return p.ptr, nil
}

func (p *place) leave() {
	if p.gate != nil {
		p.gate.RUnlock()
	}
	runtime.KeepAlive(p)
}

// do runs f with the handle and a place for its error.
func (p *place) do(f func(db *C.ringdb_db, err *C.ringdb_error) C.int32_t) error {
	db, err := p.enter()
	if err != nil {
		return err
	}
	defer p.leave()
	return call(func(err *C.ringdb_error) C.int32_t { return f(db, err) })
}

// named does the same with a name, of a keyspace or a file.
func (p *place) named(name string, f func(db *C.ringdb_db, name *C.char, err *C.ringdb_error) C.int32_t) error {
	text := C.CString(name)
	defer C.free(unsafe.Pointer(text))
	return p.do(func(db *C.ringdb_db, err *C.ringdb_error) C.int32_t { return f(db, text, err) })
}

// child is another handle, which f makes of this one: nil if it makes none.
func (p *place) child(f func(db *C.ringdb_db, out **C.ringdb_db, err *C.ringdb_error) C.int32_t) (*place, error) {
	db, err := p.enter()
	if err != nil {
		return nil, err
	}
	defer p.leave()
	return newPlace(func(out **C.ringdb_db, err *C.ringdb_error) C.int32_t { return f(db, out, err) })
}

// text is what f gives as a value.
func (p *place) text(f func(db *C.ringdb_db, out **C.ringdb_value, err *C.ringdb_error) C.int32_t) ([]byte, error) {
	var out *C.ringdb_value
	if err := p.do(func(db *C.ringdb_db, err *C.ringdb_error) C.int32_t { return f(db, &out, err) }); err != nil {
		return nil, err
	}
	return taken(out), nil
}

// A DB is an open store: its default keyspace, and what concerns all of it.
type DB struct{ writer }

// A Keyspace is a part of a store with keys and settings of its own.
type Keyspace struct{ writer }

// A Snapshot is a keyspace as it was at one moment. Close it: until then old versions stay on the disk.
type Snapshot struct{ reader }

// Close flushes, waits for background work and closes the store, whatever handles of it are left.
func (db *DB) Close() error {
	return db.p.do(func(db *C.ringdb_db, err *C.ringdb_error) C.int32_t { return C.ringdb_close(db, err) })
}

// Keyspace returns a keyspace by its name, 1 to 255 bytes; it is made if it is missing. Settings are TOML text:
// compression, last_level_compression, block_bytes, filter_bits_per_key, merge_operator, compaction_filter,
// time_to_live, as in "merge_operator = 'add'". A keyspace that is there is altered by those that are given.
func (db *DB) Keyspace(name string, settings ...string) (*Keyspace, error) {
	if len(settings) > 1 {
		return nil, invalid("settings of a keyspace are one text")
	}
	text := C.CString(name)
	defer C.free(unsafe.Pointer(text))
	var toml *C.char
	if len(settings) == 1 {
		toml = C.CString(settings[0])
		defer C.free(unsafe.Pointer(toml))
	}
	p, err := db.p.child(func(db *C.ringdb_db, out **C.ringdb_db, err *C.ringdb_error) C.int32_t {
		if toml != nil {
			return C.ringdb_keyspace_with(db, text, toml, out, err)
		}
		return C.ringdb_keyspace(db, text, out, err)
	})
	if err != nil {
		return nil, err
	}
	return &Keyspace{writer{reader{p}}}, nil
}

// existing is a keyspace if there is one.
func (p *place) existing(name string) (*place, error) {
	text := C.CString(name)
	defer C.free(unsafe.Pointer(text))
	return p.child(func(db *C.ringdb_db, out **C.ringdb_db, err *C.ringdb_error) C.int32_t {
		return C.ringdb_existing_keyspace(db, text, out, err)
	})
}

// ExistingKeyspace returns a keyspace if there is one, or nil.
func (db *DB) ExistingKeyspace(name string) (*Keyspace, error) {
	p, err := db.p.existing(name)
	if err != nil || p == nil {
		return nil, err
	}
	return &Keyspace{writer{reader{p}}}, nil
}

// DropKeyspace drops a keyspace with all its keys, and says whether there was one.
func (db *DB) DropKeyspace(name string) (bool, error) {
	var code C.int32_t
	err := db.p.named(name, func(db *C.ringdb_db, name *C.char, err *C.ringdb_error) C.int32_t {
		code = C.ringdb_drop_keyspace(db, name, err)
		return code
	})
	return code == 1, err
}

// Keyspaces returns the names of all keyspaces but the default one, sorted.
func (db *DB) Keyspaces() ([]string, error) {
	var out *C.ringdb_values
	err := db.p.do(func(db *C.ringdb_db, err *C.ringdb_error) C.int32_t { return C.ringdb_keyspaces(db, &out, err) })
	if err != nil {
		return nil, err
	}
	names := []string{}
	for _, name := range takenAll(out) {
		names = append(names, string(name))
	}
	return names, nil
}

// Flush writes all memtables to tables: what was written before is durable after it.
func (db *DB) Flush() error {
	return db.p.do(func(db *C.ringdb_db, err *C.ringdb_error) C.int32_t { return C.ringdb_flush(db, err) })
}

// Sync makes everything durable that was written before, whatever its durability.
func (db *DB) Sync() error {
	return db.p.do(func(db *C.ringdb_db, err *C.ringdb_error) C.int32_t { return C.ringdb_sync(db, err) })
}

// WaitIdle waits until nothing is left to flush or compact.
func (db *DB) WaitIdle() error {
	return db.p.do(func(db *C.ringdb_db, err *C.ringdb_error) C.int32_t { return C.ringdb_wait_idle(db, err) })
}

// Rewrite writes every table anew, with the newest encryption key and the settings of now.
func (db *DB) Rewrite() error {
	return db.p.do(func(db *C.ringdb_db, err *C.ringdb_error) C.int32_t { return C.ringdb_rewrite(db, err) })
}

// Checkpoint makes a copy of the store in a new directory, durable on return; by hard links where that is possible.
func (db *DB) Checkpoint(path string) error {
	return db.p.named(path, func(db *C.ringdb_db, path *C.char, err *C.ringdb_error) C.int32_t {
		return C.ringdb_checkpoint(db, path, err)
	})
}

// Stats returns counters and sizes as JSON.
func (db *DB) Stats() ([]byte, error) {
	return db.p.text(func(db *C.ringdb_db, out **C.ringdb_value, err *C.ringdb_error) C.int32_t {
		return C.ringdb_stats(db, out, err)
	})
}

// Metrics returns the same and more as text for Prometheus, to be served as "text/plain; version=0.0.4; charset=utf-8".
// Nothing is read from the disk.
func (db *DB) Metrics() ([]byte, error) { return db.metrics(0) }

// OpenMetrics is the same, to be served as "application/openmetrics-text; version=1.0.0; charset=utf-8".
func (db *DB) OpenMetrics() ([]byte, error) { return db.metrics(1) }

func (db *DB) metrics(open C.int32_t) ([]byte, error) {
	return db.p.text(func(db *C.ringdb_db, out **C.ringdb_value, err *C.ringdb_error) C.int32_t {
		return C.ringdb_metrics(db, open, out, err)
	})
}

// Verify reads every byte and checks every checksum, order and reference: whether all is well, and what is not as JSON.
func (db *DB) Verify() (bool, []byte, error) {
	var code C.int32_t
	report, err := db.p.text(func(db *C.ringdb_db, out **C.ringdb_value, err *C.ringdb_error) C.int32_t {
		code = C.ringdb_verify(db, out, err)
		return code
	})
	return err == nil && code == 0, report, err
}

// Salvage copies everything readable of a damaged store, which nobody has open, into a new one, and says as JSON what was
// lost.
func Salvage(from, to string) ([]byte, error) {
	source, target := C.CString(from), C.CString(to)
	defer C.free(unsafe.Pointer(source))
	defer C.free(unsafe.Pointer(target))
	var out *C.ringdb_value
	err := call(func(err *C.ringdb_error) C.int32_t {
		return C.ringdb_salvage(source, target, nil, 0, &out, err)
	})
	if err != nil {
		return nil, err
	}
	return taken(out), nil
}

// Keyspace returns what another keyspace was at the moment of the snapshot: nil if there was none.
func (s *Snapshot) Keyspace(name string) (*Snapshot, error) {
	p, err := s.p.existing(name)
	return snapshot(p, err)
}

func snapshot(p *place, err error) (*Snapshot, error) {
	if err != nil || p == nil {
		return nil, err
	}
	p.gate = new(sync.RWMutex)
	return &Snapshot{reader{p}}, nil
}

// Close gives the snapshot up. Calls that are under way come to their end first, later ones fail with [Closed].
func (s *Snapshot) Close() {
	p := s.p
	if p == nil || p.gate == nil {
		return
	}
	p.gate.Lock()
	defer p.gate.Unlock()
	if !p.released {
		p.released = true
		p.cleanup.Stop()
		C.ringdb_release(p.ptr)
	}
}
