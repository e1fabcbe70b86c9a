/* What the test programs share. */
#ifndef CHECK_H
#define CHECK_H
#include <leveldb/c.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char *err;

#define CHECK(condition)                                                                                               \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "%s:%d: %s is not so; last error: %s\n", __FILE__, __LINE__, #condition, err ? err : "");  \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

/* The last call has failed, and says so with these words. */
#define FAILED(words)                                                                                                  \
    do {                                                                                                               \
        CHECK(err != NULL && strstr(err, words) != NULL);                                                              \
        leveldb_free(err);                                                                                             \
        err = NULL;                                                                                                    \
    } while (0)

#endif
