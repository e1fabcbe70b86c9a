// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Errors of engineswap and of plain system calls as RocksDB's. Codes, subcodes and flags are those that RocksDB's own
// POSIX file system gives, because RocksDB decides by them whether it recovers by itself, waits for space, or stops.
#pragma once

#include <string>

#include <engineswap.h>
#include <rocksdb/io_status.h>

#include "version.h"

namespace engineswap {

// The status of a failed call on a file or directory, with its message (operation, path, offset, length, cause). What
// the kernel refused is an IOError even if it said that it has no such thing: RocksDB takes NotSupported from a sync
// for a file system that needs none.
rdb::IOStatus StatusOf(const engineswap_error &err);

// The status of an engine that was not opened: InvalidArgument for a wrong URI, NotSupported for one that is not to be
// had here.
rdb::IOStatus StatusOfEngine(const engineswap_error &err);

// The status of one operation of a batch, which comes with codes only. `what` says operation and place.
rdb::IOStatus StatusOf(const engineswap_completion &done, const std::string &what);

// The status of a failed system call.
rdb::IOStatus StatusOfErrno(int err, const std::string &what);

} // namespace engineswap
