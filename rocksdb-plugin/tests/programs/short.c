/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * Loaded before a program: every third transfer of more than one page by a plain system call is cut to a page or, if
 * the file is not direct, to an odd number of bytes; every fifth call fails with EINTR first. Both are what the kernel
 * may do at any time. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

static atomic_uint calls;

/* The length to ask for, or -1 for an interruption. */
static ssize_t cut(int fd, size_t n) {
    unsigned call = atomic_fetch_add(&calls, 1);
    if (call % 5 == 4) {
        errno = EINTR;
        return -1;
    }
    if (call % 3 != 2 || n <= 4096)
        return (ssize_t)n;
    return fcntl(fd, F_GETFL) & O_DIRECT ? 4096 : 4097;
}

#define PLAIN(name, buffer, offset_type)                                                                               \
    ssize_t name(int fd, buffer buf, size_t n, offset_type offset) {                                                   \
        static ssize_t (*real)(int, buffer, size_t, offset_type);                                                      \
        if (!real)                                                                                                     \
            *(void **)&real = dlsym(RTLD_NEXT, #name);                                                                 \
        ssize_t len = cut(fd, n);                                                                                      \
        return len < 0 ? -1 : real(fd, buf, (size_t)len, offset);                                                      \
    }
PLAIN(pread, void *, off_t)
PLAIN(pread64, void *, off64_t)
PLAIN(pwrite, const void *, off_t)
PLAIN(pwrite64, const void *, off64_t)

/* Of a vector, the first piece alone is a short transfer. */
#define VECTOR(name, offset_type)                                                                                      \
    ssize_t name(int fd, const struct iovec *v, int n, offset_type offset) {                                           \
        static ssize_t (*real)(int, const struct iovec *, int, offset_type);                                           \
        if (!real)                                                                                                     \
            *(void **)&real = dlsym(RTLD_NEXT, #name);                                                                 \
        ssize_t len = cut(fd, n > 1 ? 8192 : 1);                                                                       \
        return len < 0 ? -1 : real(fd, v, len == 8192 ? n : 1, offset);                                                \
    }
VECTOR(preadv, off_t)
VECTOR(preadv64, off64_t)
VECTOR(pwritev, off_t)
VECTOR(pwritev64, off64_t)

#define VECTOR2(name, offset_type)                                                                                     \
    ssize_t name(int fd, const struct iovec *v, int n, offset_type offset, int flags) {                                \
        static ssize_t (*real)(int, const struct iovec *, int, offset_type, int);                                      \
        if (!real)                                                                                                     \
            *(void **)&real = dlsym(RTLD_NEXT, #name);                                                                 \
        ssize_t len = cut(fd, n > 1 ? 8192 : 1);                                                                       \
        return len < 0 ? -1 : real(fd, v, len == 8192 ? n : 1, offset, flags);                                         \
    }
VECTOR2(preadv2, off_t)
VECTOR2(preadv64v2, off64_t)
VECTOR2(pwritev2, off_t)
VECTOR2(pwritev64v2, off64_t)

/* The same calls by their numbers, as engineswap makes them. */
long syscall(long nr, ...) {
    static long (*real)(long, ...);
    long a[6];
    va_list list;
    if (!real)
        *(void **)&real = dlsym(RTLD_NEXT, "syscall");
    va_start(list, nr);
    for (int i = 0; i < 6; i++)
        a[i] = va_arg(list, long);
    va_end(list);
    if (nr == SYS_preadv2 || nr == SYS_pwritev2) {
        ssize_t len = cut((int)a[0], a[2] > 1 ? 8192 : 1);
        if (len < 0)
            return -1;
        a[2] = len == 8192 ? a[2] : 1;
    }
    return real(nr, a[0], a[1], a[2], a[3], a[4], a[5]);
}
