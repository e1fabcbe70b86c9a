/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * engineswap as a file system of RocksDB, for programs that use RocksDB's C interface (C, Rust, Go, Python ...).
 * C++ programs can say the same with rocksdb::FileSystem::CreateFromString(options, "engineswap://...", &fs).
 */
#ifndef ENGINESWAP_ROCKSDB_H
#define ENGINESWAP_ROCKSDB_H

#include <rocksdb/c.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Makes an environment whose files go through the engine that `uri` names, for rocksdb_options_set_env:
 * "engineswap://io_uring?depth=64", or without the scheme "io_uring?depth=64"; NULL or "" is "engineswap://auto".
 * Everything else (threads, time, locks) is the default environment's.
 *
 * On failure returns NULL and puts a message into *errptr, as RocksDB's own functions do: *errptr must be NULL or
 * memory of malloc before; give the message to rocksdb_free. The environment must outlive the databases that use it;
 * then give it to rocksdb_env_destroy. */
rocksdb_env_t *engineswap_rocksdb_create_env(const char *uri, char **errptr);

#ifdef __cplusplus
}
#endif

#endif
