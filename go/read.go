// SPDX-License-Identifier: MIT OR Apache-2.0

package ringdb

// #include "bridge.h"
import "C"

import (
	"math"
	"unsafe"
)

// A reader is what all handles can do.
type reader struct{ p *place }

// pointer is where the bytes of a slice lie, for the time of one call into C.
func pointer(b []byte) unsafe.Pointer { return unsafe.Pointer(unsafe.SliceData(b)) }

// slice copies bytes of C's; never nil. Where there are none, their address may be anything, which Go must not hold as a
// pointer.
func slice(s *C.ringdb_slice) []byte {
	if s.len == 0 {
		return []byte{}
	}
	return copied(s.data, s.len)
}

func copied(data unsafe.Pointer, n C.size_t) []byte {
	b := make([]byte, int(n))
	copy(b, unsafe.Slice((*byte)(data), int(n)))
	return b
}

// taken copies a value and frees it. NULL is nil.
func taken(value *C.ringdb_value) []byte {
	if value == nil {
		return nil
	}
	defer C.ringdb_value_free(value)
	n := C.ringdb_value_len(value)
	if n == 0 {
		return []byte{}
	}
	return copied(C.ringdb_value_data(value), n)
}

// takenAll copies many values, nil for those that are absent, and frees them.
func takenAll(values *C.ringdb_values) [][]byte {
	defer C.ringdb_values_free(values)
	all := make([][]byte, int(C.ringdb_values_count(values)))
	if len(all) == 0 {
		return all
	}
	places := make([]C.ringdb_slice, len(all))
	C.ringdb_go_values(values, &places[0], C.size_t(len(places)))
	for i := range places {
		if places[i].len != math.MaxUint {
			all[i] = slice(&places[i])
		}
	}
	return all
}

// flat is many keys for C: their bytes in a row, and their lengths.
func flat(keys [][]byte) ([]byte, []C.size_t) {
	n := 0
	for _, key := range keys {
		n += len(key)
	}
	bytes, lens := make([]byte, 0, n), make([]C.size_t, len(keys))
	for i, key := range keys {
		bytes = append(bytes, key...)
		lens[i] = C.size_t(len(key))
	}
	return bytes, lens
}

// Get returns the value of a key, or nil if there is none. An empty value is not nil.
func (r reader) Get(key []byte) ([]byte, error) {
	db, err := r.p.enter()
	if err != nil {
		return nil, err
	}
	defer r.p.leave()
	s := scratches.Get().(*scratch)
	defer scratches.Put(s)
	// Nearly all values fit; for a larger one the call says how large, unless it has grown again meanwhile.
	for data := s.data[:]; ; data = make([]byte, int(s.len)) {
		code := C.ringdb_go_get_into(db, pointer(key), C.size_t(len(key)), pointer(data), C.size_t(len(data)), &s.len, &s.err)
		switch {
		case code == 0:
			return nil, nil
		case code == 1 && len(data) == len(s.data):
			return append(make([]byte, 0, int(s.len)), data[:s.len]...), nil
		case code == 1:
			return data[:s.len:s.len], nil
		case code != C.RINGDB_BUFFER_TOO_SMALL:
			return nil, failure(code, &s.err)
		}
	}
}

// Has says whether a key is there.
func (r reader) Has(key []byte) (bool, error) {
	found := C.int32_t(0)
	err := r.p.do(func(db *C.ringdb_db, err *C.ringdb_error) C.int32_t {
		var n C.size_t
		found = C.ringdb_go_get_into(db, pointer(key), C.size_t(len(key)), nil, 0, &n, err)
		if found == C.RINGDB_BUFFER_TOO_SMALL {
			found = 1
		}
		return found
	})
	return found == 1, err
}

// MultiGet returns the values of many keys, in their order, nil for those that are absent, all as of one moment.
// Everything that has to be read is in flight together.
func (r reader) MultiGet(keys [][]byte) ([][]byte, error) {
	bytes, lens := flat(keys)
	var out *C.ringdb_values
	err := r.p.do(func(db *C.ringdb_db, err *C.ringdb_error) C.int32_t {
		return C.ringdb_go_multi_get(db, pointer(bytes), unsafe.SliceData(lens), C.size_t(len(lens)), &out, err)
	})
	if err != nil {
		return nil, err
	}
	return takenAll(out), nil
}

// Snapshot returns the keyspace as it is now; of a snapshot, the same moment again.
func (r reader) Snapshot() (*Snapshot, error) {
	return snapshot(r.p.child(func(db *C.ringdb_db, out **C.ringdb_db, err *C.ringdb_error) C.int32_t {
		return C.ringdb_snapshot(db, out, err)
	}))
}

// Name returns the name of the keyspace.
func (r reader) Name() (string, error) {
	name, err := r.p.text(func(db *C.ringdb_db, out **C.ringdb_value, err *C.ringdb_error) C.int32_t {
		return C.ringdb_keyspace_name(db, out, err)
	})
	return string(name), err
}

// Settings returns the settings in force for the keyspace as JSON.
func (r reader) Settings() ([]byte, error) {
	return r.p.text(func(db *C.ringdb_db, out **C.ringdb_value, err *C.ringdb_error) C.int32_t {
		return C.ringdb_keyspace_settings(db, out, err)
	})
}

// ExportRange writes the pairs of a range as sorted tables into a new or empty directory, for ImportTables, here or
// elsewhere, and returns counts as JSON. It takes no Reverse.
func (r reader) ExportRange(span Range, path string) ([]byte, error) {
	b, err := span.forward()
	if err != nil {
		return nil, err
	}
	var out *C.ringdb_value
	err = r.p.named(path, func(db *C.ringdb_db, path *C.char, err *C.ringdb_error) C.int32_t {
		return C.ringdb_go_export(db, pointer(b.from), pointer(b.to), &b.c, path, &out, err)
	})
	if err != nil {
		return nil, err
	}
	return taken(out), nil
}
