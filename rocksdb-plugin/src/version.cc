// SPDX-License-Identifier: MIT OR Apache-2.0

#include "version.h"

#include <cstdio>

namespace engineswap {

std::string WrongVersion() {
    const std::string found = rdb::GetRocksVersionAsString(true);
    const std::string built =
        std::to_string(ROCKSDB_MAJOR) + "." + std::to_string(ROCKSDB_MINOR) + "." + std::to_string(ROCKSDB_PATCH);
    if (found == built)
        return "";
    return "engineswap: built for RocksDB " + built + ", but this program has RocksDB " + found +
           ": engineswap:// is not available (build the plugin against its headers: make plugin ROCKSDB_DIR=...)";
}

bool SaysWrongVersion() {
    const std::string wrong = WrongVersion();
    if (!wrong.empty())
        fprintf(stderr, "%s\n", wrong.c_str());
    return !wrong.empty();
}

} // namespace engineswap
