/* A shared library that holds the static one, as plugins do: it does I/O when it is loaded, on the engine and in the
 * directory that the environment names, and exports nothing but `inside_was_here`. */
#include <engineswap.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int inside_was_here(void);

int inside_was_here(void) {
    return 1;
}

__attribute__((constructor)) static void loaded(void) {
    const char *uri = getenv("INSIDE_ENGINE"), *dir = getenv("INSIDE_DIR");
    char path[512], back[2][6];
    engineswap_error e;
    engineswap_engine *engine = NULL;
    engineswap_file *file = NULL;
    engineswap_op ops[2];
    engineswap_completion done[2];
    int i;

    if (!uri || !dir)
        return;
    snprintf(path, sizeof path, "%s/inside", dir);
    memset(ops, 0, sizeof ops);
    if (engineswap_open(uri, &engine, &e) == ENGINESWAP_OK &&
        engineswap_file_open(engine, path, ENGINESWAP_READ | ENGINESWAP_WRITE | ENGINESWAP_CREATE, &file, &e) ==
            ENGINESWAP_OK &&
        engineswap_file_write(file, "inside", 6, 0, 0, &e) == ENGINESWAP_OK) {
        for (i = 0; i < 2; i++) {
            ops[i].kind = ENGINESWAP_OP_READ;
            ops[i].file = file;
            ops[i].buffer = back[i];
            ops[i].len = 6;
        }
        if (engineswap_run(engine, ops, 2, done, &e) == ENGINESWAP_OK && !memcmp(back[0], "inside", 6) &&
            !memcmp(back[1], "inside", 6))
            fprintf(stderr, "inside: %s works\n", engineswap_engine_name(engine));
    }
    if (e.code != ENGINESWAP_OK)
        fprintf(stderr, "inside: %s\n", e.message);
    engineswap_file_close(file);
    engineswap_close(engine);
}
