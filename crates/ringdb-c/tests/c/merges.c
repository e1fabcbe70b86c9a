/* Merge operators, times to live, ingests and exports. Usage: merges URI DIRECTORY */
#include "check.h"

#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

static const char *dir;

static char *in_dir(const char *name) {
    static char path[600];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    return path;
}

/* What the callbacks have been called with. */
struct seen {
    pthread_mutex_t lock;
    int merges, partials, checks, drops, nothing;
};

static void note(struct seen *s, int *count) {
    pthread_mutex_lock(&s->lock);
    ++*count;
    pthread_mutex_unlock(&s->lock);
}

/* One behind the other, in brackets; "fail" fails, and "none" gives nothing. */
static void add(ringdb_merge_result *result, ringdb_slice part) {
    ringdb_error inner;
    CHECK(ringdb_merge_result_append(result, part.data, part.len, &inner) == RINGDB_OK && inner.code == RINGDB_OK);
}

static int is(ringdb_slice s, const char *text) {
    return s.len == strlen(text) && !memcmp(s.data, text, s.len);
}

static void merge(void *user, ringdb_slice key, const ringdb_slice *value, const ringdb_slice *operands, size_t count,
                  ringdb_merge_result *result) {
    struct seen *s = (struct seen *)user;
    CHECK(count > 0 && key.len > 0);
    note(s, &s->merges);
    if (is(key, "none")) {
        note(s, &s->nothing);
        return;
    }
    if (is(key, "fail")) {
        CHECK(ringdb_merge_result_append(result, "half", 4, NULL) == RINGDB_OK);
        CHECK(ringdb_merge_result_fail(result, "this key is not merged", NULL) == RINGDB_OK);
        return;
    }
    if (is(key, "latin")) {
        /* A message in another encoding, of the system's say: a failure all the same. */
        CHECK(ringdb_merge_result_append(result, "half", 4, NULL) == RINGDB_OK);
        CHECK(ringdb_merge_result_fail(result, "d\xe9j\xe0", NULL) == RINGDB_INVALID_ARGUMENT);
        return;
    }
    if (is(key, "huge")) {
        ringdb_error inner;
        CHECK(ringdb_merge_result_append(result, s, (size_t)-1, &inner) == RINGDB_INVALID_ARGUMENT);
    }
    CHECK(ringdb_merge_result_append(result, NULL, 0, NULL) == RINGDB_OK);
    if (value)
        add(result, *value);
    for (size_t i = 0; i < count; i++)
        add(result, operands[i]);
}

static void partial(void *user, ringdb_slice key, const ringdb_slice *value, const ringdb_slice *operands, size_t count,
                    ringdb_merge_result *result) {
    struct seen *s = (struct seen *)user;
    CHECK(value == NULL && count > 1);
    note(s, &s->partials);
    if (is(key, "apart"))
        return;
    for (size_t i = 0; i < count; i++)
        add(result, operands[i]);
}

static void check(void *user, ringdb_slice operand, ringdb_merge_result *result) {
    struct seen *s = (struct seen *)user;
    note(s, &s->checks);
    if (operand.len == 0)
        CHECK(ringdb_merge_result_fail(result, "an operand of nothing", NULL) == RINGDB_OK);
    if (is(operand, "refused without a reason"))
        CHECK(ringdb_merge_result_fail(result, NULL, NULL) == RINGDB_INVALID_ARGUMENT);
}

static void dropped(void *user) {
    struct seen *s = (struct seen *)user;
    note(s, &s->drops);
}

static void has(ringdb_db *db, const char *key, const char *wanted) {
    ringdb_value *value = NULL;
    int found = ringdb_get(db, key, strlen(key), NULL, &value, &e);
    CHECK(e.code == RINGDB_OK && found == (wanted != NULL));
    if (wanted)
        CHECK(ringdb_value_len(value) == strlen(wanted) && !memcmp(ringdb_value_data(value), wanted, strlen(wanted)));
    ringdb_value_free(value);
}

static ringdb_merge_operator operator_of(struct seen *s) {
    ringdb_merge_operator c = RINGDB_MERGE_OPERATOR_INIT;
    c.name = "join", c.user = s, c.merge = merge, c.partial_merge = partial, c.check = check, c.drop = dropped;
    return c;
}

static void operators_are_checked(struct seen *s) {
    ringdb_options *options = ringdb_options_new();
    ringdb_merge_operator c = operator_of(s), bad;
    INVALID(ringdb_options_register_merge_operator(NULL, &c, &e));
    INVALID(ringdb_options_register_merge_operator(options, NULL, &e));
    bad = c, bad.size = 3;
    INVALID(ringdb_options_register_merge_operator(options, &bad, &e));
    bad = c, bad.reserved = 1;
    INVALID(ringdb_options_register_merge_operator(options, &bad, &e));
    bad = c, bad.name = NULL;
    INVALID(ringdb_options_register_merge_operator(options, &bad, &e));
    bad = c, bad.name = "";
    INVALID(ringdb_options_register_merge_operator(options, &bad, &e));
    bad = c, bad.name = "\xff";
    INVALID(ringdb_options_register_merge_operator(options, &bad, &e));
    bad = c, bad.merge = NULL;
    INVALID(ringdb_options_register_merge_operator(options, &bad, &e));
    CHECK(s->drops == 0);
    OK(ringdb_options_register_merge_operator(options, &c, &e));
    OK(ringdb_options_register_merge_operator(options, &c, &e));
    CHECK(s->drops == 1);
    ringdb_options_free(options);
    CHECK(s->drops == 2);
    s->drops = 0;
    INVALID(ringdb_merge_result_append(NULL, "x", 1, &e));
    INVALID(ringdb_merge_result_fail(NULL, "x", &e));
}

static ringdb_db *open_with(const char *uri, struct seen *s) {
    ringdb_db *db = NULL;
    ringdb_options *options = small(uri);
    ringdb_merge_operator c = operator_of(s);
    OK(ringdb_options_register_merge_operator(options, &c, &e));
    OK(ringdb_open(in_dir("merges"), options, &db, &e));
    ringdb_options_free(options);
    return db;
}

static void *many_merges(void *of) {
    ringdb_error own;
    for (int i = 0; i < 500; i++)
        CHECK(ringdb_merge((ringdb_db *)of, "threads", 7, ".", 1, NULL, &own) == RINGDB_OK);
    return NULL;
}

static void by_callback(const char *uri, struct seen *s) {
    ringdb_db *db = open_with(uri, s), *list = NULL, *same = NULL, *snapshot = NULL;
    ringdb_write_options how = RINGDB_WRITE_OPTIONS_INIT;
    ringdb_batch *batch = ringdb_batch_new();
    ringdb_transaction *tx = NULL, *other = NULL;
    ringdb_value *value = NULL;
    pthread_t threads[3];
    char dots[1501];
    how.durability = RINGDB_DURABILITY_SYNC;
    INVALID(ringdb_merge(db, "k", 1, "x", 1, NULL, &e));
    CHECK(strstr(e.message, "merge operator"));
    INVALID(ringdb_keyspace_with(db, "list", "merge_operator = 'joy'", &list, &e));
    OK(ringdb_keyspace_with(db, "list", "merge_operator = 'join'", &list, &e));
    OK(ringdb_keyspace_settings(list, &value, &e));
    CHECK(strstr((const char *)ringdb_value_data(value), "\"join\""));
    ringdb_value_free(value);

    OK(ringdb_put(list, "k", 1, "a", 1, NULL, &e));
    OK(ringdb_merge(list, "k", 1, "b", 1, NULL, &e));
    OK(ringdb_merge(list, "k", 1, "c", 1, &how, &e));
    OK(ringdb_batch_merge(batch, list, "k", 1, "d", 1, &e));
    OK(ringdb_batch_merge(batch, list, "new", 3, "d", 1, &e));
    OK(ringdb_write(db, batch, NULL, &e));
    has(list, "k", "abcd"), has(list, "new", "d");
    INVALID(ringdb_merge(list, "k", 1, "", 0, NULL, &e));
    CHECK(strstr(e.message, "an operand of nothing"));
    OK(ringdb_batch_clear(batch, &e));
    OK(ringdb_batch_merge(batch, NULL, "k", 1, "d", 1, &e));
    INVALID(ringdb_write(db, batch, NULL, &e));
    OK(ringdb_snapshot(list, &snapshot, &e));
    FAILS(RINGDB_READ_ONLY, ringdb_merge(snapshot, "k", 1, "x", 1, NULL, &e));
    FAILS(RINGDB_READ_ONLY, ringdb_batch_merge(batch, snapshot, "k", 1, "x", 1, &e));
    INVALID(ringdb_merge(NULL, "k", 1, "x", 1, NULL, &e));
    INVALID(ringdb_batch_merge(NULL, NULL, "k", 1, "x", 1, &e));

    /* Blind merges do not conflict; who has read does. */
    OK(ringdb_transaction_begin(db, &tx, &e));
    OK(ringdb_transaction_begin(list, &other, &e));
    OK(ringdb_transaction_merge(tx, list, "k", 1, "e", 1, &e));
    OK(ringdb_transaction_merge(other, NULL, "k", 1, "f", 1, &e));
    INVALID(ringdb_transaction_merge(tx, NULL, "k", 1, "e", 1, &e));
    OK(ringdb_transaction_commit(tx, NULL, &e));
    OK(ringdb_transaction_commit(other, NULL, &e));
    INVALID(ringdb_transaction_merge(other, NULL, "k", 1, "f", 1, &e));
    ringdb_transaction_free(tx), ringdb_transaction_free(other);
    has(list, "k", "abcdef"), has(snapshot, "k", "abcd");
    OK(ringdb_transaction_begin(list, &tx, &e));
    OK(ringdb_transaction_merge(tx, NULL, "k", 1, "x", 1, &e));
    CHECK(ringdb_transaction_get(tx, NULL, "k", 1, &value, &e) == 1 && ringdb_value_len(value) == 7);
    ringdb_value_free(value);
    OK(ringdb_merge(list, "k", 1, "g", 1, NULL, &e));
    FAILS(RINGDB_CONFLICT, ringdb_transaction_commit(tx, NULL, &e));
    ringdb_transaction_free(tx);

    /* What the callbacks say. */
    OK(ringdb_merge(list, "fail", 4, "x", 1, NULL, &e));
    INVALID(ringdb_get(list, "fail", 4, NULL, &value, &e));
    CHECK(strstr(e.message, "this key is not merged") && strstr(e.message, "join"));
    OK(ringdb_merge(list, "latin", 5, "x", 1, NULL, &e));
    INVALID(ringdb_get(list, "latin", 5, NULL, &value, &e));
    CHECK(strstr(e.message, "the reason is not UTF-8"));
    INVALID(ringdb_merge(list, "k", 1, "refused without a reason", 24, NULL, &e));
    CHECK(strstr(e.message, "the reason is NULL"));
    OK(ringdb_merge(list, "none", 4, "x", 1, NULL, &e));
    INVALID(ringdb_get(list, "none", 4, NULL, &value, &e));
    CHECK(strstr(e.message, "given no value") && s->nothing > 0);
    OK(ringdb_merge(list, "huge", 4, "x", 1, NULL, &e));
    has(list, "huge", "x");

    /* Many operands, from several threads, merged among themselves by reads, flushes and compactions. */
    for (int i = 0; i < 3; i++)
        CHECK(pthread_create(&threads[i], NULL, many_merges, list) == 0);
    for (int i = 0; i < 100; i++)
        OK(ringdb_merge(list, "apart", 5, "-", 1, NULL, &e));
    for (int i = 0; i < 3; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    memset(dots, '.', 1500), dots[1500] = 0;
    has(list, "threads", dots);
    CHECK(s->partials > 0);
    OK(ringdb_flush(db, &e));
    OK(ringdb_compact(list, NULL, NULL, 0, &e));
    has(list, "threads", dots), has(list, "k", "abcdefg");
    dots[100] = 0, memset(dots, '-', 100);
    has(list, "apart", dots);
    CHECK(s->checks > 1600 && s->drops == 0);

    OK(ringdb_keyspace(db, "list", &same, &e));
    INVALID(ringdb_keyspace_alter(same, "merge_operator = 'add'", &e));
    ringdb_batch_free(batch);
    ringdb_release(snapshot), ringdb_release(same), ringdb_release(list);
    OK(ringdb_close(db, &e));
    ringdb_release(db);
    CHECK(s->drops == 1);

    /* Without the operator: all but what needs it. */
    ringdb_options *options = small(uri);
    OK(ringdb_open(in_dir("merges"), options, &db, &e));
    OK(ringdb_existing_keyspace(db, "list", &list, &e) == 1 ? RINGDB_OK : -1);
    INVALID(ringdb_merge(list, "k", 1, "x", 1, NULL, &e));
    CHECK(strstr(e.message, "'join'"));
    ringdb_options_free(options);
    ringdb_release(list), ringdb_release(db);
}

static void locks(ringdb_db *db) {
    ringdb_transaction *one = NULL, *other = NULL;
    ringdb_slice keys[2] = {{"b", 1}, {"a", 1}};
    ringdb_iter *iter = NULL;
    ringdb_value *value = NULL;
    OK(ringdb_transaction_begin(db, &one, &e));
    OK(ringdb_transaction_begin(db, &other, &e));
    OK(ringdb_put(db, "a", 1, "since they began", 16, NULL, &e));
    OK(ringdb_transaction_lock(one, NULL, keys, 2, 0, &e));
    CHECK(ringdb_transaction_get(one, NULL, "a", 1, &value, &e) == 1);
    ringdb_value_free(value);
    OK(ringdb_transaction_put(one, NULL, "a", 1, "1", 1, &e));
    FAILS(RINGDB_KEY_LOCKED, ringdb_transaction_lock(other, db, keys + 1, 1, 1000, &e));
    CHECK(e.kind == RINGDB_KIND_RETRY && strstr(e.message, "\"a\""));
    CHECK(!strcmp(ringdb_code_name(RINGDB_KEY_LOCKED), "key locked"));
    OK(ringdb_transaction_commit(one, NULL, &e));
    OK(ringdb_transaction_lock(other, db, keys + 1, 1, 1000, &e));
    OK(ringdb_transaction_range(other, NULL, NULL, NULL, 0, &iter, &e));
    INVALID(ringdb_transaction_lock(other, db, keys, 2, 0, &e));
    ringdb_iter_free(iter);
    OK(ringdb_transaction_lock(other, db, keys, 2, 0, &e));
    INVALID(ringdb_transaction_lock(other, db, NULL, 2, 0, &e));
    INVALID(ringdb_transaction_lock(NULL, db, keys, 2, 0, &e));
    INVALID(ringdb_transaction_lock(one, db, keys, 2, 0, &e));
    ringdb_transaction_free(one), ringdb_transaction_free(other);
    OK(ringdb_delete(db, "a", 1, NULL, &e));
}

static void by_name(ringdb_db *db) {
    ringdb_db *counts = NULL, *tags = NULL;
    uint64_t one = 1, sum = 0;
    size_t len = 0;
    OK(ringdb_keyspace_with(db, "counts", "merge_operator = 'add'", &counts, &e));
    OK(ringdb_keyspace_with(db, "tags", "merge_operator = 'append:, '", &tags, &e));
    for (int i = 0; i < 42; i++)
        OK(ringdb_merge(counts, "n", 1, &one, sizeof one, NULL, &e));
    CHECK(ringdb_get_into(counts, "n", 1, NULL, &sum, sizeof sum, &len, &e) == 1 && len == 8 && sum == 42);
    INVALID(ringdb_merge(counts, "n", 1, &one, 7, NULL, &e));
    OK(ringdb_merge(tags, "n", 1, "red", 3, NULL, &e));
    OK(ringdb_merge(tags, "n", 1, "new", 3, NULL, &e));
    has(tags, "n", "red, new");
    INVALID(ringdb_keyspace_with(db, "x", "merge_operator = 5", &tags, &e));
    INVALID(ringdb_keyspace_with(db, "x", NULL, &tags, &e));
    INVALID(ringdb_keyspace_with(db, "x", "", NULL, &e));
    INVALID(ringdb_keyspace_with(db, NULL, "", &tags, &e));
    INVALID(ringdb_keyspace_alter(counts, "cache_bytes = 5", &e));
    CHECK(ringdb_existing_keyspace(db, "x", &tags, &e) == 0);
    INVALID(ringdb_keyspace_settings(counts, NULL, &e));
    ringdb_release(counts), ringdb_release(tags);
}

static void times_to_live(ringdb_db *db) {
    ringdb_db *short_lived = NULL;
    ringdb_write_options how = RINGDB_WRITE_OPTIONS_INIT;
    ringdb_batch *batch = ringdb_batch_new();
    how.durability = RINGDB_DURABILITY_SYNC;
    OK(ringdb_put(db, "old", 3, "below", 5, NULL, &e));
    OK(ringdb_put_with_ttl(db, "old", 3, "x", 1, 1, NULL, &e));
    OK(ringdb_put_with_ttl(db, "late", 4, "x", 1, 3600000, &how, &e));
    OK(ringdb_batch_put_with_ttl(batch, NULL, "in a batch", 10, "x", 1, 1, &e));
    OK(ringdb_batch_put_with_ttl(batch, db, "for ever", 8, "x", 1, UINT64_MAX, &e));
    OK(ringdb_write(db, batch, NULL, &e));
    OK(ringdb_keyspace_with(db, "short", "time_to_live = '1 ms'", &short_lived, &e));
    OK(ringdb_put(short_lived, "k", 1, "x", 1, NULL, &e));
    usleep(5000);
    has(db, "old", NULL), has(db, "late", "x"), has(db, "in a batch", NULL), has(db, "for ever", "x");
    has(short_lived, "k", NULL);
    INVALID(ringdb_put_with_ttl(db, "k", 1, "x", 1, 0, NULL, &e));
    OK(ringdb_batch_clear(batch, &e));
    OK(ringdb_batch_put_with_ttl(batch, db, "k", 1, "x", 1, 0, &e));
    INVALID(ringdb_write(db, batch, NULL, &e));
    INVALID(ringdb_put_with_ttl(NULL, "k", 1, "x", 1, 1, NULL, &e));
    INVALID(ringdb_batch_put_with_ttl(NULL, NULL, "k", 1, "x", 1, 1, &e));
    OK(ringdb_keyspace_alter(short_lived, "time_to_live = 0", &e));
    OK(ringdb_put(short_lived, "k", 1, "x", 1, NULL, &e));
    usleep(3000);
    has(short_lived, "k", "x");
    ringdb_batch_free(batch), ringdb_release(short_lived);
}

static void tables_in_and_out(ringdb_db *db) {
    ringdb_db *squares = NULL, *there = NULL, *snapshot = NULL;
    ringdb_ingester *in = NULL;
    ringdb_value *report = NULL;
    ringdb_slice from = {"0010", 4}, to = {"0020", 4};
    uint64_t pairs = 99;
    char key[16], value[16], exported[600];
    strcpy(exported, in_dir("exported"));
    OK(ringdb_keyspace(db, "squares", &squares, &e));
    OK(ringdb_put(squares, "0003", 4, "older", 5, NULL, &e));
    OK(ringdb_ingester_open(squares, &in, &e));
    for (int i = 0; i < 5000; i++) {
        snprintf(key, sizeof key, "%04d", i), snprintf(value, sizeof value, "%d", i * i);
        OK(ringdb_ingester_add(in, key, 4, value, strlen(value), &e));
    }
    has(squares, "0003", "older"), has(squares, "0004", NULL);
    OK(ringdb_ingester_finish(in, &pairs, &e));
    CHECK(pairs == 5000);
    has(squares, "0003", "9"), has(squares, "4999", "24990001");
    INVALID(ringdb_ingester_add(in, "z", 1, "", 0, &e));
    INVALID(ringdb_ingester_finish(in, NULL, &e));
    ringdb_ingester_free(in);
    /* The wrong order, and one that is given up. */
    OK(ringdb_ingester_open(squares, &in, &e));
    OK(ringdb_ingester_add(in, "b", 1, NULL, 0, &e));
    INVALID(ringdb_ingester_add(in, "a", 1, "", 0, &e));
    INVALID(ringdb_ingester_finish(in, NULL, &e));
    ringdb_ingester_free(in);
    OK(ringdb_ingester_open(squares, &in, &e));
    OK(ringdb_ingester_add(in, "b", 1, "", 0, &e));
    ringdb_ingester_free(in);
    has(squares, "b", NULL);
    OK(ringdb_snapshot(squares, &snapshot, &e));
    FAILS(RINGDB_READ_ONLY, ringdb_ingester_open(snapshot, &in, &e));
    INVALID(ringdb_ingester_open(NULL, &in, &e));
    INVALID(ringdb_ingester_open(db, NULL, &e));
    INVALID(ringdb_ingester_add(NULL, "b", 1, "", 0, &e));
    INVALID(ringdb_ingester_finish(NULL, NULL, &e));

    OK(ringdb_export_range(snapshot, &from, &to, RINGDB_TO_INCLUDED, exported, &report, &e));
    CHECK(strstr((const char *)ringdb_value_data(report), "\"pairs\": 11"));
    ringdb_value_free(report);
    INVALID(ringdb_export_range(squares, NULL, NULL, 0, exported, NULL, &e));
    CHECK(strstr(e.message, "not empty"));
    INVALID(ringdb_export_range(squares, NULL, NULL, 77, in_dir("x"), NULL, &e));
    INVALID(ringdb_export_range(squares, NULL, NULL, 0, NULL, NULL, &e));
    OK(ringdb_keyspace(db, "there", &there, &e));
    OK(ringdb_import_tables(there, exported, &pairs, &e));
    CHECK(pairs == 11);
    has(there, "0012", "144"), has(there, "0020", "400"), has(there, "0021", NULL);
    INVALID(ringdb_import_tables(there, in_dir("nothing there"), NULL, &e));
    FAILS(RINGDB_READ_ONLY, ringdb_import_tables(snapshot, exported, NULL, &e));
    INVALID(ringdb_import_tables(there, NULL, NULL, &e));
    ringdb_release(snapshot), ringdb_release(squares), ringdb_release(there);
}

static void *half_of_an_ingest(void *of) {
    ringdb_error own;
    ringdb_ingester *in = (ringdb_ingester *)of;
    char key[16], value[1000] = {0};
    for (int i = 0; i < 2000; i++) {
        snprintf(key, sizeof key, "%08d", i);
        CHECK(ringdb_ingester_add(in, key, 8, value, sizeof value, &own) == RINGDB_OK);
    }
    return NULL;
}

/* Opened by one thread, filled by a second, finished by a third; then a child that has it by fork(). */
static void ingesters_move_between_threads(ringdb_db *db) {
    ringdb_db *moved = NULL;
    ringdb_ingester *in = NULL, *never = NULL;
    pthread_t thread;
    uint64_t pairs = 0;
    pid_t child;
    int status = -1;
    OK(ringdb_keyspace(db, "moved", &moved, &e));
    OK(ringdb_ingester_open(moved, &in, &e));
    CHECK(pthread_create(&thread, NULL, half_of_an_ingest, in) == 0 && pthread_join(thread, NULL) == 0);
    OK(ringdb_ingester_open(moved, &never, &e));
    OK(ringdb_ingester_add(never, "a", 1, "x", 1, &e));
    child = fork();
    if (child == 0) {
        alarm(60);
        INVALID(ringdb_ingester_add(in, "zz", 2, "child", 5, &e));
        CHECK(strstr(e.message, "fork"));
        INVALID(ringdb_ingester_finish(in, NULL, &e));
        ringdb_ingester_free(in), ringdb_ingester_free(never);
        _exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    ringdb_ingester_free(never);
    OK(ringdb_ingester_add(in, "zz", 2, "parent", 6, &e));
    OK(ringdb_ingester_finish(in, &pairs, &e));
    CHECK(pairs == 2001);
    has(moved, "zz", "parent");
    ringdb_ingester_free(in), ringdb_release(moved);
}

int main(int argc, char **argv) {
    static struct seen seen = {PTHREAD_MUTEX_INITIALIZER, 0, 0, 0, 0, 0};
    ringdb_db *db;
    ringdb_ingester *in = NULL, *late = NULL;
    if (argc != 3)
        return 2;
    dir = argv[2];
    db = open_store(argv[1], dir, "tables");
    operators_are_checked(&seen);
    by_callback(argv[1], &seen);
    locks(db);
    by_name(db);
    times_to_live(db);
    tables_in_and_out(db);
    ingesters_move_between_threads(db);
    ringdb_ingester_free(NULL);
    /* What is left of a closed store. */
    OK(ringdb_ingester_open(db, &in, &e));
    OK(ringdb_ingester_add(in, "k", 1, "v", 1, &e));
    OK(ringdb_close(db, &e));
    FAILS(RINGDB_CLOSED, ringdb_ingester_finish(in, NULL, &e));
    FAILS(RINGDB_CLOSED, ringdb_ingester_open(db, &late, &e));
    FAILS(RINGDB_CLOSED, ringdb_merge(db, "k", 1, "v", 1, NULL, &e));
    FAILS(RINGDB_CLOSED, ringdb_put_with_ttl(db, "k", 1, "v", 1, 1, NULL, &e));
    ringdb_ingester_free(in), ringdb_release(db);
    printf("passed\n");
    return 0;
}
