/* A small program for LevelDB: C and C++, any header, any of the libraries. Prints what it finds. */
#include <leveldb/c.h>
#include <stdio.h>

int main(int argc, char **argv) {
    char *err = NULL;
    size_t len = 0;
    const char *key;
    leveldb_iterator_t *iter;
    leveldb_readoptions_t *reading = leveldb_readoptions_create();
    leveldb_writeoptions_t *writing = leveldb_writeoptions_create();
    leveldb_options_t *options = leveldb_options_create();
    leveldb_t *db;
    leveldb_options_set_create_if_missing(options, 1);
    db = leveldb_open(options, argv[argc - 1], &err);
    if (db == NULL) {
        puts(err);
        return 1;
    }
    leveldb_put(db, writing, "pear", 4, "green", 5, &err);
    leveldb_put(db, writing, "apple", 5, "red", 3, &err);
    iter = leveldb_create_iterator(db, reading);
    for (leveldb_iter_seek_to_first(iter); leveldb_iter_valid(iter); leveldb_iter_next(iter)) {
        key = leveldb_iter_key(iter, &len);
        printf("%.*s\n", (int)len, key);
    }
    leveldb_iter_destroy(iter);
    leveldb_close(db);
    leveldb_options_destroy(options);
    leveldb_readoptions_destroy(reading);
    leveldb_writeoptions_destroy(writing);
    return err != NULL;
}
