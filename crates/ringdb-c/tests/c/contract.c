/* The calls that wait, used as C programs use them and misused as they misuse them. Usage: contract URI DIRECTORY */
#include "check.h"

static const char *uri, *dir;

static const char *in_dir(const char *name) {
    static char paths[4][600];
    static int next;
    char *out = paths[next++ % 4];
    snprintf(out, sizeof paths[0], "%s/%s", dir, name);
    return out;
}

static void put(ringdb_db *db, const char *key, const char *value) {
    OK(ringdb_put(db, key, strlen(key), value, strlen(value), NULL, &e));
}

/* Whether the key has this value; NULL: none. Asked in every way. */
static int has(ringdb_db *db, const char *key, const char *wanted) {
    ringdb_value *value = (ringdb_value *)&e;
    ringdb_values *values = NULL;
    ringdb_slice slice, keys[2];
    char buffer[64];
    size_t len = 99;
    int found = ringdb_get(db, key, strlen(key), NULL, &value, &e);
    CHECK(e.code == RINGDB_OK && found == (wanted != NULL) && (value != NULL) == (wanted != NULL));
    CHECK(ringdb_get_into(db, key, strlen(key), NULL, buffer, sizeof buffer, &len, &e) == found);
    keys[0].data = key, keys[0].len = strlen(key), keys[1].data = NULL, keys[1].len = 0;
    OK(ringdb_multi_get(db, keys, 2, NULL, &values, &e));
    CHECK(ringdb_values_count(values) == 2 && ringdb_values_get(values, 0, &slice) == found);
    if (wanted) {
        CHECK(ringdb_value_len(value) == strlen(wanted) && len == strlen(wanted) && slice.len == len);
        CHECK(!memcmp(ringdb_value_data(value), wanted, len) && !memcmp(buffer, wanted, len));
        CHECK(!memcmp(slice.data, wanted, len));
    } else {
        CHECK(len == 99 && slice.len == 0 && slice.data == NULL);
    }
    CHECK(ringdb_values_get(values, 2, &slice) == RINGDB_INVALID_ARGUMENT);
    CHECK(ringdb_values_get(values, 0, NULL) == RINGDB_INVALID_ARGUMENT);
    ringdb_value_free(value);
    ringdb_values_free(values);
    return 1;
}

/* The keys of an iterator, each behind a space; from the back if `back`. Frees it. */
static const char *keys_of(ringdb_iter *iter, int back) {
    static char out[256];
    ringdb_slice key, value;
    size_t n = 0;
    int found;
    while ((found = back ? ringdb_iter_next_back(iter, &key, &value, &e) : ringdb_iter_next(iter, &key, &value, &e)) ==
           1) {
        out[n++] = ' ';
        memcpy(out + n, key.data, key.len);
        n += key.len;
    }
    CHECK(found == 0 && e.code == RINGDB_OK && ringdb_iter_next(iter, NULL, NULL, &e) == 0);
    out[n] = 0;
    ringdb_iter_free(iter);
    return out;
}

static ringdb_slice of(const char *text) {
    ringdb_slice s;
    s.data = text, s.len = strlen(text);
    return s;
}

static const char *range(ringdb_db *db, const char *from, const char *to, uint32_t flags, int back) {
    ringdb_iter *iter = NULL;
    ringdb_slice f = of(from ? from : ""), t = of(to ? to : "");
    OK(ringdb_range(db, from ? &f : NULL, to ? &t : NULL, flags, NULL, &iter, &e));
    return keys_of(iter, back);
}

static void versions(void) {
    CHECK(ringdb_abi_version() == RINGDB_ABI_VERSION && strchr(ringdb_version(), '.') != NULL);
    CHECK(!strcmp(ringdb_code_name(RINGDB_NO_SPACE), "no space") && !strcmp(ringdb_code_name(-999), "unknown"));
    CHECK(!strcmp(ringdb_code_name(RINGDB_CLOSED), "closed"));
    CHECK(ringdb_code_kind(RINGDB_NO_SPACE) == RINGDB_KIND_RETRY && ringdb_code_kind(0) == RINGDB_KIND_NONE);
}

static void options_are_checked(void) {
    ringdb_options *o = ringdb_options_new();
    ringdb_db *db = NULL;
    ringdb_value *value = NULL;
    OK(ringdb_options_set_block_bytes(o, 5000, &e));
    INVALID(ringdb_open(in_dir("never"), o, &db, &e));
    CHECK(strstr(e.message, "block_bytes is 5000") && e.kind == RINGDB_KIND_FIX_CALL && db == NULL);
    /* What is refused leaves the rest as it was. */
    INVALID(ringdb_options_set_compression(o, 3, &e));
    INVALID(ringdb_open(in_dir("never"), o, &db, &e));
    CHECK(strstr(e.message, "block_bytes is 5000"));
    OK(ringdb_options_set_block_bytes(o, 8192, &e));
    INVALID(ringdb_options_set_last_level_compression(o, -1, &e));
    INVALID(ringdb_options_set_durability(o, 0, &e));
    INVALID(ringdb_options_set_direct_reads(o, 2, &e));
    INVALID(ringdb_options_set_io(o, NULL, &e));
    INVALID(ringdb_options_set_io(o, "po\xff", &e));
    INVALID(ringdb_options_set_cache_bytes(NULL, 1, &e));
    OK(ringdb_options_set_compression(o, RINGDB_COMPRESSION_LZ4, &e));
    OK(ringdb_options_set_last_level_compression(o, RINGDB_COMPRESSION_ZSTD, &e));
    OK(ringdb_options_set_filter_bits_per_key(o, 12, &e));
    OK(ringdb_options_set_background_threads(o, 2, &e));
    OK(ringdb_options_set_log_segment_bytes(o, 1u << 20, &e));
    OK(ringdb_options_set_table_bytes(o, 1u << 20, &e));
    OK(ringdb_options_set_compaction_bytes_per_second(o, 64u << 20, &e));
    OK(ringdb_options_set_manifest_bytes(o, 1u << 20, &e));
    OK(ringdb_options_set_time_one_in(o, 1, &e));
    OK(ringdb_options_set_time_to_live(o, 3600000, &e));
    OK(ringdb_options_set_recover_damaged_log(o, 0, &e));
    OK(ringdb_options_set_socket(o, 1, &e));
    OK(ringdb_options_set_durability(o, RINGDB_DURABILITY_PROCESS, &e));
    OK(ringdb_options_set_create_if_missing(o, 0, &e));
    FAILS(RINGDB_NO_STORE, ringdb_open(in_dir("never"), o, &db, &e));
    OK(ringdb_options_set_io(o, "pigeon", &e));
    INVALID(ringdb_open(in_dir("never"), o, &db, &e));
    OK(ringdb_options_set_io(o, uri, &e));
    OK(ringdb_options_set_create_if_missing(o, 1, &e));
    /* All of them at once work, and one handle serves twice. */
    OK(ringdb_open(in_dir("set"), o, &db, &e));
    put(db, "k", "v");
    OK(ringdb_flush(db, &e));
    CHECK(has(db, "k", "v"));
    ringdb_release(db);
    OK(ringdb_open(in_dir("set"), o, &db, &e));
    CHECK(has(db, "k", "v"));
    ringdb_release(db);
    OK(ringdb_options_set_time_to_live(o, 1, &e));
    INVALID(ringdb_options_set_time_to_live(NULL, 1, &e));
    OK(ringdb_open(in_dir("short-lived"), o, &db, &e));
    put(db, "k", "v");
    for (int i = 0; i < 1000000 && ringdb_get(db, "k", 1, NULL, &value, &e) == 1; i++)
        ringdb_value_free(value);
    CHECK(ringdb_get(db, "k", 1, NULL, &value, &e) == 0);
    ringdb_release(db);
    ringdb_options_free(o);
}

static void reads_and_writes(void) {
    ringdb_db *db = open_store(uri, dir, "rw"), *second = NULL;
    ringdb_value *value = NULL;
    ringdb_read_options how = RINGDB_READ_OPTIONS_INIT;
    ringdb_write_options sync = RINGDB_WRITE_OPTIONS_INIT;
    char small_buffer[3] = "xx";
    size_t len = 0;
    FAILS(RINGDB_LOCKED, ringdb_open(in_dir("rw"), NULL, &second, &e));
    CHECK(e.kind == RINGDB_KIND_RETRY && second == NULL);
    put(db, "apple", "red");
    put(db, "pear", "green");
    CHECK(has(db, "apple", "red") && has(db, "plum", NULL) && has(db, "", NULL));
    /* Keys and values of no bytes, at no address. */
    OK(ringdb_put(db, NULL, 0, NULL, 0, NULL, &e));
    CHECK(has(db, "", ""));
    OK(ringdb_delete(db, NULL, 0, NULL, &e));
    CHECK(has(db, "", NULL));
    /* NULs and all other bytes. */
    OK(ringdb_put(db, "a\0b", 3, "\0\xff", 2, NULL, &e));
    CHECK(ringdb_get(db, "a\0b", 3, NULL, &value, &e) == 1 && ringdb_value_len(value) == 2);
    CHECK(!memcmp(ringdb_value_data(value), "\0\xff", 2) && has(db, "a", NULL));
    ringdb_value_free(value);
    FAILS(RINGDB_BUFFER_TOO_SMALL, ringdb_get_into(db, "pear", 4, NULL, small_buffer, 2, &len, &e));
    CHECK(len == 5 && !memcmp(small_buffer, "gr", 3));
    FAILS(RINGDB_BUFFER_TOO_SMALL, ringdb_get_into(db, "pear", 4, NULL, NULL, 0, &len, &e));
    CHECK(len == 5);
    how.flags = RINGDB_READ_NO_FILL_CACHE, how.deadline_us = 60000000;
    CHECK(ringdb_get(db, "pear", 4, &how, &value, &e) == 1);
    ringdb_value_free(value);
    sync.durability = RINGDB_DURABILITY_SYNC, sync.deadline_us = 60000000;
    OK(ringdb_put(db, "durable", 7, "yes", 3, &sync, &e));
    OK(ringdb_delete(db, "apple", 5, &sync, &e));
    CHECK(has(db, "durable", "yes") && has(db, "apple", NULL));
    OK(ringdb_sync(db, &e));
    /* Without a place for errors. */
    CHECK(ringdb_put(db, "k", 1, "v", 1, NULL, NULL) == RINGDB_OK && has(db, "k", "v"));
    CHECK(ringdb_get(NULL, "k", 1, NULL, &value, NULL) == RINGDB_INVALID_ARGUMENT);
    OK(ringdb_close(db, &e));
    ringdb_release(db);
}

static void structs_of_other_sizes(void) {
    ringdb_db *db = open_store(uri, dir, "sizes");
    ringdb_value *value;
    struct {
        ringdb_read_options known;
        uint64_t unknown;
    } longer;
    struct {
        uint32_t size, flags;
    } shorter = {sizeof shorter, RINGDB_READ_NO_FILL_CACHE};
    ringdb_read_options how = RINGDB_READ_OPTIONS_INIT;
    ringdb_write_options write = RINGDB_WRITE_OPTIONS_INIT;
    put(db, "k", "v");
    memset(&longer, 0, sizeof longer);
    longer.known.size = sizeof longer;
    CHECK(ringdb_get(db, "k", 1, &longer.known, &value, &e) == 1);
    ringdb_value_free(value);
    longer.unknown = 1;
    INVALID(ringdb_get(db, "k", 1, &longer.known, &value, &e));
    CHECK(ringdb_get(db, "k", 1, (const ringdb_read_options *)(const void *)&shorter, &value, &e) == 1);
    ringdb_value_free(value);
    for (how.size = 0; how.size < 8; how.size++)
        INVALID(ringdb_get(db, "k", 1, &how, &value, &e));
    how.size = sizeof how, how.flags = 2;
    INVALID(ringdb_get(db, "k", 1, &how, &value, &e));
    write.durability = 4;
    INVALID(ringdb_put(db, "k", 1, "v", 1, &write, &e));
    write.durability = 0, write.size = 9;
    INVALID(ringdb_put(db, "k", 1, "v", 1, &write, &e));
    ringdb_release(db);
}

static void batches_and_keyspaces(void) {
    ringdb_db *db = open_store(uri, dir, "batch"), *users = NULL, *again = NULL, *no = NULL;
    ringdb_batch *batch = ringdb_batch_new();
    ringdb_write_options sync = RINGDB_WRITE_OPTIONS_INIT;
    ringdb_values *names = NULL;
    ringdb_value *name = NULL;
    ringdb_slice slice;
    size_t count = 9, bytes = 9;
    char *long_key = calloc(1, 100000);
    OK(ringdb_keyspace(db, "users", &users, &e));
    CHECK(ringdb_existing_keyspace(db, "users", &again, &e) == 1 && e.code == 0);
    CHECK(ringdb_existing_keyspace(db, "none", &no, &e) == 0 && no == NULL && e.code == 0);
    INVALID(ringdb_keyspace(db, "", &no, &e));
    INVALID(ringdb_keyspace(db, "\xc3\x28", &no, &e));
    CHECK(strstr(e.message, "UTF-8"));
    INVALID(ringdb_keyspace(db, NULL, &no, &e));
    OK(ringdb_keyspace_name(users, &name, &e));
    CHECK(!strcmp(ringdb_value_data(name), "users") && ringdb_value_len(name) == 5);
    ringdb_value_free(name);
    OK(ringdb_keyspace(users, "default", &no, &e));
    put(no, "d", "1");
    CHECK(has(db, "d", "1") && has(users, "d", NULL));
    ringdb_release(no);

    OK(ringdb_batch_put(batch, NULL, "a", 1, "1", 1, &e));
    OK(ringdb_batch_put(batch, users, "b", 1, "2", 1, &e));
    OK(ringdb_batch_put(batch, db, "c", 1, "3", 1, &e));
    OK(ringdb_batch_delete(batch, NULL, "d", 1, &e));
    OK(ringdb_batch_delete(batch, users, "e", 1, &e));
    OK(ringdb_batch_size(batch, &count, &bytes, &e));
    CHECK(count == 5 && bytes > 5);
    OK(ringdb_batch_size(batch, NULL, NULL, &e));
    sync.durability = RINGDB_DURABILITY_SYNC;
    OK(ringdb_write(db, batch, &sync, &e));
    CHECK(has(db, "a", "1") && has(again, "b", "2") && has(db, "c", "3") && has(db, "d", NULL) && has(db, "b", NULL));
    /* A batch stays: it can be written again, and emptied. */
    OK(ringdb_delete(db, "a", 1, NULL, &e));
    OK(ringdb_write(users, batch, NULL, &e));
    CHECK(has(db, "a", "1"));
    OK(ringdb_batch_clear(batch, &e));
    OK(ringdb_batch_size(batch, &count, NULL, &e));
    CHECK(count == 0);
    OK(ringdb_write(db, batch, &sync, &e));
    /* A key that is too long: nothing of the batch is written. */
    OK(ringdb_batch_put(batch, NULL, "never", 5, "1", 1, &e));
    OK(ringdb_batch_put(batch, NULL, long_key, 100000, "1", 1, &e));
    INVALID(ringdb_write(db, batch, NULL, &e));
    CHECK(strstr(e.message, "65536") && has(db, "never", NULL));
    INVALID(ringdb_put(db, long_key, 100000, "1", 1, NULL, &e));
    free(long_key);
    /* Of another store. */
    {
        ringdb_db *other = open_store(uri, dir, "other"), *theirs = NULL;
        OK(ringdb_keyspace(other, "theirs", &theirs, &e));
        OK(ringdb_batch_clear(batch, &e));
        OK(ringdb_batch_put(batch, theirs, "k", 1, "v", 1, &e));
        INVALID(ringdb_write(db, batch, NULL, &e));
        ringdb_release(other);
        ringdb_release(theirs);
    }
    OK(ringdb_keyspaces(db, &names, &e));
    CHECK(ringdb_values_count(names) == 1 && ringdb_values_get(names, 0, &slice) == 1);
    CHECK(slice.len == 5 && !memcmp(slice.data, "users", 5));
    ringdb_values_free(names);
    CHECK(ringdb_drop_keyspace(db, "users", &e) == 1 && ringdb_drop_keyspace(db, "users", &e) == 0);
    INVALID(ringdb_drop_keyspace(db, "default", &e));
    FAILS(RINGDB_KEYSPACE_DROPPED, ringdb_put(users, "b", 1, "3", 1, NULL, &e));
    /* Handles go in any order, the store's last. */
    ringdb_batch_free(batch);
    ringdb_release(db);
    put(again = (ringdb_release(again), open_store(uri, dir, "other")), "k", "v");
    ringdb_release(users);
    ringdb_release(again);
    db = open_store(uri, dir, "batch");
    CHECK(has(db, "a", "1"));
    ringdb_release(db);
}

static void scans_and_snapshots(void) {
    ringdb_db *db = open_store(uri, dir, "scan"), *users = NULL, *then = NULL, *users_then = NULL, *no = NULL;
    ringdb_iter *iter = NULL;
    ringdb_batch *batch = ringdb_batch_new();
    ringdb_read_options how = RINGDB_READ_OPTIONS_INIT;
    ringdb_slice key, value;
    ringdb_slice gone = {NULL, 7};
    OK(ringdb_keyspace(db, "users", &users, &e));
    put(db, "a", "1"), put(db, "ab", "2"), put(db, "b", "3"), put(db, "c", "4"), put(users, "u", "5");
    CHECK(!strcmp(range(db, NULL, NULL, 0, 0), " a ab b c") && !strcmp(range(db, NULL, NULL, 0, 1), " c b ab a"));
    CHECK(!strcmp(range(db, "ab", "c", 0, 0), " ab b") && !strcmp(range(db, "ab", NULL, 0, 0), " ab b c"));
    CHECK(!strcmp(range(db, "ab", "c", RINGDB_FROM_EXCLUDED | RINGDB_TO_INCLUDED, 1), " c b"));
    CHECK(!strcmp(range(db, "c", "a", 0, 0), "") && !strcmp(range(db, "", "", 0, 0), ""));
    CHECK(!strcmp(range(users, NULL, NULL, 0, 0), " u"));
    OK(ringdb_prefix(db, "a", 1, NULL, &iter, &e));
    CHECK(!strcmp(keys_of(iter, 0), " a ab"));
    how.flags = RINGDB_READ_NO_FILL_CACHE;
    OK(ringdb_prefix(db, NULL, 0, &how, &iter, &e));
    CHECK(!strcmp(keys_of(iter, 1), " c b ab a"));
    how.deadline_us = 1;
    INVALID(ringdb_prefix(db, NULL, 0, &how, &iter, &e));
    INVALID(ringdb_range(db, NULL, NULL, 0, &how, &iter, &e));
    INVALID(ringdb_range(db, NULL, NULL, 4, NULL, &iter, &e));
    INVALID(ringdb_range(db, &gone, NULL, 0, NULL, &iter, &e));
    /* Both ends meet, and it sees what was there when it was made. */
    OK(ringdb_range(db, NULL, NULL, 0, NULL, &iter, &e));
    OK(ringdb_snapshot(db, &then, &e));
    OK(ringdb_delete(db, "b", 1, NULL, &e));
    put(users, "u", "6");
    CHECK(ringdb_iter_next(iter, &key, &value, &e) == 1 && ringdb_iter_next_back(iter, &key, &value, &e) == 1);
    CHECK(key.len == 1 && !memcmp(key.data, "c", 1) && value.len == 1 && !memcmp(value.data, "4", 1));
    CHECK(ringdb_iter_next(iter, &key, NULL, &e) == 1 && key.len == 2);
    CHECK(ringdb_iter_next(iter, &key, &value, &e) == 1 && !memcmp(value.data, "3", 1));
    CHECK(ringdb_iter_next(iter, &key, &value, &e) == 0 && ringdb_iter_next_back(iter, &key, &value, &e) == 0);
    ringdb_iter_free(iter);
    CHECK(has(then, "b", "3") && has(db, "b", NULL) && !strcmp(range(then, NULL, NULL, 0, 0), " a ab b c"));
    CHECK(ringdb_existing_keyspace(then, "users", &users_then, &e) == 1 && has(users_then, "u", "5"));
    CHECK(has(users, "u", "6"));
    ringdb_release(users_then);
    /* The same moment again. */
    OK(ringdb_snapshot(then, &users_then, &e));
    CHECK(has(users_then, "b", "3"));
    /* It is not for writing. */
    FAILS(RINGDB_READ_ONLY, ringdb_put(then, "k", 1, "v", 1, NULL, &e));
    FAILS(RINGDB_READ_ONLY, ringdb_delete(then, "k", 1, NULL, &e));
    FAILS(RINGDB_READ_ONLY, ringdb_batch_put(batch, then, "k", 1, "v", 1, &e));
    FAILS(RINGDB_READ_ONLY, ringdb_write(then, batch, NULL, &e));
    FAILS(RINGDB_READ_ONLY, ringdb_keyspace(then, "more", &no, &e));
    FAILS(RINGDB_READ_ONLY, ringdb_drop_keyspace(then, "users", &e));
    FAILS(RINGDB_READ_ONLY, ringdb_compact(then, NULL, NULL, 0, &e));
    ringdb_batch_free(batch);
    ringdb_release(db), ringdb_release(users), ringdb_release(then);
    CHECK(has(users_then, "b", "3"));
    ringdb_release(users_then);
}

static void ranges_and_swaps(void) {
    ringdb_db *db = open_store(uri, dir, "ranges"), *users = NULL, *then = NULL;
    ringdb_batch *batch = ringdb_batch_new();
    ringdb_write_options sync = RINGDB_WRITE_OPTIONS_INIT;
    ringdb_slice b = of("b"), d = of("d"), one = of("1"), two = of("2");
    sync.durability = RINGDB_DURABILITY_SYNC;
    OK(ringdb_keyspace(db, "users", &users, &e));
    OK(ringdb_snapshot(db, &then, &e));
    put(db, "a", "1"), put(db, "b", "1"), put(db, "c", "1"), put(db, "d", "1"), put(users, "b", "1");
    OK(ringdb_delete_range(db, &b, &d, 0, &sync, &e));
    CHECK(!strcmp(range(db, NULL, NULL, 0, 0), " a d") && has(users, "b", "1") && has(db, "c", NULL));
    put(db, "c", "2");
    OK(ringdb_delete_range(db, &b, &d, RINGDB_FROM_EXCLUDED | RINGDB_TO_INCLUDED, NULL, &e));
    CHECK(!strcmp(range(db, NULL, NULL, 0, 0), " a"));
    OK(ringdb_delete_prefix(users, "b", 1, NULL, &e));
    CHECK(has(users, "b", NULL));
    put(users, "x1", "1"), put(users, "x2", "1"), put(users, "y", "1");
    OK(ringdb_batch_delete_range(batch, NULL, NULL, NULL, 0, &e));
    OK(ringdb_batch_delete_prefix(batch, users, "x", 1, &e));
    OK(ringdb_batch_put(batch, users, "x2", 2, "2", 1, &e));
    OK(ringdb_write(db, batch, NULL, &e));
    CHECK(!strcmp(range(db, NULL, NULL, 0, 0), "") && !strcmp(range(users, NULL, NULL, 0, 0), " x2 y"));
    INVALID(ringdb_delete_range(db, &b, &d, 4, NULL, &e));
    INVALID(ringdb_delete_range(NULL, &b, &d, 0, NULL, &e));
    INVALID(ringdb_delete_prefix(db, NULL, 1, NULL, &e));
    INVALID(ringdb_batch_delete_range(NULL, NULL, &b, &d, 0, &e));
    FAILS(RINGDB_READ_ONLY, ringdb_delete_range(then, NULL, NULL, 0, NULL, &e));
    FAILS(RINGDB_READ_ONLY, ringdb_batch_delete_prefix(batch, then, "x", 1, &e));

    CHECK(ringdb_compare_and_swap(db, "n", 1, NULL, &one, &e) == 1 && has(db, "n", "1"));
    CHECK(ringdb_compare_and_swap(db, "n", 1, NULL, &two, &e) == 0 && has(db, "n", "1"));
    CHECK(ringdb_compare_and_swap(db, "n", 1, &one, &two, &e) == 1 && has(db, "n", "2"));
    CHECK(ringdb_compare_and_swap(db, "n", 1, &two, NULL, &e) == 1 && has(db, "n", NULL));
    INVALID(ringdb_compare_and_swap(db, NULL, 1, NULL, NULL, &e));
    FAILS(RINGDB_READ_ONLY, ringdb_compare_and_swap(then, "n", 1, NULL, &one, &e));
    ringdb_batch_free(batch);
    ringdb_release(then), ringdb_release(users), ringdb_release(db);
}

static int tx_has(ringdb_transaction *tx, ringdb_db *db, const char *key, const char *wanted) {
    ringdb_value *value = NULL;
    int found = ringdb_transaction_get(tx, db, key, strlen(key), &value, &e);
    CHECK(e.code == RINGDB_OK && found == (wanted != NULL) && (value != NULL) == found);
    CHECK(!found ||
          (ringdb_value_len(value) == strlen(wanted) && !memcmp(ringdb_value_data(value), wanted, strlen(wanted))));
    ringdb_value_free(value);
    return 1;
}

static void transactions(void) {
    ringdb_db *db = open_store(uri, dir, "tx"), *users = NULL, *then = NULL;
    ringdb_transaction *tx = NULL, *other = NULL;
    ringdb_write_options how = RINGDB_WRITE_OPTIONS_INIT;
    ringdb_iter *iter = NULL;
    ringdb_slice key;
    OK(ringdb_keyspace(db, "users", &users, &e));
    OK(ringdb_snapshot(db, &then, &e));
    put(db, "a", "1"), put(users, "u", "1");
    /* It reads its own writes, over keyspaces; nobody else does before the commit. */
    OK(ringdb_transaction_begin(db, &tx, &e));
    CHECK(tx_has(tx, NULL, "a", "1") && tx_has(tx, users, "u", "1") && tx_has(tx, users, "a", NULL));
    OK(ringdb_transaction_put(tx, NULL, "b", 1, "2", 1, &e));
    OK(ringdb_transaction_put(tx, users, "v", 1, "3", 1, &e));
    OK(ringdb_transaction_delete(tx, NULL, "a", 1, &e));
    CHECK(tx_has(tx, NULL, "b", "2") && tx_has(tx, NULL, "a", NULL) && has(db, "b", NULL) && has(db, "a", "1"));
    OK(ringdb_transaction_range(tx, NULL, NULL, NULL, 0, &iter, &e));
    INVALID(ringdb_transaction_commit(tx, NULL, &e));
    CHECK(strstr(e.message, "iterator"));
    CHECK(ringdb_iter_next(iter, &key, NULL, &e) == 1 && key.len == 1 && !memcmp(key.data, "b", 1));
    CHECK(ringdb_iter_next_back(iter, &key, NULL, &e) == 0);
    ringdb_iter_free(iter);
    how.deadline_us = 1;
    INVALID(ringdb_transaction_commit(tx, &how, &e));
    how.deadline_us = 0, how.durability = RINGDB_DURABILITY_SYNC;
    OK(ringdb_transaction_commit(tx, &how, &e));
    CHECK(has(db, "b", "2") && has(db, "a", NULL) && has(users, "v", "3"));
    INVALID(ringdb_transaction_commit(tx, NULL, &e));
    INVALID(ringdb_transaction_put(tx, NULL, "b", 1, "2", 1, &e));
    CHECK(strstr(e.message, "ended"));
    ringdb_transaction_free(tx);
    /* Of two that read the same, one commits. */
    OK(ringdb_transaction_begin(users, &tx, &e));
    OK(ringdb_transaction_begin(users, &other, &e));
    CHECK(tx_has(tx, NULL, "v", "3") && tx_has(other, NULL, "v", "3"));
    OK(ringdb_transaction_put(tx, NULL, "v", 1, "4", 1, &e));
    OK(ringdb_transaction_put(other, NULL, "v", 1, "5", 1, &e));
    OK(ringdb_transaction_commit(tx, NULL, &e));
    FAILS(RINGDB_CONFLICT, ringdb_transaction_commit(other, NULL, &e));
    CHECK(e.kind == RINGDB_KIND_RETRY && has(users, "v", "4"));
    ringdb_transaction_free(tx), ringdb_transaction_free(other);
    /* What is freed has done nothing; the iterator goes after its transaction, and keeps it. */
    OK(ringdb_transaction_begin(db, &tx, &e));
    OK(ringdb_transaction_put(tx, NULL, "never", 5, "1", 1, &e));
    OK(ringdb_transaction_range(tx, users, NULL, NULL, 0, &iter, &e));
    ringdb_transaction_free(tx);
    CHECK(ringdb_iter_next(iter, &key, NULL, &e) == 1 && !memcmp(key.data, "u", 1));
    ringdb_iter_free(iter);
    CHECK(has(db, "never", NULL));
    INVALID(ringdb_transaction_begin(NULL, &tx, &e));
    INVALID(ringdb_transaction_begin(db, NULL, &e));
    FAILS(RINGDB_READ_ONLY, ringdb_transaction_begin(then, &tx, &e));
    OK(ringdb_transaction_begin(db, &tx, &e));
    FAILS(RINGDB_READ_ONLY, ringdb_transaction_put(tx, then, "k", 1, "v", 1, &e));
    INVALID(ringdb_transaction_put(tx, NULL, NULL, 1, "v", 1, &e));
    INVALID(ringdb_transaction_get(tx, NULL, "k", 1, NULL, &e));
    INVALID(ringdb_transaction_delete(NULL, NULL, "k", 1, &e));
    INVALID(ringdb_transaction_range(tx, NULL, NULL, NULL, 8, &iter, &e));
    INVALID(ringdb_transaction_commit(NULL, NULL, &e));
    OK(ringdb_transaction_put(tx, NULL, "k", 1, "v", 1, &e));
    OK(ringdb_close(db, &e));
    FAILS(RINGDB_CLOSED, ringdb_transaction_commit(tx, NULL, &e));
    FAILS(RINGDB_CLOSED, ringdb_transaction_begin(db, &other, &e));
    ringdb_transaction_free(tx), ringdb_transaction_free(NULL);
    ringdb_release(then), ringdb_release(users), ringdb_release(db);
}

static void options_as_text(void) {
    ringdb_options *o = ringdb_options_new();
    ringdb_db *db = NULL;
    FILE *f = fopen(in_dir("o.toml"), "w");
    OK(ringdb_options_set_io(o, uri, &e));
    OK(ringdb_options_parse(o, "cache_bytes = '2 MiB'\ncompression = 'lz4'\n", &e));
    INVALID(ringdb_options_parse(o, "cache_bytes = 5\n", &e));
    INVALID(ringdb_options_parse(o, "cash_bytes = '2 MiB'\n", &e));
    CHECK(strstr(e.message, "cash_bytes"));
    INVALID(ringdb_options_parse(o, "io = \"\xff\"", &e));
    INVALID(ringdb_options_parse(o, NULL, &e));
    INVALID(ringdb_options_parse(NULL, "", &e));
    CHECK(f && fputs("create_if_missing = false\n", f) >= 0 && fclose(f) == 0);
    OK(ringdb_options_load(o, in_dir("o.toml"), &e));
    FAILS(RINGDB_NOT_FOUND, ringdb_options_load(o, in_dir("none.toml"), &e));
    FAILS(RINGDB_NO_STORE, ringdb_open(in_dir("text"), o, &db, &e));
    OK(ringdb_options_parse(o, "create_if_missing = true", &e));
    OK(ringdb_open(in_dir("text"), o, &db, &e));
    ringdb_release(db);
    ringdb_options_free(o);
}

static void encryption(void) {
    static const unsigned char keys[2][RINGDB_ENCRYPTION_KEY_BYTES] = {{1, 2, 3}, {4, 5, 6}};
    static const uint32_t numbers[2] = {1, 2}, twice[2] = {1, 1}, zero = 0;
    ringdb_options *options = small(uri), *without = small(uri);
    const char *path = in_dir("encrypted");
    ringdb_db *db = NULL;
    INVALID(ringdb_options_set_encryption_keys(options, numbers, keys, 0, &e));
    INVALID(ringdb_options_set_encryption_keys(options, NULL, keys, 1, &e));
    INVALID(ringdb_options_set_encryption_keys(options, numbers, NULL, 1, &e));
    INVALID(ringdb_options_set_encryption_keys(options, &zero, keys, 1, &e));
    INVALID(ringdb_options_set_encryption_keys(options, twice, keys, 2, &e));
    INVALID(ringdb_options_set_encryption_keys(NULL, numbers, keys, 2, &e));
    OK(ringdb_options_set_encryption_keys(options, numbers, keys, 1, &e));
    OK(ringdb_open(path, options, &db, &e));
    put(db, "secret", "kept");
    OK(ringdb_close(db, &e));
    ringdb_release(db), db = NULL;
    FAILS(RINGDB_ENCRYPTION_KEY, ringdb_open(path, without, &db, &e));
    CHECK(e.kind == RINGDB_KIND_FIX_CALL && strstr(e.message, "key 1"));
    OK(ringdb_options_set_encryption_keys(options, numbers, keys[1], 1, &e));
    FAILS(RINGDB_ENCRYPTION_KEY, ringdb_open(path, options, &db, &e));
    /* With a second one, for what is written from now on. */
    OK(ringdb_options_set_encryption_keys(options, numbers, keys, 2, &e));
    OK(ringdb_open(path, options, &db, &e));
    CHECK(has(db, "secret", "kept"));
    OK(ringdb_rewrite(db, &e));
    OK(ringdb_close(db, &e));
    ringdb_release(db), db = NULL;
    OK(ringdb_options_set_encryption_keys(options, numbers + 1, keys + 1, 1, &e));
    OK(ringdb_open(path, options, &db, &e));
    CHECK(has(db, "secret", "kept"));
    ringdb_release(db);
    ringdb_options_free(options), ringdb_options_free(without);
}

static void upkeep(void) {
    ringdb_db *db = open_store(uri, dir, "upkeep"), *copy = NULL, *reader = NULL;
    ringdb_value *text = NULL;
    ringdb_slice from = of("k1"), to = of("k5");
    char key[16];
    for (int i = 0; i < 2000; i++) {
        snprintf(key, sizeof key, "k%d", i);
        put(db, key, "a value that takes some room on the disk");
    }
    OK(ringdb_flush(db, &e));
    OK(ringdb_compact(db, NULL, NULL, 0, &e));
    OK(ringdb_compact(db, &from, &to, RINGDB_TO_INCLUDED, &e));
    INVALID(ringdb_compact(db, &from, &to, 8, &e));
    OK(ringdb_wait_idle(db, &e));
    OK(ringdb_stats(db, &text, &e));
    CHECK(strstr(ringdb_value_data(text), "\"table_entries\": 2000") && ringdb_value_len(text) > 100);
    ringdb_value_free(text);
    OK(ringdb_checkpoint(db, in_dir("copy"), &e));
    CHECK(ringdb_checkpoint(db, in_dir("copy"), &e) < 0 && e.message[0]);
    INVALID(ringdb_checkpoint(db, "", &e));
    CHECK(ringdb_verify(db, &text, &e) == 0 && strstr(ringdb_value_data(text), "\"problems\": []"));
    ringdb_value_free(text);
    CHECK(ringdb_verify(db, NULL, &e) == 0);
    {
        ringdb_options *o = small(uri);
        OK(ringdb_open_read_only(in_dir("upkeep"), o, &reader, &e));
        ringdb_options_free(o);
    }
    CHECK(has(reader, "k7", "a value that takes some room on the disk"));
    FAILS(RINGDB_READ_ONLY, ringdb_put(reader, "k", 1, "v", 1, NULL, &e));
    ringdb_release(reader);
    copy = open_store(uri, dir, "copy");
    CHECK(has(copy, "k1999", "a value that takes some room on the disk"));
    OK(ringdb_close(copy, &e));
    ringdb_release(copy);
    ringdb_release(db);
    CHECK(ringdb_verify_dir(in_dir("copy"), NULL, &text, &e) == 0);
    ringdb_value_free(text);
    /* Damage: told, and everything else salvaged. */
    {
        FILE *f = fopen(in_dir("copy/CURRENT"), "w");
        CHECK(f && fputs("nonsense", f) >= 0 && fclose(f) == 0);
    }
    FAILS(RINGDB_CORRUPT, ringdb_open(in_dir("copy"), NULL, &copy, &e));
    CHECK(e.kind == RINGDB_KIND_REPAIR);
    CHECK(ringdb_verify_dir(in_dir("copy"), NULL, &text, &e) == 1 && strstr(ringdb_value_data(text), "\"kind\":"));
    ringdb_value_free(text);
    INVALID(ringdb_salvage(in_dir("copy"), in_dir("saved"), NULL, 2, NULL, &e));
    OK(ringdb_salvage(in_dir("copy"), in_dir("saved"), uri, 0, &text, &e));
    ringdb_value_free(text);
    copy = open_store(uri, dir, "saved");
    CHECK(has(copy, "k1999", "a value that takes some room on the disk"));
    ringdb_release(copy);
}

/* Whether one line of `text` begins and ends so. */
static int has_line(const char *text, const char *begin, const char *end) {
    const size_t b = strlen(begin), n = strlen(end);
    for (const char *line = text, *stop; *line; line = stop + 1) {
        size_t len;
        stop = strchr(line, '\n');
        CHECK(stop != NULL);
        len = (size_t)(stop - line);
        if (len >= b + n && strncmp(line, begin, b) == 0 && strncmp(stop - n, end, n) == 0)
            return 1;
    }
    return 0;
}

static void metrics(void) {
    /* Timed: each get, or none. */
    for (uint32_t one_in = 0; one_in < 2; one_in++) {
        const char *of_gets = "ringdb_operation_seconds_count{store=", *batches = "ringdb_write_batches_total{store=";
        ringdb_options *o = small(uri);
        ringdb_db *db = NULL, *users = NULL;
        ringdb_value *text = NULL;
        OK(ringdb_options_set_time_one_in(o, one_in, &e));
        OK(ringdb_open(in_dir(one_in ? "timed" : "untimed"), o, &db, &e));
        OK(ringdb_keyspace(db, "users", &users, &e));
        put(db, "a", "1"), put(users, "b", "2");
        CHECK(has(db, "a", "1") && has(db, "a", "1") && has(users, "b", "2"));
        /* Of the whole store, whichever handle it is. */
        OK(ringdb_metrics(users, 0, &text, &e));
        CHECK(has_line(ringdb_value_data(text), "# TYPE ringdb_write_batches_total counter", ""));
        CHECK(has_line(ringdb_value_data(text), batches, "} 2"));
        /* Each look is a get, a get into a buffer, and a multi_get. */
        CHECK(has_line(ringdb_value_data(text), of_gets, one_in ? ",operation=\"get\"} 6" : ",operation=\"get\"} 0"));
        CHECK(strstr(ringdb_value_data(text), "# EOF") == NULL);
        ringdb_value_free(text);
        OK(ringdb_metrics(db, 1, &text, &e));
        CHECK(has_line(ringdb_value_data(text), "# TYPE ringdb_write_batches counter", ""));
        CHECK(strcmp((const char *)ringdb_value_data(text) + ringdb_value_len(text) - 6, "# EOF\n") == 0);
        ringdb_value_free(text), text = NULL;
        INVALID(ringdb_metrics(db, 2, &text, &e));
        INVALID(ringdb_metrics(db, 0, NULL, &e));
        INVALID(ringdb_metrics(NULL, 0, &text, &e));
        OK(ringdb_close(db, &e));
        FAILS(RINGDB_CLOSED, ringdb_metrics(db, 0, &text, &e));
        CHECK(text == NULL);
        ringdb_release(users), ringdb_release(db), ringdb_options_free(o);
    }
    INVALID(ringdb_options_set_time_one_in(NULL, 1, &e));
}

static void after_the_end(void) {
    ringdb_db *db = open_store(uri, dir, "end"), *users = NULL, *then = NULL, *no = NULL;
    ringdb_iter *iter = NULL;
    ringdb_reads *reads = NULL;
    ringdb_value *value = NULL;
    OK(ringdb_keyspace(db, "users", &users, &e));
    OK(ringdb_snapshot(db, &then, &e));
    OK(ringdb_reads_open(db, 4, NULL, &reads, &e));
    OK(ringdb_range(db, NULL, NULL, 0, NULL, &iter, &e));
    OK(ringdb_close(users, &e));
    FAILS(RINGDB_CLOSED, ringdb_close(db, &e));
    FAILS(RINGDB_CLOSED, ringdb_get(db, "k", 1, NULL, &value, &e));
    FAILS(RINGDB_CLOSED, ringdb_get(then, "k", 1, NULL, &value, &e));
    FAILS(RINGDB_CLOSED, ringdb_put(users, "k", 1, "v", 1, NULL, &e));
    FAILS(RINGDB_CLOSED, ringdb_snapshot(db, &no, &e));
    FAILS(RINGDB_CLOSED, ringdb_keyspace(db, "more", &no, &e));
    FAILS(RINGDB_CLOSED, ringdb_reads_submit(reads, 1, "k", 1, &e));
    FAILS(RINGDB_CLOSED, ringdb_reads_wait(reads, 1, NULL, &e));
    FAILS(RINGDB_CLOSED, ringdb_flush(db, &e));
    FAILS(RINGDB_CLOSED, ringdb_sync(db, &e));
    FAILS(RINGDB_CLOSED, ringdb_stats(db, &value, &e));
    CHECK(e.kind == RINGDB_KIND_STOP && value == NULL);
    ringdb_iter_free(iter);
    ringdb_reads_free(reads);
    ringdb_release(then), ringdb_release(users), ringdb_release(db);
}

static void nothing_is_refused(void) {
    ringdb_db *db = open_store(uri, dir, "null"), *no = NULL;
    ringdb_batch *batch = ringdb_batch_new();
    ringdb_value *value = NULL;
    ringdb_values *values = NULL;
    ringdb_iter *iter = NULL;
    ringdb_slice slice, bad = {NULL, 3};
    size_t len;
    INVALID(ringdb_open(NULL, NULL, &no, &e));
    INVALID(ringdb_open("", NULL, &no, &e));
    INVALID(ringdb_open(in_dir("x"), NULL, NULL, &e));
    INVALID(ringdb_open_read_only(NULL, NULL, &no, &e));
    INVALID(ringdb_close(NULL, &e));
    INVALID(ringdb_get(NULL, "k", 1, NULL, &value, &e));
    INVALID(ringdb_get(db, NULL, 1, NULL, &value, &e));
    INVALID(ringdb_get(db, "k", SIZE_MAX, NULL, &value, &e));
    INVALID(ringdb_get(db, "k", 1, NULL, NULL, &e));
    INVALID(ringdb_get_into(db, "k", 1, NULL, NULL, 1, &len, &e));
    INVALID(ringdb_get_into(db, "k", 1, NULL, &slice, sizeof slice, NULL, &e));
    INVALID(ringdb_multi_get(db, NULL, 1, NULL, &values, &e));
    INVALID(ringdb_multi_get(db, &bad, 1, NULL, &values, &e));
    INVALID(ringdb_multi_get(db, &bad, SIZE_MAX / 16, NULL, &values, &e));
    OK(ringdb_multi_get(db, NULL, 0, NULL, &values, &e));
    CHECK(ringdb_values_count(values) == 0);
    ringdb_values_free(values);
    INVALID(ringdb_put(db, NULL, 3, "v", 1, NULL, &e));
    INVALID(ringdb_put(db, "k", 1, NULL, 1, NULL, &e));
    INVALID(ringdb_put(db, "k", 1, "v", (size_t)PTRDIFF_MAX + 1, NULL, &e));
    INVALID(ringdb_delete(NULL, "k", 1, NULL, &e));
    INVALID(ringdb_batch_put(NULL, db, "k", 1, "v", 1, &e));
    INVALID(ringdb_batch_delete(batch, db, NULL, 1, &e));
    INVALID(ringdb_batch_clear(NULL, &e));
    INVALID(ringdb_batch_size(NULL, &len, NULL, &e));
    INVALID(ringdb_write(NULL, batch, NULL, &e));
    INVALID(ringdb_write(db, NULL, NULL, &e));
    INVALID(ringdb_range(NULL, NULL, NULL, 0, NULL, &iter, &e));
    INVALID(ringdb_range(db, NULL, NULL, 0, NULL, NULL, &e));
    INVALID(ringdb_prefix(db, NULL, 1, NULL, &iter, &e));
    INVALID(ringdb_iter_next(NULL, &slice, &slice, &e));
    INVALID(ringdb_snapshot(db, NULL, &e));
    INVALID(ringdb_keyspaces(NULL, &values, &e));
    INVALID(ringdb_keyspace_name(db, NULL, &e));
    INVALID(ringdb_flush(NULL, &e));
    INVALID(ringdb_stats(db, NULL, &e));
    INVALID(ringdb_verify(NULL, NULL, &e));
    INVALID(ringdb_salvage(NULL, "x", NULL, 0, NULL, &e));
    CHECK(ringdb_value_data(NULL) == NULL && ringdb_value_len(NULL) == 0 && ringdb_values_count(NULL) == 0);
    CHECK(ringdb_values_get(NULL, 0, &slice) == RINGDB_INVALID_ARGUMENT);
    CHECK(ringdb_request_cancel(NULL) == 0);
    ringdb_value_free(NULL), ringdb_values_free(NULL), ringdb_options_free(NULL), ringdb_batch_free(NULL);
    ringdb_iter_free(NULL), ringdb_release(NULL), ringdb_request_free(NULL), ringdb_reads_free(NULL);
    ringdb_writes_free(NULL);
    ringdb_batch_free(batch);
    ringdb_release(db);
}

int main(int argc, char **argv) {
    if (argc != 3)
        return 2;
    uri = argv[1], dir = argv[2];
    versions();
    reads_and_writes();
    options_are_checked();
    structs_of_other_sizes();
    batches_and_keyspaces();
    scans_and_snapshots();
    ranges_and_swaps();
    transactions();
    options_as_text();
    encryption();
    upkeep();
    metrics();
    after_the_end();
    nothing_is_refused();
    printf("passed\n");
    return 0;
}
