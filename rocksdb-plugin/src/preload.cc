// SPDX-License-Identifier: MIT OR Apache-2.0
//
// What happens when the shared object is loaded, by LD_PRELOAD, as a dependency or by dlopen: it registers the file
// system with the RocksDB of the process, if there is one of the version that it was built for.
//
// LD_PRELOAD also applies to every shell and child. Where there is no RocksDB all of its symbols are null (the build
// makes them weak), and this does nothing. Another version of RocksDB has other virtual tables; there it says so once
// and does nothing, so that the program runs as if it had not been loaded.

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
    // Before anything else of RocksDB's, its registry included.
    if (engineswap::SaysWrongVersion())
        return;
    register_engineswap(*engineswap::rdb::ObjectLibrary::Default(), "");
}

} // namespace
