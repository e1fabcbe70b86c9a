/* The C interface, used as C programs use it and misused as they misuse it. Usage: contract URI DIRECTORY */
#include <engineswap.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CHECK(condition)                                                                                               \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "%s:%d: %s is not so; last error: %s\n", __FILE__, __LINE__, #condition, e.message);       \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

enum { PAGE = 4096, PAGES = 32 };

static engineswap_error e;
static engineswap_engine *engine;
static const char *dir;

static const char *in_dir(const char *name) {
    static char paths[4][512];
    static int next;
    char *out = paths[next++ % 4];
    snprintf(out, sizeof paths[0], "%s/%s", dir, name);
    return out;
}

static engineswap_file *open_file(const char *name, uint32_t flags) {
    engineswap_file *file = NULL;
    CHECK(engineswap_file_open(engine, in_dir(name), flags, &file, &e) == ENGINESWAP_OK);
    return file;
}

static engineswap_op operation(uint32_t kind, engineswap_file *file, void *buffer, uint64_t page, uint64_t user) {
    engineswap_op op;
    memset(&op, 0, sizeof op);
    op.kind = kind;
    op.file = file;
    op.buffer = buffer;
    op.offset = page * PAGE;
    op.len = buffer ? PAGE : 0;
    op.user = user;
    op.purpose = 3;
    return op;
}

static void versions(void) {
    CHECK(engineswap_abi_version() == ENGINESWAP_ABI_VERSION);
    CHECK(strchr(engineswap_version(), '.') != NULL);
    CHECK(sizeof(engineswap_error) == 1024 && sizeof(engineswap_op) == 56);
    CHECK(sizeof(engineswap_completion) == 24);
    CHECK(sizeof(engineswap_op_stats) == 64 && sizeof(engineswap_stats) == 400);
    CHECK(!strcmp(engineswap_code_name(ENGINESWAP_NO_SPACE), "no space"));
    CHECK(!strcmp(engineswap_code_name(ENGINESWAP_INTERNAL), "internal error"));
    CHECK(!strcmp(engineswap_code_name(-1000), "unknown"));
}

static void wrong_uris(void) {
    engineswap_engine *none = NULL;
    CHECK(engineswap_open("iouring", &none, &e) == ENGINESWAP_INVALID_ARGUMENT);
    CHECK(e.code == ENGINESWAP_INVALID_ARGUMENT && strstr(e.message, "posix, libaio, io_uring"));
    CHECK(engineswap_open("posix?nonsense=1", &none, &e) == ENGINESWAP_INVALID_ARGUMENT);
    CHECK(strstr(e.message, "valid: threads"));
    CHECK(engineswap_open("\xff\xfe", &none, &e) == ENGINESWAP_INVALID_ARGUMENT);
    CHECK(engineswap_open("posix", NULL, &e) == ENGINESWAP_INVALID_ARGUMENT);
    CHECK(engineswap_open("nonsense", &none, NULL) == ENGINESWAP_INVALID_ARGUMENT);
    CHECK(none == NULL);
}

static void nothing_and_nonsense(void) {
    engineswap_file *file = open_file("nonsense", ENGINESWAP_READ | ENGINESWAP_WRITE | ENGINESWAP_CREATE);
    engineswap_queue *queue = NULL;
    engineswap_completion done;
    engineswap_op op = operation(ENGINESWAP_OP_READ, file, NULL, 0, 0);
    engineswap_stats stats;
    char byte = 0;
    size_t n;
    const int32_t bad = ENGINESWAP_INVALID_ARGUMENT;

    engineswap_close(NULL);
    engineswap_file_close(NULL);
    engineswap_buffer_free(NULL);
    CHECK(engineswap_queue_close(NULL, &e) == ENGINESWAP_OK);
    CHECK(!*engineswap_engine_name(NULL) && !*engineswap_engine_uri(NULL) && !*engineswap_engine_reasons(NULL));
    CHECK(engineswap_file_fd(NULL) == -1 && !engineswap_file_is_direct(NULL) && engineswap_queue_in_flight(NULL) == 0);
    CHECK(engineswap_buffer_alloc(0) == NULL && engineswap_buffer_alloc(SIZE_MAX) == NULL);

    CHECK(engineswap_sync_dir(NULL, "x", &e) == bad && engineswap_sync_dir(engine, NULL, &e) == bad);
    CHECK(engineswap_sync_dir(engine, "", &e) == bad);

    CHECK(engineswap_file_open(engine, "x", 0, &file, &e) == bad);
    CHECK(engineswap_file_open(engine, "x", ENGINESWAP_READ | ENGINESWAP_CREATE, &file, &e) == bad);
    CHECK(engineswap_file_open(engine, "x", ENGINESWAP_READ | 4096, &file, &e) == bad);
    CHECK(engineswap_file_open(engine, "x", ENGINESWAP_READ, NULL, &e) == bad);
    CHECK(engineswap_file_read(NULL, &byte, 1, 0, 0, &n, &e) == bad);
    CHECK(engineswap_file_read(file, NULL, 1, 0, 0, &n, &e) == bad && strstr(e.message, "NULL"));
    CHECK(engineswap_file_read(file, &byte, 1, 0, 0, NULL, &e) == bad);
    CHECK(engineswap_file_read(file, &byte, 1, 0, 16, &n, &e) == bad && strstr(e.message, "0 to 15"));
    CHECK(engineswap_file_read(file, &byte, SIZE_MAX, 0, 0, &n, &e) == bad);
    CHECK(engineswap_file_read(file, NULL, 0, 0, 0, &n, &e) == ENGINESWAP_OK && n == 0);
    CHECK(engineswap_file_write(file, NULL, 1, 0, 0, &e) == bad);
    CHECK(engineswap_file_write_dsync(NULL, &byte, 1, 0, 0, &e) == bad);
    CHECK(engineswap_file_sync_data(NULL, 0, &e) == bad && engineswap_file_sync_all(file, 99, &e) == bad);
    CHECK(engineswap_file_set_len(NULL, 1, &e) == bad);
    CHECK(engineswap_file_len(file, NULL, &e) == bad && engineswap_file_alignment(NULL, NULL, NULL, &e) == bad);

    CHECK(engineswap_queue_open(engine, 0, 0, &queue, &e) == bad);
    CHECK(engineswap_queue_open(engine, UINT32_MAX, 0, &queue, &e) == bad);
    CHECK(engineswap_queue_open(engine, 1, 2, &queue, &e) == bad);
    CHECK(engineswap_queue_open(engine, 1, 0, NULL, &e) == bad);
    CHECK(engineswap_queue_open(NULL, 1, 0, &queue, &e) == bad && queue == NULL);
    CHECK(engineswap_queue_push(NULL, &op, &e) == bad && engineswap_queue_submit(NULL, &e) == bad);
    CHECK(engineswap_queue_wait(NULL, 1, &e) == bad && engineswap_queue_pop(NULL, &done, &e) == bad);
    CHECK(engineswap_queue_pop_many(NULL, &done, 1, &e) == bad);
    CHECK(engineswap_queue_open(engine, 4, 0, &queue, &e) == ENGINESWAP_OK);
    CHECK(engineswap_queue_push(queue, NULL, &e) == bad && engineswap_queue_pop(queue, NULL, &e) == bad);
    CHECK(engineswap_queue_pop_many(queue, NULL, 1, &e) == bad);
    op.len = 1;
    CHECK(engineswap_queue_push(queue, &op, &e) == bad && strstr(e.message, "NULL"));
    op.buffer = &byte;
    op.len = UINT64_MAX;
    CHECK(engineswap_queue_push(queue, &op, &e) == bad);
    op.len = 1;
    op.offset = INT64_MAX;
    CHECK(engineswap_queue_push(queue, &op, &e) == bad);
    op.offset = 0;
    op.purpose = 77;
    CHECK(engineswap_queue_push(queue, &op, &e) == bad);
    op.purpose = 0;
    op.flags = ENGINESWAP_OP_DSYNC;
    CHECK(engineswap_queue_push(queue, &op, &e) == bad && strstr(e.message, "writes"));
    op.flags = 64;
    CHECK(engineswap_queue_push(queue, &op, &e) == bad);
    op.flags = 0;
    op.kind = 9;
    CHECK(engineswap_queue_push(queue, &op, &e) == bad);
    op.kind = ENGINESWAP_OP_READ;
    op.file = NULL;
    CHECK(engineswap_queue_push(queue, &op, &e) == bad);
    done.result = 0;
    CHECK(engineswap_run(engine, &op, 1, &done, &e) == bad && done.result == bad);
    CHECK(engineswap_run(engine, NULL, 1, &done, &e) == bad && engineswap_run(engine, &op, 1, NULL, &e) == bad);
    CHECK(engineswap_run(engine, &op, SIZE_MAX, &done, &e) == bad && engineswap_run(NULL, &op, 1, &done, &e) == bad);
    CHECK(engineswap_run(engine, NULL, 0, NULL, &e) == ENGINESWAP_OK);
    CHECK(engineswap_queue_in_flight(queue) == 0 && engineswap_queue_close(queue, &e) == ENGINESWAP_OK);

    CHECK(engineswap_get_stats(engine, -2, &stats, sizeof stats, &e) == bad);
    CHECK(engineswap_get_stats(engine, 16, &stats, sizeof stats, &e) == bad);
    CHECK(engineswap_get_stats(engine, -1, &stats, 5, &e) == bad);
    CHECK(engineswap_get_stats(engine, -1, NULL, sizeof stats, &e) == bad);
    engineswap_file_close(file);
}

static void names(void) {
    const uint32_t new = ENGINESWAP_WRITE | ENGINESWAP_CREATE_NEW;
    engineswap_file *file = open_file("one", new);
    char longest[5000];

    engineswap_file_close(file);
    CHECK(engineswap_file_open(engine, in_dir("one"), new, &file, &e) == ENGINESWAP_ALREADY_EXISTS);
    CHECK(rename(in_dir("one"), in_dir("two")) == 0);
    CHECK(engineswap_sync_dir(engine, dir, &e) == ENGINESWAP_OK && e.code == ENGINESWAP_OK && !*e.message);
    CHECK(engineswap_sync_dir(engine, in_dir("no"), &e) == ENGINESWAP_NOT_FOUND && e.os_errno == ENOENT);
    CHECK(engineswap_file_open(engine, in_dir("one"), ENGINESWAP_READ, &file, &e) == ENGINESWAP_NOT_FOUND);
    CHECK(e.os_errno == ENOENT && strstr(e.message, "/one"));

    memset(longest, 'x', sizeof longest - 1);
    longest[sizeof longest - 1] = 0;
    CHECK(engineswap_file_open(engine, longest, new, &file, &e) < 0 && e.os_errno == ENAMETOOLONG);
    CHECK(strlen(e.message) == sizeof e.message - 1);
}

static void lone_operations(uint32_t direct) {
    engineswap_file *file =
        open_file("lone", ENGINESWAP_READ | ENGINESWAP_WRITE | ENGINESWAP_CREATE | ENGINESWAP_TRUNCATE | direct);
    char *page = engineswap_buffer_alloc(100), *back = engineswap_buffer_alloc(2 * PAGE);
    uint32_t memory = 0, offset = 0;
    uint64_t len = 7;
    size_t n = 0;
    int i;

    CHECK(page && back && (uintptr_t)page % PAGE == 0);
    for (i = 0; i < PAGE; i++) {
        CHECK(page[i] == 0);
        page[i] = (char)(i % 251);
    }
    CHECK(engineswap_file_alignment(file, &memory, &offset, &e) == ENGINESWAP_OK && memory && offset);
    CHECK(engineswap_file_is_direct(file) ? offset >= 512 : offset == 1);
    CHECK(fcntl(engineswap_file_fd(file), F_GETFD) >= 0);
    CHECK(engineswap_file_write(file, page, PAGE, 0, 1, &e) == ENGINESWAP_OK);
    CHECK(engineswap_file_write_dsync(file, page, PAGE, PAGE, 1, &e) == ENGINESWAP_OK);
    CHECK(engineswap_file_len(file, &len, &e) == ENGINESWAP_OK && len == 2 * PAGE);
    CHECK(engineswap_file_read(file, back, 2 * PAGE, PAGE, 1, &n, &e) == ENGINESWAP_OK && n == PAGE);
    CHECK(!memcmp(back, page, PAGE));
    CHECK(engineswap_file_read(file, back + 1, 1000, 3, 1, &n, &e) == ENGINESWAP_OK && n == 1000);
    CHECK(!memcmp(back + 1, page + 3, 1000));
    CHECK(engineswap_file_sync_data(file, 1, &e) == ENGINESWAP_OK);
    CHECK(engineswap_file_sync_all(file, 1, &e) == ENGINESWAP_OK);
    CHECK(engineswap_file_set_len(file, 5 * PAGE, &e) == ENGINESWAP_OK);
    CHECK(engineswap_file_len(file, &len, &e) == ENGINESWAP_OK && len == 5 * PAGE);
    CHECK(engineswap_file_set_len(file, 10, &e) == ENGINESWAP_OK);
    CHECK(engineswap_file_read(file, back, PAGE, 0, 1, &n, &e) == ENGINESWAP_OK && n == 10);
    if (engineswap_file_is_direct(file)) {
        CHECK(engineswap_file_write(file, page, 10, 0, 1, &e) == ENGINESWAP_INVALID_ARGUMENT);
        CHECK(strstr(e.message, "aligned"));
    }
    engineswap_file_close(file);
    engineswap_buffer_free(page);
    engineswap_buffer_free(back);
}

static void batches(uint32_t direct) {
    engineswap_file *file = open_file("batch", ENGINESWAP_READ | ENGINESWAP_WRITE | ENGINESWAP_CREATE | direct);
    engineswap_file *readonly = open_file("batch", ENGINESWAP_READ | direct);
    char *pages = engineswap_buffer_alloc(PAGES * PAGE), *back = malloc(PAGES * PAGE + 1);
    engineswap_op ops[PAGES + 1];
    engineswap_completion done[PAGES + 1];
    int i;

    for (i = 0; i < PAGES; i++) {
        memset(pages + i * PAGE, 'A' + i, PAGE);
        ops[i] = operation(ENGINESWAP_OP_WRITE, file, pages + i * PAGE, i, 100 + i);
        ops[i].flags = ENGINESWAP_OP_CHAIN;
    }
    ops[PAGES] = operation(ENGINESWAP_OP_SYNC_DATA, file, NULL, 0, 99);
    CHECK(engineswap_run(engine, ops, PAGES + 1, done, &e) == ENGINESWAP_OK);
    for (i = 0; i < PAGES; i++)
        CHECK(done[i].user == 100u + i && done[i].result == PAGE && !done[i].os_errno && !done[i].flags);
    CHECK(done[PAGES].user == 99 && done[PAGES].result == 0);

    /* Backwards, into memory that is not aligned, the last one beyond the end. */
    for (i = 0; i < PAGES; i++)
        ops[i] = operation(ENGINESWAP_OP_READ, file, back + 1 + i * PAGE, PAGES - i, i);
    CHECK(engineswap_run(engine, ops, PAGES, done, &e) == ENGINESWAP_OK);
    CHECK(done[0].result == 0);
    for (i = 1; i < PAGES; i++) {
        CHECK(done[i].result == PAGE);
        CHECK(!memcmp(back + 1 + i * PAGE, pages + (PAGES - i) * PAGE, PAGE));
    }

    /* One fails: the rest of its chain is canceled, the others are done. */
    ops[0] = operation(ENGINESWAP_OP_READ, file, back, 0, 0);
    ops[1] = operation(ENGINESWAP_OP_WRITE, readonly, pages, 1, 1);
    ops[2] = operation(ENGINESWAP_OP_WRITE, file, pages, 2, 2);
    ops[3] = operation(ENGINESWAP_OP_READ, file, back + PAGE, 3, 3);
    ops[1].flags = ENGINESWAP_OP_CHAIN | ENGINESWAP_OP_DSYNC;
    CHECK(engineswap_run(engine, ops, 4, done, &e) == ENGINESWAP_IO && e.os_errno == EBADF);
    CHECK(strstr(e.message, "batch at offset 4096"));
    CHECK(done[0].result == PAGE && done[3].result == PAGE);
    CHECK(done[1].result == ENGINESWAP_IO && done[1].os_errno == EBADF);
    CHECK(done[2].result == ENGINESWAP_CANCELED);
    CHECK(engineswap_run(engine, ops, 1, done, &e) == ENGINESWAP_OK && done[0].result == PAGE && back[0] == 'A');

    engineswap_file_close(file);
    engineswap_file_close(readonly);
    engineswap_buffer_free(pages);
    free(back);
}

static void *of_another_thread(void *arg) {
    engineswap_queue *queue = arg;
    engineswap_error mine;
    engineswap_completion done;
    int32_t wrong = ENGINESWAP_WRONG_THREAD;
    int ok = engineswap_queue_submit(queue, &mine) == wrong && engineswap_queue_wait(queue, 1, &mine) == wrong &&
             engineswap_queue_pop(queue, &done, &mine) == wrong && engineswap_queue_close(queue, &mine) == wrong &&
             mine.code == wrong && strstr(mine.message, "thread") && engineswap_queue_in_flight(queue) == 0;
    return ok ? arg : NULL;
}

static void queues(uint32_t direct) {
    const uint32_t how = ENGINESWAP_READ | ENGINESWAP_WRITE | ENGINESWAP_CREATE | direct;
    engineswap_file *file = open_file("queue", how), *readonly = open_file("queue", ENGINESWAP_READ | direct);
    engineswap_queue *queue = NULL;
    engineswap_completion done, many[4];
    engineswap_op op;
    char *pages = engineswap_buffer_alloc(PAGES * PAGE), *back = engineswap_buffer_alloc(PAGES * PAGE);
    uint32_t seen = 0;
    size_t n;
    pthread_t thread;
    void *ok;
    int i, taken = 0;

    for (i = 0; i < PAGES; i++)
        memset(pages + i * PAGE, 'a' + i % 26, PAGE);
    CHECK(engineswap_queue_open(engine, 4, 0, &queue, &e) == ENGINESWAP_OK);
    CHECK(engineswap_queue_pop(queue, &done, &e) == 0 && engineswap_queue_wait(queue, 5, &e) == ENGINESWAP_OK);
    for (i = 0; i < PAGES;) {
        op = operation(ENGINESWAP_OP_WRITE, file, pages + i * PAGE, i, i);
        int32_t pushed = engineswap_queue_push(queue, &op, &e);
        if (pushed == ENGINESWAP_OK) {
            i++;
            continue;
        }
        CHECK(pushed == ENGINESWAP_QUEUE_FULL && engineswap_queue_in_flight(queue) == 4);
        CHECK(engineswap_queue_wait(queue, 1, &e) == ENGINESWAP_OK);
        while (engineswap_queue_pop(queue, &done, &e) == 1) {
            CHECK(done.result == PAGE && !(seen >> done.user & 1));
            seen |= 1u << done.user;
        }
    }
    while (engineswap_queue_in_flight(queue)) {
        CHECK(engineswap_queue_wait(queue, 2, &e) == ENGINESWAP_OK);
        int32_t got = engineswap_queue_pop_many(queue, many, 4, &e);
        CHECK(got > 0);
        for (i = 0; i < got; i++) {
            CHECK(many[i].result == PAGE && !(seen >> many[i].user & 1));
            seen |= 1u << many[i].user;
        }
    }
    CHECK(seen == UINT32_MAX);

    /* A failure has its message, and breaks its chain, which its last operation ends. */
    op = operation(ENGINESWAP_OP_WRITE, readonly, pages, 0, 7);
    op.flags = ENGINESWAP_OP_CHAIN;
    CHECK(engineswap_queue_push(queue, &op, &e) == ENGINESWAP_OK);
    op = operation(ENGINESWAP_OP_SYNC_ALL, file, NULL, 0, 8);
    CHECK(engineswap_queue_push(queue, &op, &e) == ENGINESWAP_OK);
    op = operation(ENGINESWAP_OP_READ, file, back, 1, 9);
    CHECK(engineswap_queue_push(queue, &op, &e) == ENGINESWAP_OK);
    CHECK(engineswap_queue_submit(queue, &e) == ENGINESWAP_OK);
    CHECK(engineswap_queue_wait(queue, 3, &e) == ENGINESWAP_OK);
    while (engineswap_queue_pop(queue, &done, &e) == 1) {
        taken++;
        if (done.user == 7)
            CHECK(done.result < 0 && done.os_errno == EBADF && e.code == done.result && strstr(e.message, "queue"));
        else if (done.user == 8)
            CHECK(done.result == ENGINESWAP_CANCELED && e.code == ENGINESWAP_CANCELED);
        else
            CHECK(done.user == 9 && done.result == PAGE && e.code == ENGINESWAP_OK && back[0] == 'b');
    }
    CHECK(taken == 3);

    CHECK(pthread_create(&thread, NULL, of_another_thread, queue) == 0 && pthread_join(thread, &ok) == 0 && ok);

    /* Closing drains: what was pushed is done, the file's handle gone, the last failure told. */
    memset(pages, 'Z', 3 * PAGE);
    for (i = 0; i < 3; i++) {
        op = operation(ENGINESWAP_OP_WRITE, file, pages + i * PAGE, i, i);
        CHECK(engineswap_queue_push(queue, &op, &e) == ENGINESWAP_OK);
    }
    CHECK(engineswap_queue_submit(queue, &e) == ENGINESWAP_OK);
    op = operation(ENGINESWAP_OP_WRITE, readonly, pages, 0, 7);
    CHECK(engineswap_queue_push(queue, &op, &e) == ENGINESWAP_OK);
    engineswap_file_close(file);
    CHECK(engineswap_queue_close(queue, &e) == ENGINESWAP_IO && e.os_errno == EBADF);
    engineswap_buffer_free(pages);
    CHECK(engineswap_file_read(readonly, back, 3 * PAGE, 0, 0, &n, &e) == ENGINESWAP_OK && n == 3 * PAGE);
    for (i = 0; i < 3 * PAGE; i++)
        CHECK(back[i] == 'Z');
    engineswap_file_close(readonly);
    engineswap_buffer_free(back);
}

struct shared {
    engineswap_queue *queue;
    engineswap_file *file;
    uint64_t first; /* its tags: this and the next 9 */
};

static void *user_of_a_shared_queue(void *arg) {
    struct shared *mine = arg;
    engineswap_error oops;
    engineswap_completion done;
    char *back = engineswap_buffer_alloc(8 * PAGE);
    engineswap_op op, chain[2];
    int round, i;

    for (round = 0; round < 30; round++) {
        for (i = 0; i < 8; i++) {
            int32_t pushed;
            op = operation(ENGINESWAP_OP_READ, mine->file, back + i * PAGE, (round * 7 + i) % PAGES, mine->first + i);
            while ((pushed = engineswap_queue_push(mine->queue, &op, &oops)) == ENGINESWAP_QUEUE_FULL)
                sched_yield();
            if (pushed != ENGINESWAP_OK)
                return NULL;
        }
        if (round % 2 && engineswap_queue_submit(mine->queue, &oops) != ENGINESWAP_OK)
            return NULL;
        for (i = 7; i >= 0; i--)
            if (engineswap_queue_take(mine->queue, mine->first + i, &done, &oops) != 1 || done.result != PAGE ||
                done.user != mine->first + i || back[i * PAGE + 77] != 'A' + (round * 7 + i) % PAGES)
                return NULL;
        if (engineswap_queue_take(mine->queue, mine->first, &done, &oops) != 0)
            return NULL;
        chain[0] = operation(ENGINESWAP_OP_READ, mine->file, back, PAGES + 5, mine->first + 8);
        chain[0].flags = ENGINESWAP_OP_CHAIN;
        chain[1] = operation(ENGINESWAP_OP_SYNC_DATA, mine->file, NULL, 0, mine->first + 9);
        while (engineswap_queue_push_many(mine->queue, chain, 2, &oops) == ENGINESWAP_QUEUE_FULL)
            sched_yield();
        if (engineswap_queue_take(mine->queue, mine->first + 9, &done, &oops) != 1 ||
            done.result != ENGINESWAP_CANCELED || oops.code != ENGINESWAP_CANCELED)
            return NULL;
        if (engineswap_queue_take(mine->queue, mine->first + 8, &done, &oops) != 1 || done.result != 0)
            return NULL;
    }
    engineswap_buffer_free(back);
    return arg;
}

static void shared_queues(uint32_t direct) {
    engineswap_file *file = open_file("shared", ENGINESWAP_READ | ENGINESWAP_WRITE | ENGINESWAP_CREATE | direct);
    engineswap_queue *queue = NULL;
    engineswap_completion done;
    engineswap_op ops[2];
    struct shared args[4];
    pthread_t thread[4];
    char *pages = engineswap_buffer_alloc(PAGES * PAGE);
    void *ok;
    int i;

    for (i = 0; i < PAGES; i++)
        memset(pages + i * PAGE, 'A' + i, PAGE);
    CHECK(engineswap_file_write(file, pages, PAGES * PAGE, 0, 0, &e) == ENGINESWAP_OK);
    /* Less than all want, but one of them always has what it wants. */
    CHECK(engineswap_queue_open(engine, 4 * 7 + 1, ENGINESWAP_QUEUE_SHARED, &queue, &e) == ENGINESWAP_OK);
    for (i = 0; i < 4; i++) {
        args[i].queue = queue;
        args[i].file = file;
        args[i].first = (uint64_t)i * 100;
        CHECK(pthread_create(&thread[i], NULL, user_of_a_shared_queue, &args[i]) == 0);
    }
    for (i = 0; i < 4; i++)
        CHECK(pthread_join(thread[i], &ok) == 0 && ok);
    CHECK(engineswap_queue_in_flight(queue) == 0);

    ops[0] = operation(ENGINESWAP_OP_READ, file, pages, 1, 1);
    ops[1] = operation(ENGINESWAP_OP_READ, file, pages + PAGE, 2, 2);
    ops[0].flags = ENGINESWAP_OP_CHAIN;
    CHECK(engineswap_queue_push(queue, &ops[0], &e) == ENGINESWAP_INVALID_ARGUMENT && strstr(e.message, "push_many"));
    ops[0].flags = 0;
    CHECK(engineswap_queue_push_many(queue, ops, 1000, &e) == ENGINESWAP_INVALID_ARGUMENT);
    CHECK(engineswap_queue_push_many(queue, ops, 2, &e) == ENGINESWAP_OK);
    /* Not started, so it is found. */
    CHECK(engineswap_queue_cancel(queue, 2, &e) == 1 && engineswap_queue_cancel(queue, 3, &e) == 0);
    CHECK(engineswap_queue_take(queue, 2, &done, &e) == 1 && done.result == ENGINESWAP_CANCELED);
    CHECK(engineswap_queue_wait(queue, 5, &e) == ENGINESWAP_OK);
    CHECK(engineswap_queue_pop(queue, &done, &e) == 1 && done.user == 1 && done.result == PAGE && pages[0] == 'B');
    /* What is left is done before it closes. */
    CHECK(engineswap_queue_push_many(queue, ops, 2, &e) == ENGINESWAP_OK);
    CHECK(engineswap_queue_close(queue, &e) == ENGINESWAP_OK && pages[PAGE] == 'C');

    /* A queue of one thread has the same calls, but nothing to wait for by tag. */
    CHECK(engineswap_queue_open(engine, 4, 0, &queue, &e) == ENGINESWAP_OK);
    CHECK(engineswap_queue_push_many(queue, ops, 2, &e) == ENGINESWAP_OK);
    CHECK(engineswap_queue_take(queue, 1, &done, &e) == ENGINESWAP_INVALID_ARGUMENT);
    CHECK(engineswap_queue_cancel(queue, 1, &e) == 1);
    CHECK(engineswap_queue_wait(queue, 2, &e) == ENGINESWAP_OK);
    for (i = 0; i < 2; i++) {
        CHECK(engineswap_queue_pop(queue, &done, &e) == 1);
        CHECK(done.result == (done.user == 1 ? ENGINESWAP_CANCELED : PAGE));
    }
    CHECK(engineswap_queue_close(queue, &e) == ENGINESWAP_OK);
    engineswap_file_close(file);
    engineswap_buffer_free(pages);
}

static void *batches_of_a_thread(void *arg) {
    engineswap_file *file = arg;
    engineswap_error mine;
    char *back = malloc(8 * PAGE);
    int round, i;
    void *ok = arg;

    for (round = 0; round < 50 && ok; round++) {
        engineswap_op ops[8];
        engineswap_completion done[8];
        for (i = 0; i < 8; i++)
            ops[i] = operation(ENGINESWAP_OP_READ, file, back + i * PAGE, (round * 7 + i) % PAGES, i);
        if (engineswap_run(engine, ops, 8, done, &mine) != ENGINESWAP_OK)
            ok = NULL;
        for (i = 0; i < 8 && ok; i++)
            if (done[i].result != PAGE || back[i * PAGE + 77] != 'A' + (round * 7 + i) % PAGES)
                ok = NULL;
    }
    free(back);
    return ok;
}

static void threads(void) {
    engineswap_file *file = open_file("threads", ENGINESWAP_READ | ENGINESWAP_WRITE | ENGINESWAP_CREATE);
    pthread_t thread[4];
    char page[PAGE];
    void *ok;
    int i;

    for (i = 0; i < PAGES; i++) {
        memset(page, 'A' + i, PAGE);
        CHECK(engineswap_file_write(file, page, PAGE, (uint64_t)i * PAGE, 0, &e) == ENGINESWAP_OK);
    }
    for (i = 0; i < 4; i++)
        CHECK(pthread_create(&thread[i], NULL, batches_of_a_thread, file) == 0);
    for (i = 0; i < 4; i++)
        CHECK(pthread_join(thread[i], &ok) == 0 && ok);
    engineswap_file_close(file);
}

static void statistics(void) {
    engineswap_stats all, three, none;
    uint64_t elapsed[2] = {0, 7};

    CHECK(engineswap_get_stats(engine, -1, &all, sizeof all, &e) == ENGINESWAP_OK);
    CHECK(engineswap_get_stats(engine, 3, &three, sizeof three, &e) == ENGINESWAP_OK);
    CHECK(engineswap_get_stats(engine, 14, &none, sizeof none, &e) == ENGINESWAP_OK);
    CHECK(three.read.ops > 1600 && three.read.bytes % 2 == 0 && three.read.p99_ns >= three.read.p50_ns);
    CHECK(three.write.errors >= 2 && all.read.ops > three.read.ops && all.sync.ops > 0 && all.queue_ops > 0);
    CHECK(none.read.ops == 0 && none.write.ops == 0 && none.elapsed_ns > 0);
    /* A program with an older, shorter struct gets no more than that. */
    CHECK(engineswap_get_stats(engine, -1, (engineswap_stats *)elapsed, 8, &e) == ENGINESWAP_OK);
    CHECK(elapsed[0] >= all.elapsed_ns && elapsed[1] == 7);
}

static void any_order_of_closing(const char *uri) {
    engineswap_engine *other = NULL;
    engineswap_file *file = NULL;
    engineswap_queue *queue = NULL;
    engineswap_op op;
    char bytes[6] = "bytes", back[6] = "";

    CHECK(engineswap_open(uri, &other, &e) == ENGINESWAP_OK);
    CHECK(engineswap_file_open(other, in_dir("order"), ENGINESWAP_READ | ENGINESWAP_WRITE | ENGINESWAP_CREATE, &file,
                               &e) == ENGINESWAP_OK);
    CHECK(engineswap_queue_open(other, 2, 0, &queue, &e) == ENGINESWAP_OK);
    engineswap_close(other);
    op = operation(ENGINESWAP_OP_WRITE, file, bytes, 0, 1);
    op.len = sizeof bytes;
    op.flags = ENGINESWAP_OP_CHAIN;
    CHECK(engineswap_queue_push(queue, &op, &e) == ENGINESWAP_OK);
    op.kind = ENGINESWAP_OP_READ;
    op.buffer = back;
    op.flags = 0;
    CHECK(engineswap_queue_push(queue, &op, &e) == ENGINESWAP_OK);
    engineswap_file_close(file);
    CHECK(engineswap_queue_close(queue, &e) == ENGINESWAP_OK);
    CHECK(!strcmp(back, "bytes"));
}

int main(int argc, char **argv) {
    if (argc != 3)
        return 2;
    dir = argv[2];
    if (engineswap_open(argv[1], &engine, &e) == ENGINESWAP_UNSUPPORTED) {
        printf("skipped: %s\n", e.message);
        return 0;
    }
    CHECK(engine && strlen(engineswap_engine_uri(engine)) >= strlen(engineswap_engine_name(engine)));
    versions();
    wrong_uris();
    nothing_and_nonsense();
    names();
    lone_operations(0);
    lone_operations(ENGINESWAP_DIRECT_PREFER);
    batches(0);
    batches(ENGINESWAP_DIRECT_PREFER);
    queues(0);
    queues(ENGINESWAP_DIRECT_PREFER);
    shared_queues(0);
    shared_queues(ENGINESWAP_DIRECT_PREFER);
    threads();
    statistics();
    any_order_of_closing(argv[1]);
    engineswap_close(engine);
    printf("passed\n");
    return 0;
}
