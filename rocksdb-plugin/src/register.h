// SPDX-License-Identifier: MIT OR Apache-2.0
#pragma once

#include <string>

#include <rocksdb/utilities/object_registry.h>

// Adds to a library of RocksDB's object registry, under "engineswap" and "engineswap://...", the file system, and an
// environment that has it, for what takes only an environment: `env=engineswap://...` in an OPTIONS file. Returns how
// many factories were added: none, with the reason on stderr, to another version of RocksDB than it was built for.
// `arg` is not used. This is the function that engineswap.mk names to RocksDB's build.
extern "C" int register_engineswap(ROCKSDB_NAMESPACE::ObjectLibrary &library, const std::string &arg);
