/* Asynchronous calls: by callback and by descriptor, thousands at a time. Usage: async URI DIRECTORY */
#include "check.h"
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/epoll.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { KEYS = 5000, VALUE = 200 };

static const char *uri, *dir;

static int key_of(char *out, int i) {
    return sprintf(out, "key%06d", i);
}

static void value_of(char *out, int i) {
    memset(out, 'a' + i % 26, VALUE);
    sprintf(out, "value %d", i);
}

/* A store with KEYS pairs in tables, nothing of it in the cache. */
static ringdb_db *filled(const char *name) {
    ringdb_db *db = open_store(uri, dir, name);
    char key[32], value[VALUE];
    for (int i = 0; i < KEYS; i++) {
        value_of(value, i);
        OK(ringdb_put(db, key, (size_t)key_of(key, i), value, VALUE, NULL, &e));
    }
    OK(ringdb_close(db, &e));
    ringdb_release(db);
    return open_store(uri, dir, name);
}

static int is_value_of(const ringdb_value *value, int i) {
    char wanted[VALUE];
    value_of(wanted, i);
    return ringdb_value_len(value) == VALUE && !memcmp(ringdb_value_data(value), wanted, VALUE);
}

/* ---- Waiting for callbacks ---- */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static int called, closed, good;

static void count(int was_good, int was_closed) {
    pthread_mutex_lock(&lock);
    called++, good += was_good, closed += was_closed;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
}

static void reset(void) {
    pthread_mutex_lock(&lock);
    called = closed = good = 0;
    pthread_mutex_unlock(&lock);
}

static void wait_for(int n) {
    pthread_mutex_lock(&lock);
    while (called < n)
        pthread_cond_wait(&changed, &lock);
    CHECK(called == n);
    pthread_mutex_unlock(&lock);
}

static void got(void *user, int32_t code, ringdb_value *value, const ringdb_error *err) {
    const int i = (int)(intptr_t)user;
    int fine = 0;
    if (code == 1)
        fine = i < KEYS && err->code == 0 && is_value_of(value, i);
    else if (code == 0)
        fine = i >= KEYS && !value && err->code == 0;
    else
        CHECK(err->code == code && err->message[0] && !value);
    ringdb_value_free(value);
    count(fine, code == RINGDB_CLOSED);
}

static void done(void *user, int32_t code, const ringdb_error *err) {
    CHECK(err->code == code && (code == 0 || err->message[0]));
    if (user)
        atomic_fetch_add((atomic_int *)user, 1);
    count(code == 0, code == RINGDB_CLOSED);
}

static void ask(ringdb_db *db, int i, ringdb_request **request) {
    char key[32];
    OK(ringdb_get_async(db, key, (size_t)key_of(key, i), NULL, got, (void *)(intptr_t)i, request, &e));
}

/* ---- Tests ---- */

static void thousands_by_callback(void) {
    ringdb_db *db = filled("callback");
    ringdb_value *text;
    const char *at;
    reset();
    for (int i = 0; i < KEYS + 1000; i++)
        ask(db, i, NULL);
    wait_for(KEYS + 1000);
    CHECK(good == KEYS + 1000);
    /* They were together in flight: far fewer submissions than requests. */
    OK(ringdb_stats(db, &text, &e));
    at = strstr(ringdb_value_data(text), "\"async_submissions\": ");
    CHECK(at && atoi(at + 21) < KEYS / 4);
    ringdb_value_free(text);
    ringdb_release(db);
}

static void got_many(void *user, int32_t code, ringdb_values *values, const ringdb_error *err) {
    ringdb_slice slice;
    const int n = *(int *)user;
    int fine = 0;
    CHECK(code == err->code);
    if (code == 0)
        for (int i = 0; i < n; i++) {
            char wanted[VALUE];
            value_of(wanted, i);
            fine += ringdb_values_get(values, (size_t)i, &slice) == (i < KEYS) &&
                    (i >= KEYS || (slice.len == VALUE && !memcmp(slice.data, wanted, VALUE)));
        }
    ringdb_values_free(values);
    count(fine == n, code == RINGDB_CLOSED);
}

static void many_keys_by_callback(void) {
    ringdb_db *db = filled("many");
    static char keys[KEYS + 10][32];
    static ringdb_slice slices[KEYS + 10];
    int n = KEYS + 10, none = 0;
    reset();
    for (int i = 0; i < n; i++)
        slices[i].data = keys[i], slices[i].len = (size_t)key_of(keys[i], i);
    OK(ringdb_multi_get_async(db, slices, (size_t)n, NULL, got_many, &n, NULL, &e));
    OK(ringdb_multi_get_async(db, slices, (size_t)n, NULL, got_many, &n, NULL, &e));
    memset(keys, 0, sizeof keys);
    OK(ringdb_multi_get_async(db, NULL, 0, NULL, got_many, &none, NULL, &e));
    wait_for(3);
    CHECK(good == 3);
    ringdb_release(db);
}

/* A chain of requests, each begun by the callback of the one before. */
static _Thread_local int depth;
static ringdb_db *chain_db;
static int deepest;

static void chain(void *user, int32_t code, ringdb_value *value, const ringdb_error *err) {
    const intptr_t left = (intptr_t)user;
    CHECK(code == 1 && err->code == 0);
    ringdb_value_free(value);
    if (++depth > deepest)
        deepest = depth;
    if (left > 0)
        CHECK(ringdb_get_async(chain_db, "k", 1, NULL, chain, (void *)(left - 1), NULL, NULL) == RINGDB_OK);
    else
        count(1, 0);
    depth--;
}

static void callbacks_do_not_nest(void) {
    chain_db = open_store(uri, dir, "chain");
    OK(ringdb_put(chain_db, "k", 1, "v", 1, NULL, &e));
    reset();
    OK(ringdb_get_async(chain_db, "k", 1, NULL, chain, (void *)(intptr_t)300000, NULL, &e));
    wait_for(1);
    CHECK(deepest == 1);
    ringdb_release(chain_db);
}

static void refused(void *user, int32_t code, ringdb_value *value, const ringdb_error *err) {
    ringdb_read_options read = RINGDB_READ_OPTIONS_INIT;
    ringdb_write_options write = RINGDB_WRITE_OPTIONS_INIT;
    ringdb_db *db = user;
    ringdb_error mine;
    ringdb_value *other = NULL;
    (void)err;
    CHECK(code == 1);
    ringdb_value_free(value);
    read.deadline_us = write.deadline_us = 1000000;
    CHECK(ringdb_close(db, &mine) == RINGDB_INVALID_ARGUMENT && strstr(mine.message, "callback"));
    CHECK(ringdb_get(db, "x", 1, &read, &other, &mine) == RINGDB_INVALID_ARGUMENT);
    CHECK(ringdb_put(db, "x", 1, "v", 1, &write, &mine) == RINGDB_INVALID_ARGUMENT);
    /* What needs no other thread of the store's works. */
    CHECK(ringdb_put(db, "x", 1, "v", 1, NULL, &mine) == RINGDB_OK);
    CHECK(ringdb_get(db, "x", 1, NULL, &other, &mine) == 1);
    ringdb_value_free(other);
    write.deadline_us = 0, write.durability = RINGDB_DURABILITY_SYNC;
    CHECK(ringdb_put(db, "y", 1, "v", 1, &write, &mine) == RINGDB_OK);
    CHECK(ringdb_flush(db, &mine) == RINGDB_OK);
    count(1, 0);
}

static void what_a_callback_may_call(void) {
    ringdb_db *db = filled("inside");
    char key[32];
    reset();
    OK(ringdb_get_async(db, key, (size_t)key_of(key, 77), NULL, refused, db, NULL, &e)); /* on the store's thread */
    wait_for(1);
    OK(ringdb_get_async(db, "y", 1, NULL, refused, db, NULL, &e)); /* on this one */
    wait_for(2);
    OK(ringdb_close(db, &e));
    ringdb_release(db);
}

static void writes_by_callback(void) {
    ringdb_db *db = open_store(uri, dir, "writes"), *then;
    ringdb_batch *batch = ringdb_batch_new();
    ringdb_write_options how = RINGDB_WRITE_OPTIONS_INIT;
    ringdb_value *value;
    char key[32];
    how.durability = RINGDB_DURABILITY_SYNC;
    reset();
    for (int i = 0; i < 3000; i++) {
        OK(ringdb_batch_clear(batch, &e));
        OK(ringdb_batch_put(batch, NULL, key, (size_t)key_of(key, i), "v", 1, &e));
        OK(ringdb_write_async(db, batch, i % 3 ? &how : NULL, done, NULL, NULL, &e));
    }
    OK(ringdb_sync_async(db, done, NULL, NULL, &e));
    wait_for(3001);
    CHECK(good == 3001);
    for (int i = 0; i < 3000; i++) {
        CHECK(ringdb_get(db, key, (size_t)key_of(key, i), NULL, &value, &e) == 1);
        ringdb_value_free(value);
    }
    OK(ringdb_snapshot(db, &then, &e));
    FAILS(RINGDB_READ_ONLY, ringdb_write_async(then, batch, NULL, done, NULL, NULL, &e));
    INVALID(ringdb_write_async(db, batch, NULL, NULL, NULL, NULL, &e));
    INVALID(ringdb_write_async(db, NULL, NULL, done, NULL, NULL, &e));
    INVALID(ringdb_sync_async(NULL, done, NULL, NULL, &e));
    INVALID(ringdb_get_async(db, "k", 1, NULL, NULL, NULL, NULL, &e));
    INVALID(ringdb_get_async(db, NULL, 1, NULL, got, NULL, NULL, &e));
    INVALID(ringdb_multi_get_async(db, NULL, 1, NULL, got_many, NULL, NULL, &e));
    CHECK(called == 3001);
    ringdb_batch_free(batch);
    ringdb_release(then), ringdb_release(db);
}

static void cancelled_or_answered(void) {
    ringdb_db *db = filled("cancel");
    static ringdb_request *requests[KEYS];
    int never = 0;
    reset();
    for (int i = 0; i < KEYS; i++)
        ask(db, i, &requests[i]);
    for (int i = 0; i < KEYS; i++) {
        if (i % 2)
            never += ringdb_request_cancel(requests[i]);
        ringdb_request_free(requests[i]);
    }
    wait_for(KEYS - never);
    CHECK(good == KEYS - never);
    /* None comes late. */
    usleep(20000);
    CHECK(called == KEYS - never);
    printf("%s: %d of %d cancelled\n", uri, never, KEYS / 2);
    ringdb_release(db);
}

static void *cancel_all(void *user) {
    ringdb_request **requests = user;
    intptr_t never = 0;
    for (int i = 0; i < KEYS; i++)
        never += ringdb_request_cancel(requests[i]);
    return (void *)never;
}

/* Two threads cancel the same requests while they are answered. */
static void cancelled_from_everywhere(void) {
    ringdb_db *db = filled("cancel2");
    static ringdb_request *requests[KEYS];
    pthread_t threads[2];
    void *never[2];
    reset();
    for (int i = 0; i < KEYS; i++)
        ask(db, i, &requests[i]);
    for (int i = 0; i < 2; i++)
        CHECK(pthread_create(&threads[i], NULL, cancel_all, requests) == 0);
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], &never[i]);
    /* What was cancelled once says so again. */
    CHECK(never[0] == never[1]);
    wait_for(KEYS - (int)(intptr_t)never[0]);
    for (int i = 0; i < KEYS; i++)
        ringdb_request_free(requests[i]);
    OK(ringdb_close(db, &e));
    CHECK(called == KEYS - (int)(intptr_t)never[0]);
    ringdb_release(db);
}

static void closed_in_flight(void) {
    ringdb_db *db = filled("close");
    ringdb_batch *batch = ringdb_batch_new();
    ringdb_write_options how = RINGDB_WRITE_OPTIONS_INIT;
    ringdb_request *kept;
    how.durability = RINGDB_DURABILITY_SYNC;
    OK(ringdb_batch_put(batch, NULL, "w", 1, "v", 1, &e));
    reset();
    for (int i = 0; i < KEYS; i++) {
        ask(db, i, i == 4000 ? &kept : NULL);
        if (i % 10 == 0)
            OK(ringdb_write_async(db, batch, &how, done, NULL, NULL, &e));
    }
    OK(ringdb_close(db, &e));
    /* Each was answered, by what was asked for or by RINGDB_CLOSED, before close returned. */
    CHECK(called == KEYS + KEYS / 10 && good + closed == called);
    printf("%s: %d of %d answered with 'closed'\n", uri, closed, called);
    reset();
    ask(db, 1, NULL);
    OK(ringdb_write_async(db, batch, NULL, done, NULL, NULL, &e));
    CHECK(called == 2 && closed == 2);
    CHECK(ringdb_request_cancel(kept) == 0);
    ringdb_request_free(kept);
    ringdb_batch_free(batch);
    ringdb_release(db);
    /* The same by the last release, with nobody who closes. */
    db = open_store(uri, dir, "close");
    reset();
    for (int i = 0; i < KEYS; i++)
        ask(db, i, NULL);
    ringdb_release(db);
    wait_for(KEYS);
    CHECK(good + closed == KEYS);
}

static int readable_at(int epoll, int line) {
    struct epoll_event event;
    int n;
    do
        n = epoll_wait(epoll, &event, 1, 30000);
    while (n < 0 && errno == EINTR); /* as io_uring's completions interrupt it */
    if (n != 1) {
        fprintf(stderr, "%s:%d: nothing came in 30 s\n", __FILE__, line);
        exit(1);
    }
    return event.data.fd;
}

#define wait_readable(epoll) readable_at(epoll, __LINE__)

static int watch(int fd) {
    struct epoll_event event;
    int epoll = epoll_create1(EPOLL_CLOEXEC);
    memset(&event, 0, sizeof event);
    event.events = EPOLLIN, event.data.fd = fd;
    CHECK(epoll >= 0 && epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) == 0);
    return epoll;
}

static void reads_by_descriptor(void) {
    ringdb_db *db = filled("reads"), *then;
    ringdb_reads *reads = NULL;
    ringdb_answer answer;
    ringdb_read_options how = RINGDB_READ_OPTIONS_INIT;
    static char seen[KEYS + 500];
    char key[32];
    size_t ready = 0;
    int fd = -1, next = 0, answers = 0, waits = 0;
    OK(ringdb_snapshot(db, &then, &e));
    OK(ringdb_reads_open(then, 64, NULL, &reads, &e));
    ringdb_release(then);
    OK(ringdb_reads_fd(reads, &fd, &e));
    int epoll = watch(fd);
    while (answers < KEYS + 500) {
        while (next < KEYS + 500) {
            const int n = key_of(key, next);
            const int32_t code = ringdb_reads_submit(reads, (uint64_t)next, key, (size_t)n, &e);
            if (code == RINGDB_WOULD_BLOCK)
                break;
            CHECK(code == RINGDB_OK);
            next++;
        }
        int taken = 0;
        while (ringdb_reads_poll(reads, &answer, &e) == 1) {
            const int i = (int)answer.tag;
            CHECK(answer.code == (i < KEYS) && !seen[i]++ && answer.reserved == 0);
            CHECK(i >= KEYS ? !answer.value : is_value_of(answer.value, i));
            ringdb_value_free(answer.value);
            answers++, taken++;
        }
        if (!taken && answers < KEYS + 500) {
            CHECK(wait_readable(epoll) == fd);
            waits++;
        }
    }
    CHECK(waits > 0 && ringdb_reads_poll(reads, &answer, &e) == 0);
    /* By waiting, too; and freed with answers that nobody took, and reads that the device has. */
    for (int i = 0; i < 40; i++)
        OK(ringdb_reads_submit(reads, (uint64_t)i, key, (size_t)key_of(key, i * 100), &e));
    OK(ringdb_reads_wait(reads, 10, &ready, &e));
    CHECK(ready >= 10 && ringdb_reads_poll(reads, &answer, &e) == 1);
    ringdb_value_free(answer.value);
    OK(ringdb_reads_wait(reads, 1000, NULL, &e));
    ringdb_reads_free(reads);
    close(epoll);
    /* Refused, or answered, when the store is closed. */
    how.deadline_us = 5;
    INVALID(ringdb_reads_open(db, 64, &how, &reads, &e));
    OK(ringdb_reads_open(db, 0, NULL, &reads, &e));
    OK(ringdb_reads_submit(reads, 7, "key000007", 9, &e));
    FAILS(RINGDB_WOULD_BLOCK, ringdb_reads_submit(reads, 8, "key000008", 9, &e));
    CHECK(e.kind == RINGDB_KIND_WOULD_BLOCK);
    INVALID(ringdb_reads_poll(reads, NULL, &e));
    INVALID(ringdb_reads_fd(reads, NULL, &e));
    OK(ringdb_close(db, &e));
    CHECK(ringdb_reads_poll(reads, &answer, &e) == 1 && answer.tag == 7);
    CHECK(answer.code == 1 || (answer.code == RINGDB_CLOSED && e.code == RINGDB_CLOSED && e.message[0]));
    ringdb_value_free(answer.value);
    ringdb_reads_free(reads);
    ringdb_release(db);
}

static void writes_by_descriptor(void) {
    ringdb_db *db = open_store(uri, dir, "writesfd"), *then;
    ringdb_writes *writes = NULL;
    ringdb_batch *batch = ringdb_batch_new();
    ringdb_write_options how = RINGDB_WRITE_OPTIONS_INIT;
    ringdb_answer answer;
    ringdb_value *value;
    static char seen[3000];
    char key[32];
    size_t ready = 0;
    int fd = -1, next = 0, answers = 0;
    how.durability = RINGDB_DURABILITY_SYNC;
    OK(ringdb_snapshot(db, &then, &e));
    FAILS(RINGDB_READ_ONLY, ringdb_writes_open(then, 1, &writes, &e));
    ringdb_release(then);
    OK(ringdb_writes_open(db, 256, &writes, &e));
    OK(ringdb_writes_fd(writes, &fd, &e));
    int epoll = watch(fd);
    while (answers < 3000) {
        while (next < 3000) {
            OK(ringdb_batch_clear(batch, &e));
            OK(ringdb_batch_put(batch, NULL, key, (size_t)key_of(key, next), "v", 1, &e));
            const int32_t code = next % 100 ? ringdb_writes_submit(writes, (uint64_t)next, batch, &how, &e)
                                            : ringdb_writes_sync(writes, (uint64_t)next, &e);
            if (code == RINGDB_WOULD_BLOCK)
                break;
            CHECK(code == RINGDB_OK);
            next++;
        }
        CHECK(wait_readable(epoll) == fd);
        while (ringdb_writes_poll(writes, &answer, &e) == 1) {
            CHECK(answer.code == RINGDB_OK && !answer.value && !seen[answer.tag]++);
            answers++;
        }
        struct epoll_event event;
        CHECK(answers < 3000 || epoll_wait(epoll, &event, 1, 0) == 0);
    }
    for (int i = 0; i < 3000; i++)
        if (i % 100) {
            CHECK(ringdb_get(db, key, (size_t)key_of(key, i), NULL, &value, &e) == 1);
            ringdb_value_free(value);
        }
    OK(ringdb_writes_submit(writes, 1, batch, &how, &e));
    OK(ringdb_writes_submit(writes, 2, batch, NULL, &e));
    OK(ringdb_writes_wait(writes, 5, &ready, &e));
    CHECK(ready == 2);
    OK(ringdb_writes_wait(writes, 0, NULL, &e));
    CHECK(ringdb_writes_poll(writes, &answer, &e) == 1 && ringdb_writes_poll(writes, &answer, &e) == 1);
    CHECK(ringdb_writes_poll(writes, &answer, &e) == 0);
    OK(ringdb_writes_wait(writes, 5, &ready, &e));
    CHECK(ready == 0);
    /* A failed write is an answer; the store is closed under another one. */
    {
        char *long_key = calloc(1, 100000);
        OK(ringdb_batch_put(batch, NULL, long_key, 100000, "v", 1, &e));
        free(long_key);
    }
    OK(ringdb_writes_submit(writes, 3, batch, &how, &e));
    CHECK(ringdb_writes_poll(writes, &answer, &e) == 1 && answer.tag == 3);
    CHECK(answer.code == RINGDB_INVALID_ARGUMENT && e.code == answer.code && e.message[0]);
    OK(ringdb_batch_clear(batch, &e));
    OK(ringdb_batch_put(batch, NULL, "k", 1, "v", 1, &e));
    for (int i = 0; i < 200; i++)
        OK(ringdb_writes_submit(writes, (uint64_t)i, batch, &how, &e));
    OK(ringdb_close(db, &e));
    OK(ringdb_writes_wait(writes, 200, &ready, &e));
    CHECK(ready == 200);
    while (ringdb_writes_poll(writes, &answer, &e) == 1)
        CHECK(answer.code == RINGDB_OK || answer.code == RINGDB_CLOSED);
    ringdb_writes_free(writes);
    FAILS(RINGDB_CLOSED, ringdb_writes_open(db, 1, &writes, &e));
    ringdb_release(db);
    /* Freed with writes under way, and nobody else who holds the store. */
    db = open_store(uri, dir, "writesfd");
    OK(ringdb_writes_open(db, 1000, &writes, &e));
    ringdb_release(db);
    for (int i = 0; i < 500; i++)
        OK(ringdb_writes_submit(writes, (uint64_t)i, batch, &how, &e));
    ringdb_writes_free(writes);
    close(epoll);
    ringdb_batch_free(batch);
}

/* ---- One handle, many threads ---- */

static ringdb_iter *shared_iter;
static atomic_int pairs;

static void *step(void *user) {
    ringdb_error mine;
    for (;;) {
        const int32_t code = ringdb_iter_next(shared_iter, NULL, NULL, &mine);
        if (code == 0)
            return user;
        CHECK(code == 1 || (code == RINGDB_BUSY && mine.kind == RINGDB_KIND_FIX_CALL));
        if (code == 1)
            atomic_fetch_add(&pairs, 1);
    }
}

static void a_handle_of_one_thread_in_many(void) {
    ringdb_db *db = filled("threads");
    pthread_t threads[4];
    OK(ringdb_range(db, NULL, NULL, 0, NULL, &shared_iter, &e));
    for (int i = 0; i < 4; i++)
        CHECK(pthread_create(&threads[i], NULL, step, NULL) == 0);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    CHECK(pairs == KEYS);
    ringdb_iter_free(shared_iter);
    ringdb_release(db);
}

/* ---- fork() ---- */

static void in_a_child(ringdb_db *db, ringdb_reads *reads, ringdb_writes *writes, ringdb_iter *iter,
                       ringdb_batch *batch) {
    ringdb_value *value;
    ringdb_answer answer;
    int before = called, fd;
    INVALID(ringdb_get(db, "key000001", 9, NULL, &value, &e));
    CHECK(strstr(e.message, "fork"));
    INVALID(ringdb_put(db, "k", 1, "v", 1, NULL, &e));
    INVALID(ringdb_sync(db, &e));
    INVALID(ringdb_stats(db, &value, &e));
    INVALID(ringdb_close(db, &e));
    INVALID(ringdb_reads_submit(reads, 1, "k", 1, &e));
    INVALID(ringdb_reads_wait(reads, 1, NULL, &e));
    CHECK(ringdb_reads_poll(reads, &answer, &e) == 0 && e.code == 0);
    INVALID(ringdb_writes_submit(writes, 1, batch, NULL, &e));
    INVALID(ringdb_writes_poll(writes, &answer, &e));
    INVALID(ringdb_writes_wait(writes, 1, NULL, &e));
    INVALID(ringdb_writes_fd(writes, &fd, &e));
    CHECK(ringdb_get_async(db, "key000001", 9, NULL, got, NULL, NULL, &e) == RINGDB_OK && called == before + 1);
    ringdb_reads_free(reads);
    ringdb_writes_free(writes);
    ringdb_iter_free(iter);
    ringdb_release(db);
}

static void a_child_touches_nothing(void) {
    ringdb_db *db = filled("fork");
    ringdb_reads *reads;
    ringdb_writes *writes;
    ringdb_iter *iter;
    ringdb_batch *batch = ringdb_batch_new();
    ringdb_answer answer;
    ringdb_write_options how = RINGDB_WRITE_OPTIONS_INIT;
    int status = -1;
    how.durability = RINGDB_DURABILITY_SYNC;
    OK(ringdb_batch_put(batch, NULL, "k", 1, "v", 1, &e));
    OK(ringdb_reads_open(db, 8, NULL, &reads, &e));
    OK(ringdb_writes_open(db, 8, &writes, &e));
    OK(ringdb_range(db, NULL, NULL, 0, NULL, &iter, &e));
    reset();
    for (int i = 0; i < 500; i++)
        ask(db, i, NULL);
    OK(ringdb_writes_submit(writes, 5, batch, &how, &e));
    /* A key that nobody else asks for: memory cannot answer it. */
    OK(ringdb_reads_submit(reads, 6, "key004906", 9, &e));
    fflush(stdout);
    /* Not while another thread holds a lock of this program's. */
    pthread_mutex_lock(&lock);
    pid_t child = fork();
    pthread_mutex_unlock(&lock);
    if (child == 0) {
        alarm(60);
        in_a_child(db, reads, writes, iter, batch);
        _exit(0);
    }
    CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0);
    wait_for(500);
    OK(ringdb_writes_wait(writes, 1, NULL, &e));
    CHECK(ringdb_writes_poll(writes, &answer, &e) == 1 && answer.tag == 5 && answer.code == 0);
    OK(ringdb_reads_wait(reads, 1, NULL, &e));
    CHECK(ringdb_reads_poll(reads, &answer, &e) == 1 && answer.tag == 6 && is_value_of(answer.value, 4906));
    ringdb_value_free(answer.value);
    CHECK(ringdb_iter_next(iter, NULL, NULL, &e) == 1);
    ringdb_reads_free(reads), ringdb_writes_free(writes), ringdb_iter_free(iter), ringdb_batch_free(batch);
    OK(ringdb_close(db, &e));
    ringdb_release(db);
}

int main(int argc, char **argv) {
    if (argc != 3)
        return 2;
    uri = argv[1], dir = argv[2];
    thousands_by_callback();
    many_keys_by_callback();
    callbacks_do_not_nest();
    what_a_callback_may_call();
    writes_by_callback();
    cancelled_or_answered();
    cancelled_from_everywhere();
    closed_in_flight();
    reads_by_descriptor();
    writes_by_descriptor();
    a_handle_of_one_thread_in_many();
    a_child_touches_nothing();
    printf("passed\n");
    return 0;
}
