/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * RocksDB's C interface with an environment whose files go through engineswap:
 *   cc store.c -I.. -lrocksdb -L... -l:libengineswap_rocksdb.so -o store && ./store 'io_uring?depth=64' /path/to/db */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <engineswap_rocksdb.h>
#include <rocksdb/c.h>

static void check(const char *what, char *err) {
    if (err != NULL) {
        fprintf(stderr, "%s: %s\n", what, err);
        exit(1);
    }
}

int main(int argc, char **argv) {
    if (argc != 3) {
        fprintf(stderr, "usage: %s URI PATH\n", argv[0]);
        return 2;
    }
    char *err = NULL;
    rocksdb_env_t *env = engineswap_rocksdb_create_env(argv[1], &err);
    check("environment", err);
    rocksdb_options_t *options = rocksdb_options_create();
    rocksdb_options_set_create_if_missing(options, 1);
    rocksdb_options_set_use_direct_reads(options, 1);
    rocksdb_options_set_use_direct_io_for_flush_and_compaction(options, 1);
    rocksdb_options_set_env(options, env);
    rocksdb_t *db = rocksdb_open(options, argv[2], &err);
    check("open", err);

    char key[32], value[32];
    rocksdb_writeoptions_t *write = rocksdb_writeoptions_create();
    for (int i = 0; i < 1000; i++) {
        int n = snprintf(key, sizeof key, "key%06d", i);
        int m = snprintf(value, sizeof value, "value of %d", i);
        rocksdb_put(db, write, key, (size_t)n, value, (size_t)m, &err);
        check("put", err);
    }
    rocksdb_flushoptions_t *flush = rocksdb_flushoptions_create();
    rocksdb_flush(db, flush, &err);
    check("flush", err);

    rocksdb_readoptions_t *read = rocksdb_readoptions_create();
    int found = 0;
    for (int i = 0; i < 1000; i++) {
        int n = snprintf(key, sizeof key, "key%06d", i);
        int m = snprintf(value, sizeof value, "value of %d", i);
        size_t len = 0;
        char *got = rocksdb_get(db, read, key, (size_t)n, &len, &err);
        check("get", err);
        found += got != NULL && len == (size_t)m && memcmp(got, value, len) == 0;
        rocksdb_free(got);
    }
    printf("%d of 1000 found through %s\n", found, argv[1]);

    rocksdb_readoptions_destroy(read);
    rocksdb_flushoptions_destroy(flush);
    rocksdb_writeoptions_destroy(write);
    rocksdb_close(db);
    rocksdb_options_destroy(options);
    rocksdb_env_destroy(env);
    return found == 1000 ? 0 : 1;
}
