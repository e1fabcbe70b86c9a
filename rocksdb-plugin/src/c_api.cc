// SPDX-License-Identifier: MIT OR Apache-2.0
//
// The file system for programs that use RocksDB's C interface.

#include "../include/engineswap_rocksdb.h"

#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>

#include <rocksdb/env.h>

#include "file_system.h"
#include "version.h"

// As in RocksDB's db/c.cc, the same in every version so far: rocksdb_env_destroy deletes `rep`, then the struct.
struct rocksdb_env_t {
    ROCKSDB_NAMESPACE::Env *rep;
    bool is_default;
};

extern "C" rocksdb_env_t *engineswap_rocksdb_create_env(const char *uri, char **errptr) {
    const auto refuse = [errptr](const std::string &why) {
        if (errptr != nullptr) {
            free(*errptr);
            *errptr = strdup(why.c_str());
        }
        return nullptr;
    };
    const std::string wrong = engineswap::WrongVersion();
    if (!wrong.empty())
        return refuse(wrong);
    std::unique_ptr<engineswap::rdb::FileSystem> fs;
    const engineswap::rdb::IOStatus s = engineswap::FileSystem::Create(uri ? uri : "", &fs);
    if (!s.ok())
        return refuse(s.ToString());
    std::unique_ptr<engineswap::rdb::Env> env = engineswap::rdb::NewCompositeEnv(std::move(fs));
    return new rocksdb_env_t{env.release(), false};
}
