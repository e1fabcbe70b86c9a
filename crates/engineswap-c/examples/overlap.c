/* Reads 4 KiB pages of a file at random, 32 in flight, and says what the engine made of it.
 *
 *   make capi
 *   cc -o overlap crates/engineswap-c/examples/overlap.c $(PKG_CONFIG_PATH=target/capi/lib/pkgconfig pkg-config --cflags --libs engineswap) -Wl,-rpath,$PWD/target/capi/lib
 *   ./overlap io_uring FILE 20000
 */
#include <engineswap.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { PAGE = 4096, DEPTH = 32 };

static void die(const char *what, const engineswap_error *err) {
    fprintf(stderr, "%s: %s (%s)\n", what, err->message, engineswap_code_name(err->code));
    exit(1);
}

int main(int argc, char **argv) {
    engineswap_error err;
    engineswap_engine *engine;
    engineswap_file *file;
    engineswap_queue *queue;
    engineswap_stats stats;
    uint64_t len, random = 88172645463325252u;
    long started = 0, finished = 0, count = argc > 3 ? atol(argv[3]) : 1000;
    char *memory;

    if (argc < 3) {
        fprintf(stderr, "usage: %s URI FILE [COUNT]\n", argv[0]);
        return 2;
    }
    if (engineswap_open(argv[1], &engine, &err))
        die("open engine", &err);
    if (engineswap_file_open(engine, argv[2], ENGINESWAP_READ | ENGINESWAP_DIRECT_PREFER, &file, &err))
        die("open file", &err);
    if (engineswap_file_len(file, &len, &err))
        die("length", &err);
    if (len < PAGE) {
        fprintf(stderr, "%s is shorter than a page\n", argv[2]);
        return 1;
    }
    if (engineswap_queue_open(engine, DEPTH, 0, &queue, &err))
        die("open queue", &err);
    memory = engineswap_buffer_alloc((size_t)DEPTH * PAGE);
    if (!memory)
        return 1;

    /* The buffer of slot `user` is the library's until the completion with that tag has been taken. */
    uint64_t slots[DEPTH];
    int free_slots = 0;
    for (uint64_t i = 0; i < DEPTH; i++)
        slots[free_slots++] = i;
    while (finished < count) {
        while (free_slots > 0 && started < count) {
            engineswap_op op = {0};
            random ^= random << 13, random ^= random >> 7, random ^= random << 17;
            op.kind = ENGINESWAP_OP_READ;
            op.file = file;
            op.user = slots[--free_slots];
            op.buffer = memory + op.user * PAGE;
            op.offset = random % (len / PAGE) * PAGE;
            op.len = PAGE;
            if (engineswap_queue_push(queue, &op, &err))
                die("push", &err);
            started++;
        }
        if (engineswap_queue_wait(queue, 1, &err))
            die("wait", &err);
        engineswap_completion done;
        while (engineswap_queue_pop(queue, &done, &err) == 1) {
            if (done.result != PAGE)
                die("read", &err);
            slots[free_slots++] = done.user;
            finished++;
        }
    }

    if (engineswap_queue_close(queue, &err))
        die("close queue", &err);
    if (engineswap_get_stats(engine, -1, &stats, sizeof stats, &err))
        die("statistics", &err);
    printf("%s: %llu reads in %.3f s, %llu submitting calls, p50 %.1f us, p99 %.1f us\n", engineswap_engine_uri(engine),
           (unsigned long long)stats.read.ops, stats.elapsed_ns / 1e9, (unsigned long long)stats.submit_calls,
           stats.read.p50_ns / 1e3, stats.read.p99_ns / 1e3);
    engineswap_buffer_free(memory);
    engineswap_file_close(file);
    engineswap_close(engine);
    return 0;
}
