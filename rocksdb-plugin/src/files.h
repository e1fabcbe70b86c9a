// SPDX-License-Identifier: MIT OR Apache-2.0
//
// The file objects that RocksDB gets. Each has a source file of its own, which says what it guarantees.
#pragma once

#include <memory>
#include <string>

#include "engine.h"
#include "version.h"

namespace engineswap {

// sequential.cc
std::unique_ptr<rdb::FSSequentialFile> MakeSequentialFile(std::unique_ptr<File> file, Purpose purpose);

// random_access.cc
std::unique_ptr<rdb::FSRandomAccessFile> MakeRandomAccessFile(std::unique_ptr<File> file);

// writable.cc: `size` is where appends begin. Nobody looks into a file of `sealed` kind before it is synced and closed.
std::unique_ptr<rdb::FSWritableFile> MakeWritableFile(std::unique_ptr<File> file, const rdb::FileOptions &options,
                                                      uint64_t size, bool sealed, Purpose purpose);

// random_rw.cc
std::unique_ptr<rdb::FSRandomRWFile> MakeRandomRWFile(std::unique_ptr<File> file);

// directory.cc
rdb::IOStatus MakeDirectory(const std::shared_ptr<Engine> &engine, const std::string &path,
                            std::unique_ptr<rdb::FSDirectory> *out);

} // namespace engineswap
