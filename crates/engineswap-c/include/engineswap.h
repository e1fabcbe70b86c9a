/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * engineswap: storage I/O whose engine (posix, libaio, io_uring) is chosen at run time by a URI.
 *
 * This is the whole C interface. It works from C99 and C++ and names no Rust type.
 *
 * RESULTS. A function that can fail returns an int32_t: ENGINESWAP_OK (0) or more on success, one of the negative
 * codes below on failure, and then describes the failure in `*err`. `err` may be NULL; otherwise it is the caller's
 * struct, so an error message belongs to the caller and is safe to use on any thread for as long as it likes. On
 * success the code in it is set to ENGINESWAP_OK and the message to "".
 *
 * ARGUMENTS. Handles are opaque and made by the functions named ..._open. A NULL handle, a NULL place for a result,
 * an unknown flag, a purpose out of range or a length that no memory can have is ENGINESWAP_INVALID_ARGUMENT, never
 * undefined behaviour. What cannot be checked is the caller's duty: a handle is used only between its opening and its
 * closing, and a pointer leads to as many bytes as the length says. The functions that close or free take NULL and do
 * nothing. No panic of the library crosses this interface: it becomes ENGINESWAP_INTERNAL.
 *
 * THREADS. Engines, files and buffers may be used by all threads at once. A queue belongs to the thread that opened
 * it; another one gets ENGINESWAP_WRONG_THREAD; unless it was opened with ENGINESWAP_QUEUE_SHARED: then all threads may
 * use it at once. A handle is closed when no other thread is in a call with it.
 *
 * LIFETIMES. Handles may be closed in any order: files and queues outlive their engine's handle, an operation its
 * file's.
 * After fork() a child may go on using engines and files that were opened before: rings, contexts and threads it gets of
 * its own. A queue is its parent's: in the child it fails as broken, and to close it there touches nothing of the parent's.
 *
 * LINKING. pkg-config (engineswap) names the shared library. The static one may be part of a shared library that is
 * loaded into any program, others with Rust in them too, if it is linked with -Wl,--exclude-libs,ALL: then none of its
 * names is seen from outside, or taken from there. Its engines, queues and statistics are its own.
 *
 * PATHS are NUL-terminated bytes. STRINGS that the library returns are UTF-8 and belong to the handle that they came
 * from, or are static.
 */
#ifndef ENGINESWAP_H
#define ENGINESWAP_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Versions ------------------------------------------------------------------------------------------------ */

/* The version of this interface, also the number of the shared library (libengineswap.so.1). Functions, flags and
 * codes may be added under the same number; none is changed or taken away. */
#define ENGINESWAP_ABI_VERSION 1

/* The ABI version of the library that is linked: compare it with ENGINESWAP_ABI_VERSION. */
uint32_t engineswap_abi_version(void);

/* The version of the library, for example "0.1.0". Static. */
const char *engineswap_version(void);

/* ---- Errors -------------------------------------------------------------------------------------------------- */

enum {
    ENGINESWAP_OK = 0,
    ENGINESWAP_NOT_FOUND = -1,         /* the path does not exist */
    ENGINESWAP_ALREADY_EXISTS = -2,    /* the path exists already, or a directory is not empty */
    ENGINESWAP_PERMISSION_DENIED = -3, /* or a read-only file system */
    ENGINESWAP_NO_SPACE = -4,          /* no space, quota or file size left */
    ENGINESWAP_UNEXPECTED_EOF = -6,    /* the file ended before the bytes asked for */
    ENGINESWAP_UNSUPPORTED = -7,       /* the engine or an option of it cannot be had here; the message says why */
    ENGINESWAP_INVALID_ARGUMENT = -8,  /* a URI or an argument is wrong; the message lists what is valid */
    ENGINESWAP_CANCELED = -9,          /* an operation before it in its chain did not fully succeed */
    ENGINESWAP_SYNC_FAILED = -10,      /* an earlier sync of this file failed; its state is unknown for good */
    ENGINESWAP_IO = -11,               /* anything else that the kernel reports; see os_errno */
    ENGINESWAP_QUEUE_FULL = -12,       /* take completions first */
    ENGINESWAP_WRONG_THREAD = -13,     /* the queue belongs to another thread */
    ENGINESWAP_QUEUE_BROKEN = -14,     /* the engine's queue failed as a whole; close it */
    ENGINESWAP_INTERNAL = -15,         /* a defect of the library */
    ENGINESWAP_TIMED_OUT = -16         /* not done within the operation's time limit */
};

/* The name of a code, for example "not found". Static; for an unknown code "unknown". */
const char *engineswap_code_name(int32_t code);

/* What went wrong. Plain data of the caller. */
typedef struct engineswap_error {
    int32_t code;       /* as returned */
    int32_t os_errno;   /* the kernel's errno, 0 if there was none */
    char message[1016]; /* operation, path, offset, length, cause, remedy; NUL-terminated UTF-8, cut if too long */
} engineswap_error;

/* ---- Engines ------------------------------------------------------------------------------------------------- */

typedef struct engineswap_engine engineswap_engine;

/* Opens the engine that `uri` names: NAME[?OPTION[=VALUE][&OPTION...]], for example "io_uring?depth=64". NULL, "" or
 * "auto": the environment variable ENGINESWAP if set, else the best engine that works here. */
int32_t engineswap_open(const char *uri, engineswap_engine **out, engineswap_error *err);

/* What a program does with its engine besides transfers, syncs, batches and queues. */
enum {
    ENGINESWAP_USES_BUFFERS = 1 /* engineswap_register_buffer */
};

/* The same for a program that does no more than `uses` says: an option that was turned on by name and would do nothing
 * in such a program (without registered memory: fixed_buffers, clone_buffers) is ENGINESWAP_INVALID_ARGUMENT.
 * engineswap_open takes all that a C program can use; provided_buffers is refused by both: this interface has no pools. */
int32_t engineswap_open_for(const char *uri, uint32_t uses, engineswap_engine **out, engineswap_error *err);

void engineswap_close(engineswap_engine *engine);

/* "posix", "libaio", "io_uring"; static. "" for NULL. */
const char *engineswap_engine_name(const engineswap_engine *engine);

/* The URI that would choose exactly this engine again. Belongs to the handle. "" for NULL. */
const char *engineswap_engine_uri(const engineswap_engine *engine);

/* Why this engine was chosen, a line each. Belongs to the handle. "" for NULL. */
const char *engineswap_engine_reasons(const engineswap_engine *engine);

/* Makes the entries of a directory durable: files that were made, renamed or removed in it (by open, rename, unlink). */
int32_t engineswap_sync_dir(const engineswap_engine *engine, const char *path, engineswap_error *err);

/* ---- Buffers ------------------------------------------------------------------------------------------------- */

/* Zeroed memory for any file, direct ones included: the address is a multiple of 4096, and so is the length, which is
 * rounded up. NULL without memory or if `len` is 0. */
void *engineswap_buffer_alloc(size_t len);
void engineswap_buffer_free(void *buffer);

typedef struct engineswap_registration engineswap_registration;

/* Registers memory with the engine (of engineswap_buffer_alloc or the caller's own, at most 64 GiB together in pieces of
 * 1 GiB): reads and writes, of queues and batches, that lie in it skip the mapping of their pages. Nothing else changes:
 * operations are the same, and their memory is recognised by its address. Where the engine has no such thing, or
 * (io_uring, unless `fixed_buffers` was asked for) the kernel refuses it, the call succeeds all the same, the
 * registration says why in engineswap_registration_refusal, and transfers are done as without.
 *
 * The memory must stay allocated, and backed by the same pages (no munmap, mremap, madvise(MADV_DONTNEED), no fork
 * after which it is written), until it is taken out by engineswap_unregister; and no operation in it may be
 * pushed meanwhile. */
int32_t engineswap_register_buffer(const engineswap_engine *engine, void *buffer, size_t len,
                                   engineswap_registration **out, engineswap_error *err);
/* Why the memory is not registered; NULL if it is. Belongs to the handle. */
const char *engineswap_registration_refusal(const engineswap_registration *registration);
void engineswap_unregister(engineswap_registration *registration);

/* ---- Files --------------------------------------------------------------------------------------------------- */

typedef struct engineswap_file engineswap_file;

enum {
    ENGINESWAP_READ = 1,
    ENGINESWAP_WRITE = 2,
    ENGINESWAP_CREATE = 4,          /* make it if missing */
    ENGINESWAP_CREATE_NEW = 8,      /* make it; an error if it exists */
    ENGINESWAP_TRUNCATE = 16,       /* cut it to nothing */
    ENGINESWAP_DIRECT_PREFER = 32,  /* O_DIRECT where the file system has it, else through the page cache */
    ENGINESWAP_DIRECT_REQUIRE = 64, /* O_DIRECT or an error */
    ENGINESWAP_DONTCACHE = 128 /* of a buffered file: transfers do not stay in the page cache, where kernel and file
                                        system have that (RWF_DONTCACHE, Linux 6.14); for what is streamed once */
};

/* `flags` has READ or WRITE or both. A file to append to is opened for writing and written at its length. */
int32_t engineswap_file_open(const engineswap_engine *engine, const char *path, uint32_t flags, engineswap_file **out,
                             engineswap_error *err);
/* Closes the handle; the file itself is closed when the last operation on it is done. Nothing is synced. */
void engineswap_file_close(engineswap_file *file);

/* The descriptor, for what this interface does not do (advice, space, mapping for reading); -1 if there is none. It is closed
 * with the file. Writing or syncing through it goes behind the engine's back. */
int engineswap_file_fd(const engineswap_file *file);
/* 1 if it bypasses the page cache, else 0. */
int32_t engineswap_file_is_direct(const engineswap_file *file);
/* What direct transfers must be aligned to, in bytes: the address of the memory, the offset and length. 1 and 1 for
 * buffered files. Direct reads that are not aligned are done through a copy; direct writes to an offset or of a
 * length that is not aligned are ENGINESWAP_INVALID_ARGUMENT. NULL for what is not wanted. */
int32_t engineswap_file_alignment(const engineswap_file *file, uint32_t *memory, uint32_t *offset,
                                  engineswap_error *err);

/* Lone operations, done before the call returns by plain system calls on every engine: there is nothing to overlap
 * with. `purpose` (0 to 15) is a tag that the statistics are kept by. */

/* Reads until `len` bytes are there or the file ends; *done gets the number of bytes. */
int32_t engineswap_file_read(const engineswap_file *file, void *buffer, size_t len, uint64_t offset, uint32_t purpose,
                             size_t *done, engineswap_error *err);
/* Writes all of it. */
int32_t engineswap_file_write(const engineswap_file *file, const void *buffer, size_t len, uint64_t offset,
                              uint32_t purpose, engineswap_error *err);
/* Writes all of it, durable on return (RWF_DSYNC). */
int32_t engineswap_file_write_dsync(const engineswap_file *file, const void *buffer, size_t len, uint64_t offset,
                                    uint32_t purpose, engineswap_error *err);
/* fdatasync and fsync. After a failure every later sync of this handle fails with ENGINESWAP_SYNC_FAILED. */
int32_t engineswap_file_sync_data(const engineswap_file *file, uint32_t purpose, engineswap_error *err);
int32_t engineswap_file_sync_all(const engineswap_file *file, uint32_t purpose, engineswap_error *err);
enum {
    ENGINESWAP_WAIT_BEFORE = 1 /* wait for write-back of the range that is under way, then start the rest */
};
/* Starts write-back of the range (`len` 0: to the end) and does not wait for it. `flags`: ENGINESWAP_WAIT_BEFORE. */
int32_t engineswap_file_start_write_back(const engineswap_file *file, uint64_t offset, uint64_t len, uint32_t flags,
                                         uint32_t purpose, engineswap_error *err);
/* Cuts or grows the file. */
int32_t engineswap_file_set_len(const engineswap_file *file, uint64_t len, engineswap_error *err);
int32_t engineswap_file_len(const engineswap_file *file, uint64_t *out, engineswap_error *err);

/* ---- Operations that overlap --------------------------------------------------------------------------------- */

enum {
    ENGINESWAP_OP_READ = 1,  /* ends early only at the end of the file */
    ENGINESWAP_OP_WRITE = 2, /* all of it */
    ENGINESWAP_OP_SYNC_DATA =
        3, /* fdatasync; covers writes that were complete before it, or are before it in its chain */
    ENGINESWAP_OP_SYNC_ALL = 4,   /* fsync */
    ENGINESWAP_OP_SYNC_RANGE = 5, /* sync_file_range over `len` bytes at `offset` */
    ENGINESWAP_OP_ALLOCATE = 6,   /* fallocate */
    ENGINESWAP_OP_READV = 7,      /* as READ, into the pieces that `buffer` leads to, one after the other */
    ENGINESWAP_OP_WRITEV = 8      /* as WRITE, from those pieces */
};

enum {
    ENGINESWAP_OP_CHAIN = 1, /* the operation pushed next starts only when this one has fully succeeded; else it ends
                                as ENGINESWAP_CANCELED, and so does the rest of the chain. A short read breaks it. */
    ENGINESWAP_OP_DSYNC = 2, /* of a write: durable at its completion */
    ENGINESWAP_OP_FORCE_ASYNC = 4 /* io_uring: hand it to a worker thread of the kernel at once; other engines do as
                                     without. For what would block the submission: buffered writes, cold reads. */
};

/* One piece of a vectored operation; laid out as struct iovec. */
typedef struct engineswap_vector {
    void *base;
    size_t len;
} engineswap_vector;

/* One operation. The struct itself is copied. The MEMORY at `buffer` belongs to the library from the push (or the call
 * of engineswap_run) until the operation's completion has been taken, or engineswap_queue_close has returned
 * ENGINESWAP_OK: until then it must stay allocated, must not be touched if it is read into, and must not be changed if
 * it is written from. The buffers of operations in flight must not overlap, except those that are only written from.
 * The file may be closed meanwhile.
 *
 * READV and WRITEV: `buffer` leads to an array of `len` engineswap_vector, which is copied, too; what is said of the
 * memory holds for that of the pieces. There may be any number of them.
 *
 * `time_limit_us`: the longest that the operation may take from its start on; then it is taken back and ends as
 * ENGINESWAP_TIMED_OUT. A device that does not let go of a transfer ends it in its own time all the same. Only io_uring
 * without sqpoll and iopoll has limits; on other engines such an operation ends as ENGINESWAP_UNSUPPORTED. */
typedef struct engineswap_op {
    uint32_t kind;  /* ENGINESWAP_OP_... */
    uint32_t flags; /* ENGINESWAP_OP_CHAIN, ENGINESWAP_OP_DSYNC, ENGINESWAP_OP_FORCE_ASYNC */
    engineswap_file *file;
    void *buffer; /* of reads and writes; a write does not change it */
    uint64_t offset;
    uint64_t len;
    uint64_t user;          /* comes back in the completion */
    uint32_t purpose;       /* 0 to 15 */
    uint32_t time_limit_us; /* 0: none */
} engineswap_op;

enum {
    /* In engineswap_completion.flags: the engine failed as a whole and the kernel may still touch the operation's
     * memory. Leave it allocated for the rest of the process. */
    ENGINESWAP_BUFFER_HELD = 1
};

typedef struct engineswap_completion {
    uint64_t user;
    int64_t result;   /* bytes transferred (0 for syncs), or a negative code */
    int32_t os_errno; /* the kernel's errno, 0 if there was none */
    uint32_t flags;   /* ENGINESWAP_BUFFER_HELD; of engineswap_run and of shared queues */
} engineswap_completion;

/* Does all `count` operations together and waits for all of them; out[i] belongs to ops[i]. One alone is a plain system
 * call. Any thread may call it; the library keeps a queue for each thread that does. Returns ENGINESWAP_OK if every
 * operation succeeded, else the code of the first (in the order of `ops`) that did not, whose message is in *err.
 * ENGINESWAP_INVALID_ARGUMENT before anything has been done leaves every out[i].result at that code. */
int32_t engineswap_run(const engineswap_engine *engine, const engineswap_op *ops, size_t count,
                       engineswap_completion *out, engineswap_error *err);

typedef struct engineswap_queue engineswap_queue;

enum {
    /* Any thread may use the queue, several at once: the library serialises the calls, and lets go of its lock while a
     * thread waits, so that others push, submit, take and cancel meanwhile. (With iopoll, where waiting is work, it
     * does not.) What a submission takes, others wait for: on libaio that is the whole of a buffered transfer. A wait
     * costs a system call more than that of a queue of one thread, whose ring has flags that this one cannot have;
     * many operations that one thread starts and waits for together are best done by engineswap_run. */
    ENGINESWAP_QUEUE_SHARED = 1
};

/* A queue for the calling thread, or with ENGINESWAP_QUEUE_SHARED in `flags` for all, for at most `depth` operations (1
 * to 65536; at most as many as the engine's own option `depth` says). */
int32_t engineswap_queue_open(const engineswap_engine *engine, uint32_t depth, uint32_t flags, engineswap_queue **out,
                              engineswap_error *err);
/* Does everything that was pushed, waits for it, and closes the queue. Completions that were not taken are lost, but
 * not silently: the first that failed is returned. The handle is gone then, whatever is returned, except for
 * ENGINESWAP_WRONG_THREAD, which leaves it open, and ENGINESWAP_QUEUE_BROKEN, which closes it but means that the
 * kernel may still touch the memory of operations whose completion was not taken: leave that allocated for good. */
int32_t engineswap_queue_close(engineswap_queue *queue, engineswap_error *err);
/* Adds an operation; it starts at the next submit or wait. ENGINESWAP_QUEUE_FULL: take completions first. After a
 * failure the memory is the caller's as before. */
int32_t engineswap_queue_push(engineswap_queue *queue, const engineswap_op *op, engineswap_error *err);
/* Adds all of these operations, or none (ENGINESWAP_QUEUE_FULL; more than the queue's depth are
 * ENGINESWAP_INVALID_ARGUMENT), with nothing of other threads in between. The last one has no successor. On a shared
 * queue this is the way to push chains: there engineswap_queue_push refuses ENGINESWAP_OP_CHAIN. */
int32_t engineswap_queue_push_many(engineswap_queue *queue, const engineswap_op *ops, size_t count,
                                   engineswap_error *err);
/* Starts what was pushed. */
int32_t engineswap_queue_submit(engineswap_queue *queue, engineswap_error *err);
/* Submits, then waits until at least `min` completions can be taken (fewer if fewer are in flight). On a shared queue
 * other threads may take them first. */
int32_t engineswap_queue_wait(engineswap_queue *queue, size_t min, engineswap_error *err);
/* Takes operations back, all whose `user` is this. Those not started end at once; of those that the kernel has,
 * io_uring asks it to let go, and they end as ENGINESWAP_CANCELED, or as if nothing had been asked if that came too
 * late. Each completion comes, once, either way, and until then the memory is the library's as ever. Returns how many
 * were found that can be taken back (0 on posix and libaio for what has been started). */
int32_t engineswap_queue_cancel(engineswap_queue *queue, uint64_t user, engineswap_error *err);
/* Takes a completion without waiting. Returns 1 and fills *out, or 0 if there is none. If the operation failed, *err
 * describes it; the return value is 1 all the same. */
int32_t engineswap_queue_pop(engineswap_queue *queue, engineswap_completion *out, engineswap_error *err);
/* Of shared queues: submits, then waits for an operation whose `user` is this, and takes its completion as
 * engineswap_queue_pop does, and nobody else's. Returns 1, or 0 if no such operation is in flight (nobody pushed it, or
 * another thread has taken it). This is how threads that share a queue wait each for its own. */
int32_t engineswap_queue_take(engineswap_queue *queue, uint64_t user, engineswap_completion *out,
                              engineswap_error *err);
/* Takes up to `max` completions without waiting, without messages. Returns how many. */
int32_t engineswap_queue_pop_many(engineswap_queue *queue, engineswap_completion *out, size_t max,
                                  engineswap_error *err);
/* Operations pushed whose completion has not been taken. 0 for NULL. */
size_t engineswap_queue_in_flight(const engineswap_queue *queue);

/* ---- Statistics ---------------------------------------------------------------------------------------------- */

typedef struct engineswap_op_stats {
    uint64_t ops; /* finished, failed ones included */
    uint64_t bytes;
    uint64_t errors;
    uint64_t total_ns; /* the sum of latencies */
    uint64_t
        p50_ns; /* percentiles are right to about 20 %; of lone buffered transfers up to 16 KiB one in 8 is timed */
    uint64_t p95_ns;
    uint64_t p99_ns;
    uint64_t p999_ns;
} engineswap_op_stats;

typedef struct engineswap_stats {
    uint64_t elapsed_ns; /* since the engine was opened */
    engineswap_op_stats read, write, sync, sync_range, allocate;
    uint64_t queue_ops;     /* operations that went through a queue */
    uint64_t queue_time_ns; /* the sum of the times that these were in flight */
    uint64_t queue_busy_ns; /* the sum over queues of the time that it was not empty */
    uint64_t submit_calls;  /* system calls that submitted or waited */
    uint64_t punted;        /* operations known to be handed to a worker thread of the kernel */
    uint64_t inline_ops;    /* operations of a queue that were done as plain system calls at submission */
    uint64_t fallbacks;     /* batches done one by one because a thread could not have a queue */
    uint64_t bounced;       /* direct transfers that went through a copy because they were not aligned */
    uint64_t fixed;         /* requests from and to registered buffers */
} engineswap_stats;

/* Counters and latencies since the engine was opened, of one purpose (0 to 15), or of all (-1); the counters after
 * `allocate` are of all purposes always. `size` is sizeof(engineswap_stats) of the caller's header. */
int32_t engineswap_get_stats(const engineswap_engine *engine, int32_t purpose, engineswap_stats *out, size_t size,
                             engineswap_error *err);

#ifdef __cplusplus
}
#endif

#endif
