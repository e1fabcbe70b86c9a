/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * LevelDB's C interface, version 1.23, on ringdb: the functions that a program for LevelDB calls, with ringdb's
 * storage behind them. Link with it, or preload it, in LevelDB's place. It works from C99 and C++.
 *
 * THE FORMAT ON DISK is ringdb's. A directory with a store in LevelDB's own format is refused (leveldb_open,
 * leveldb_destroy_db and leveldb_repair_db) and not changed; `ringdb import --from leveldb` copies it into a new
 * store. The `ringdb` command and ringdb's other interfaces open the stores that are made here.
 *
 * ERRORS. `errptr` leads to a char * that is NULL or memory of malloc's. A call that fails frees that and puts a new
 * message there, which the caller frees; a call that succeeds leaves it alone. Messages begin as LevelDB's do:
 * "NotFound: ", "Corruption: ", "Invalid argument: ", "IO error: ". No panic of the library crosses this interface: it
 * becomes a message, and nothing where there is no `errptr`.
 *
 * ARGUMENTS. LevelDB takes no NULL for a handle. Here it is an error (a call without `errptr` then does nothing), and
 * ..._destroy and leveldb_close take it. A pointer to bytes may be NULL if there are none of them. Keys have 64 KiB at
 * most, values 1 GiB; a longer one is an error of the write. Truth values are 0 and anything else.
 *
 * THREADS. A store may be used by all threads at once, and so may comparators and filter policies be called.
 * Iterators, batches and all options are used by one thread at a time.
 *
 * LIFETIMES. As in LevelDB: iterators are destroyed and snapshots released before their store is closed. Here an
 * iterator or snapshot that is left only fails. Options may be destroyed, or used again, as soon as leveldb_open has
 * returned. What a store needs of a comparator or filter policy stays, with its destructor not yet called, until the
 * store is closed.
 *
 * FORK. A child after fork() must not use its parent's stores; calls on them are errors.
 *
 * WHAT AN OPTION IS HERE, and what has no effect, is said beside it.
 */
#ifndef STORAGE_LEVELDB_INCLUDE_C_H_
#define STORAGE_LEVELDB_INCLUDE_C_H_

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct leveldb_t leveldb_t;
typedef struct leveldb_cache_t leveldb_cache_t;
typedef struct leveldb_comparator_t leveldb_comparator_t;
typedef struct leveldb_env_t leveldb_env_t;
typedef struct leveldb_filelock_t leveldb_filelock_t;
typedef struct leveldb_filterpolicy_t leveldb_filterpolicy_t;
typedef struct leveldb_iterator_t leveldb_iterator_t;
typedef struct leveldb_logger_t leveldb_logger_t;
typedef struct leveldb_options_t leveldb_options_t;
typedef struct leveldb_randomfile_t leveldb_randomfile_t;
typedef struct leveldb_readoptions_t leveldb_readoptions_t;
typedef struct leveldb_seqfile_t leveldb_seqfile_t;
typedef struct leveldb_snapshot_t leveldb_snapshot_t;
typedef struct leveldb_writablefile_t leveldb_writablefile_t;
typedef struct leveldb_writebatch_t leveldb_writebatch_t;
typedef struct leveldb_writeoptions_t leveldb_writeoptions_t;

/* ---- Stores -------------------------------------------------------------------------------------------------- */

/* Opens the store in the directory `name`; NULL on failure. Missing parents are made, too. One process has it open
 * at a time, once. Two processes that make the same store at the same moment with error_if_exists may both succeed,
 * one after the other. */
leveldb_t *leveldb_open(const leveldb_options_t *options, const char *name, char **errptr);

/* Closes it; flushes what is in memory. */
void leveldb_close(leveldb_t *db);

void leveldb_put(leveldb_t *db, const leveldb_writeoptions_t *options, const char *key, size_t keylen, const char *val,
                 size_t vallen, char **errptr);

/* A key that is not there is no error. */
void leveldb_delete(leveldb_t *db, const leveldb_writeoptions_t *options, const char *key, size_t keylen,
                    char **errptr);

/* All of a batch or nothing. The batch stays as it is. */
void leveldb_write(leveldb_t *db, const leveldb_writeoptions_t *options, leveldb_writebatch_t *batch, char **errptr);

/* The value, in memory of malloc's, and its length; NULL and 0 if there is none, or on failure. */
char *leveldb_get(leveldb_t *db, const leveldb_readoptions_t *options, const char *key, size_t keylen, size_t *vallen,
                  char **errptr);

leveldb_iterator_t *leveldb_create_iterator(leveldb_t *db, const leveldb_readoptions_t *options);

const leveldb_snapshot_t *leveldb_create_snapshot(leveldb_t *db);

/* The store keeps what the snapshot sees until read options that name it are changed or destroyed, too. */
void leveldb_release_snapshot(leveldb_t *db, const leveldb_snapshot_t *snapshot);

/* A property as text in memory of malloc's; NULL for an unknown name. There are leveldb.num-files-at-level<N>,
 * leveldb.stats and leveldb.sstables (both for people), leveldb.approximate-memory-usage (bytes). */
char *leveldb_property_value(leveldb_t *db, const char *propname);

/* About how many bytes the keys from each start to before each limit take on the disk, and in memtables, which LevelDB
 * leaves out. */
void leveldb_approximate_sizes(leveldb_t *db, int num_ranges, const char *const *range_start_key,
                               const size_t *range_start_key_len, const char *const *range_limit_key,
                               const size_t *range_limit_key_len, uint64_t *sizes);

/* Flushes, and compacts the keys from start to limit, both included; NULL is no end. */
void leveldb_compact_range(leveldb_t *db, const char *start_key, size_t start_key_len, const char *limit_key,
                           size_t limit_key_len);

/* ---- Stores that are not open -------------------------------------------------------------------------------- */

/* Removes a store's files, and its directory if nothing else is in it. Nothing there is no error. Of the options none
 * counts. */
void leveldb_destroy_db(const leveldb_options_t *options, const char *name, char **errptr);

/* Reads all of a store. If something is damaged, all that can be read goes to a new store, which takes the name; the
 * damaged one is kept beside it as <name>.damaged-<N>, for you to remove. Of the options none counts. */
void leveldb_repair_db(const leveldb_options_t *options, const char *name, char **errptr);

/* ---- Iterators ----------------------------------------------------------------------------------------------- */

/* An iterator sees the store as it was when it was made, or the snapshot of its read options. It stands nowhere at
 * first. Keys and values are its own until it is moved. A move from nowhere does nothing; then key and value are
 * NULL and 0. */
void leveldb_iter_destroy(leveldb_iterator_t *iter);
uint8_t leveldb_iter_valid(const leveldb_iterator_t *iter);
void leveldb_iter_seek_to_first(leveldb_iterator_t *iter);
void leveldb_iter_seek_to_last(leveldb_iterator_t *iter);

/* To the first key that is at or after this one. */
void leveldb_iter_seek(leveldb_iterator_t *iter, const char *k, size_t klen);
void leveldb_iter_next(leveldb_iterator_t *iter);
void leveldb_iter_prev(leveldb_iterator_t *iter);
const char *leveldb_iter_key(const leveldb_iterator_t *iter, size_t *klen);
const char *leveldb_iter_value(const leveldb_iterator_t *iter, size_t *vlen);

/* Why the last move failed, if it did; the iterator stands nowhere then. */
void leveldb_iter_get_error(const leveldb_iterator_t *iter, char **errptr);

/* ---- Batches ------------------------------------------------------------------------------------------------- */

leveldb_writebatch_t *leveldb_writebatch_create(void);
void leveldb_writebatch_destroy(leveldb_writebatch_t *batch);
void leveldb_writebatch_clear(leveldb_writebatch_t *batch);
void leveldb_writebatch_put(leveldb_writebatch_t *batch, const char *key, size_t klen, const char *val, size_t vlen);
void leveldb_writebatch_delete(leveldb_writebatch_t *batch, const char *key, size_t klen);

/* Shows the writes in their order. The callbacks must not change the batch. */
void leveldb_writebatch_iterate(const leveldb_writebatch_t *batch, void *state,
                                void (*put)(void *, const char *k, size_t klen, const char *v, size_t vlen),
                                void (*deleted)(void *, const char *k, size_t klen));
void leveldb_writebatch_append(leveldb_writebatch_t *destination, const leveldb_writebatch_t *source);

/* ---- Options of a store -------------------------------------------------------------------------------------- */

leveldb_options_t *leveldb_options_create(void);
void leveldb_options_destroy(leveldb_options_t *options);

/* NULL (default): the order of the bytes. That is the only order here: a comparator that orders otherwise is refused by
 * leveldb_open, which tries it on keys of 16 and 17 bytes; and by the write, or the move of an iterator, in which it
 * disagrees with the bytes about two keys. Its name is kept in the store. A store that is not empty opens only with a
 * comparator of the name that it was made with ("leveldb.BytewiseComparator" without one). */
void leveldb_options_set_comparator(leveldb_options_t *options, leveldb_comparator_t *comparator);

/* NULL (default): no filters. A Bloom policy sets the bits of ringdb's own filters. With a policy of callbacks these
 * have ten bits, and the policy is asked all the same: what it does not let pass, leveldb_get does not find. */
void leveldb_options_set_filter_policy(leveldb_options_t *options, leveldb_filterpolicy_t *policy);

/* Default 0. */
void leveldb_options_set_create_if_missing(leveldb_options_t *options, uint8_t yes);

/* Default 0. */
void leveldb_options_set_error_if_exists(leveldb_options_t *options, uint8_t yes);

/* NO EFFECT: a store is always opened and read as strictly as with 1. Damage is an error; leveldb_repair_db is the
 * way to go on without what is lost. */
void leveldb_options_set_paranoid_checks(leveldb_options_t *options, uint8_t yes);

/* NO EFFECT: there is one environment, the system. */
void leveldb_options_set_env(leveldb_options_t *options, leveldb_env_t *env);

/* NULL, as no function makes a logger; anything else makes leveldb_open fail. No file LOG is written. */
void leveldb_options_set_info_log(leveldb_options_t *options, leveldb_logger_t *log);

/* Bytes of a memtable, from 64 KiB to 1 GiB. Default 4 MiB. */
void leveldb_options_set_write_buffer_size(leveldb_options_t *options, size_t bytes);

/* NO EFFECT: the files of all tables stay open. Choose a larger max_file_size to have fewer. */
void leveldb_options_set_max_open_files(leveldb_options_t *options, int files);

/* NULL (default): 8 MiB. Each store that is opened with a cache has one of its own of that size; the object may be
 * destroyed then. The budget for all memory of the store is the cache's, four write buffers and 16 MiB: indexes,
 * filters, background work and iterators count against it, and what they leave is for blocks. */
void leveldb_options_set_cache(leveldb_options_t *options, leveldb_cache_t *cache);

/* Bytes of a block, a power of two from 4 KiB to 64 KiB: others are rounded up, or brought within. Default 4 KiB. */
void leveldb_options_set_block_size(leveldb_options_t *options, size_t bytes);

/* NO EFFECT: blocks have no restart points. */
void leveldb_options_set_block_restart_interval(leveldb_options_t *options, int keys);

/* Bytes of a table, from 1 MiB to 1 GiB. Default 32 MiB (LevelDB: 2), because all stay open. */
void leveldb_options_set_max_file_size(leveldb_options_t *options, size_t bytes);

/* leveldb_snappy_compression (default) is LZ4 here. 2, which later LevelDBs call Zstandard, is Zstandard; another
 * number makes leveldb_open fail. */
enum { leveldb_no_compression = 0, leveldb_snappy_compression = 1 };
void leveldb_options_set_compression(leveldb_options_t *options, int kind);

/* ---- Comparators --------------------------------------------------------------------------------------------- */

leveldb_comparator_t *leveldb_comparator_create(void *state, void (*destructor)(void *),
                                                int (*compare)(void *, const char *a, size_t alen, const char *b,
                                                               size_t blen),
                                                const char *(*name)(void *));
void leveldb_comparator_destroy(leveldb_comparator_t *comparator);

/* ---- Filter policies ----------------------------------------------------------------------------------------- */

/* The callbacks are called for a key that leveldb_get has found, wherever it was (LevelDB: only in tables): first
 * `create_filter` with this one key, which returns memory of malloc's, then `key_may_match` with key and filter.
 * Nothing of it is stored. */
leveldb_filterpolicy_t *leveldb_filterpolicy_create(void *state, void (*destructor)(void *),
                                                    char *(*create_filter)(void *, const char *const *key_array,
                                                                           const size_t *key_length_array, int num_keys,
                                                                           size_t *filter_length),
                                                    uint8_t (*key_may_match)(void *, const char *key, size_t length,
                                                                             const char *filter, size_t filter_length),
                                                    const char *(*name)(void *));
void leveldb_filterpolicy_destroy(leveldb_filterpolicy_t *policy);

/* From 1 to 64 bits; others are brought within. */
leveldb_filterpolicy_t *leveldb_filterpolicy_create_bloom(int bits_per_key);

/* ---- Options of a read --------------------------------------------------------------------------------------- */

leveldb_readoptions_t *leveldb_readoptions_create(void);
void leveldb_readoptions_destroy(leveldb_readoptions_t *options);

/* NO EFFECT: the checksum of a block is verified whenever it is read from a file. */
void leveldb_readoptions_set_verify_checksums(leveldb_readoptions_t *options, uint8_t yes);

/* Whether blocks that are read stay in the cache. Default 1. */
void leveldb_readoptions_set_fill_cache(leveldb_readoptions_t *options, uint8_t yes);

/* NULL (default): the store as it is at the call. */
void leveldb_readoptions_set_snapshot(leveldb_readoptions_t *options, const leveldb_snapshot_t *snapshot);

/* ---- Options of a write -------------------------------------------------------------------------------------- */

leveldb_writeoptions_t *leveldb_writeoptions_create(void);
void leveldb_writeoptions_destroy(leveldb_writeoptions_t *options);

/* 1: on the device when the call returns. 0 (default): survives the end of the process, not of the system. */
void leveldb_writeoptions_set_sync(leveldb_writeoptions_t *options, uint8_t yes);

/* ---- Caches -------------------------------------------------------------------------------------------------- */

leveldb_cache_t *leveldb_cache_create_lru(size_t capacity);
void leveldb_cache_destroy(leveldb_cache_t *cache);

/* ---- The environment ----------------------------------------------------------------------------------------- */

leveldb_env_t *leveldb_create_default_env(void);
void leveldb_env_destroy(leveldb_env_t *env);

/* A directory for tests, in memory of malloc's, made if it is missing: $TEST_TMPDIR, or leveldbtest-<user> in
 * $TMPDIR or /tmp. NULL if it cannot be made. */
char *leveldb_env_get_test_directory(leveldb_env_t *env);

/* ---- The rest ------------------------------------------------------------------------------------------------ */

/* Frees what this interface has returned; the same as free(). */
void leveldb_free(void *ptr);

/* 1 and 23: the LevelDB whose interface this is. */
int leveldb_major_version(void);
int leveldb_minor_version(void);

#ifdef __cplusplus
}
#endif

#endif
