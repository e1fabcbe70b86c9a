/* What the test programs share. */
#ifndef CHECK_H
#define CHECK_H
#include <ringdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static ringdb_error e;

#define CHECK(condition)                                                                                               \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "%s:%d: %s is not so; last error: %s\n", __FILE__, __LINE__, #condition, e.message);       \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

#define OK(call) CHECK((call) == RINGDB_OK && e.code == RINGDB_OK && e.kind == RINGDB_KIND_NONE && e.message[0] == 0)
/* A call that fails with this code, and says so. */
#define FAILS(wanted, call) CHECK((call) == (wanted) && e.code == (wanted) && e.kind != 0 && e.message[0] != 0)
#define INVALID(call) FAILS(RINGDB_INVALID_ARGUMENT, call)

/* A small store, past the page cache: so that there is something to wait for. */
static ringdb_options *small(const char *uri) {
    ringdb_options *options = ringdb_options_new();
    CHECK(options != NULL);
    OK(ringdb_options_set_io(options, uri, &e));
    OK(ringdb_options_set_cache_bytes(options, 2u << 20, &e));
    OK(ringdb_options_set_memtable_bytes(options, 256u << 10, &e));
    OK(ringdb_options_set_direct_reads(options, 1, &e));
    return options;
}

/* Opens the store `name` in `dir` on an engine; ends the program if the engine is not to be had here. */
static ringdb_db *open_store(const char *uri, const char *dir, const char *name) {
    char path[600];
    ringdb_db *db = NULL;
    ringdb_options *options = small(uri);
    snprintf(path, sizeof path, "%s/%s", dir, name);
    if (ringdb_open(path, options, &db, &e) == RINGDB_UNSUPPORTED) {
        printf("skipped: %s\n", e.message);
        exit(0);
    }
    CHECK(db != NULL && e.code == RINGDB_OK);
    ringdb_options_free(options);
    return db;
}

#endif
