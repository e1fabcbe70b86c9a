/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * What Go cannot do itself, or only with several calls into C. No function keeps a pointer that it was given, and no
 * array of pointers into Go's memory crosses: many keys come as their bytes in a row with their lengths.
 */
#ifndef RINGDB_GO_BRIDGE_H
#define RINGDB_GO_BRIDGE_H

#include <ringdb.h>
#include <stdint.h>

/* A range: the bounds that `flags` has. */
enum { RINGDB_GO_FROM = 1, RINGDB_GO_TO = 2 };

typedef struct ringdb_go_range {
    size_t from_len, to_len;
    uint32_t there;        /* RINGDB_GO_... */
    uint32_t flags;        /* RINGDB_FROM_EXCLUDED, RINGDB_TO_INCLUDED */
    int32_t no_fill_cache; /* 0 or 1 */
} ringdb_go_range;

/* An iterator, the pair that did not fit into the last chunk, and a failure behind the pairs of it. */
typedef struct ringdb_go_iter {
    ringdb_iter *iter;
    ringdb_slice key, value;
    int32_t pending;
    int32_t back;
    ringdb_error failed;
} ringdb_go_iter;

/* Of a transaction, or, if that is NULL, of `db`. Freed by ringdb_go_iter_free. */
int32_t ringdb_go_iter_open(const ringdb_db *db, ringdb_transaction *transaction, const void *from, const void *to,
                            const ringdb_go_range *range, int32_t back, ringdb_go_iter **out, ringdb_error *err);
void ringdb_go_iter_free(ringdb_go_iter *iter);
/* Copies up to `max` pairs into `buffer`, keys and values in turn, and their lengths into `lens` (two for each). Returns
 * how many, 0 at the end. If the first does not fit, it is RINGDB_BUFFER_TOO_SMALL and `*needed` says what it takes. */
int32_t ringdb_go_iter_fill(ringdb_go_iter *iter, void *buffer, size_t capacity, size_t *lens, int32_t max,
                            size_t *needed, ringdb_error *err);

int32_t ringdb_go_get_into(const ringdb_db *db, const void *key, size_t key_len, void *buffer, size_t capacity,
                           size_t *len, ringdb_error *err);
int32_t ringdb_go_put(const ringdb_db *db, const void *key, size_t key_len, const void *value, size_t value_len,
                      int32_t durability, ringdb_error *err);
int32_t ringdb_go_put_with_ttl(const ringdb_db *db, const void *key, size_t key_len, const void *value,
                               size_t value_len, uint64_t ttl_ms, int32_t durability, ringdb_error *err);
int32_t ringdb_go_delete(const ringdb_db *db, const void *key, size_t key_len, int32_t durability, ringdb_error *err);
int32_t ringdb_go_merge(const ringdb_db *db, const void *key, size_t key_len, const void *operand, size_t operand_len,
                        int32_t durability, ringdb_error *err);
int32_t ringdb_go_delete_range(const ringdb_db *db, const void *from, const void *to, const ringdb_go_range *range,
                               int32_t durability, ringdb_error *err);
int32_t ringdb_go_batch_delete_range(ringdb_batch *batch, const ringdb_db *db, const void *from, const void *to,
                                     const ringdb_go_range *range, ringdb_error *err);
int32_t ringdb_go_write(const ringdb_db *db, const ringdb_batch *batch, int32_t durability, ringdb_error *err);
int32_t ringdb_go_commit(ringdb_transaction *transaction, int32_t durability, ringdb_error *err);
int32_t ringdb_go_compact(const ringdb_db *db, const void *from, const void *to, const ringdb_go_range *range,
                          ringdb_error *err);
int32_t ringdb_go_export(const ringdb_db *db, const void *from, const void *to, const ringdb_go_range *range,
                         const char *path, ringdb_value **report, ringdb_error *err);
/* `there`: RINGDB_GO_FROM if there is an expected value, RINGDB_GO_TO if there is a new one. */
int32_t ringdb_go_compare_and_swap(const ringdb_db *db, const void *key, size_t key_len, const void *expected,
                                   size_t expected_len, const void *value, size_t value_len, uint32_t there,
                                   ringdb_error *err);

int32_t ringdb_go_multi_get(const ringdb_db *db, const void *keys, const size_t *lens, size_t count,
                            ringdb_values **out, ringdb_error *err);
int32_t ringdb_go_lock(ringdb_transaction *transaction, const ringdb_db *db, const void *keys, const size_t *lens,
                       size_t count, uint64_t wait_us, ringdb_error *err);
/* All values at once: their places, {NULL, SIZE_MAX} for those that are absent. They live as long as `values`. */
void ringdb_go_values(const ringdb_values *values, ringdb_slice *out, size_t count);

/* Asynchronous calls. `handle` is a runtime/cgo.Handle, which the callback, or a cancel that returns 1, gives back. */
int32_t ringdb_go_get_async(const ringdb_db *db, const void *key, size_t key_len, uintptr_t handle,
                            ringdb_request **request, ringdb_error *err);
int32_t ringdb_go_multi_get_async(const ringdb_db *db, const void *keys, const size_t *lens, size_t count,
                                  uintptr_t handle, ringdb_request **request, ringdb_error *err);
int32_t ringdb_go_write_async(const ringdb_db *db, const ringdb_batch *batch, int32_t durability, uintptr_t handle,
                              ringdb_request **request, ringdb_error *err);
int32_t ringdb_go_sync_async(const ringdb_db *db, uintptr_t handle, ringdb_request **request, ringdb_error *err);

/* Operators and filters: `handle` as above, given back by their drop. */
int32_t ringdb_go_register_operator(ringdb_options *options, const char *name, uintptr_t handle, int32_t partial,
                                    ringdb_error *err);
int32_t ringdb_go_register_filter(ringdb_options *options, const char *name, uintptr_t handle, ringdb_error *err);

#endif
