/* What operations and files can do beside plain transfers. Usage: more URI DIRECTORY */
#include <engineswap.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#define CHECK(condition)                                                                                               \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "%s:%d: %s is not so; last error: %s\n", __FILE__, __LINE__, #condition, e.message);       \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

enum { PAGE = 4096, PAGES = 16 };

static engineswap_error e;
static engineswap_engine *engine;
static const char *dir;
static int uring;

static engineswap_file *open_file(const char *name, uint32_t flags) {
    engineswap_file *file = NULL;
    char path[512];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    CHECK(engineswap_file_open(engine, path, flags, &file, &e) == ENGINESWAP_OK);
    return file;
}

static engineswap_op operation(uint32_t kind, engineswap_file *file, void *buffer, uint64_t offset, uint64_t len) {
    engineswap_op op;
    memset(&op, 0, sizeof op);
    op.kind = kind;
    op.file = file;
    op.buffer = buffer;
    op.offset = offset;
    op.len = len;
    return op;
}

static engineswap_stats counters(void) {
    engineswap_stats s;
    CHECK(engineswap_get_stats(engine, -1, &s, sizeof s, &e) == ENGINESWAP_OK);
    return s;
}

/* Reads every page into its place of `memory`, by a batch. */
static void read_pages(engineswap_file *file, char *memory) {
    engineswap_op ops[PAGES];
    engineswap_completion done[PAGES];
    int i;

    memset(memory, 0, PAGES * PAGE);
    for (i = 0; i < PAGES; i++)
        ops[i] = operation(ENGINESWAP_OP_READ, file, memory + i * PAGE, (uint64_t)i * PAGE, PAGE);
    CHECK(engineswap_run(engine, ops, PAGES, done, &e) == ENGINESWAP_OK);
    for (i = 0; i < PAGES; i++)
        CHECK(done[i].result == PAGE && memory[i * PAGE + 9] == 'a' + i);
}

static void registered_buffers(engineswap_file *file) {
    char *memory = engineswap_buffer_alloc(PAGES * PAGE), *other = engineswap_buffer_alloc(PAGES * PAGE);
    engineswap_registration *r = NULL;
    uint64_t before = counters().fixed;
    int used;

    CHECK(engineswap_register_buffer(engine, NULL, PAGE, &r, &e) == ENGINESWAP_INVALID_ARGUMENT);
    CHECK(engineswap_register_buffer(engine, memory, 0, &r, &e) == ENGINESWAP_INVALID_ARGUMENT);
    CHECK(engineswap_register_buffer(engine, memory, PAGE, NULL, &e) == ENGINESWAP_INVALID_ARGUMENT && r == NULL);
    CHECK(engineswap_register_buffer(engine, memory, PAGES * PAGE, &r, &e) == ENGINESWAP_OK && r);
    used = engineswap_registration_refusal(r) == NULL;
    if (!used) {
        CHECK(strlen(engineswap_registration_refusal(r)) > 10);
        printf("not registered: %s; ", engineswap_registration_refusal(r));
    }
    read_pages(file, memory);
    CHECK((counters().fixed >= before + PAGES) == used);
    before = counters().fixed;
    read_pages(file, other);
    CHECK(counters().fixed == before);

    engineswap_unregister(r);
    engineswap_unregister(NULL);
    CHECK(engineswap_registration_refusal(NULL) == NULL);
    /* Out: the memory is free to go. */
    read_pages(file, memory);
    CHECK(counters().fixed == before);
    engineswap_buffer_free(memory);
    engineswap_buffer_free(other);
}

/* The kernel cannot pin what cannot be written: asked for by name that is an error, else a reason. */
static void refused_registration(void) {
    void *hole = mmap(NULL, PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    engineswap_engine *strict = NULL;
    engineswap_registration *r = NULL;
    const char *why;

    CHECK(hole != MAP_FAILED);
    CHECK(engineswap_register_buffer(engine, hole, PAGE, &r, &e) == ENGINESWAP_OK);
    why = engineswap_registration_refusal(r);
    CHECK(why && strstr(why, "regist"));
    engineswap_unregister(r);
    if (uring) {
        CHECK(engineswap_open("io_uring?fixed_buffers", &strict, &e) == ENGINESWAP_OK);
        r = NULL;
        CHECK(engineswap_register_buffer(strict, hole, PAGE, &r, &e) < 0 && !r && strstr(e.message, "register"));
        engineswap_close(strict);
    }
    munmap(hole, PAGE);
}

static void vectored(uint32_t direct) {
    engineswap_file *file =
        open_file("vectored", ENGINESWAP_READ | ENGINESWAP_WRITE | ENGINESWAP_CREATE | ENGINESWAP_TRUNCATE | direct);
    char *memory = engineswap_buffer_alloc(PAGES * PAGE), *back = calloc(PAGES, PAGE);
    engineswap_vector out[3], in[PAGES];
    engineswap_completion done[2];
    engineswap_op ops[2];
    int i;

    CHECK(sizeof(engineswap_vector) == sizeof(struct iovec));
    for (i = 0; i < PAGES * PAGE; i++)
        memory[i] = (char)(i * 7 + i / PAGE);
    /* One with nothing in it, in the middle. */
    out[0].base = memory;
    out[0].len = 2 * PAGE;
    out[1].base = NULL;
    out[1].len = 0;
    out[2].base = memory + 2 * PAGE;
    out[2].len = (PAGES - 2) * PAGE;
    /* Pieces of a page, but for one byte that the first gives to the last: unaligned for direct I/O. */
    for (i = 0; i < PAGES; i++) {
        in[i].base = back + i * PAGE - (i ? 1 : 0);
        in[i].len = PAGE - (i ? 0 : 1) + (i == PAGES - 1 ? 1 : 0);
    }
    ops[0] = operation(ENGINESWAP_OP_WRITEV, file, out, 0, 3);
    ops[0].flags = ENGINESWAP_OP_CHAIN | ENGINESWAP_OP_DSYNC;
    ops[1] = operation(ENGINESWAP_OP_READV, file, in, 0, PAGES);
    CHECK(engineswap_run(engine, ops, 2, done, &e) == ENGINESWAP_OK);
    CHECK(done[0].result == PAGES * PAGE && done[1].result == PAGES * PAGE && !memcmp(memory, back, PAGES * PAGE));
    /* Alone, and short at the end of the file. */
    memset(back, 0, PAGES * PAGE);
    ops[1].offset = 4 * PAGE;
    CHECK(engineswap_run(engine, &ops[1], 1, done, &e) == ENGINESWAP_OK);
    CHECK(done[0].result == (PAGES - 4) * PAGE && !memcmp(memory + 4 * PAGE, back, (PAGES - 4) * PAGE));
    /* No pieces at all; and an array that there is not. */
    ops[1].len = 0;
    CHECK(engineswap_run(engine, &ops[1], 1, done, &e) == ENGINESWAP_OK && done[0].result == 0);
    ops[1].buffer = NULL;
    ops[1].len = 3;
    CHECK(engineswap_run(engine, &ops[1], 1, done, &e) == ENGINESWAP_INVALID_ARGUMENT);
    in[1].base = NULL;
    ops[1].buffer = in;
    CHECK(engineswap_run(engine, &ops[1], 1, done, &e) == ENGINESWAP_INVALID_ARGUMENT);
    engineswap_file_close(file);
    engineswap_buffer_free(memory);
    free(back);
}

static void forced(engineswap_file *file) {
    char *memory = engineswap_buffer_alloc(2 * PAGE);
    uint64_t before = counters().punted;
    engineswap_completion done[2];
    engineswap_op ops[2];
    int i;

    for (i = 0; i < 2; i++) {
        ops[i] = operation(ENGINESWAP_OP_READ, file, memory + i * PAGE, (uint64_t)i * PAGE, PAGE);
        ops[i].flags = ENGINESWAP_OP_FORCE_ASYNC;
    }
    CHECK(engineswap_run(engine, ops, 2, done, &e) == ENGINESWAP_OK && memory[PAGE] == 'b');
    CHECK(counters().punted - before == (uring ? 2 : 0));
    engineswap_buffer_free(memory);
}

/* A pipe that nobody writes to would be read for ever. */
static void time_limits(void) {
    char path[512], byte[2] = "";
    engineswap_file *pipe;
    engineswap_completion done[2];
    engineswap_op ops[2];

    snprintf(path, sizeof path, "%s/pipe", dir);
    CHECK(mkfifo(path, 0600) == 0);
    pipe = open_file("pipe", ENGINESWAP_READ | ENGINESWAP_WRITE);
    ops[0] = operation(ENGINESWAP_OP_READ, pipe, byte, 0, 1);
    ops[0].time_limit_us = 20000;
    ops[1] = ops[0];
    ops[1].buffer = byte + 1;
    if (uring) {
        CHECK(engineswap_run(engine, ops, 2, done, &e) == ENGINESWAP_TIMED_OUT);
        CHECK(done[0].result == ENGINESWAP_TIMED_OUT && done[1].result == ENGINESWAP_TIMED_OUT);
        CHECK(!strcmp(engineswap_code_name(e.code), "timed out") && strstr(e.message, "20ms"));
    } else {
        CHECK(engineswap_run(engine, ops, 2, done, &e) == ENGINESWAP_UNSUPPORTED && strstr(e.message, "io_uring"));
    }
    engineswap_file_close(pipe);
}

struct reader {
    engineswap_queue *queue;
    int32_t result;
};

static void *taker(void *arg) {
    struct reader *r = arg;
    engineswap_completion done;
    engineswap_error mine;
    r->result = engineswap_queue_take(r->queue, 1, &done, &mine) == 1 ? (int32_t)done.result : 7;
    return NULL;
}

/* One thread waits for the pipe, another takes its read back. */
static void cancel_while_another_waits(void) {
    engineswap_file *pipe = open_file("pipe", ENGINESWAP_READ | ENGINESWAP_WRITE);
    struct reader r = {NULL, 0};
    engineswap_op op;
    pthread_t thread;
    char byte;
    int32_t found = 0;

    if (uring) {
        CHECK(engineswap_queue_open(engine, 4, ENGINESWAP_QUEUE_SHARED, &r.queue, &e) == ENGINESWAP_OK);
        op = operation(ENGINESWAP_OP_READ, pipe, &byte, 0, 1);
        op.user = 1;
        CHECK(engineswap_queue_push(r.queue, &op, &e) == ENGINESWAP_OK);
        CHECK(engineswap_queue_submit(r.queue, &e) == ENGINESWAP_OK);
        CHECK(pthread_create(&thread, NULL, taker, &r) == 0);
        usleep(20000);
        found = engineswap_queue_cancel(r.queue, 1, &e);
        CHECK(pthread_join(thread, NULL) == 0);
        CHECK(found == 1 && r.result == ENGINESWAP_CANCELED);
        CHECK(engineswap_queue_close(r.queue, &e) == ENGINESWAP_OK);
    }
    engineswap_file_close(pipe);
}

static void write_back(engineswap_file *file) {
    CHECK(engineswap_file_start_write_back(file, 0, PAGE, 0, 0, &e) == ENGINESWAP_OK);
    CHECK(engineswap_file_start_write_back(file, 0, 0, ENGINESWAP_WAIT_BEFORE, 0, &e) == ENGINESWAP_OK);
    CHECK(engineswap_file_start_write_back(file, 0, 0, 2, 0, &e) == ENGINESWAP_INVALID_ARGUMENT);
}

int main(int argc, char **argv) {
    engineswap_file *file;
    char page[PAGE];
    int i;

    if (argc != 3)
        return 2;
    dir = argv[2];
    if (engineswap_open(argv[1], &engine, &e) == ENGINESWAP_UNSUPPORTED) {
        printf("skipped: %s\n", e.message);
        return 0;
    }
    uring = !strcmp(engineswap_engine_name(engine), "io_uring");
    file = open_file("pages", ENGINESWAP_READ | ENGINESWAP_WRITE | ENGINESWAP_CREATE | ENGINESWAP_DIRECT_PREFER);
    for (i = 0; i < PAGES; i++) {
        memset(page, 'a' + i, PAGE);
        CHECK(engineswap_file_write(file, page, PAGE, (uint64_t)i * PAGE, 0, &e) == ENGINESWAP_OK);
    }
    printf("passed: ");
    registered_buffers(file);
    refused_registration();
    vectored(0);
    vectored(ENGINESWAP_DIRECT_PREFER);
    forced(file);
    time_limits();
    cancel_while_another_waits();
    write_back(file);
    engineswap_file_close(file);
    engineswap_close(engine);
    printf("all\n");
    return 0;
}
