/* redis_link.c - a URL -> a connection; commands -> replies, by libhiredis over a socket that never waits.
 *
 * hiredis writes and parses the protocol, and this file sets the time limits: poll says when the socket is ready, and one deadline covers a whole command,
 * however slowly its bytes come.  The first line of a reply is checked before hiredis parses it, so that nothing huge or nested is
 * ever parsed.  Owns socket and context.  Must not know keys or entries. */
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "store/redis_link.h"
#include "store/redis_tls.h"
#include "store/stored.h"

#define NS_PER_MS INT64_C(1000000)
enum {
    LOOK_MS = 20,    /* how often a wait looks at `stop` */
    LINE_MAX = 4096, /* bytes of a reply's first line */
    WORD_MAX = 40    /* bytes of the server's messages that are repeated as one word */
};

void kiln_redis_link_init(kiln_redis_link *l, const kiln_redis_url *url, const atomic_bool *stop) {
    *l = (kiln_redis_link){.url = url, .stop = stop};
    atomic_init(&l->fd, -1);
}

/* -- time ---------------------------------------------------------------------------------------------------- */

int64_t kiln_redis_deadline(const kiln_redis_link *l) {
    return kiln_clock_ns() + (int64_t)l->url->timeout_ms * NS_PER_MS;
}

kiln_status kiln_redis_wait(const kiln_redis_link *l, short events, int64_t until_ns) {
    struct pollfd p = {.fd = atomic_load(&l->fd), .events = events};
    for (;;) {
        int64_t left_ms = (until_ns - kiln_clock_ns()) / NS_PER_MS;
        if (atomic_load(l->stop)) return KILN_FAIL(KILN_E_IO, "the context closes");
        if (left_ms <= 0)
            return KILN_FAIL(KILN_E_IO, "no whole answer within %llu ms",
                             (unsigned long long)l->url->timeout_ms);
        int n = poll(&p, 1, left_ms < LOOK_MS ? (int)left_ms : LOOK_MS);
        if (n > 0) return KILN_OK; /* an error shows at the next read or write */
        if (n < 0 && errno != EINTR) return KILN_FAIL(KILN_E_IO, "poll: %s", strerror(errno));
    }
}

/* -- SIGPIPE --------------------------------------------------------------------------------------------------- */

/* hiredis and OpenSSL write to sockets in a way that raises SIGPIPE where the server has closed its end.  The signal is held back in this
 * thread meanwhile, and taken away if it came. */
typedef struct held_signal {
    sigset_t before;
    bool was_pending;
} held_signal;

static sigset_t pipe_set(void) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGPIPE);
    return set;
}

static void hold_pipe_signal(held_signal *h) {
    sigset_t pending, set = pipe_set();
    h->was_pending = sigpending(&pending) == 0 && sigismember(&pending, SIGPIPE) == 1;
    pthread_sigmask(SIG_BLOCK, &set, &h->before);
}

static void release_pipe_signal(const held_signal *h) {
    const struct timespec now = {0, 0};
    sigset_t set = pipe_set();
    while (!h->was_pending && sigtimedwait(&set, NULL, &now) < 0 && errno == EINTR) continue;
    pthread_sigmask(SIG_SETMASK, &h->before, NULL);
}

/* -- connecting -------------------------------------------------------------------------------------------------- */

static void close_fd(kiln_redis_link *l) {
    int fd = atomic_exchange(&l->fd, -1);
    if (fd >= 0) close(fd);
}

static kiln_status connect_to(kiln_redis_link *l, const struct sockaddr *to, socklen_t n, int64_t until) {
    int one = 1, error = 0;
    socklen_t nerror = sizeof error;
    int fd = socket(to->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) return KILN_FAIL(KILN_E_IO, "socket: %s", strerror(errno));
    atomic_store(&l->fd, fd);
    if (to->sa_family != AF_UNIX) (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    if (connect(fd, to, n) == 0) return KILN_OK;
    kiln_status st = KILN_OK;
    error = errno;
    if (error == EINPROGRESS) {
        st = kiln_redis_wait(l, POLLOUT, until);
        error = 0;
        if (st == KILN_OK && getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &nerror) != 0) error = errno;
    }
    if (st == KILN_OK && error) st = KILN_FAIL(KILN_E_IO, "cannot connect: %s", strerror(error));
    if (st != KILN_OK) close_fd(l);
    return st;
}

static kiln_status connect_unix(kiln_redis_link *l, int64_t until) {
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    _Static_assert(sizeof to.sun_path >= KILN_REDIS_PATH_MAX, "a path of a URL fits");
    memcpy(to.sun_path, l->url->path, strlen(l->url->path) + 1);
    return connect_to(l, (const struct sockaddr *)&to, sizeof to, until);
}

/* Tries the host's addresses in turn. */
static kiln_status connect_tcp(kiln_redis_link *l) {
    struct addrinfo *all = NULL, hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
    int error = getaddrinfo(l->url->host, l->url->port, &hints, &all);
    if (error) return KILN_FAIL(KILN_E_IO, "cannot look up the host: %s", gai_strerror(error));
    int64_t until = kiln_redis_deadline(l);
    kiln_status st = KILN_FAIL(KILN_E_IO, "the host has no address");
    for (const struct addrinfo *a = all; a && st != KILN_OK && !atomic_load(l->stop); a = a->ai_next)
        st = connect_to(l, a->ai_addr, a->ai_addrlen, until);
    freeaddrinfo(all);
    return st;
}

static kiln_status open_context(kiln_redis_link *l, const kiln_hiredis *lib) {
    l->context = lib->connect_fd(atomic_load(&l->fd));
    if (!l->context) return KILN_NOMEM();
    kiln_hiredis_set_nonblocking(lib, l->context);
    return l->url->is_tls ? kiln_redis_start_tls(l, lib) : KILN_OK;
}

/* -- replies -------------------------------------------------------------------------------------------------------- */

/* Looks at the reply's first line, of which n bytes are there.  *whole: the line has ended, and hiredis may parse it. */
static kiln_status check_line(const char *p, size_t n, bool *whole) {
    uint64_t length = 0;
    const char *end = n ? memchr(p, '\n', n) : NULL;
    *whole = end != NULL;
    if (n && (!p[0] || !strchr("+-:$", p[0])))
        return KILN_FAIL(KILN_E_IO, "a reply begins with byte 0x%02x", (unsigned)(unsigned char)p[0]);
    if (!end && n > LINE_MAX) return KILN_FAIL(KILN_E_IO, "the first line of a reply does not end");
    for (size_t k = 1; k < n && p[0] == '$' && p[k] >= '0' && p[k] <= '9'; k++) {
        length = 10 * length + (uint64_t)(p[k] - '0');
        if (length > KILN_STORED_MAX)
            return KILN_FAIL(KILN_E_IO, "a reply has more than the %d bytes of an entry",
                             (int)KILN_STORED_MAX);
    }
    return KILN_OK;
}

static kiln_status failed(const kiln_redis_link *l, const kiln_hiredis *lib) {
    const char *why = kiln_hiredis_error(lib, l->context);
    return KILN_FAIL(KILN_E_IO, "the connection failed: %s", why[0] ? why : "no reason is known");
}

static kiln_status send_all(const kiln_redis_link *l, const kiln_hiredis *lib, int64_t until) {
    for (;;) {
        int done = 0;
        if (lib->write(l->context, &done) != 0) return failed(l, lib);
        if (done) return KILN_OK;
        KILN_TRY(kiln_redis_wait(l, POLLOUT, until));
    }
}

/* Reads what is there.  TLS may hold bytes that poll does not see, so reading comes before waiting. */
static kiln_status read_some(const kiln_redis_link *l, const kiln_hiredis *lib, int64_t until) {
    size_t before, now;
    for (;;) {
        (void)kiln_hiredis_unparsed(lib, l->context, &before);
        if (lib->read(l->context) != 0) return failed(l, lib);
        (void)kiln_hiredis_unparsed(lib, l->context, &now);
        if (now > before && kiln_clock_ns() < until) return KILN_OK;
        KILN_TRY(kiln_redis_wait(l, POLLIN, until));
    }
}

static kiln_status take_reply(const kiln_redis_link *l, const kiln_hiredis *lib, int64_t until,
                              kiln_redis_reply *out) {
    bool whole = false;
    void *reply = NULL;
    size_t n;
    while (!reply) {
        KILN_TRY(read_some(l, lib, until));
        const char *p = kiln_hiredis_unparsed(lib, l->context, &n);
        if (!whole) KILN_TRY(check_line(p, n, &whole));
        if (whole && lib->parse(l->context, &reply) != 0) return failed(l, lib);
    }
    *out = kiln_hiredis_reply(lib, reply);
    (void)kiln_hiredis_unparsed(lib, l->context, &n);
    if (!n) return KILN_OK;
    kiln_redis_reply_fini(out);
    return KILN_FAIL(KILN_E_IO, "the server sends more than a reply");
}

void kiln_redis_reply_fini(kiln_redis_reply *r) {
    const kiln_hiredis *lib;
    if (r->held && kiln_hiredis_open(&lib) == KILN_OK) lib->free_reply(r->held);
    *r = (kiln_redis_reply){.kind = KILN_REDIS_NIL};
}

static kiln_status ask(const kiln_redis_link *l, const kiln_hiredis *lib, const kiln_redis_word *words, int n,
                       kiln_redis_reply *out) {
    const char *p[KILN_REDIS_WORDS_MAX];
    size_t nbytes[KILN_REDIS_WORDS_MAX];
    int64_t until = kiln_redis_deadline(l);
    if (n > KILN_REDIS_WORDS_MAX) return KILN_BUG("a command of %d words", n);
    for (int k = 0; k < n; k++) {
        p[k] = words[k].p;
        nbytes[k] = words[k].n;
    }
    if (lib->append(l->context, n, p, nbytes) != 0) return failed(l, lib);
    KILN_TRY(send_all(l, lib, until));
    return take_reply(l, lib, until, out);
}

/* -- the link --------------------------------------------------------------------------------------------------------- */

/* The first word of a server's message: the rest may repeat a password. */
static void first_word(const kiln_redis_reply *r, char word[WORD_MAX]) {
    size_t n = 0;
    while (n < r->n && n < WORD_MAX - 1 && r->p[n] >= 'A' && r->p[n] <= 'Z') n++;
    memcpy(word, r->p, n);
    word[n] = 0;
}

/* A command whose reply must be OK.  what: says what the server refuses otherwise. */
static kiln_status must_ask(const kiln_redis_link *l, const kiln_hiredis *lib, const kiln_redis_word *words,
                            int n, const char *what) {
    kiln_redis_reply reply;
    char word[WORD_MAX] = "";
    KILN_TRY(ask(l, lib, words, n, &reply));
    bool ok = reply.kind == KILN_REDIS_STATUS;
    if (reply.kind == KILN_REDIS_ERROR) first_word(&reply, word);
    kiln_redis_reply_fini(&reply);
    if (ok) return KILN_OK;
    return KILN_FAIL(KILN_E_IO, "the server refuses %s%s%s", what, word[0] ? ": " : "", word);
}

static kiln_redis_word word_of(const char *text) { return (kiln_redis_word){text, strlen(text)}; }

static kiln_status greet(const kiln_redis_link *l, const kiln_hiredis *lib) {
    const kiln_redis_url *u = l->url;
    kiln_redis_word words[3] = {word_of("AUTH")};
    char database[24];
    int n = 1;
    if (u->user[0]) words[n++] = word_of(u->user);
    words[n++] = word_of(u->password);
    if (u->password[0]) KILN_TRY(must_ask(l, lib, words, n, "the user or the password"));
    if (!u->database) return KILN_OK;
    snprintf(database, sizeof database, "%llu", (unsigned long long)u->database);
    words[0] = word_of("SELECT");
    words[1] = word_of(database);
    return must_ask(l, lib, words, 2, "the database");
}

kiln_status kiln_redis_connect(kiln_redis_link *l) {
    const kiln_hiredis *lib;
    held_signal held;
    KILN_TRY(kiln_hiredis_open(&lib));
    kiln_redis_close(l);
    hold_pipe_signal(&held);
    kiln_status st = l->url->is_unix ? connect_unix(l, kiln_redis_deadline(l)) : connect_tcp(l);
    if (st == KILN_OK) st = open_context(l, lib);
    if (st == KILN_OK) st = greet(l, lib);
    if (st != KILN_OK) kiln_redis_close(l);
    release_pipe_signal(&held);
    return st;
}

/* An idle link on which something arrived was closed by the server, or is out of step. */
bool kiln_redis_is_connected(const kiln_redis_link *l) {
    struct pollfd p = {.fd = atomic_load(&l->fd), .events = POLLIN};
    return l->context && p.fd >= 0 && poll(&p, 1, 0) == 0;
}

kiln_status kiln_redis_ask(kiln_redis_link *l, const kiln_redis_word *words, int nwords,
                           kiln_redis_reply *out) {
    const kiln_hiredis *lib;
    held_signal held;
    KILN_TRY(kiln_hiredis_open(&lib));
    hold_pipe_signal(&held);
    kiln_status st = ask(l, lib, words, nwords, out);
    if (st != KILN_OK) kiln_redis_close(l);
    release_pipe_signal(&held);
    return st;
}

void kiln_redis_close(kiln_redis_link *l) {
    const kiln_hiredis *lib;
    kiln_hiredis_context *context = l->context;
    l->context = NULL;
    if (!context) {
        close_fd(l);
    } else if (kiln_hiredis_open(&lib) == KILN_OK) {
        atomic_store(&l->fd, -1);
        lib->free(context); /* closes the descriptor */
    }
}

void kiln_redis_forked(kiln_redis_link *l, bool was_busy) {
    if (!was_busy) {
        kiln_redis_close(l);
        return;
    }
    close_fd(l);
    l->context = NULL;
}
