/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * ringdb: an embedded, ordered, persistent key-value store that keeps a fast SSD busy.
 *
 * This is the whole C interface. It works from C99 and C++ (ringdb.hpp wraps it for C++17) and names no Rust type.
 * What the store does and promises (durability, memory, limits) is said in ringdb's own documentation; here is how C
 * reaches it.
 *
 * RESULTS. A function that can fail returns an int32_t: RINGDB_OK (0) or more on success, one of the negative codes
 * below on failure, and then describes the failure in `*err`. `err` may be NULL; otherwise it is the caller's
 * struct, so an error message belongs to the caller and is safe to use on any thread for as long as it likes. On
 * success the code in it is set to RINGDB_OK and the message to "". A key that is not there is no failure: such
 * functions return 1 (found) or 0 (absent).
 *
 * ARGUMENTS. Handles are opaque. A NULL handle, a NULL place for a result, an unknown flag, text that is not UTF-8
 * or a length that no memory can have is RINGDB_INVALID_ARGUMENT, never undefined behaviour. Keys and values are any
 * bytes, of any length up to the store's limits, none included (the pointer may be NULL then). What a pointer leads
 * to is used during the call only, and copied if it is needed longer. What cannot be checked is the caller's duty: a
 * handle is used only until it is released or freed, and a pointer leads to as many bytes as the length says.
 * Functions named ..._free and ..._release take NULL and do nothing. No panic of the library crosses this interface:
 * it becomes RINGDB_INTERNAL.
 *
 * RESULT PLACES. `*out` is written on success only, unless something else is said.
 *
 * THREADS. A ringdb_db may be used by all threads at once. Values, once they are there, may be read by all threads.
 * An iterator, a batch, options, a transaction, an ingester, a ringdb_reads and a ringdb_writes are used by one thread
 * at a time, any one; a call that meets another thread in a call with the same handle is RINGDB_BUSY. A handle is released when
 * no other thread is in a call with it.
 *
 * LIFETIMES. Handles may be released in any order. A store is open as long as there is a ringdb_db or a
 * ringdb_writes of it, or until ringdb_close; from then on all that is left of it (keyspaces, snapshots, iterators,
 * requests) fails with RINGDB_CLOSED, and is still to be released. Iterators, requests and ringdb_reads keep no
 * store open.
 *
 * FORK. A child after fork() has its parent's handles, but not its threads: every call on them is an error that says
 * so (RINGDB_INVALID_ARGUMENT), callbacks of requests are not called there, and to release them touches nothing of
 * the parent's. It must not cancel requests.
 *
 * LINKING. pkg-config (ringdb) names the shared library. The static one may be part of a shared library that is
 * loaded into any program, others with Rust in them too, if it is linked with -Wl,--exclude-libs,ALL: then none of
 * its names is seen from outside, or taken from there. Both interfaces, this and engineswap.h, may be linked into
 * one program.
 *
 * PATHS are NUL-terminated bytes, NAMES NUL-terminated UTF-8. STRINGS that the library returns are UTF-8 and static.
 * /
 */
#ifndef RINGDB_H
#define RINGDB_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Versions ------------------------------------------------------------------------------------------------ */

/* The version of this interface, also the number of the shared library (libringdb.so.1). Functions, flags and codes may
 * be added under the same number; none is changed or taken away. */
#define RINGDB_ABI_VERSION 1

/* The ABI version of the library that is linked: compare it with RINGDB_ABI_VERSION. */
uint32_t ringdb_abi_version(void);

/* The version of the library, for example "0.1.0". */
const char *ringdb_version(void);

/* ---- Errors -------------------------------------------------------------------------------------------------- */

enum {
    RINGDB_OK = 0,
    RINGDB_NOT_FOUND = -1,         /* a path does not exist */
    RINGDB_ALREADY_EXISTS = -2,    /* a path exists already, or a directory is not empty */
    RINGDB_PERMISSION_DENIED = -3, /* or a read-only file system */
    RINGDB_NO_SPACE = -4,          /* no space, quota or file size left */
    RINGDB_EXHAUSTED = -5,         /* no descriptors, buffers or memory for now */
    RINGDB_UNEXPECTED_EOF = -6,    /* a file ended too early */
    RINGDB_UNSUPPORTED = -7,       /* the engine or an option of it cannot be had here; the message says why */
    RINGDB_INVALID_ARGUMENT = -8,  /* an argument or option is wrong; the message says what is valid */
    RINGDB_CANCELED = -9,          /* an operation below was not done because one before it failed */
    RINGDB_SYNC_FAILED = -10,      /* an earlier sync failed; the state on disk is unknown */
    RINGDB_IO = -11,               /* anything else that the kernel reports; see os_errno */
    RINGDB_WOULD_BLOCK = -12,      /* as many requests are open as there may be: take answers first */
    RINGDB_BUSY = -13,             /* another thread is in a call with this handle */
    RINGDB_INTERNAL = -15,         /* a defect of the library */
    RINGDB_TIMED_OUT = -16,        /* the deadline has passed; a write may have happened */
    RINGDB_CORRUPT = -17,          /* bytes on disk are not what was written */
    RINGDB_STOPPED = -18,          /* the store has stopped writing after a failure; reads go on */
    RINGDB_LOCKED = -19,           /* another process has the store open, or this one has already */
    RINGDB_NO_STORE = -20,         /* there is no store, and none was to be made */
    RINGDB_NEWER_FORMAT = -21,     /* the store needs a newer version of the library */
    RINGDB_READ_ONLY = -22,        /* a write to a snapshot, or to a store that was opened for reading */
    RINGDB_KEYSPACE_DROPPED = -23, /* the keyspace of this handle was dropped */
    RINGDB_CLOSED = -24,           /* the store was closed */
    RINGDB_BUFFER_TOO_SMALL = -25, /* the value is longer than the buffer; its beginning was copied */
    RINGDB_CONFLICT = -26,         /* what a transaction has read was written meanwhile; run it again */
    RINGDB_KEY_LOCKED = -27,       /* another transaction has locked the key; free this one, and run it again */
    RINGDB_ENCRYPTION_KEY = -28    /* a file is encrypted with a key that was not given, or with another one */
};

/* What to do about an error. */
enum {
    RINGDB_KIND_NONE = 0,        /* there is no error */
    RINGDB_KIND_RETRY = 1,       /* passing trouble: mend the cause (space, the lock) and call again */
    RINGDB_KIND_STOP = 2,        /* the store has stopped, or the layer below fails: reopen when the cause is mended */
    RINGDB_KIND_REPAIR = 3,      /* bytes on disk are wrong: see ringdb_verify and ringdb_salvage */
    RINGDB_KIND_WOULD_BLOCK = 4, /* there is no room now: take what is there, then call again */
    RINGDB_KIND_TIMED_OUT = 5,   /* the deadline has passed */
    RINGDB_KIND_FIX_CALL = 6     /* the call is wrong: an argument, a path, an option */
};

/* The name of a code, for example "not found". For an unknown code "unknown". */
const char *ringdb_code_name(int32_t code);
/* What to do about it. */
int32_t ringdb_code_kind(int32_t code);

/* What went wrong. Plain data of the caller. */
typedef struct ringdb_error {
    int32_t code;       /* as returned */
    int32_t kind;       /* what to do about it */
    int32_t os_errno;   /* the kernel's errno, 0 if there was none */
    uint32_t reserved;  /* 0 */
    char message[1008]; /* NUL-terminated UTF-8, cut if too long */
} ringdb_error;

/* ---- Bytes --------------------------------------------------------------------------------------------------- */

/* Bytes of somebody else's. */
typedef struct ringdb_slice {
    const void *data;
    size_t len;
} ringdb_slice;

/* Bytes that the library gives away: a value, or a text. Texts are followed by a NUL that the length does not count. */
typedef struct ringdb_value ringdb_value;

/* NULL and 0 for NULL. */
const void *ringdb_value_data(const ringdb_value *value);
size_t ringdb_value_len(const ringdb_value *value);
void ringdb_value_free(ringdb_value *value);

/* Many values, some of which may be absent. */
typedef struct ringdb_values ringdb_values;

/* 0 for NULL. */
size_t ringdb_values_count(const ringdb_values *values);
/* 1 and the bytes, which live as long as `values`, or 0 if that value is absent. RINGDB_INVALID_ARGUMENT for a place
 * beyond the last. */
int32_t ringdb_values_get(const ringdb_values *values, size_t place, ringdb_slice *out);
void ringdb_values_free(ringdb_values *values);

/* ---- Options of a store -------------------------------------------------------------------------------------- */

typedef struct ringdb_options ringdb_options;

enum { RINGDB_COMPRESSION_NONE = 0, RINGDB_COMPRESSION_LZ4 = 1, RINGDB_COMPRESSION_ZSTD = 2 };

/* How durable a write is when its call has returned. */
enum {
    RINGDB_DURABILITY_DEFAULT = 0, /* of a write: as the store's options say */
    RINGDB_DURABILITY_NONE = 1,    /* not logged: lost with the process unless flushed */
    RINGDB_DURABILITY_PROCESS = 2, /* survives the death of the process; a power cut may take the newest writes */
    RINGDB_DURABILITY_SYNC = 3     /* on the device */
};

/* The defaults. They are checked when a store is opened with them; a handle may serve many opens. */
ringdb_options *ringdb_options_new(void);
void ringdb_options_free(ringdb_options *options);

/* The I/O engine: auto (the default), posix, libaio, io_uring, with options as in io_uring?depth=128. */
int32_t ringdb_options_set_io(ringdb_options *options, const char *uri, ringdb_error *err);
/* Budget for all that the store keeps in memory, in bytes: 256 MiB. */
int32_t ringdb_options_set_cache_bytes(ringdb_options *options, uint64_t bytes, ringdb_error *err);
/* A memtable is flushed at about this size: 64 MiB, at most a quarter of the budget. */
int32_t ringdb_options_set_memtable_bytes(ringdb_options *options, uint64_t bytes, ringdb_error *err);
/* Of writes that do not say otherwise, and how the log is written: RINGDB_DURABILITY_PROCESS. */
int32_t ringdb_options_set_durability(ringdb_options *options, int32_t durability, ringdb_error *err);
/* Bytes of a data block, a power of two from 4 KiB to 64 KiB: 4 KiB. */
int32_t ringdb_options_set_block_bytes(ringdb_options *options, uint32_t bytes, ringdb_error *err);
/* Of all levels but the last, and of the last: RINGDB_COMPRESSION_NONE. */
int32_t ringdb_options_set_compression(ringdb_options *options, int32_t compression, ringdb_error *err);
int32_t ringdb_options_set_last_level_compression(ringdb_options *options, int32_t compression, ringdb_error *err);
/* Bloom filter bits per key: 10; 0 for no filters. */
int32_t ringdb_options_set_filter_bits_per_key(ringdb_options *options, uint32_t bits, ringdb_error *err);
/* Threads that flush and compact; 0: as many as cores, at most 4. */
int32_t ringdb_options_set_background_threads(ringdb_options *options, size_t threads, ringdb_error *err);
/* Bytes of a log segment, and about those of a table that a compaction writes; 0: chosen by the store. */
int32_t ringdb_options_set_log_segment_bytes(ringdb_options *options, uint64_t bytes, ringdb_error *err);
int32_t ringdb_options_set_table_bytes(ringdb_options *options, uint64_t bytes, ringdb_error *err);
/* Bytes that compactions may write a second, at least 64 KiB; 0: no limit. */
int32_t ringdb_options_set_compaction_bytes_per_second(ringdb_options *options, uint64_t bytes, ringdb_error *err);
/* The manifest is rewritten when it is this large: 4 MiB. */
int32_t ringdb_options_set_manifest_bytes(ringdb_options *options, uint64_t bytes, ringdb_error *err);
/* Of gets, seeks and writes that do not wait for the device, one in so many is timed (ringdb_stats, ringdb_metrics): 64;
 * 0: none. */
int32_t ringdb_options_set_time_one_in(ringdb_options *options, uint32_t n, ringdb_error *err);
/* Every put that says no time to live gets this one, in milliseconds, in keyspaces that have none of their own; 0 (the
 * default): it lives for ever. */
int32_t ringdb_options_set_time_to_live(ringdb_options *options, uint64_t ms, ringdb_error *err);
/* Flags, 0 or 1: read tables past the page cache (0), make a store that is missing (1), recover what precedes damage
 * in the log (0), serve the store by a Unix socket in its directory, for the ringdb command (1). */
int32_t ringdb_options_set_direct_reads(ringdb_options *options, int32_t yes, ringdb_error *err);
int32_t ringdb_options_set_create_if_missing(ringdb_options *options, int32_t yes, ringdb_error *err);
int32_t ringdb_options_set_recover_damaged_log(ringdb_options *options, int32_t yes, ringdb_error *err);
int32_t ringdb_options_set_socket(ringdb_options *options, int32_t yes, ringdb_error *err);

/* Encrypts what is written, and reads what is encrypted: `count` keys of RINGDB_ENCRYPTION_KEY_BYTES each, one behind the
 * other, and their numbers, from 1 on. What is written is encrypted with the key of the largest number. They take the
 * place of those that were set before, are copied, and are wiped with the last handle that has them. */
enum { RINGDB_ENCRYPTION_KEY_BYTES = 32 };
int32_t ringdb_options_set_encryption_keys(ringdb_options *options, const uint32_t *numbers, const void *keys,
                                           size_t count, ringdb_error *err);

/* Settings as TOML text, by the names of the functions above, sizes also with units: "cache_bytes = '64 MiB'". What it
 * says holds over what was set before; the rest stays. The second reads a file. */
int32_t ringdb_options_parse(ringdb_options *options, const char *toml, ringdb_error *err);
int32_t ringdb_options_load(ringdb_options *options, const char *path, ringdb_error *err);

/* ---- Merge operators ----------------------------------------------------------------------------------------- */

/* An operator makes one value of what a key has and the operands that were merged into it (ringdb_merge). Keyspaces know
 * theirs by name, among their settings (ringdb_keyspace_with): "add" (uint64_t in little endian, wrapping around), "max"
 * (in the order of the bytes), "append" and "append:SEPARATOR" are built in, others are registered for each open. One
 * name must never come to mean another operator: the store keeps operands.
 *
 * The callbacks are called from any thread, several at a time, of those that read and of the store's own, until
 * `drop`. What they make must depend on their arguments only. They must not call the store, wait for who does, or
 * unwind (throw, longjmp). What their arguments lead to lives as long as the call. */

/* Where a callback puts what it has to say. */
typedef struct ringdb_merge_result ringdb_merge_result;

/* Adds bytes to what the callback makes; none at all make it empty, not absent. */
int32_t ringdb_merge_result_append(ringdb_merge_result *result, const void *data, size_t len, ringdb_error *err);
/* There is none, for this reason. The read or the write that needs it fails with it; nothing is lost. */
int32_t ringdb_merge_result_fail(ringdb_merge_result *result, const char *why, ringdb_error *err);

/* Makes a value of `value` (NULL: there is none) and then the operands, at least one, oldest first. For a
 * partial_merge: makes one operand that does the same as all of them, at least two; `value` is NULL; a callback
 * that knows none leaves `result` alone. */
typedef void (*ringdb_merge_callback)(void *user, ringdb_slice key, const ringdb_slice *value,
                                      const ringdb_slice *operands, size_t count, ringdb_merge_result *result);
/* Fails for what can be no operand: called before it is written. */
typedef void (*ringdb_merge_check_callback)(void *user, ringdb_slice operand, ringdb_merge_result *result);
typedef void (*ringdb_drop_callback)(void *user);

typedef struct ringdb_merge_operator {
    uint32_t size;                       /* sizeof(ringdb_merge_operator) */
    uint32_t reserved;                   /* 0 */
    const char *name;                    /* 1 to 255 bytes; copied */
    void *user;                          /* for the callbacks */
    ringdb_merge_callback merge;         /* always there */
    ringdb_merge_callback partial_merge; /* keeps operands few, has to be associative; or NULL */
    ringdb_merge_check_callback check;   /* or NULL: all bytes are operands */
    ringdb_drop_callback drop;           /* called once, when nothing calls the others any more; or NULL */
} ringdb_merge_operator;

#define RINGDB_MERGE_OPERATOR_INIT                                                                                     \
    { (uint32_t)sizeof(ringdb_merge_operator), 0, NULL, NULL, NULL, NULL, NULL, NULL }

/* For stores that are opened with these options: in the place of one of the same name. If it fails, `user` is still the
 * caller's; otherwise it lives until `drop`, which comes behind the options and all stores that were opened with them. */
int32_t ringdb_options_register_merge_operator(ringdb_options *options, const ringdb_merge_operator *merge_operator,
                                               ringdb_error *err);

/* ---- Compaction filters -------------------------------------------------------------------------------------- */

/* A filter decides which entries stay when they are compacted, and with which value. Keyspaces know theirs by name, among
 * their settings (ringdb_keyspace_with, ringdb_keyspace_alter): "compaction_filter = 'NAME'", '' for none. The store
 * remembers the name; filters are registered for each open, and in one without it all entries stay.
 *
 * A compaction passes the newest value of each key that it rewrites, and passes it again each time. What lies in memory,
 * or in a table that nothing rewrites, is not passed; ringdb_compact passes all of its range. Snapshots, transactions and
 * iterators that are there before see no change, and what a filter does is no write.
 *
 * The callback is called from the store's own threads, several at a time, until `drop`. It must not call the store, wait
 * for who does, or unwind (throw, longjmp). What its arguments lead to lives as long as the call. */

/* What a filter returns. Another number is a failure. */
enum {
    RINGDB_FILTER_KEEP = 0,   /* the entry stays as it is */
    RINGDB_FILTER_REMOVE = 1, /* it goes; nothing older of the key comes back */
    RINGDB_FILTER_CHANGE = 2  /* it has the value that was put into the result; it expires when it would have */
};

/* Where an entry is met. */
typedef struct ringdb_filter_context {
    uint32_t size;      /* sizeof(ringdb_filter_context) of the library: what later versions add is behind it */
    uint32_t level;     /* the level that the compaction writes to, from 0 to 6 */
    int32_t last_level; /* 1 if that is the last level, where most of the data lies, else 0 */
    uint32_t reserved;  /* 0 */
} ringdb_filter_context;

/* Where a callback puts what it has to say besides. */
typedef struct ringdb_filter_result ringdb_filter_result;

/* Adds bytes to the new value; none at all make it empty. Only with RINGDB_FILTER_CHANGE. */
int32_t ringdb_filter_result_append(ringdb_filter_result *result, const void *data, size_t len, ringdb_error *err);
/* The filter cannot say, for this reason, whatever it returns. The entry stays as it is, and so do those that this
 * compaction has not passed yet; "background_error" of ringdb_stats has the reason. */
int32_t ringdb_filter_result_fail(ringdb_filter_result *result, const char *why, ringdb_error *err);

/* Decides on the value of a key. */
typedef int32_t (*ringdb_filter_callback)(void *user, const ringdb_filter_context *context, ringdb_slice key,
                                          ringdb_slice value, ringdb_filter_result *result);

typedef struct ringdb_compaction_filter {
    uint32_t size;                 /* sizeof(ringdb_compaction_filter) */
    uint32_t reserved;             /* 0 */
    const char *name;              /* 1 to 255 bytes; copied */
    void *user;                    /* for the callbacks */
    ringdb_filter_callback filter; /* always there */
    ringdb_drop_callback drop;     /* called once, when nothing calls the other any more; or NULL */
} ringdb_compaction_filter;

#define RINGDB_COMPACTION_FILTER_INIT                                                                                  \
    { (uint32_t)sizeof(ringdb_compaction_filter), 0, NULL, NULL, NULL, NULL }

/* For stores that are opened with these options: in the place of one of the same name. If it fails, `user` is still the
 * caller's; otherwise it lives until `drop`, which comes behind the options and all stores that were opened with them. */
int32_t ringdb_options_register_compaction_filter(ringdb_options *options,
                                                  const ringdb_compaction_filter *compaction_filter, ringdb_error *err);

/* ---- Stores, keyspaces, snapshots ---------------------------------------------------------------------------- */

/* A store, or a part of it: one of its keyspaces, or what either was at one moment. All calls that read take any of
 * them. */
typedef struct ringdb_db ringdb_db;

/* Opens the store in a directory, which is made if missing: its default keyspace. `options` may be NULL. */
int32_t ringdb_open(const char *path, const ringdb_options *options, ringdb_db **out, ringdb_error *err);
/* The same for reading only, beside a running writer: the store as of now. Writes nothing. */
int32_t ringdb_open_read_only(const char *path, const ringdb_options *options, ringdb_db **out, ringdb_error *err);

/* Flushes, waits for background work and closes the store, whichever handle of it this is. Waiting requests are
 * answered with RINGDB_CLOSED, or as they end. When it has returned and no other thread is in a call, all callbacks
 * have been called. The handle stays, to be released; all calls on it fail with RINGDB_CLOSED. Not from a callback. */
int32_t ringdb_close(ringdb_db *db, ringdb_error *err);
/* Gives a handle back. The last one of a store closes it without a flush: what the log holds survives. Errors are
 * lost. */
void ringdb_release(ringdb_db *db);

/* A keyspace by its name (1 to 255 bytes), made if missing; "default" is the one that ringdb_open gives. Refused for a
 * snapshot. */
int32_t ringdb_keyspace(const ringdb_db *db, const char *name, ringdb_db **out, ringdb_error *err);
/* The same with settings of its own, as TOML text: compression, last_level_compression, block_bytes,
 * filter_bits_per_key, merge_operator, compaction_filter, time_to_live, as in
 * "merge_operator = 'add'\ntime_to_live = '1 h'". One that is there is altered. */
int32_t ringdb_keyspace_with(const ringdb_db *db, const char *name, const char *toml, ringdb_db **out,
                             ringdb_error *err);
/* Changes settings of this handle's keyspace; those that are not said stay. Of the default keyspace they are the store's:
 * they hold for keyspaces that have none of their own. A merge operator, once there, stays. */
int32_t ringdb_keyspace_alter(const ringdb_db *db, const char *toml, ringdb_error *err);
/* The settings in force for this handle's keyspace, as JSON text. */
int32_t ringdb_keyspace_settings(const ringdb_db *db, ringdb_value **out, ringdb_error *err);
/* A keyspace if there is one: 1, or 0. Of a snapshot: what the keyspace was at the same moment. */
int32_t ringdb_existing_keyspace(const ringdb_db *db, const char *name, ringdb_db **out, ringdb_error *err);
/* Drops a keyspace with all its keys: 1, or 0 if there is none. Handles of it fail with RINGDB_KEYSPACE_DROPPED. */
int32_t ringdb_drop_keyspace(const ringdb_db *db, const char *name, ringdb_error *err);
/* The names of all keyspaces but the default one, sorted. */
int32_t ringdb_keyspaces(const ringdb_db *db, ringdb_values **out, ringdb_error *err);
/* The name of this handle's keyspace. */
int32_t ringdb_keyspace_name(const ringdb_db *db, ringdb_value **out, ringdb_error *err);

/* The keyspace of `db` as it is now. Of a snapshot: the same moment again. */
int32_t ringdb_snapshot(const ringdb_db *db, ringdb_db **out, ringdb_error *err);

/* ---- Reads --------------------------------------------------------------------------------------------------- */

/* How to read. All calls take NULL for the defaults. */
typedef struct ringdb_read_options {
    uint32_t size;        /* sizeof(ringdb_read_options) */
    uint32_t flags;       /* RINGDB_READ_... */
    uint64_t deadline_us; /* the longest that a get or multi_get may take, asynchronous ones too; 0: no limit */
} ringdb_read_options;

#define RINGDB_READ_OPTIONS_INIT                                                                                       \
    { (uint32_t)sizeof(ringdb_read_options), 0, 0 }

enum {
    RINGDB_READ_NO_FILL_CACHE = 1 /* blocks read from disk do not stay in the cache: for scans that would sweep it */
};

/* The value of a key: 1, or 0 if it is absent (`*out` is NULL then). */
int32_t ringdb_get(const ringdb_db *db, const void *key, size_t key_len, const ringdb_read_options *how,
                   ringdb_value **out, ringdb_error *err);
/* The same into memory of the caller, which spares an allocation: 1 and the value's length in `*len`, or 0. A value
 * that is longer than `capacity` is RINGDB_BUFFER_TOO_SMALL: `*len` has its length, and the buffer its beginning. */
int32_t ringdb_get_into(const ringdb_db *db, const void *key, size_t key_len, const ringdb_read_options *how,
                        void *buffer, size_t capacity, size_t *len, ringdb_error *err);
/* The values of many keys, in their order, as of one moment. Everything that has to be read is in flight together.
 * If one key cannot be read because of damage the call fails. */
int32_t ringdb_multi_get(const ringdb_db *db, const ringdb_slice *keys, size_t count, const ringdb_read_options *how,
                         ringdb_values **out, ringdb_error *err);

/* ---- Iterators ----------------------------------------------------------------------------------------------- */

/* Pairs in the order of their keys, taken from both ends, as of when it was made. */
typedef struct ringdb_iter ringdb_iter;

enum {
    RINGDB_FROM_EXCLUDED = 1, /* the pairs after `from` instead of from it on */
    RINGDB_TO_INCLUDED = 2    /* the pairs up to and with `to` instead of before it */
};

/* The pairs from the key `from` on and before `to`. Where a bound is NULL there is none. Deadlines are refused. */
int32_t ringdb_range(const ringdb_db *db, const ringdb_slice *from, const ringdb_slice *to, uint32_t flags,
                     const ringdb_read_options *how, ringdb_iter **out, ringdb_error *err);
/* The pairs whose key begins with `prefix`. */
int32_t ringdb_prefix(const ringdb_db *db, const void *prefix, size_t prefix_len, const ringdb_read_options *how,
                      ringdb_iter **out, ringdb_error *err);
/* The next pair from the front, or from the back: 1, or 0 when both ends have met. The bytes live until the next
 * call with this iterator. `key` and `value` may be NULL. After a failure, which is told once, the iterator is at
 * its end. */
int32_t ringdb_iter_next(ringdb_iter *iter, ringdb_slice *key, ringdb_slice *value, ringdb_error *err);
int32_t ringdb_iter_next_back(ringdb_iter *iter, ringdb_slice *key, ringdb_slice *value, ringdb_error *err);
void ringdb_iter_free(ringdb_iter *iter);

/* ---- Writes -------------------------------------------------------------------------------------------------- */

/* How to write. All calls take NULL for the defaults. */
typedef struct ringdb_write_options {
    uint32_t size;        /* sizeof(ringdb_write_options) */
    int32_t durability;   /* RINGDB_DURABILITY_... */
    uint64_t deadline_us; /* the longest that it may take, asynchronous ones too; 0: no limit */
} ringdb_write_options;

#define RINGDB_WRITE_OPTIONS_INIT                                                                                      \
    { (uint32_t)sizeof(ringdb_write_options), RINGDB_DURABILITY_DEFAULT, 0 }

int32_t ringdb_put(const ringdb_db *db, const void *key, size_t key_len, const void *value, size_t value_len,
                   const ringdb_write_options *how, ringdb_error *err);
/* The key need not be there. */
int32_t ringdb_delete(const ringdb_db *db, const void *key, size_t key_len, const ringdb_write_options *how,
                      ringdb_error *err);

/* Deletes the keys of a range, or those that begin with `prefix`: atomically, and at the same cost however many there
 * are. Bounds as of ringdb_range. */
int32_t ringdb_delete_range(const ringdb_db *db, const ringdb_slice *from, const ringdb_slice *to, uint32_t flags,
                            const ringdb_write_options *how, ringdb_error *err);
int32_t ringdb_delete_prefix(const ringdb_db *db, const void *prefix, size_t prefix_len,
                             const ringdb_write_options *how, ringdb_error *err);
/* Sets a key for so many milliseconds, at least 1: from then on it counts as deleted, what was put before does not come
 * back, and the space does, by itself. By the wall clock, as of the write. */
int32_t ringdb_put_with_ttl(const ringdb_db *db, const void *key, size_t key_len, const void *value, size_t value_len,
                            uint64_t ttl_ms, const ringdb_write_options *how, ringdb_error *err);
/* Merges an operand into the value of a key, which need not be there, without reading it: the keyspace's merge operator
 * makes one of both when the key is read, or compacted. RINGDB_INVALID_ARGUMENT if it has none or refuses the
 * operand. */
int32_t ringdb_merge(const ringdb_db *db, const void *key, size_t key_len, const void *operand, size_t operand_len,
                     const ringdb_write_options *how, ringdb_error *err);
/* Sets a key to `new_value` (NULL: deletes it) if its value is `expected` (NULL: there is none), at one moment: 1, or 0
 * if it is not as expected. */
int32_t ringdb_compare_and_swap(const ringdb_db *db, const void *key, size_t key_len, const ringdb_slice *expected,
                                const ringdb_slice *new_value, ringdb_error *err);

/* Writes that happen together or not at all, in any keyspaces of one store, in the order in which they were added. */
typedef struct ringdb_batch ringdb_batch;

ringdb_batch *ringdb_batch_new(void);
void ringdb_batch_free(ringdb_batch *batch);
/* Adds a write to the keyspace of `db`; NULL is the default keyspace. A key or value beyond the limits makes the
 * write of the batch fail. */
int32_t ringdb_batch_put(ringdb_batch *batch, const ringdb_db *db, const void *key, size_t key_len, const void *value,
                         size_t value_len, ringdb_error *err);
int32_t ringdb_batch_delete(ringdb_batch *batch, const ringdb_db *db, const void *key, size_t key_len,
                            ringdb_error *err);
/* A time to live begins when the batch is written. */
int32_t ringdb_batch_put_with_ttl(ringdb_batch *batch, const ringdb_db *db, const void *key, size_t key_len,
                                  const void *value, size_t value_len, uint64_t ttl_ms, ringdb_error *err);
int32_t ringdb_batch_merge(ringdb_batch *batch, const ringdb_db *db, const void *key, size_t key_len,
                           const void *operand, size_t operand_len, ringdb_error *err);
int32_t ringdb_batch_delete_range(ringdb_batch *batch, const ringdb_db *db, const ringdb_slice *from,
                                  const ringdb_slice *to, uint32_t flags, ringdb_error *err);
int32_t ringdb_batch_delete_prefix(ringdb_batch *batch, const ringdb_db *db, const void *prefix, size_t prefix_len,
                                   ringdb_error *err);
/* Takes the writes out, and keeps the memory. */
int32_t ringdb_batch_clear(ringdb_batch *batch, ringdb_error *err);
/* How many writes it has, and how many bytes. Either place may be NULL. */
int32_t ringdb_batch_size(const ringdb_batch *batch, size_t *count, size_t *bytes, ringdb_error *err);

/* Commits a batch, which stays as it is: to be cleared, freed, or, after a failure of kind RETRY, written again. An
 * empty one that is to be durable is a ringdb_sync. */
int32_t ringdb_write(const ringdb_db *db, const ringdb_batch *batch, const ringdb_write_options *how,
                     ringdb_error *err);
/* Makes everything durable that was written before, whatever its durability. */
int32_t ringdb_sync(const ringdb_db *db, ringdb_error *err);

/* ---- Transactions -------------------------------------------------------------------------------------------- */

/* Reads and writes that happen at one moment, or not at all: serializable. It sees the store as it was when it
 * began, and its own writes. Nobody is blocked: the commit is RINGDB_CONFLICT (kind RETRY) if something that was
 * read has been written since, and nothing of it was written then: begin again. It is used by one thread at a time,
 * and keeps the store open. */
typedef struct ringdb_transaction ringdb_transaction;

/* Of the store of `db`, whose keyspace is the one of calls that name none (NULL). */
int32_t ringdb_transaction_begin(const ringdb_db *db, ringdb_transaction **out, ringdb_error *err);
/* 1 and the value, or 0. */
int32_t ringdb_transaction_get(ringdb_transaction *transaction, const ringdb_db *db, const void *key, size_t key_len,
                               ringdb_value **out, ringdb_error *err);
int32_t ringdb_transaction_put(ringdb_transaction *transaction, const ringdb_db *db, const void *key, size_t key_len,
                               const void *value, size_t value_len, ringdb_error *err);
int32_t ringdb_transaction_delete(ringdb_transaction *transaction, const ringdb_db *db, const void *key, size_t key_len,
                                  ringdb_error *err);
/* Is no read: transactions that merge into one key do not conflict. Who reads it sees its own operands merged in. */
int32_t ringdb_transaction_merge(ringdb_transaction *transaction, const ringdb_db *db, const void *key, size_t key_len,
                                 const void *operand, size_t operand_len, ringdb_error *err);
/* Locks keys until the transaction has ended: no other one locks them meanwhile. It waits `wait_us` microseconds at most
 * for those who have, 0: five seconds; RINGDB_KEY_LOCKED then, or at once if they wait for this one (a deadlock), and the
 * call has locked nothing. The transaction goes on from now: if all who write a key lock it first, none conflicts on it.
 * Locks keep nobody else off. Best called first; not while an iterator of it is open, nor from a callback. */
int32_t ringdb_transaction_lock(ringdb_transaction *transaction, const ringdb_db *db, const ringdb_slice *keys,
                                size_t count, uint64_t wait_us, ringdb_error *err);
/* An iterator as of ringdb_range, which sees what is written ahead of it, too. What it goes through counts as read.
 * It is freed before the commit. */
int32_t ringdb_transaction_range(ringdb_transaction *transaction, const ringdb_db *db, const ringdb_slice *from,
                                 const ringdb_slice *to, uint32_t flags, ringdb_iter **out, ringdb_error *err);
/* Commits, and ends it however the commit ends, unless an argument was wrong. Without deadlines. */
int32_t ringdb_transaction_commit(ringdb_transaction *transaction, const ringdb_write_options *how, ringdb_error *err);
/* One that was not committed has done nothing. */
void ringdb_transaction_free(ringdb_transaction *transaction);

/* ---- Tables in and out --------------------------------------------------------------------------------------- */

/* Pairs in ascending order of their keys that become tables of a keyspace, past the log: all of them at once, or none,
 * beside readers and writers. The fastest way to fill a store. It keeps the store open. */
typedef struct ringdb_ingester ringdb_ingester;

int32_t ringdb_ingester_open(const ringdb_db *db, ringdb_ingester **out, ringdb_error *err);
/* Adds a pair. A key that does not come after the one before is RINGDB_INVALID_ARGUMENT. Pairs are written by a thread of
 * the ingester's own, so what writing meets is told by a later call. After a failure nothing more is taken, and the
 * finish fails too. */
int32_t ringdb_ingester_add(ringdb_ingester *ingester, const void *key, size_t key_len, const void *value,
                            size_t value_len, ringdb_error *err);
/* Makes all pairs part of the keyspace at once, in place of older values; durable on return. `*pairs`, unless `pairs` is
 * NULL, gets how many. Ends it, however it ends, unless an argument was wrong. */
int32_t ringdb_ingester_finish(ringdb_ingester *ingester, uint64_t *pairs, ringdb_error *err);
/* One that was not finished leaves nothing. */
void ringdb_ingester_free(ringdb_ingester *ingester);

/* Writes the pairs of a range as sorted tables into a new or empty directory, for ringdb_import_tables, here or
 * elsewhere; of a snapshot, too. Bounds as of ringdb_range. `*report`, unless `report` is NULL, gets counts, as JSON
 * text. */
int32_t ringdb_export_range(const ringdb_db *db, const ringdb_slice *from, const ringdb_slice *to, uint32_t flags,
                            const char *path, ringdb_value **report, ringdb_error *err);
/* Ingests all pairs of an export, into any keyspace; every byte is checked. `pairs` as above. */
int32_t ringdb_import_tables(const ringdb_db *db, const char *path, uint64_t *pairs, ringdb_error *err);

/* ---- Asynchronous requests by callback ----------------------------------------------------------------------- */

/* CALLBACKS. A request that was accepted (RINGDB_OK) is answered by exactly one call of its callback, unless it is
 * cancelled before. What memory has is answered in the calling thread, before the function returns. All else is
 * answered on a thread of the store, or on the one that closes the store. Callbacks of one thread never nest: what a
 * callback starts, and memory can answer, is answered on the same thread after it has returned.
 *
 * A callback may call everything but ringdb_close, ringdb_writes_wait, and blocking calls with a deadline, which are
 * RINGDB_INVALID_ARGUMENT there. On a thread of the store, what it does holds up other requests: it should hand over
 * what takes long, must not wait for another request, and must not hold a lock while the store is closed that the
 * closing thread holds, too. It must not unwind (throw, longjmp). `err` is never NULL and lives as long as the call. */

/* `code`: 1 and a value, which the callback owns and frees; 0, absent; or a failure, with what went wrong in `err`. */
typedef void (*ringdb_get_callback)(void *user, int32_t code, ringdb_value *value, const ringdb_error *err);
/* `code`: RINGDB_OK and the values, which the callback owns and frees; or a failure. */
typedef void (*ringdb_multi_get_callback)(void *user, int32_t code, ringdb_values *values, const ringdb_error *err);
/* `code`: RINGDB_OK, or a failure. */
typedef void (*ringdb_done_callback)(void *user, int32_t code, const ringdb_error *err);

/* A request that is under way. */
typedef struct ringdb_request ringdb_request;

/* Asks for a value, for many, or for a write or a sync. Tasks that miss the same block share its read, writes that
 * wait share frames of the log. The batch is copied. `request` may be NULL, if the request is not to be cancelled;
 * otherwise `*request` is set before the callback is called on another thread, to NULL if nothing was left to wait
 * for: a handle to be freed. A failure returned here is one of the arguments: the callback is not called. */
int32_t ringdb_get_async(const ringdb_db *db, const void *key, size_t key_len, const ringdb_read_options *how,
                         ringdb_get_callback callback, void *user, ringdb_request **request, ringdb_error *err);
int32_t ringdb_multi_get_async(const ringdb_db *db, const ringdb_slice *keys, size_t count,
                               const ringdb_read_options *how, ringdb_multi_get_callback callback, void *user,
                               ringdb_request **request, ringdb_error *err);
int32_t ringdb_write_async(const ringdb_db *db, const ringdb_batch *batch, const ringdb_write_options *how,
                           ringdb_done_callback callback, void *user, ringdb_request **request, ringdb_error *err);
int32_t ringdb_sync_async(const ringdb_db *db, ringdb_done_callback callback, void *user, ringdb_request **request,
                          ringdb_error *err);

/* 1: the callback has not been called and never will be; `user` is the caller's again. A write may happen all the same.
 * 0: it has been called, or is about to be on some thread: `user` is the callback's. NULL: 0. */
int32_t ringdb_request_cancel(const ringdb_request *request);
/* Gives the handle back; the request goes on. */
void ringdb_request_free(ringdb_request *request);

/* ---- Asynchronous requests by file descriptor ---------------------------------------------------------------- */

/* Reads for an event loop: submitted with a tag, driven by the thread that polls, without another thread in between. */
typedef struct ringdb_reads ringdb_reads;

/* The answer to a request. */
typedef struct ringdb_answer {
    uint64_t tag;        /* the request's */
    ringdb_value *value; /* of a read that found one: the caller's, to be freed; else NULL */
    int32_t code;        /* of a read: 1 found, 0 absent; of a write: RINGDB_OK; or a failure */
    uint32_t reserved;   /* 0 */
} ringdb_answer;

/* For at most `depth` reads at a time (1 to 65,536; others are taken for the nearest). Deadlines are refused. */
int32_t ringdb_reads_open(const ringdb_db *db, size_t depth, const ringdb_read_options *how, ringdb_reads **out,
                          ringdb_error *err);
/* Asks for a key. Reads begin, together, with the next poll that has nothing to give, or with a wait.
 * RINGDB_WOULD_BLOCK: `depth` answers have not been taken. */
int32_t ringdb_reads_submit(ringdb_reads *reads, uint64_t tag, const void *key, size_t key_len, ringdb_error *err);
/* Takes an answer without waiting: 1, or 0 if there is none now. `*err` says why that request failed, if it did. */
int32_t ringdb_reads_poll(ringdb_reads *reads, ringdb_answer *out, ringdb_error *err);
/* Waits until `min` answers can be taken, or all, if fewer are open. `*ready`, unless NULL, gets how many can. */
int32_t ringdb_reads_wait(ringdb_reads *reads, size_t min, size_t *ready, ringdb_error *err);
/* A descriptor in `*fd` that is readable when there may be answers to take, for epoll and the like; it belongs to
 * `reads`. Poll until there is none before waiting for it. Engines without one refuse: RINGDB_UNSUPPORTED. On
 * io_uring a completion may interrupt epoll_wait (EINTR): wait again. */
int32_t ringdb_reads_fd(ringdb_reads *reads, int *fd, ringdb_error *err);
/* Waits for the reads that the device has; answers not taken are lost. */
void ringdb_reads_free(ringdb_reads *reads);

/* The same for writes and syncs, which the store's own thread does. */
typedef struct ringdb_writes ringdb_writes;

int32_t ringdb_writes_open(const ringdb_db *db, size_t depth, ringdb_writes **out, ringdb_error *err);
/* Begins a write at once; the batch is copied. */
int32_t ringdb_writes_submit(ringdb_writes *writes, uint64_t tag, const ringdb_batch *batch,
                             const ringdb_write_options *how, ringdb_error *err);
int32_t ringdb_writes_sync(ringdb_writes *writes, uint64_t tag, ringdb_error *err);
int32_t ringdb_writes_poll(ringdb_writes *writes, ringdb_answer *out, ringdb_error *err);
int32_t ringdb_writes_wait(ringdb_writes *writes, size_t min, size_t *ready, ringdb_error *err);
/* Readable exactly as long as there are answers to take. */
int32_t ringdb_writes_fd(ringdb_writes *writes, int *fd, ringdb_error *err);
/* Waits for nothing: writes that were submitted go on, or not, if their turn has not come; their answers are lost. */
void ringdb_writes_free(ringdb_writes *writes);

/* ---- Upkeep -------------------------------------------------------------------------------------------------- */

/* Writes all memtables to tables: what was written before is durable after it. */
int32_t ringdb_flush(const ringdb_db *db, ringdb_error *err);
/* Writes every table of the store anew, as it is written now: with the newest encryption key, and the settings of now. */
int32_t ringdb_rewrite(const ringdb_db *db, ringdb_error *err);
/* Compacts the tables that hold a range of keys of this keyspace, down to the last level; flushes first. Bounds as of
 * ringdb_range. */
int32_t ringdb_compact(const ringdb_db *db, const ringdb_slice *from, const ringdb_slice *to, uint32_t flags,
                       ringdb_error *err);
/* Waits until nothing is left to flush or compact. */
int32_t ringdb_wait_idle(const ringdb_db *db, ringdb_error *err);
/* A copy of the store in a new directory, durable on return; by hard links where that is possible. */
int32_t ringdb_checkpoint(const ringdb_db *db, const char *path, ringdb_error *err);
/* Counters and sizes, as JSON text. */
int32_t ringdb_stats(const ringdb_db *db, ringdb_value **out, ringdb_error *err);
/* The same and more as text for Prometheus, to be served as "text/plain; version=0.0.4; charset=utf-8"; if `open_metrics`
 * is 1 (else 0), as "application/openmetrics-text; version=1.0.0; charset=utf-8". Nothing is read from the disk. */
int32_t ringdb_metrics(const ringdb_db *db, int32_t open_metrics, ringdb_value **out, ringdb_error *err);
/* Reads every byte and checks every checksum, order and reference: 0 if all is well, 1 if something is wrong.
 * `*report`, unless `report` is NULL, gets what, as JSON text. */
int32_t ringdb_verify(const ringdb_db *db, ringdb_value **report, ringdb_error *err);
/* The same of a store that nobody has open, as far as its directory can be read. */
int32_t ringdb_verify_dir(const char *path, const ringdb_options *options, ringdb_value **report, ringdb_error *err);
/* Copies everything readable of a damaged store into a new one. `uri` is the I/O engine, NULL for auto. Takes frames
 * of the log that follow a gap, too, if `frames_after_gaps` is 1. `*report` as above: what was lost. */
int32_t ringdb_salvage(const char *from, const char *to, const char *uri, int32_t frames_after_gaps,
                       ringdb_value **report, ringdb_error *err);

#ifdef __cplusplus
}
#endif

#endif
