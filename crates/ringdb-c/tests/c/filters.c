/* Compaction filters. Usage: filters URI DIRECTORY */
#include "check.h"

#include <pthread.h>

static const char *dir;

static char *store(void) {
    static char path[600];
    snprintf(path, sizeof path, "%s/filters", dir);
    return path;
}

/* How often the callbacks have been called. */
struct seen {
    pthread_mutex_t lock;
    int calls, drops;
};

static void note(struct seen *s, int *count) {
    pthread_mutex_lock(&s->lock);
    ++*count;
    pthread_mutex_unlock(&s->lock);
}

static int is(ringdb_slice s, const char *text) {
    return s.len == strlen(text) && !memcmp(s.data, text, s.len);
}

/* The value says what is to be done. */
static int32_t filter(void *user, const ringdb_filter_context *context, ringdb_slice key, ringdb_slice value,
                      ringdb_filter_result *result) {
    struct seen *s = (struct seen *)user;
    ringdb_error inner;
    CHECK(context->size == sizeof *context && context->level <= 6 && context->reserved == 0);
    CHECK(context->last_level == (context->level == 6) && key.len > 0);
    note(s, &s->calls);
    if (is(value, "remove"))
        return RINGDB_FILTER_REMOVE;
    if (is(value, "change")) {
        CHECK(ringdb_filter_result_append(result, "of ", 3, &inner) == RINGDB_OK && inner.code == RINGDB_OK);
        CHECK(ringdb_filter_result_append(result, key.data, key.len, NULL) == RINGDB_OK);
        return RINGDB_FILTER_CHANGE;
    }
    if (is(value, "empty")) {
        CHECK(ringdb_filter_result_append(result, NULL, 0, NULL) == RINGDB_OK);
        return RINGDB_FILTER_CHANGE;
    }
    if (is(value, "nothing"))
        return RINGDB_FILTER_CHANGE;
    if (is(value, "seven"))
        return 7;
    if (is(value, "both") || is(value, "both removed")) {
        CHECK(ringdb_filter_result_append(result, "x", 1, NULL) == RINGDB_OK);
        return is(value, "both") ? RINGDB_FILTER_KEEP : RINGDB_FILTER_REMOVE;
    }
    if (is(value, "fail")) {
        CHECK(ringdb_filter_result_fail(result, "this entry is not judged", NULL) == RINGDB_OK);
        return RINGDB_FILTER_REMOVE;
    }
    if (is(value, "latin")) {
        CHECK(ringdb_filter_result_fail(result, "d\xe9j\xe0", NULL) == RINGDB_INVALID_ARGUMENT);
        return RINGDB_FILTER_REMOVE;
    }
    if (is(value, "huge")) {
        CHECK(ringdb_filter_result_append(result, s, (size_t)-1, &inner) == RINGDB_INVALID_ARGUMENT);
        return RINGDB_FILTER_KEEP;
    }
    return RINGDB_FILTER_KEEP;
}

static void dropped(void *user) {
    struct seen *s = (struct seen *)user;
    note(s, &s->drops);
}

static ringdb_compaction_filter filter_of(struct seen *s) {
    ringdb_compaction_filter c = RINGDB_COMPACTION_FILTER_INIT;
    c.name = "by value", c.user = s, c.filter = filter, c.drop = dropped;
    return c;
}

static void filters_are_checked(struct seen *s) {
    ringdb_options *options = ringdb_options_new();
    ringdb_compaction_filter c = filter_of(s), bad;
    char name[257];
    memset(name, 'n', 256), name[256] = 0;
    INVALID(ringdb_options_register_compaction_filter(NULL, &c, &e));
    INVALID(ringdb_options_register_compaction_filter(options, NULL, &e));
    bad = c, bad.size = 3;
    INVALID(ringdb_options_register_compaction_filter(options, &bad, &e));
    bad = c, bad.reserved = 1;
    INVALID(ringdb_options_register_compaction_filter(options, &bad, &e));
    bad = c, bad.name = NULL;
    INVALID(ringdb_options_register_compaction_filter(options, &bad, &e));
    bad = c, bad.name = "";
    INVALID(ringdb_options_register_compaction_filter(options, &bad, &e));
    bad = c, bad.name = name;
    INVALID(ringdb_options_register_compaction_filter(options, &bad, &e));
    bad = c, bad.name = "\xff";
    INVALID(ringdb_options_register_compaction_filter(options, &bad, &e));
    bad = c, bad.filter = NULL;
    INVALID(ringdb_options_register_compaction_filter(options, &bad, &e));
    CHECK(s->drops == 0);
    OK(ringdb_options_register_compaction_filter(options, &c, &e));
    OK(ringdb_options_register_compaction_filter(options, &c, &e));
    CHECK(s->drops == 1);
    bad = c, bad.drop = NULL;
    OK(ringdb_options_register_compaction_filter(options, &bad, &e));
    CHECK(s->drops == 2);
    ringdb_options_free(options);
    CHECK(s->drops == 2);
    s->drops = 0;
    INVALID(ringdb_filter_result_append(NULL, "x", 1, &e));
    INVALID(ringdb_filter_result_fail(NULL, "x", &e));
}

static void put(ringdb_db *db, const char *key, const char *value) {
    OK(ringdb_put(db, key, strlen(key), value, strlen(value), NULL, &e));
}

static void has(ringdb_db *db, const char *key, const char *wanted) {
    ringdb_value *value = NULL;
    int found = ringdb_get(db, key, strlen(key), NULL, &value, &e);
    CHECK(e.code == RINGDB_OK && found == (wanted != NULL));
    if (wanted)
        CHECK(ringdb_value_len(value) == strlen(wanted) && !memcmp(ringdb_value_data(value), wanted, strlen(wanted)));
    ringdb_value_free(value);
}

static void stats_say(ringdb_db *db, const char *what) {
    ringdb_value *stats = NULL;
    OK(ringdb_stats(db, &stats, &e));
    if (!strstr((const char *)ringdb_value_data(stats), what)) {
        fprintf(stderr, "no %s in %s\n", what, (const char *)ringdb_value_data(stats));
        exit(1);
    }
    ringdb_value_free(stats);
}

/* What is no decision loses nothing, and is told of. */
static void fails(ringdb_db *db, const char *value, const char *why) {
    put(db, "wrong", value);
    OK(ringdb_compact(db, NULL, NULL, 0, &e));
    has(db, "wrong", value);
    stats_say(db, why);
    OK(ringdb_delete(db, "wrong", 5, NULL, &e));
}

static ringdb_db *open_with(const char *uri, struct seen *s) {
    ringdb_db *db = NULL;
    ringdb_options *options = small(uri);
    ringdb_compaction_filter c = filter_of(s);
    OK(ringdb_options_register_compaction_filter(options, &c, &e));
    OK(ringdb_open(store(), options, &db, &e));
    ringdb_options_free(options);
    return db;
}

static void in_compactions(const char *uri, struct seen *s) {
    ringdb_db *db = open_with(uri, s), *k = NULL, *snapshot = NULL;
    ringdb_value *settings = NULL;
    INVALID(ringdb_keyspace_with(db, "k", "compaction_filter = 'unknown'", &k, &e));
    CHECK(strstr(e.message, "'unknown'"));
    OK(ringdb_keyspace_with(db, "k", "compaction_filter = 'by value'", &k, &e));
    OK(ringdb_keyspace_settings(k, &settings, &e));
    CHECK(strstr((const char *)ringdb_value_data(settings), "\"by value\""));
    ringdb_value_free(settings);
    put(k, "a", "stays"), put(k, "b", "remove"), put(k, "c", "change"), put(k, "d", "empty"), put(db, "b", "remove");
    OK(ringdb_snapshot(k, &snapshot, &e));
    OK(ringdb_flush(db, &e));
    CHECK(s->calls == 0);
    OK(ringdb_compact(k, NULL, NULL, 0, &e));
    CHECK(s->calls == 4);
    stats_say(db, "\"compaction_filter_seen\": 4");
    OK(ringdb_compact(db, NULL, NULL, 0, &e));
    has(k, "a", "stays"), has(k, "b", NULL), has(k, "c", "of c"), has(k, "d", ""), has(db, "b", "remove");
    has(snapshot, "b", "remove"), has(snapshot, "c", "change");
    stats_say(db, "\"compaction_filter_removed\": 1");
    stats_say(db, "\"compaction_filter_changed\": 2");
    stats_say(db, "\"background_error\": null");

    fails(k, "fail", "this entry is not judged");
    fails(k, "latin", "the reason is not UTF-8");
    fails(k, "nothing", "given no value");
    fails(k, "seven", "returned 7");
    fails(k, "both", "not returned RINGDB_FILTER_CHANGE");
    fails(k, "both removed", "not returned RINGDB_FILTER_CHANGE");
    fails(k, "huge", "\"background_errors\": 6");
    stats_say(db, "'by value' fails for key");

    OK(ringdb_keyspace_alter(k, "compaction_filter = ''", &e));
    put(k, "b", "remove");
    OK(ringdb_compact(k, NULL, NULL, 0, &e));
    has(k, "b", "remove");
    OK(ringdb_keyspace_alter(k, "compaction_filter = 'by value'", &e));
    ringdb_release(snapshot), ringdb_release(k);
    CHECK(s->drops == 0);
    OK(ringdb_close(db, &e));
    ringdb_release(db);
    CHECK(s->drops == 1);
}

/* The store remembers the name: without the filter it keeps all, with it the filter is asked again. */
static void without_and_again(const char *uri, struct seen *s) {
    ringdb_options *options = small(uri);
    ringdb_db *db = NULL, *k = NULL;
    OK(ringdb_open(store(), options, &db, &e));
    OK(ringdb_keyspace(db, "k", &k, &e));
    OK(ringdb_compact(k, NULL, NULL, 0, &e));
    has(k, "b", "remove");
    ringdb_release(k), ringdb_release(db);
    ringdb_options_free(options);
    s->drops = 0;
    db = open_with(uri, s);
    OK(ringdb_keyspace(db, "k", &k, &e));
    OK(ringdb_compact(k, NULL, NULL, 0, &e));
    has(k, "b", NULL);
    ringdb_release(k), ringdb_release(db);
    CHECK(s->drops == 1);
}

int main(int argc, char **argv) {
    static struct seen seen = {PTHREAD_MUTEX_INITIALIZER, 0, 0};
    if (argc != 3)
        return 2;
    dir = argv[2];
    ringdb_release(open_store(argv[1], dir, "probe"));
    filters_are_checked(&seen);
    in_compactions(argv[1], &seen);
    without_and_again(argv[1], &seen);
    printf("passed\n");
    return 0;
}
