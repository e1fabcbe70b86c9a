// SPDX-License-Identifier: MIT OR Apache-2.0
//
// What differs between the versions of RocksDB that this plugin is built against. Everything else of the source is the
// same for all of them.
#pragma once

#include <string>

#include <rocksdb/file_system.h>
#include <rocksdb/version.h>

#define ENGINESWAP_ROCKSDB_AT_LEAST(major, minor)                                                                      \
    (ROCKSDB_MAJOR > (major) || (ROCKSDB_MAJOR == (major) && ROCKSDB_MINOR >= (minor)))

// FileSystem::SupportedOps; before it, every file system is taken to read asynchronously.
#define ENGINESWAP_HAS_SUPPORTED_OPS ENGINESWAP_ROCKSDB_AT_LEAST(8, 4)
// FSSupportedOps::kFSPrefetch; before it, Prefetch is always tried.
#define ENGINESWAP_HAS_FS_PREFETCH ENGINESWAP_ROCKSDB_AT_LEAST(10, 8)
// Before 7.10 RocksDB's own reading ahead by asynchronous reads is not sound: scans with async_io fail assertions, or
// read and free wrong memory (its history names the mends, in 7.9 and 7.10).
#define ENGINESWAP_ASYNC_SCANS_ARE_SOUND ENGINESWAP_ROCKSDB_AT_LEAST(7, 10)

namespace engineswap {

namespace rdb = ROCKSDB_NAMESPACE;

// Empty if the RocksDB of this process is the one whose headers this was built with, to the patch; else why nothing of
// RocksDB's may be called: virtual tables and structs differ between versions, and a patch release may change them too.
// Every way in asks before it touches anything else of RocksDB's.
std::string WrongVersion();
// Whether it is another one; then it has said so on stderr.
bool SaysWrongVersion();

// The callback of ReadAsync takes a const request in old versions and a plain one in new ones. Whichever it is:
template <typename Function>
struct ReadAsyncSignature;
template <typename Callback>
struct ReadAsyncSignature<rdb::IOStatus (rdb::FSRandomAccessFile::*)(rdb::FSReadRequest &, const rdb::IOOptions &,
                                                                     Callback, void *, void **, rdb::IOHandleDeleter *,
                                                                     rdb::IODebugContext *)> {
    using Type = Callback;
};
using ReadAsyncCallback = ReadAsyncSignature<decltype(&rdb::FSRandomAccessFile::ReadAsync)>::Type;

} // namespace engineswap
