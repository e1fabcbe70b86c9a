// SPDX-License-Identifier: MIT OR Apache-2.0

package ringdb

// #include "bridge.h"
import "C"

import (
	"io/fs"
	"sync"
	"syscall"
)

// A Code says what happened. It is an error of its own, for [errors.Is].
type Code int32

// The codes of the C interface.
const (
	NotFound         Code = C.RINGDB_NOT_FOUND         // a path does not exist; also fs.ErrNotExist
	AlreadyExists    Code = C.RINGDB_ALREADY_EXISTS    // a path exists already, or a directory is not empty; also fs.ErrExist
	PermissionDenied Code = C.RINGDB_PERMISSION_DENIED // or a read-only file system; also fs.ErrPermission
	NoSpace          Code = C.RINGDB_NO_SPACE          // no space, quota or file size left
	Exhausted        Code = C.RINGDB_EXHAUSTED         // no descriptors, buffers or memory for now
	UnexpectedEOF    Code = C.RINGDB_UNEXPECTED_EOF    // a file ended too early
	Unsupported      Code = C.RINGDB_UNSUPPORTED       // the engine or an option of it cannot be had here
	InvalidArgument  Code = C.RINGDB_INVALID_ARGUMENT  // the message says what is valid
	Canceled         Code = C.RINGDB_CANCELED          // not done because an operation before it failed
	SyncFailed       Code = C.RINGDB_SYNC_FAILED       // the state on disk is unknown
	IO               Code = C.RINGDB_IO                // anything else that the kernel reports
	WouldBlock       Code = C.RINGDB_WOULD_BLOCK       // as many requests are open as there may be
	Busy             Code = C.RINGDB_BUSY              // another goroutine is in a call with this batch
	Internal         Code = C.RINGDB_INTERNAL          // a defect of the library
	TimedOut         Code = C.RINGDB_TIMED_OUT         // a deadline has passed; a write may have happened
	Corrupt          Code = C.RINGDB_CORRUPT           // bytes on disk are not what was written
	Stopped          Code = C.RINGDB_STOPPED           // the store has stopped writing after a failure; reads go on
	Locked           Code = C.RINGDB_LOCKED            // another process has the store open, or this one has already
	NoStore          Code = C.RINGDB_NO_STORE          // there is no store, and none was to be made
	NewerFormat      Code = C.RINGDB_NEWER_FORMAT      // the store needs a newer version of the library
	ReadOnly         Code = C.RINGDB_READ_ONLY         // the store was opened for reading
	KeyspaceDropped  Code = C.RINGDB_KEYSPACE_DROPPED  // the keyspace of this handle was dropped
	Closed           Code = C.RINGDB_CLOSED            // the store, the snapshot or the transaction has ended; also fs.ErrClosed
	Conflict         Code = C.RINGDB_CONFLICT          // what a transaction has read was written meanwhile: run it again
	KeyLocked        Code = C.RINGDB_KEY_LOCKED        // another transaction has locked the key: run this one again
	EncryptionKey    Code = C.RINGDB_ENCRYPTION_KEY    // a file is encrypted with a key that was not given, or another one
)

// Error is the name of the code, for example "not found".
func (c Code) Error() string { return "ringdb: " + C.GoString(C.ringdb_code_name(C.int32_t(c))) }

// Kind says what to do about it.
func (c Code) Kind() Kind { return Kind(C.ringdb_code_kind(C.int32_t(c))) }

// A Kind says what to do about an error. It is an error of its own, for [errors.Is].
type Kind int32

// The kinds of the C interface.
const (
	Retry    Kind = C.RINGDB_KIND_RETRY       // passing trouble: mend the cause (space, a lock) and call again
	Stop     Kind = C.RINGDB_KIND_STOP        // the store has stopped: reopen it when the cause is mended
	Repair   Kind = C.RINGDB_KIND_REPAIR      // bytes on disk are wrong: see Verify and Salvage
	Full     Kind = C.RINGDB_KIND_WOULD_BLOCK // there is no room now: take what is there, then call again
	Deadline Kind = C.RINGDB_KIND_TIMED_OUT   // a deadline has passed
	FixCall  Kind = C.RINGDB_KIND_FIX_CALL    // the call is wrong: an argument, a path, an option
)

var kinds = map[Kind]string{
	Retry: "retry", Stop: "stop", Repair: "repair", Full: "would block", Deadline: "timed out", FixCall: "fix call",
}

func (k Kind) Error() string {
	if name, there := kinds[k]; there {
		return "ringdb: " + name
	}
	return "ringdb: unknown"
}

// An Error of the library.
type Error struct {
	Code    Code
	Kind    Kind
	Errno   syscall.Errno // the kernel's, 0 if there was none
	Message string
}

func (e *Error) Error() string { return "ringdb: " + e.Message }

// Is knows an error's [Code] and [Kind], and the errors of [io/fs] that mean the same.
func (e *Error) Is(target error) bool {
	switch target {
	case error(e.Code), error(e.Kind):
		return true
	case fs.ErrNotExist:
		return e.Code == NotFound || e.Code == NoStore
	case fs.ErrExist:
		return e.Code == AlreadyExists
	case fs.ErrPermission:
		return e.Code == PermissionDenied
	case fs.ErrClosed:
		return e.Code == Closed
	}
	return false
}

// Unwrap is the kernel's error, if there was one.
func (e *Error) Unwrap() error {
	if e.Errno == 0 {
		return nil
	}
	return e.Errno
}

// failure is nil for what is no failure.
func failure(code C.int32_t, err *C.ringdb_error) error {
	if code >= 0 {
		return nil
	}
	return &Error{Code(err.code), Kind(err.kind), syscall.Errno(err.os_errno), C.GoString(&err.message[0])}
}

func invalid(message string) error {
	return &Error{Code: InvalidArgument, Kind: FixCall, Message: message}
}

func ended(what string) error {
	return &Error{Code: Closed, Kind: Closed.Kind(), Message: what + " has ended"}
}

// scratch is what a call into C writes to. It has no pointers, and goes from call to call.
type scratch struct {
	err  C.ringdb_error
	len  C.size_t
	data [4096]byte
}

var scratches = sync.Pool{New: func() any { return new(scratch) }}

// call runs f with a place for its error.
func call(f func(err *C.ringdb_error) C.int32_t) error {
	s := scratches.Get().(*scratch)
	err := failure(f(&s.err), &s.err)
	scratches.Put(s)
	return err
}
