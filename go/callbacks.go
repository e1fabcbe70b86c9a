// SPDX-License-Identifier: MIT OR Apache-2.0

package ringdb

// #include "bridge.h"
// #include <stdlib.h>
import "C"

import (
	"fmt"
	"runtime/cgo"
	"unsafe"
)

// What follows is called by the library, also on threads of its own. No panic may leave it.

// caught runs f and makes an error of a panic in it.
func caught(f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	return f()
}

//export ringdbGoMerge
func ringdbGoMerge(user C.uintptr_t, partial C.int32_t, key, value, operands *C.ringdb_slice, count C.size_t,
	result *C.ringdb_merge_result) {
	err := caught(func() (err error) {
		parts := make([][]byte, int(count))
		for i, all := 0, unsafe.Slice(operands, int(count)); i < len(all); i++ {
			parts[i] = slice(&all[i])
		}
		var made []byte
		operator := cgo.Handle(user).Value()
		if partial == 1 {
			if made, err = operator.(PartialMerger).PartialMerge(slice(key), parts); err != nil || made == nil {
				return err
			}
		} else {
			var old []byte
			if value != nil {
				old = slice(value)
			}
			if made, err = operator.(MergeOperator).Merge(slice(key), old, parts); err != nil {
				return err
			}
		}
		return call(func(err *C.ringdb_error) C.int32_t {
			return C.ringdb_merge_result_append(result, pointer(made), C.size_t(len(made)), err)
		})
	})
	if err != nil {
		why := C.CString(err.Error())
		defer C.free(unsafe.Pointer(why))
		C.ringdb_merge_result_fail(result, why, nil)
	}
}

//export ringdbGoFilter
func ringdbGoFilter(user C.uintptr_t, level, last C.int32_t, key, value *C.ringdb_slice,
	result *C.ringdb_filter_result) C.int32_t {
	verdict := Keep
	err := caught(func() error {
		filter := cgo.Handle(user).Value().(CompactionFilter)
		v, changed, err := filter(int(level), last == 1, slice(key), slice(value))
		if err != nil || v != Change {
			verdict = v
			return err
		}
		verdict = v
		return call(func(err *C.ringdb_error) C.int32_t {
			return C.ringdb_filter_result_append(result, pointer(changed), C.size_t(len(changed)), err)
		})
	})
	if err != nil {
		why := C.CString(err.Error())
		defer C.free(unsafe.Pointer(why))
		C.ringdb_filter_result_fail(result, why, nil)
		return C.int32_t(Keep)
	}
	return C.int32_t(verdict)
}

//export ringdbGoDrop
func ringdbGoDrop(user C.uintptr_t) { cgo.Handle(user).Delete() }
