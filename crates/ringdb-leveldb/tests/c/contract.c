/* Every function of the interface, by what the header says of it. */
#include "check.h"

#include <sys/stat.h>

static leveldb_readoptions_t *reading;
static leveldb_writeoptions_t *writing;
static char path[1000];

/* Whether the value of a key is this one; NULL is none. */
static int has(leveldb_t *db, const char *key, const char *wanted) {
    size_t len = 99;
    char *value = leveldb_get(db, reading, key, strlen(key), &len, &err);
    int same = wanted == NULL ? value == NULL && len == 0
                              : value != NULL && len == strlen(wanted) && memcmp(value, wanted, len) == 0;
    CHECK(err == NULL);
    free(value);
    return same;
}

static void put(leveldb_t *db, const char *key, const char *value) {
    leveldb_put(db, writing, key, strlen(key), value, strlen(value), &err);
    CHECK(err == NULL);
}

static const char *in(const char *dir, const char *name) {
    snprintf(path, sizeof path, "%s/%s", dir, name);
    return path;
}

static void opening(const char *dir, leveldb_options_t *options) {
    leveldb_t *db, *second;
    const char *name = in(dir, "store");
    CHECK(leveldb_open(options, name, &err) == NULL);
    FAILED("Invalid argument: ");
    CHECK(leveldb_open(options, name, &err) == NULL);
    FAILED("does not exist (create_if_missing is false)");
    leveldb_repair_db(options, name, &err);
    FAILED("no store");
    leveldb_destroy_db(options, name, &err);
    CHECK(err == NULL);
    CHECK(leveldb_open(NULL, name, &err) == NULL);
    FAILED("NULL for the options");
    CHECK(leveldb_open(options, NULL, &err) == NULL);
    FAILED("the path is NULL");

    leveldb_options_set_create_if_missing(options, 1);
    db = leveldb_open(options, name, &err);
    CHECK(db != NULL && err == NULL);
    put(db, "a", "1");
    /* An old message is freed, a call that succeeds leaves it alone. */
    err = strdup("old");
    second = leveldb_open(options, name, &err);
    CHECK(second == NULL && strcmp(err, "old") != 0);
    FAILED("IO error: ");
    leveldb_destroy_db(options, name, &err);
    FAILED("IO error: ");
    err = strdup("old");
    leveldb_put(db, writing, "a", 1, "2", 1, &err);
    FAILED("old");
    leveldb_close(db);

    leveldb_options_set_error_if_exists(options, 1);
    CHECK(leveldb_open(options, name, &err) == NULL);
    FAILED("exists (error_if_exists is true)");
    leveldb_options_set_error_if_exists(options, 0);
    leveldb_options_set_create_if_missing(options, 0);
    db = leveldb_open(options, name, &err);
    CHECK(err == NULL && has(db, "a", "2"));
    leveldb_close(db);
    leveldb_close(NULL);

    leveldb_options_set_compression(options, 7);
    CHECK(leveldb_open(options, name, &err) == NULL);
    FAILED("compression 7");
    leveldb_options_set_compression(options, leveldb_no_compression);
    leveldb_options_set_info_log(options, (leveldb_logger_t *)&err);
    CHECK(leveldb_open(options, name, &err) == NULL);
    FAILED("info_log");
    leveldb_options_set_info_log(options, NULL);
}

/* Any bytes; what is too long, or not there. */
static void bytes(leveldb_t *db) {
    size_t len = 0;
    char *value;
    char *large = calloc(1, 70000);
    CHECK(large != NULL);
    leveldb_put(db, writing, "\0k\xff", 3, "\0v", 2, &err);
    CHECK(err == NULL);
    value = leveldb_get(db, reading, "\0k\xff", 3, &len, &err);
    CHECK(err == NULL && value != NULL && len == 2 && memcmp(value, "\0v", 2) == 0);
    leveldb_free(value);
    leveldb_put(db, writing, NULL, 0, NULL, 0, &err);
    CHECK(err == NULL);
    value = leveldb_get(db, reading, NULL, 0, &len, &err);
    CHECK(err == NULL && value != NULL && len == 0);
    leveldb_free(value);
    leveldb_delete(db, writing, NULL, 0, &err);
    CHECK(err == NULL && leveldb_get(db, reading, "", 0, &len, &err) == NULL && err == NULL);
    leveldb_put(db, writing, large, 70000, "v", 1, &err);
    FAILED("Invalid argument: ");
    leveldb_put(db, writing, large, 1, large, 70000, &err);
    CHECK(err == NULL);
    leveldb_put(db, writing, NULL, 3, "v", 1, &err);
    FAILED("no key of 3 bytes");
    leveldb_put(NULL, writing, "k", 1, "v", 1, &err);
    FAILED("NULL for the store");
    leveldb_put(db, NULL, "k", 1, "v", 1, &err);
    FAILED("NULL for the write options");
    CHECK(leveldb_get(db, NULL, "k", 1, &len, &err) == NULL);
    FAILED("NULL for the read options");
    CHECK(leveldb_get(db, reading, "k", 1, NULL, &err) == NULL);
    FAILED("NULL for the place for the length");
    leveldb_put(NULL, writing, "k", 1, "v", 1, NULL);
    free(large);
}

static char seen[200];

static void on_put(void *state, const char *k, size_t klen, const char *v, size_t vlen) {
    CHECK(state == seen);
    snprintf(seen + strlen(seen), sizeof seen - strlen(seen), "%.*s=%.*s ", (int)klen, k, (int)vlen, v);
}

static void on_delete(void *state, const char *k, size_t klen) {
    CHECK(state == seen);
    snprintf(seen + strlen(seen), sizeof seen - strlen(seen), "-%.*s ", (int)klen, k);
}

static void batches(leveldb_t *db) {
    leveldb_writebatch_t *batch = leveldb_writebatch_create();
    leveldb_writebatch_t *more = leveldb_writebatch_create();
    char *large = calloc(1, 70000);
    CHECK(batch != NULL && more != NULL && large != NULL);
    leveldb_write(db, writing, batch, &err);
    CHECK(err == NULL);
    leveldb_writebatch_put(batch, "gone", 4, "x", 1);
    leveldb_writebatch_clear(batch);
    leveldb_writebatch_put(batch, "b1", 2, "one", 3);
    leveldb_writebatch_put(more, "b2", 2, "two", 3);
    leveldb_writebatch_delete(more, "b1", 2);
    leveldb_writebatch_append(batch, more);
    leveldb_writebatch_append(more, more);
    seen[0] = 0;
    leveldb_writebatch_iterate(batch, seen, on_put, on_delete);
    CHECK(strcmp(seen, "b1=one b2=two -b1 ") == 0);
    seen[0] = 0;
    leveldb_writebatch_iterate(more, seen, on_put, on_delete);
    CHECK(strcmp(seen, "b2=two -b1 b2=two -b1 ") == 0);
    leveldb_write(db, writing, batch, &err);
    CHECK(err == NULL && has(db, "b1", NULL) && has(db, "b2", "two") && has(db, "gone", NULL));
    /* It stays, and can be written again. */
    put(db, "b2", "three");
    leveldb_write(db, writing, batch, &err);
    CHECK(err == NULL && has(db, "b2", "two"));
    /* What is wrong with a batch, its write tells; nothing of it is written. */
    leveldb_writebatch_clear(batch);
    leveldb_writebatch_put(batch, "b3", 2, "x", 1);
    leveldb_writebatch_put(batch, large, 70000, "x", 1);
    leveldb_write(db, writing, batch, &err);
    FAILED("Invalid argument: ");
    leveldb_writebatch_clear(batch);
    leveldb_writebatch_put(batch, "b3", 2, "x", 1);
    leveldb_writebatch_delete(batch, NULL, 5);
    leveldb_write(db, writing, batch, &err);
    FAILED("no key of 5 bytes");
    CHECK(has(db, "b3", NULL));
    leveldb_write(db, writing, NULL, &err);
    FAILED("NULL for the batch");
    leveldb_writebatch_destroy(batch);
    leveldb_writebatch_destroy(more);
    leveldb_writebatch_destroy(NULL);
    free(large);
}

/* Whether an iterator stands on this pair; NULL is nowhere. */
static int at(const leveldb_iterator_t *iter, const char *key, const char *value) {
    size_t klen = 99, vlen = 99;
    const char *k = leveldb_iter_key(iter, &klen);
    const char *v = leveldb_iter_value(iter, &vlen);
    leveldb_iter_get_error(iter, &err);
    CHECK(err == NULL);
    if (key == NULL) {
        return !leveldb_iter_valid(iter) && k == NULL && v == NULL && klen == 0 && vlen == 0;
    }
    return leveldb_iter_valid(iter) == 1 && klen == strlen(key) && memcmp(k, key, klen) == 0 && vlen == strlen(value) &&
           memcmp(v, value, vlen) == 0;
}

static void iterators(leveldb_t *db) {
    leveldb_iterator_t *iter;
    const leveldb_snapshot_t *before;
    put(db, "i1", "one");
    put(db, "i3", "three");
    put(db, "i5", "five");
    before = leveldb_create_snapshot(db);
    CHECK(before != NULL);
    iter = leveldb_create_iterator(db, reading);
    CHECK(iter != NULL && at(iter, NULL, NULL));
    leveldb_iter_next(iter);
    leveldb_iter_prev(iter);
    CHECK(at(iter, NULL, NULL));
    /* What is written meanwhile it does not see. */
    put(db, "i2", "two");
    put(db, "i3", "other");
    leveldb_delete(db, writing, "i5", 2, &err);
    CHECK(err == NULL);
    leveldb_iter_seek(iter, "i2", 2);
    CHECK(at(iter, "i3", "three"));
    leveldb_iter_next(iter);
    CHECK(at(iter, "i5", "five"));
    leveldb_iter_prev(iter);
    CHECK(at(iter, "i3", "three"));
    leveldb_iter_prev(iter);
    CHECK(at(iter, "i1", "one"));
    leveldb_iter_seek_to_last(iter);
    CHECK(at(iter, "i5", "five"));
    leveldb_iter_next(iter);
    CHECK(at(iter, NULL, NULL));
    leveldb_iter_next(iter);
    CHECK(at(iter, NULL, NULL));
    leveldb_iter_seek_to_first(iter);
    CHECK(leveldb_iter_valid(iter));
    leveldb_iter_prev(iter);
    CHECK(at(iter, NULL, NULL));
    leveldb_iter_seek(iter, "zzz", 3);
    CHECK(at(iter, NULL, NULL));
    leveldb_iter_seek(iter, NULL, 3);
    CHECK(!leveldb_iter_valid(iter));
    leveldb_iter_get_error(iter, &err);
    FAILED("no key of 3 bytes");
    leveldb_iter_seek(iter, "i5", 2);
    CHECK(at(iter, "i5", "five"));
    leveldb_iter_destroy(iter);
    leveldb_iter_destroy(NULL);

    /* A snapshot, read twice and by an iterator. */
    CHECK(has(db, "i3", "other") && has(db, "i5", NULL));
    leveldb_readoptions_set_snapshot(reading, before);
    CHECK(has(db, "i2", NULL) && has(db, "i3", "three") && has(db, "i5", "five"));
    iter = leveldb_create_iterator(db, reading);
    leveldb_readoptions_set_snapshot(reading, NULL);
    leveldb_release_snapshot(db, before);
    leveldb_iter_seek(iter, "i2", 2);
    CHECK(at(iter, "i3", "three"));
    leveldb_iter_destroy(iter);
    CHECK(has(db, "i2", "two"));
}

static unsigned long long number(leveldb_t *db, const char *property) {
    char *text = leveldb_property_value(db, property);
    char *end = NULL;
    unsigned long long n;
    CHECK(text != NULL);
    n = strtoull(text, &end, 10);
    CHECK(*text != 0 && *end == 0);
    leveldb_free(text);
    return n;
}

static void upkeep(leveldb_t *db) {
    const char *const from[] = {"u", "u5", "x"};
    const char *const to[] = {"u5", "v", "w"};
    const size_t from_len[] = {1, 2, 1}, to_len[] = {2, 1, 1};
    uint64_t sizes[3] = {7, 7, 7};
    unsigned long long files = 0;
    char key[20], value[200], name[60], *text;
    int i;
    memset(value, 'v', sizeof value);
    for (i = 0; i < 5000; i++) {
        snprintf(key, sizeof key, "u%d", i);
        leveldb_put(db, writing, key, strlen(key), value, sizeof value, &err);
        CHECK(err == NULL);
    }
    leveldb_approximate_sizes(db, 3, from, from_len, to, to_len, sizes);
    CHECK(sizes[0] > 100000 && sizes[1] > 100000 && sizes[2] == 0);
    leveldb_compact_range(db, "u", 1, "v", 1);
    leveldb_compact_range(db, NULL, 0, NULL, 0);
    for (i = 0; i < 7; i++) {
        snprintf(name, sizeof name, "leveldb.num-files-at-level%d", i);
        files += number(db, name);
    }
    CHECK(files > 0);
    leveldb_approximate_sizes(db, 3, from, from_len, to, to_len, sizes);
    CHECK(sizes[0] > 100000 && sizes[1] > 100000 && sizes[2] == 0);
    CHECK(number(db, "leveldb.approximate-memory-usage") > 0);
    text = leveldb_property_value(db, "leveldb.stats");
    CHECK(text != NULL && strstr(text, "Level") != NULL && strstr(text, "flushes") != NULL);
    leveldb_free(text);
    text = leveldb_property_value(db, "leveldb.sstables");
    CHECK(text != NULL && strstr(text, "--- level 0 ---\n") != NULL && strstr(text, " .. '") != NULL);
    leveldb_free(text);
    CHECK(leveldb_property_value(db, "nothing") == NULL && leveldb_property_value(db, "leveldb.nothing") == NULL);
    CHECK(leveldb_property_value(db, "leveldb.num-files-at-level") == NULL);
    CHECK(leveldb_property_value(db, "leveldb.num-files-at-level99") == NULL);
    CHECK(leveldb_property_value(db, "leveldb.num-files-at-level-1") == NULL);
    CHECK(leveldb_property_value(db, NULL) == NULL && leveldb_property_value(NULL, "leveldb.stats") == NULL);
    CHECK(has(db, "u7", NULL) == 0);
}

/* A damaged store is repaired; the damaged one stays beside it. */
static void repair(const char *dir, leveldb_options_t *options) {
    leveldb_t *db;
    FILE *file;
    char damaged[1100];
    const char *name = in(dir, "store");
    leveldb_repair_db(options, name, &err);
    CHECK(err == NULL);
    snprintf(damaged, sizeof damaged, "%s.damaged-1", name);
    CHECK(access(damaged, F_OK) != 0);
    snprintf(damaged, sizeof damaged, "%s/CURRENT", name);
    file = fopen(damaged, "w");
    CHECK(file != NULL && fputs("nonsense", file) >= 0 && fclose(file) == 0);
    CHECK(leveldb_open(options, name, &err) == NULL);
    FAILED("Corruption: ");
    leveldb_repair_db(options, name, &err);
    CHECK(err == NULL);
    snprintf(damaged, sizeof damaged, "%s.damaged-1/CURRENT", name);
    CHECK(access(damaged, F_OK) == 0);
    db = leveldb_open(options, name, &err);
    CHECK(db != NULL && has(db, "a", "2") && has(db, "i2", "two"));
    leveldb_close(db);
}

/* A store in LevelDB's format is refused by all three, and stays. */
static void levels_own(const char *dir, leveldb_options_t *options) {
    static const char manifest[] = "\x56\xf9\xb8\xf8\x1c\x00\x01\x01\x1aleveldb.BytewiseComparator\x02\x00";
    char name[1000], file[1100];
    FILE *f;
    snprintf(name, sizeof name, "%s/theirs", dir);
    CHECK(mkdir(name, 0755) == 0);
    snprintf(file, sizeof file, "%s/CURRENT", name);
    f = fopen(file, "w");
    CHECK(f != NULL && fputs("MANIFEST-000002\n", f) >= 0 && fclose(f) == 0);
    snprintf(file, sizeof file, "%s/MANIFEST-000002", name);
    f = fopen(file, "w");
    CHECK(f != NULL && fwrite(manifest, sizeof manifest, 1, f) == 1 && fclose(f) == 0);
    CHECK(leveldb_open(options, name, &err) == NULL);
    FAILED("`ringdb import --from leveldb --db NEW ");
    leveldb_repair_db(options, name, &err);
    FAILED("LevelDB's own format");
    leveldb_destroy_db(options, name, &err);
    FAILED("LevelDB's own format");
    CHECK(access(file, F_OK) == 0);
}

static void environment(const char *dir) {
    leveldb_env_t *env = leveldb_create_default_env();
    char *name;
    CHECK(env != NULL && setenv("TEST_TMPDIR", in(dir, "tests"), 1) == 0);
    name = leveldb_env_get_test_directory(env);
    CHECK(name != NULL && strcmp(name, path) == 0 && access(name, W_OK) == 0);
    leveldb_free(name);
    CHECK(setenv("TEST_TMPDIR", in(dir, "no/such/parent"), 1) == 0);
    CHECK(leveldb_env_get_test_directory(env) == NULL);
    CHECK(setenv("TEST_TMPDIR", "", 1) == 0 && setenv("TMPDIR", dir, 1) == 0);
    name = leveldb_env_get_test_directory(env);
    CHECK(name != NULL && strstr(name, "leveldbtest-") != NULL);
    leveldb_free(name);
    CHECK(leveldb_env_get_test_directory(NULL) == NULL);
    leveldb_env_destroy(env);
    leveldb_env_destroy(NULL);
}

int main(int argc, char **argv) {
    leveldb_options_t *options = leveldb_options_create();
    leveldb_cache_t *cache = leveldb_cache_create_lru(1 << 20);
    leveldb_t *db;
    const char *dir = argv[argc - 1];
    CHECK(argc == 3 && options != NULL && cache != NULL);
    CHECK(leveldb_major_version() == 1 && leveldb_minor_version() == 23);
    reading = leveldb_readoptions_create();
    writing = leveldb_writeoptions_create();
    leveldb_options_set_cache(options, cache);
    leveldb_options_set_env(options, NULL);
    leveldb_options_set_paranoid_checks(options, 1);
    leveldb_options_set_write_buffer_size(options, 200000);
    leveldb_options_set_max_open_files(options, 100);
    leveldb_options_set_block_size(options, 5000);
    leveldb_options_set_block_restart_interval(options, 16);
    leveldb_options_set_max_file_size(options, 1 << 20);
    leveldb_options_set_compression(options, leveldb_snappy_compression);
    leveldb_options_set_comparator(options, NULL);
    leveldb_options_set_filter_policy(options, NULL);
    leveldb_readoptions_set_verify_checksums(reading, 1);
    leveldb_readoptions_set_fill_cache(reading, 0);
    opening(dir, options);
    db = leveldb_open(options, in(dir, "store"), &err);
    CHECK(db != NULL && err == NULL);
    /* Neither is needed any more. */
    leveldb_cache_destroy(cache);
    leveldb_options_set_cache(options, NULL);
    leveldb_writeoptions_set_sync(writing, 1);
    bytes(db);
    batches(db);
    leveldb_writeoptions_set_sync(writing, 0);
    iterators(db);
    upkeep(db);
    leveldb_close(db);
    repair(dir, options);
    levels_own(dir, options);
    leveldb_destroy_db(options, in(dir, "store"), &err);
    CHECK(err == NULL && access(path, F_OK) != 0);
    environment(dir);
    leveldb_options_destroy(options);
    leveldb_readoptions_destroy(reading);
    leveldb_writeoptions_destroy(writing);
    leveldb_options_destroy(NULL);
    leveldb_readoptions_destroy(NULL);
    leveldb_writeoptions_destroy(NULL);
    leveldb_cache_destroy(NULL);
    leveldb_comparator_destroy(NULL);
    leveldb_filterpolicy_destroy(NULL);
    leveldb_free(NULL);
    puts("passed");
    return 0;
}
