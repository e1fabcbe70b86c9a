/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "bridge.h"
#include "_cgo_export.h"
#include <stdlib.h>
#include <string.h>

static int32_t no_memory(ringdb_error *err) {
    memset(err, 0, sizeof *err);
    err->code = RINGDB_EXHAUSTED;
    err->kind = RINGDB_KIND_RETRY;
    strcpy(err->message, "no memory");
    return RINGDB_EXHAUSTED;
}

/* ---- Arguments ----------------------------------------------------------------------------------------------- */

typedef struct bounds {
    ringdb_slice from, to;
    const ringdb_slice *first, *last; /* NULL: no bound */
} bounds;

static void bounds_of(bounds *b, const void *from, const void *to, const ringdb_go_range *range) {
    b->from = (ringdb_slice){from, range->from_len};
    b->to = (ringdb_slice){to, range->to_len};
    b->first = (range->there & RINGDB_GO_FROM) ? &b->from : NULL;
    b->last = (range->there & RINGDB_GO_TO) ? &b->to : NULL;
}

static ringdb_write_options durable(int32_t durability) {
    ringdb_write_options how = RINGDB_WRITE_OPTIONS_INIT;
    how.durability = durability;
    return how;
}

/* NULL if there is no memory; freed by the caller. */
static ringdb_slice *slices_of(const void *keys, const size_t *lens, size_t count) {
    ringdb_slice *slices = calloc(count ? count : 1, sizeof *slices);
    const char *at = keys;
    for (size_t i = 0; slices && i < count; at += lens[i], i++)
        slices[i] = (ringdb_slice){at, lens[i]};
    return slices;
}

/* ---- Iterators ----------------------------------------------------------------------------------------------- */

int32_t ringdb_go_iter_open(const ringdb_db *db, ringdb_transaction *transaction, const void *from, const void *to,
                            const ringdb_go_range *range, int32_t back, ringdb_go_iter **out, ringdb_error *err) {
    ringdb_go_iter *iter = calloc(1, sizeof *iter);
    ringdb_read_options how = RINGDB_READ_OPTIONS_INIT;
    bounds b;
    int32_t code;
    if (!iter)
        return no_memory(err);
    iter->back = back;
    how.flags = range->no_fill_cache ? RINGDB_READ_NO_FILL_CACHE : 0;
    bounds_of(&b, from, to, range);
    code = transaction ? ringdb_transaction_range(transaction, db, b.first, b.last, range->flags, &iter->iter, err)
                       : ringdb_range(db, b.first, b.last, range->flags, &how, &iter->iter, err);
    if (code < 0)
        free(iter);
    else
        *out = iter;
    return code;
}

void ringdb_go_iter_free(ringdb_go_iter *iter) {
    if (iter)
        ringdb_iter_free(iter->iter);
    free(iter);
}

int32_t ringdb_go_iter_fill(ringdb_go_iter *iter, void *buffer, size_t capacity, size_t *lens, int32_t max,
                            size_t *needed, ringdb_error *err) {
    char *at = buffer;
    int32_t n = 0;
    if (iter->failed.code < 0) {
        *err = iter->failed;
        iter->failed.code = RINGDB_OK;
        return err->code;
    }
    while (n < max) {
        if (!iter->pending) {
            int32_t code = iter->back ? ringdb_iter_next_back(iter->iter, &iter->key, &iter->value, err)
                                      : ringdb_iter_next(iter->iter, &iter->key, &iter->value, err);
            if (code < 0 && n == 0)
                return code;
            if (code < 0)
                iter->failed = *err; /* what comes before it is told first */
            if (code <= 0)
                break;
            iter->pending = 1;
        }
        if (iter->key.len + iter->value.len > capacity - (size_t)(at - (char *)buffer)) {
            *needed = iter->key.len + iter->value.len;
            if (n == 0)
                return RINGDB_BUFFER_TOO_SMALL;
            break;
        }
        if (iter->key.len)
            memcpy(at, iter->key.data, iter->key.len);
        at += iter->key.len;
        if (iter->value.len)
            memcpy(at, iter->value.data, iter->value.len);
        at += iter->value.len;
        lens[2 * n] = iter->key.len;
        lens[2 * n + 1] = iter->value.len;
        iter->pending = 0;
        n++;
    }
    return n;
}

/* ---- Calls with fewer arguments ------------------------------------------------------------------------------ */

int32_t ringdb_go_get_into(const ringdb_db *db, const void *key, size_t key_len, void *buffer, size_t capacity,
                           size_t *len, ringdb_error *err) {
    return ringdb_get_into(db, key, key_len, NULL, buffer, capacity, len, err);
}

int32_t ringdb_go_put(const ringdb_db *db, const void *key, size_t key_len, const void *value, size_t value_len,
                      int32_t durability, ringdb_error *err) {
    ringdb_write_options how = durable(durability);
    return ringdb_put(db, key, key_len, value, value_len, &how, err);
}

int32_t ringdb_go_put_with_ttl(const ringdb_db *db, const void *key, size_t key_len, const void *value,
                               size_t value_len, uint64_t ttl_ms, int32_t durability, ringdb_error *err) {
    ringdb_write_options how = durable(durability);
    return ringdb_put_with_ttl(db, key, key_len, value, value_len, ttl_ms, &how, err);
}

int32_t ringdb_go_delete(const ringdb_db *db, const void *key, size_t key_len, int32_t durability, ringdb_error *err) {
    ringdb_write_options how = durable(durability);
    return ringdb_delete(db, key, key_len, &how, err);
}

int32_t ringdb_go_merge(const ringdb_db *db, const void *key, size_t key_len, const void *operand, size_t operand_len,
                        int32_t durability, ringdb_error *err) {
    ringdb_write_options how = durable(durability);
    return ringdb_merge(db, key, key_len, operand, operand_len, &how, err);
}

int32_t ringdb_go_delete_range(const ringdb_db *db, const void *from, const void *to, const ringdb_go_range *range,
                               int32_t durability, ringdb_error *err) {
    ringdb_write_options how = durable(durability);
    bounds b;
    bounds_of(&b, from, to, range);
    return ringdb_delete_range(db, b.first, b.last, range->flags, &how, err);
}

int32_t ringdb_go_batch_delete_range(ringdb_batch *batch, const ringdb_db *db, const void *from, const void *to,
                                     const ringdb_go_range *range, ringdb_error *err) {
    bounds b;
    bounds_of(&b, from, to, range);
    return ringdb_batch_delete_range(batch, db, b.first, b.last, range->flags, err);
}

int32_t ringdb_go_write(const ringdb_db *db, const ringdb_batch *batch, int32_t durability, ringdb_error *err) {
    ringdb_write_options how = durable(durability);
    return ringdb_write(db, batch, &how, err);
}

int32_t ringdb_go_commit(ringdb_transaction *transaction, int32_t durability, ringdb_error *err) {
    ringdb_write_options how = durable(durability);
    return ringdb_transaction_commit(transaction, &how, err);
}

int32_t ringdb_go_compact(const ringdb_db *db, const void *from, const void *to, const ringdb_go_range *range,
                          ringdb_error *err) {
    bounds b;
    bounds_of(&b, from, to, range);
    return ringdb_compact(db, b.first, b.last, range->flags, err);
}

int32_t ringdb_go_export(const ringdb_db *db, const void *from, const void *to, const ringdb_go_range *range,
                         const char *path, ringdb_value **report, ringdb_error *err) {
    bounds b;
    bounds_of(&b, from, to, range);
    return ringdb_export_range(db, b.first, b.last, range->flags, path, report, err);
}

int32_t ringdb_go_compare_and_swap(const ringdb_db *db, const void *key, size_t key_len, const void *expected,
                                   size_t expected_len, const void *value, size_t value_len, uint32_t there,
                                   ringdb_error *err) {
    ringdb_slice old = {expected, expected_len}, new = {value, value_len};
    return ringdb_compare_and_swap(db, key, key_len, (there & RINGDB_GO_FROM) ? &old : NULL,
                                   (there & RINGDB_GO_TO) ? &new : NULL, err);
}

/* ---- Many keys ----------------------------------------------------------------------------------------------- */

int32_t ringdb_go_multi_get(const ringdb_db *db, const void *keys, const size_t *lens, size_t count,
                            ringdb_values **out, ringdb_error *err) {
    ringdb_slice *slices = slices_of(keys, lens, count);
    int32_t code = slices ? ringdb_multi_get(db, slices, count, NULL, out, err) : no_memory(err);
    free(slices);
    return code;
}

int32_t ringdb_go_lock(ringdb_transaction *transaction, const ringdb_db *db, const void *keys, const size_t *lens,
                       size_t count, uint64_t wait_us, ringdb_error *err) {
    ringdb_slice *slices = slices_of(keys, lens, count);
    int32_t code = slices ? ringdb_transaction_lock(transaction, db, slices, count, wait_us, err) : no_memory(err);
    free(slices);
    return code;
}

void ringdb_go_values(const ringdb_values *values, ringdb_slice *out, size_t count) {
    for (size_t i = 0; i < count; i++)
        if (ringdb_values_get(values, i, &out[i]) != 1)
            out[i] = (ringdb_slice){NULL, SIZE_MAX};
        else if (out[i].len == 0)
            out[i].data = NULL; /* Go takes small numbers among its pointers for damage */
}

/* ---- Asynchronous calls -------------------------------------------------------------------------------------- */

static void got(void *user, int32_t code, ringdb_value *value, const ringdb_error *err) {
    ringdbGoGot((uintptr_t)user, code, value, (ringdb_error *)err);
}

static void got_many(void *user, int32_t code, ringdb_values *values, const ringdb_error *err) {
    ringdbGoGotMany((uintptr_t)user, code, values, (ringdb_error *)err);
}

static void done(void *user, int32_t code, const ringdb_error *err) {
    ringdbGoDone((uintptr_t)user, code, (ringdb_error *)err);
}

int32_t ringdb_go_get_async(const ringdb_db *db, const void *key, size_t key_len, uintptr_t handle,
                            ringdb_request **request, ringdb_error *err) {
    return ringdb_get_async(db, key, key_len, NULL, got, (void *)handle, request, err);
}

int32_t ringdb_go_multi_get_async(const ringdb_db *db, const void *keys, const size_t *lens, size_t count,
                                  uintptr_t handle, ringdb_request **request, ringdb_error *err) {
    ringdb_slice *slices = slices_of(keys, lens, count);
    int32_t code = slices ? ringdb_multi_get_async(db, slices, count, NULL, got_many, (void *)handle, request, err)
                          : no_memory(err);
    free(slices);
    return code;
}

int32_t ringdb_go_write_async(const ringdb_db *db, const ringdb_batch *batch, int32_t durability, uintptr_t handle,
                              ringdb_request **request, ringdb_error *err) {
    ringdb_write_options how = durable(durability);
    return ringdb_write_async(db, batch, &how, done, (void *)handle, request, err);
}

int32_t ringdb_go_sync_async(const ringdb_db *db, uintptr_t handle, ringdb_request **request, ringdb_error *err) {
    return ringdb_sync_async(db, done, (void *)handle, request, err);
}

/* ---- Operators and filters ----------------------------------------------------------------------------------- */

static void merge(void *user, ringdb_slice key, const ringdb_slice *value, const ringdb_slice *operands, size_t count,
                  ringdb_merge_result *result) {
    ringdbGoMerge((uintptr_t)user, 0, &key, (ringdb_slice *)value, (ringdb_slice *)operands, count, result);
}

static void partial_merge(void *user, ringdb_slice key, const ringdb_slice *value, const ringdb_slice *operands,
                          size_t count, ringdb_merge_result *result) {
    ringdbGoMerge((uintptr_t)user, 1, &key, (ringdb_slice *)value, (ringdb_slice *)operands, count, result);
}

static int32_t filter(void *user, const ringdb_filter_context *context, ringdb_slice key, ringdb_slice value,
                      ringdb_filter_result *result) {
    return ringdbGoFilter((uintptr_t)user, (int32_t)context->level, context->last_level, &key, &value, result);
}

static void drop(void *user) {
    ringdbGoDrop((uintptr_t)user);
}

int32_t ringdb_go_register_operator(ringdb_options *options, const char *name, uintptr_t handle, int32_t partial,
                                    ringdb_error *err) {
    ringdb_merge_operator op = RINGDB_MERGE_OPERATOR_INIT;
    op.name = name;
    op.user = (void *)handle;
    op.merge = merge;
    op.partial_merge = partial ? partial_merge : NULL;
    op.drop = drop;
    return ringdb_options_register_merge_operator(options, &op, err);
}

int32_t ringdb_go_register_filter(ringdb_options *options, const char *name, uintptr_t handle, ringdb_error *err) {
    ringdb_compaction_filter f = RINGDB_COMPACTION_FILTER_INIT;
    f.name = name;
    f.user = (void *)handle;
    f.filter = filter;
    f.drop = drop;
    return ringdb_options_register_compaction_filter(options, &f, err);
}
