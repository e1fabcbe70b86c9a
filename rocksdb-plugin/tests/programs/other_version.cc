// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Loaded before a program: its RocksDB says that it is the version that OTHER_ROCKSDB names (MAJOR.MINOR.PATCH).
#include <cstdlib>
#include <string>

namespace rocksdb {

__attribute__((visibility("default"))) std::string GetRocksVersionAsString(bool with_patch) {
    const std::string other = getenv("OTHER_ROCKSDB");
    return with_patch ? other : other.substr(0, other.rfind('.'));
}

} // namespace rocksdb
