// SPDX-License-Identifier: MIT OR Apache-2.0
//
// What happens when the shared object is loaded, by LD_PRELOAD, as a dependency or by dlopen: it registers the file
// system with the RocksDB of the process, if there is one of the version that it was built for.
//
// LD_PRELOAD also applies to every shell and child. Where there is no RocksDB all of its symbols are null (the build
// makes them weak), and this does nothing. Another version of RocksDB has other virtual tables; there it says so once
// and does nothing, so that the program runs as if it had not been loaded.

#include <cstdio>
#include <string>

#include "register.h"
#include "version.h"

namespace ROCKSDB_NAMESPACE {
std::string GetRocksVersionAsString(bool with_patch) __attribute__((weak));
} // namespace ROCKSDB_NAMESPACE

namespace {

__attribute__((constructor)) void OnLoad() {
    // Where this one is, all are.
    if (&engineswap::rdb::GetRocksVersionAsString == nullptr)
        return;
    const std::string found = engineswap::rdb::GetRocksVersionAsString(false);
    const std::string built = std::to_string(ROCKSDB_MAJOR) + "." + std::to_string(ROCKSDB_MINOR);
    if (found != built) {
        fprintf(stderr,
                "engineswap: built for RocksDB %s, but this program has RocksDB %s: engineswap:// is not available "
                "(build the plugin against its headers: make plugin ROCKSDB_DIR=...)\n",
                built.c_str(), found.c_str());
        return;
    }
    register_engineswap(*engineswap::rdb::ObjectLibrary::Default(), "");
}

} // namespace
