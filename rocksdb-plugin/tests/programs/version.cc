// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Goes every way into the plugin that it is linked with, and prints what came of each: the registry, the function that
// RocksDB's build calls, and the C interface. The way in at load has been gone before main.
#include <cstdio>
#include <memory>
#include <string>

#include <rocksdb/c.h>
#include <rocksdb/convenience.h>
#include <rocksdb/file_system.h>
#include <rocksdb/utilities/object_registry.h>

extern "C" int register_engineswap(rocksdb::ObjectLibrary &library, const std::string &arg);
extern "C" rocksdb_env_t *engineswap_rocksdb_create_env(const char *uri, char **errptr);

using namespace rocksdb;

int main() {
    std::shared_ptr<FileSystem> fs;
    Status s = FileSystem::CreateFromString(ConfigOptions(), "engineswap://posix", &fs);
    printf("load: %s\n", s.ok() && fs ? fs->Name() : "nothing");
    printf("register: %d\n", register_engineswap(*std::make_shared<ObjectLibrary>("other"), ""));
    char *error = nullptr;
    rocksdb_env_t *env = engineswap_rocksdb_create_env("posix", &error);
    printf("c: %s\n", env ? "an environment" : error);
    if (env)
        rocksdb_env_destroy(env);
    if (error)
        rocksdb_free(error);
    return 0;
}
