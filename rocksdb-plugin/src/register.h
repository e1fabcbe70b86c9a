// SPDX-License-Identifier: MIT OR Apache-2.0
#pragma once

#include <string>

#include <rocksdb/utilities/object_registry.h>

// Adds the file system to a library of RocksDB's object registry, under "engineswap" and "engineswap://...". Returns
// how many factories were added. `arg` is not used. This is the function that engineswap.mk names to RocksDB's build.
extern "C" int register_engineswap(ROCKSDB_NAMESPACE::ObjectLibrary &library, const std::string &arg);
