// Does with LevelDB what standard input says, for the tests:
//   make DIR COMPRESSION WRITE_BUFFER BLOCK MAX_FILE FILTER_BITS
//   P klen vlen key value | D klen key | C (compact all) | R (close and open again) | S (say that it is open, and wait)
// Lengths have four bytes, low first. At the end the process dies without closing the store.
#include <leveldb/c.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static void check(char *error) {
    if (error != NULL) {
        fprintf(stderr, "%s\n", error);
        exit(1);
    }
}

static void *take(size_t n) {
    void *bytes = malloc(n + 1);
    if (bytes == NULL || fread(bytes, 1, n, stdin) != n)
        exit(2);
    return bytes;
}

static uint32_t number(void) {
    uint8_t *b = take(4);
    uint32_t n = b[0] | b[1] << 8 | b[2] << 16 | (uint32_t)b[3] << 24;
    free(b);
    return n;
}

int main(int argc, char **argv) {
    if (argc != 7)
        return 3;
    leveldb_options_t *options = leveldb_options_create();
    leveldb_options_set_create_if_missing(options, 1);
    leveldb_options_set_compression(options, atoi(argv[2]));
    leveldb_options_set_write_buffer_size(options, atoi(argv[3]));
    leveldb_options_set_block_size(options, atoi(argv[4]));
    leveldb_options_set_max_file_size(options, atoi(argv[5]));
    if (atoi(argv[6]) > 0)
        leveldb_options_set_filter_policy(options, leveldb_filterpolicy_create_bloom(atoi(argv[6])));
    leveldb_writeoptions_t *writes = leveldb_writeoptions_create();
    char *error = NULL;
    leveldb_t *db = leveldb_open(options, argv[1], &error);
    check(error);
    for (int op; (op = getchar()) != EOF;) {
        if (op == 'P') {
            uint32_t klen = number(), vlen = number();
            char *key = take(klen), *value = take(vlen);
            leveldb_put(db, writes, key, klen, value, vlen, &error);
            free(key);
            free(value);
        } else if (op == 'D') {
            uint32_t klen = number();
            char *key = take(klen);
            leveldb_delete(db, writes, key, klen, &error);
            free(key);
        } else if (op == 'C') {
            leveldb_compact_range(db, NULL, 0, NULL, 0);
        } else if (op == 'R') {
            leveldb_close(db);
            db = leveldb_open(options, argv[1], &error);
        } else if (op == 'S') {
            puts("open");
            fflush(stdout);
            pause();
        } else {
            return 4;
        }
        check(error);
    }
    _exit(0);
}
