/* Comparators and filter policies: who is asked what, what is refused, when destructors run. */
#include "check.h"

#include <ctype.h>

/* What the callbacks get as their state, to see that it is theirs. */
typedef struct {
    const char *name;
    int calls, ended, answer;
} state_t;

static void end(void *state) {
    ((state_t *)state)->ended++;
}
static const char *name(void *state) {
    return ((state_t *)state)->name;
}

static int bytewise(void *state, const char *a, size_t alen, const char *b, size_t blen) {
    int n = memcmp(a, b, alen < blen ? alen : blen);
    ((state_t *)state)->calls++;
    return n != 0 ? n : alen < blen ? -7 : alen > blen;
}

static int reverse(void *state, const char *a, size_t alen, const char *b, size_t blen) {
    return -bytewise(state, a, alen, b, blen);
}

static int as_text(void *state, const char *a, size_t alen, const char *b, size_t blen) {
    size_t i;
    (void)state;
    for (i = 0; i < alen && i < blen; i++) {
        int x = tolower((unsigned char)a[i]), y = tolower((unsigned char)b[i]);
        if (x != y) {
            return x - y;
        }
    }
    return alen < blen ? -1 : alen > blen;
}

static int signed_bytes(void *state, const char *a, size_t alen, const char *b, size_t blen) {
    size_t i;
    (void)state;
    for (i = 0; i < alen && i < blen; i++) {
        if (a[i] != b[i]) {
            return (signed char)a[i] < (signed char)b[i] ? -1 : 1;
        }
    }
    return alen < blen ? -1 : alen > blen;
}

static int by_length(void *state, const char *a, size_t alen, const char *b, size_t blen) {
    return alen != blen ? (alen < blen ? -1 : 1) : bytewise(state, a, alen, b, blen);
}

static int little_endian(void *state, const char *a, size_t alen, const char *b, size_t blen) {
    unsigned long long x, y;
    CHECK(alen >= sizeof x && blen >= sizeof y);
    (void)state;
    memcpy(&x, a, sizeof x);
    memcpy(&y, b, sizeof y);
    return x < y ? -1 : x > y;
}

/* As bytes do, but for keys that begin with an exclamation mark. */
static int almost(void *state, const char *a, size_t alen, const char *b, size_t blen) {
    int odd = alen > 0 && blen > 0 && a[0] == '!' && b[0] == '!';
    return odd ? reverse(state, a, alen, b, blen) : bytewise(state, a, alen, b, blen);
}

static leveldb_readoptions_t *reading;
static leveldb_writeoptions_t *writing;

static int put(leveldb_t *db, const char *key) {
    leveldb_put(db, writing, key, strlen(key), "v", 1, &err);
    return err == NULL;
}

static int found(leveldb_t *db, const char *key) {
    size_t len;
    char *value = leveldb_get(db, reading, key, strlen(key), &len, &err);
    CHECK(err == NULL);
    free(value);
    return value != NULL;
}

static void refused(const char *dir, leveldb_options_t *options) {
    int (*orders[])(void *, const char *, size_t, const char *, size_t) = {reverse, as_text, signed_bytes, by_length,
                                                                           little_endian};
    size_t i;
    for (i = 0; i < sizeof orders / sizeof *orders; i++) {
        state_t state = {"odd", 0, 0, 0};
        leveldb_comparator_t *order = leveldb_comparator_create(&state, end, orders[i], name);
        CHECK(order != NULL);
        leveldb_options_set_comparator(options, order);
        CHECK(leveldb_open(options, dir, &err) == NULL);
        FAILED("the comparator 'odd' does not order keys as their bytes do");
        CHECK(state.ended == 0);
        leveldb_options_set_comparator(options, NULL);
        leveldb_comparator_destroy(order);
        CHECK(state.ended == 1);
    }
    CHECK(access(dir, F_OK) != 0);
    CHECK(leveldb_comparator_create(NULL, end, NULL, name) == NULL);
    CHECK(leveldb_comparator_create(NULL, end, bytewise, NULL) == NULL);
}

static void names(const char *dir, leveldb_options_t *options) {
    state_t state = {"foo", 0, 0, 0}, other = {"bar", 0, 0, 0};
    leveldb_comparator_t *foo = leveldb_comparator_create(&state, end, bytewise, name);
    leveldb_comparator_t *bar = leveldb_comparator_create(&other, NULL, bytewise, name);
    leveldb_iterator_t *iter;
    leveldb_t *db;
    int calls;
    leveldb_options_set_comparator(options, foo);
    db = leveldb_open(options, dir, &err);
    CHECK(db != NULL && put(db, "b") && put(db, "a") && put(db, "c") && put(db, "b"));
    calls = state.calls;
    iter = leveldb_create_iterator(db, reading);
    leveldb_iter_seek(iter, "a", 1);
    leveldb_iter_next(iter);
    leveldb_iter_next(iter);
    leveldb_iter_prev(iter);
    CHECK(leveldb_iter_valid(iter) && state.calls > calls);
    leveldb_iter_destroy(iter);
    leveldb_close(db);
    leveldb_options_set_comparator(options, bar);
    CHECK(leveldb_open(options, dir, &err) == NULL);
    FAILED("bar: does not match existing comparator foo");
    leveldb_options_set_comparator(options, NULL);
    CHECK(leveldb_open(options, dir, &err) == NULL);
    FAILED("leveldb.BytewiseComparator: does not match existing comparator foo");
    /* The store keeps what it needs, though the handle is gone. */
    leveldb_options_set_comparator(options, foo);
    db = leveldb_open(options, dir, &err);
    leveldb_options_set_comparator(options, NULL);
    leveldb_comparator_destroy(foo);
    CHECK(db != NULL && put(db, "d") && put(db, "e") && state.ended == 0);
    leveldb_close(db);
    CHECK(state.ended == 1);
    leveldb_destroy_db(options, dir, &err);
    CHECK(err == NULL);
    /* One that was made without. */
    db = leveldb_open(options, dir, &err);
    CHECK(db != NULL && put(db, "a"));
    leveldb_close(db);
    leveldb_options_set_comparator(options, bar);
    CHECK(leveldb_open(options, dir, &err) == NULL);
    FAILED("bar: does not match existing comparator leveldb.BytewiseComparator");
    leveldb_options_set_comparator(options, NULL);
    leveldb_comparator_destroy(bar);
    leveldb_destroy_db(options, dir, &err);
    CHECK(err == NULL);
}

/* What opening did not find out, writes and iterators do. */
static void found_out_later(const char *dir, leveldb_options_t *options) {
    state_t state = {"almost", 0, 0, 0};
    leveldb_comparator_t *good = leveldb_comparator_create(&state, NULL, bytewise, name);
    leveldb_comparator_t *order = leveldb_comparator_create(&state, end, almost, name);
    leveldb_writebatch_t *batch = leveldb_writebatch_create();
    leveldb_iterator_t *iter;
    leveldb_t *db;
    leveldb_options_set_comparator(options, order);
    db = leveldb_open(options, dir, &err);
    CHECK(db != NULL && put(db, "a") && put(db, "!1"));
    CHECK(!put(db, "!2"));
    FAILED("\"!1\" and \"!2\"");
    CHECK(!found(db, "!2") && put(db, "b"));
    leveldb_writebatch_put(batch, "!4", 2, "v", 1);
    leveldb_writebatch_delete(batch, "!3", 2);
    leveldb_write(db, writing, batch, &err);
    FAILED("'almost'");
    CHECK(!found(db, "!4"));
    leveldb_close(db);
    leveldb_writebatch_destroy(batch);
    /* Under the same name, so that the store has what the other refuses. */
    leveldb_options_set_comparator(options, good);
    db = leveldb_open(options, dir, &err);
    CHECK(db != NULL && put(db, "!2"));
    leveldb_close(db);
    leveldb_options_set_comparator(options, order);
    db = leveldb_open(options, dir, &err);
    iter = leveldb_create_iterator(db, reading);
    leveldb_iter_seek_to_first(iter);
    CHECK(leveldb_iter_valid(iter));
    leveldb_iter_next(iter);
    CHECK(!leveldb_iter_valid(iter));
    leveldb_iter_get_error(iter, &err);
    FAILED("\"!1\" and \"!2\"");
    leveldb_iter_next(iter);
    CHECK(!leveldb_iter_valid(iter));
    leveldb_iter_seek(iter, "a", 1);
    CHECK(leveldb_iter_valid(iter));
    leveldb_iter_get_error(iter, &err);
    CHECK(err == NULL);
    leveldb_iter_destroy(iter);
    leveldb_close(db);
    leveldb_options_set_comparator(options, NULL);
    leveldb_comparator_destroy(order);
    leveldb_comparator_destroy(good);
    leveldb_destroy_db(options, dir, &err);
    CHECK(err == NULL);
}

static char *create(void *state, const char *const *keys, const size_t *lengths, int n, size_t *length) {
    char *filter = malloc(lengths[0] + 1);
    CHECK(filter != NULL && n == 1);
    ((state_t *)state)->calls++;
    memcpy(filter, keys[0], lengths[0]);
    filter[lengths[0]] = '!';
    *length = lengths[0] + 1;
    return filter;
}

static uint8_t may_match(void *state, const char *key, size_t length, const char *filter, size_t filter_length) {
    CHECK(filter_length == length + 1 && memcmp(key, filter, length) == 0 && filter[length] == '!');
    return (uint8_t)((state_t *)state)->answer;
}

static void filters(const char *dir, leveldb_options_t *options) {
    state_t state = {"filter", 0, 0, 1};
    leveldb_filterpolicy_t *policy = leveldb_filterpolicy_create(&state, end, create, may_match, name);
    leveldb_filterpolicy_t *bloom;
    leveldb_t *db;
    const int bits[] = {10, 0, -5, 1000};
    size_t i;
    CHECK(policy != NULL);
    CHECK(leveldb_filterpolicy_create(NULL, end, NULL, may_match, name) == NULL);
    leveldb_options_set_filter_policy(options, policy);
    db = leveldb_open(options, dir, &err);
    CHECK(db != NULL && put(db, "k"));
    leveldb_compact_range(db, NULL, 0, NULL, 0);
    CHECK(found(db, "k") && state.calls == 1);
    /* About what is not there nobody needs to be asked. */
    CHECK(!found(db, "l") && state.calls == 1);
    state.answer = 0;
    CHECK(!found(db, "k"));
    state.answer = 200;
    CHECK(found(db, "k"));
    leveldb_options_set_filter_policy(options, NULL);
    leveldb_filterpolicy_destroy(policy);
    CHECK(state.ended == 0 && found(db, "k"));
    leveldb_close(db);
    CHECK(state.ended == 1);
    for (i = 0; i < sizeof bits / sizeof *bits; i++) {
        bloom = leveldb_filterpolicy_create_bloom(bits[i]);
        leveldb_options_set_filter_policy(options, bloom);
        db = leveldb_open(options, dir, &err);
        CHECK(db != NULL && put(db, "m"));
        leveldb_compact_range(db, NULL, 0, NULL, 0);
        CHECK(found(db, "k") && found(db, "m") && !found(db, "l"));
        leveldb_close(db);
        leveldb_options_set_filter_policy(options, NULL);
        leveldb_filterpolicy_destroy(bloom);
    }
}

int main(int argc, char **argv) {
    leveldb_options_t *options = leveldb_options_create();
    char dir[1000];
    CHECK(argc == 3);
    reading = leveldb_readoptions_create();
    writing = leveldb_writeoptions_create();
    leveldb_options_set_create_if_missing(options, 1);
    snprintf(dir, sizeof dir, "%s/store", argv[2]);
    refused(dir, options);
    names(dir, options);
    found_out_later(dir, options);
    filters(dir, options);
    leveldb_options_destroy(options);
    leveldb_readoptions_destroy(reading);
    leveldb_writeoptions_destroy(writing);
    puts("passed");
    return 0;
}
