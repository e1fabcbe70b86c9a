// SPDX-License-Identifier: MIT OR Apache-2.0

package ringdb

// #include "bridge.h"
// #include <stdlib.h>
import "C"

import (
	"fmt"
	"runtime/cgo"
	"time"
	"unsafe"
)

// An Option of [Open]. Later ones hold over earlier ones. What none says stays as the store remembers it, or is the default.
type Option func(*opening) error

// opening is what options write to.
type opening struct {
	options  *C.ringdb_options
	readOnly bool
}

func (o *opening) set(f func(*C.ringdb_options, *C.ringdb_error) C.int32_t) error {
	return call(func(err *C.ringdb_error) C.int32_t { return f(o.options, err) })
}

// Settings are options as TOML text by the names of the fields of Rust's Options, sizes and times also with units:
// "cache_bytes = '64 MiB'\ntime_to_live = '1 h'". All options that have no function here can be given so.
func Settings(toml string) Option {
	return func(o *opening) error {
		text := C.CString(toml)
		defer C.free(unsafe.Pointer(text))
		return o.set(func(p *C.ringdb_options, err *C.ringdb_error) C.int32_t {
			return C.ringdb_options_parse(p, text, err)
		})
	}
}

// SettingsFile is the same from a file.
func SettingsFile(path string) Option {
	return func(o *opening) error {
		text := C.CString(path)
		defer C.free(unsafe.Pointer(text))
		return o.set(func(p *C.ringdb_options, err *C.ringdb_error) C.int32_t {
			return C.ringdb_options_load(p, text, err)
		})
	}
}

// Engine is the I/O engine: "auto" (the default), "posix", "libaio", "io_uring", with options as in "io_uring?depth=128".
func Engine(uri string) Option { return Settings(fmt.Sprintf("io = %q", uri)) }

// CacheBytes is the budget for all that the store keeps in memory, in bytes: 256 MiB.
func CacheBytes(n uint64) Option {
	return func(o *opening) error {
		return o.set(func(p *C.ringdb_options, err *C.ringdb_error) C.int32_t {
			return C.ringdb_options_set_cache_bytes(p, C.uint64_t(n), err)
		})
	}
}

// Writes says how durable writes are that do not say it themselves, and how the log is written: [Process].
func Writes(d Durability) Option {
	return func(o *opening) error {
		return o.set(func(p *C.ringdb_options, err *C.ringdb_error) C.int32_t {
			return C.ringdb_options_set_durability(p, C.int32_t(d), err)
		})
	}
}

// TimeToLive is that of every put which does not say another one, into keyspaces that have none of their own: whole
// milliseconds; 0: for ever.
func TimeToLive(ttl time.Duration) Option {
	return Settings(fmt.Sprintf("time_to_live = '%d ms'", ttl.Milliseconds()))
}

// MustExist has [Open] fail with [NoStore] where there is no store.
func MustExist() Option {
	return func(o *opening) error {
		return o.set(func(p *C.ringdb_options, err *C.ringdb_error) C.int32_t {
			return C.ringdb_options_set_create_if_missing(p, 0, err)
		})
	}
}

// ForReading opens the store for reading only, beside a process that writes: the store as of now.
func ForReading() Option {
	return func(o *opening) error {
		o.readOnly = true
		return nil
	}
}

// EncryptionKeys encrypts what is written, with the key of the largest number, and reads what is encrypted with any of them.
func EncryptionKeys(keys map[uint32][C.RINGDB_ENCRYPTION_KEY_BYTES]byte) Option {
	return func(o *opening) error {
		if len(keys) == 0 {
			return invalid("no encryption key is given")
		}
		var numbers []C.uint32_t
		var bytes []byte
		for number, key := range keys {
			numbers = append(numbers, C.uint32_t(number))
			// Grown here, not by append: no copy of a key is left behind.
			if bytes == nil {
				bytes = make([]byte, 0, len(keys)*len(key))
			}
			bytes = append(bytes, key[:]...)
		}
		defer clear(bytes[:cap(bytes)])
		return o.set(func(p *C.ringdb_options, err *C.ringdb_error) C.int32_t {
			return C.ringdb_options_set_encryption_keys(p, unsafe.SliceData(numbers), pointer(bytes),
				C.size_t(len(numbers)), err)
		})
	}
}

// A MergeOperator makes one value of what a key has and the operands that were merged into it. It is called from any
// goroutine and from threads of the store, several at a time. What it makes must depend on its arguments only, and it
// must not call the store. An error or a panic is the error of the read that needs the value; nothing is lost.
type MergeOperator interface {
	// Merge makes a value of value (nil: there is none) and then the operands, at least one, oldest first.
	Merge(key, value []byte, operands [][]byte) ([]byte, error)
}

// A PartialMerger is a [MergeOperator] that can make one operand of at least two, which does the same as all of them. It
// has to be associative, and keeps operands few. A nil operand says that it knows none.
type PartialMerger interface {
	MergeOperator
	PartialMerge(key []byte, operands [][]byte) ([]byte, error)
}

// WithMergeOperator registers an operator, for keyspaces with the setting "merge_operator = 'NAME'". It is needed at each
// open; one name must never come to mean another operator.
func WithMergeOperator(name string, operator MergeOperator) Option {
	return func(o *opening) error {
		if operator == nil {
			return invalid("the merge operator is nil")
		}
		var partial C.int32_t
		if _, can := operator.(PartialMerger); can {
			partial = 1
		}
		return o.register(name, operator, func(name *C.char, h C.uintptr_t, err *C.ringdb_error) C.int32_t {
			return C.ringdb_go_register_operator(o.options, name, h, partial, err)
		})
	}
}

// register gives a Go value to the options, until they and all stores that were opened with them have gone.
func (o *opening) register(name string, value any, f func(*C.char, C.uintptr_t, *C.ringdb_error) C.int32_t) error {
	text := C.CString(name)
	defer C.free(unsafe.Pointer(text))
	handle := cgo.NewHandle(value)
	err := call(func(err *C.ringdb_error) C.int32_t { return f(text, C.uintptr_t(handle), err) })
	if err != nil {
		handle.Delete()
	}
	return err
}

// A Verdict is what a [CompactionFilter] decides on an entry.
type Verdict int32

// The verdicts.
const (
	Keep   Verdict = C.RINGDB_FILTER_KEEP   // the entry stays as it is
	Remove Verdict = C.RINGDB_FILTER_REMOVE // it goes; nothing older of the key comes back
	Change Verdict = C.RINGDB_FILTER_CHANGE // it has the value that the filter returned
)

// A CompactionFilter decides which entries stay when they are compacted, and with which value. level is where the
// compaction writes, and last says that this is the last one. It is called from threads of the store, several at a time, and
// must not call the store. After an error or a panic the entries that it has not decided on stay.
type CompactionFilter func(level int, last bool, key, value []byte) (Verdict, []byte, error)

// WithCompactionFilter registers a filter, for keyspaces with the setting "compaction_filter = 'NAME'". In an open without
// it all entries stay.
func WithCompactionFilter(name string, filter CompactionFilter) Option {
	return func(o *opening) error {
		if filter == nil {
			return invalid("the compaction filter is nil")
		}
		return o.register(name, filter, func(name *C.char, h C.uintptr_t, err *C.ringdb_error) C.int32_t {
			return C.ringdb_go_register_filter(o.options, name, h, err)
		})
	}
}

// Open opens the store in a directory, which is made if it is missing.
func Open(path string, options ...Option) (*DB, error) {
	o := opening{options: C.ringdb_options_new()}
	defer C.ringdb_options_free(o.options)
	for _, option := range options {
		if err := option(&o); err != nil {
			return nil, err
		}
	}
	text := C.CString(path)
	defer C.free(unsafe.Pointer(text))
	p, err := newPlace(func(out **C.ringdb_db, err *C.ringdb_error) C.int32_t {
		if o.readOnly {
			return C.ringdb_open_read_only(text, o.options, out, err)
		}
		return C.ringdb_open(text, o.options, out, err)
	})
	if err != nil {
		return nil, err
	}
	return &DB{writer{reader{p}}}, nil
}
