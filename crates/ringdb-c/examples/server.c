/* A store's keys over TCP, in one thread: an epoll loop over sockets, reads and durable writes. What all connections
 * ask for at the same time is read, and made durable, together. A request is a line: GET key, SET key value, DEL
 * key; its answer another: "+value", "-" (absent), "+" (durable) or "!why". A connection has one request under way.
 *
 *   make capi
 *   cc -o server crates/ringdb-c/examples/server.c $(PKG_CONFIG_PATH=target/capi/lib/pkgconfig pkg-config --cflags \
 *     --libs ringdb) -Wl,-rpath,$PWD/target/capi/lib
 *   ./server /tmp/store 7777 & printf 'SET apple red\nGET apple\n' | nc -N localhost 7777
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <ringdb.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <unistd.h>

enum { CONNECTIONS = 1024, LINE = 4096 };

/* The connections; the tag of a request is the place of its connection. */
static struct connection {
    int fd;    /* -1: free */
    int waits; /* a request is under way */
    int ended; /* the peer sends no more: it is let go when all it sent has been answered */
    int gone;  /* it is let go as soon as no request is under way */
    size_t filled;
    char line[LINE];
} connections[CONNECTIONS];

static ringdb_db *db;
static ringdb_reads *reads;
static ringdb_writes *writes;
static ringdb_batch *batch;
static ringdb_error err;
static int epoll;

static void die(const char *what) {
    fprintf(stderr, "%s: %s\n", what, err.code ? err.message : strerror(errno));
    exit(1);
}

static void watch(int fd) {
    struct epoll_event event = {.events = EPOLLIN, .data = {.fd = fd}};
    if (epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event))
        die("epoll");
}

static void leave(struct connection *c) {
    c->gone = 1;
    if (c->fd >= 0 && !c->waits) {
        close(c->fd);
        c->fd = -1;
    }
}

/* Answers are short, so the socket's buffer takes them; a peer that does not read is let go. */
static void answer(struct connection *c, const char *mark, const void *text, size_t len) {
    char out[2 * LINE];
    if (len > sizeof out - 2)
        len = sizeof out - 2;
    out[0] = *mark;
    if (len)
        memcpy(out + 1, text, len);
    out[len + 1] = '\n';
    if (send(c->fd, out, len + 2, MSG_NOSIGNAL | MSG_DONTWAIT) != (ssize_t)(len + 2))
        leave(c);
}

/* Begins a request; how, or the refusal. */
static int32_t begin(struct connection *c, char *line) {
    static const ringdb_write_options durable = {sizeof durable, RINGDB_DURABILITY_SYNC, 0};
    const uint64_t tag = (uint64_t)(c - connections);
    char *key = line + 4, *value;
    if (!strncmp(line, "GET ", 4))
        return ringdb_reads_submit(reads, tag, key, strlen(key), &err);
    ringdb_batch_clear(batch, NULL);
    if (!strncmp(line, "DEL ", 4)) {
        ringdb_batch_delete(batch, NULL, key, strlen(key), NULL);
    } else if (!strncmp(line, "SET ", 4) && (value = strchr(key, ' '))) {
        ringdb_batch_put(batch, NULL, key, (size_t)(value - key), value + 1, strlen(value + 1), NULL);
    } else {
        strcpy(err.message, "GET key, SET key value or DEL key");
        return RINGDB_INVALID_ARGUMENT;
    }
    return ringdb_writes_submit(writes, tag, batch, &durable, &err);
}

/* Begins the next request of a connection, if its line is there. */
static void next_request(struct connection *c) {
    char *end;
    while (!c->waits && !c->gone && (end = memchr(c->line, '\n', c->filled))) {
        const size_t used = (size_t)(end - c->line) + 1;
        *end = 0;
        if (begin(c, c->line) == RINGDB_OK)
            c->waits = 1;
        else
            answer(c, "!", err.message, strlen(err.message));
        memmove(c->line, c->line + used, c->filled -= used);
    }
    if (!c->waits && (c->ended || c->filled == LINE))
        leave(c);
}

static void receive(struct connection *c) {
    /* A full buffer is a peer that sends ahead of its answers, and has to wait. */
    ssize_t n = c->filled < LINE ? recv(c->fd, c->line + c->filled, LINE - c->filled, MSG_DONTWAIT) : -2;
    if (n > 0)
        c->filled += (size_t)n;
    if (n == 0 || (n == -1 && errno != EAGAIN && errno != EINTR)) {
        epoll_ctl(epoll, EPOLL_CTL_DEL, c->fd, NULL);
        c->ended = 1;
    }
    next_request(c);
}

/* Takes all answers of reads or of writes; 0 if there were none. */
static int take(int32_t (*poll)(void *, ringdb_answer *, ringdb_error *), void *from) {
    ringdb_answer a;
    int any = 0;
    while (poll(from, &a, &err) == 1) {
        struct connection *c = &connections[a.tag];
        c->waits = 0, any = 1;
        if (a.code < 0)
            answer(c, "!", err.message, strlen(err.message));
        else if (a.code == 0 && from == reads)
            answer(c, "-", NULL, 0);
        else
            answer(c, "+", ringdb_value_data(a.value), ringdb_value_len(a.value));
        ringdb_value_free(a.value);
        if (c->gone)
            leave(c);
        else
            next_request(c);
    }
    return any;
}

static int32_t poll_reads(void *from, ringdb_answer *a, ringdb_error *e) {
    return ringdb_reads_poll(from, a, e);
}
static int32_t poll_writes(void *from, ringdb_answer *a, ringdb_error *e) {
    return ringdb_writes_poll(from, a, e);
}

static void take_in(int listener) {
    int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    for (int i = 0; fd >= 0 && i < CONNECTIONS; i++)
        if (connections[i].fd < 0) {
            connections[i] = (struct connection){.fd = fd};
            watch(fd);
            return;
        }
    if (fd >= 0)
        close(fd);
}

static struct connection *of(int fd) {
    for (int i = 0; i < CONNECTIONS; i++)
        if (connections[i].fd == fd)
            return &connections[i];
    return NULL;
}

static int listen_at(int port) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    socklen_t len = sizeof at;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), yes = 1;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) ||
        bind(fd, (struct sockaddr *)&at, sizeof at) || listen(fd, 64) || getsockname(fd, (struct sockaddr *)&at, &len))
        die("listen");
    printf("listening at 127.0.0.1:%d\n", ntohs(at.sin_port));
    fflush(stdout);
    return fd;
}

int main(int argc, char **argv) {
    int listener, stop, reads_fd, writes_fd, stopping = 0;
    sigset_t signals;
    if (argc < 2) {
        fprintf(stderr, "usage: %s DIRECTORY [PORT]\n", argv[0]);
        return 2;
    }
    /* Before the store starts its threads, which would take the signals otherwise. */
    sigemptyset(&signals), sigaddset(&signals, SIGTERM), sigaddset(&signals, SIGINT);
    sigprocmask(SIG_BLOCK, &signals, NULL);
    if (ringdb_open(argv[1], NULL, &db, &err) || ringdb_reads_open(db, CONNECTIONS, NULL, &reads, &err) ||
        ringdb_writes_open(db, CONNECTIONS, &writes, &err) || ringdb_reads_fd(reads, &reads_fd, &err) ||
        ringdb_writes_fd(writes, &writes_fd, &err) || !(batch = ringdb_batch_new()))
        die("open");
    for (int i = 0; i < CONNECTIONS; i++)
        connections[i].fd = -1;
    stop = signalfd(-1, &signals, SFD_CLOEXEC);
    epoll = epoll_create1(EPOLL_CLOEXEC);
    if (stop < 0 || epoll < 0)
        die("epoll");
    listener = listen_at(argc > 2 ? atoi(argv[2]) : 0);
    watch(listener), watch(stop), watch(reads_fd), watch(writes_fd);
    while (!stopping) {
        struct epoll_event events[64];
        /* Until there is nothing to take: what connections asked for meanwhile is on its way then. */
        while (take(poll_reads, reads) | take(poll_writes, writes)) {
        }
        int n = epoll_wait(epoll, events, 64, -1);
        for (int i = 0; i < n; i++) {
            const int fd = events[i].data.fd;
            struct connection *c;
            if (fd == listener)
                take_in(listener);
            else if (fd == stop)
                stopping = 1;
            else if (fd != reads_fd && fd != writes_fd && (c = of(fd)))
                receive(c);
        }
        if (n < 0 && errno != EINTR)
            die("epoll");
    }
    ringdb_reads_free(reads);
    ringdb_writes_free(writes);
    ringdb_batch_free(batch);
    if (ringdb_close(db, &err))
        die("close");
    ringdb_release(db);
    return 0;
}
