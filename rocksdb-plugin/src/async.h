// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Asynchronous reads, as RocksDB's iterators and scans use them to read ahead.
//
// A read is in flight when StartRead returns. Its callback runs once, in the PollReads or AbortReads that names its
// handle, on the thread that calls it, which may be another than the one that started the read. RocksDB owns the handle
// from then on and gives it to the deleter. If nothing can be in flight now (no queue, no room, a child after fork),
// the read is done at once and its callback still runs in PollReads.
//
// With versions of RocksDB whose scans are not sound with them (version.h), asynchronous reads are NotSupported, as
// those versions' own file system says without liburing, and RocksDB reads synchronously. The environment variable
// ENGINESWAP_ROCKSDB_ASYNC=1 allows them all the same.
#pragma once

#include <memory>
#include <vector>

#include "engine.h"
#include "version.h"

namespace engineswap {

bool AsyncReadsAreAllowed();

rdb::IOStatus StartRead(const std::shared_ptr<File> &file, const rdb::FSReadRequest &req, ReadAsyncCallback callback,
                        void *arg, void **handle, rdb::IOHandleDeleter *deleter);

// Waits for all of them and runs their callbacks. A handle that has had its callback is passed over.
rdb::IOStatus PollReads(const std::vector<void *> &handles);

// Takes all of them back and waits until the kernel has let go of their memory. Their callbacks get Aborted.
rdb::IOStatus AbortReads(const std::vector<void *> &handles);

} // namespace engineswap
