/* redis_server.h - a real Redis server for a test: it runs on the loopback device and in the scratch folder, and ends with the test.
 *
 * Each helper fails the running test by itself. */
#ifndef KILN_TEST_REDIS_SERVER_H
#define KILN_TEST_REDIS_SERVER_H
#include <arpa/inet.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>

#include "store/redis_link.h"
#include "tier_cases.h"

/* -- a server ----------------------------------------------------------------------------------------------- */

typedef struct server {
    pid_t process;
    int port;
    char socket[200];
} server;

static atomic_bool never;

/* A listening socket of the loopback device, at a port that was free. */
static inline int listen_somewhere(int *port) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof at;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0 && bind(fd, (struct sockaddr *)&at, n) == 0 && listen(fd, 16) == 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&at, &n), 0);
    *port = ntohs(at.sin_port);
    return fd;
}

static inline void exec_server(const server *s) {
    char port[12];
    snprintf(port, sizeof port, "%d", s->port);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    int log = open(in_scratch("redis.log"), O_WRONLY | O_CREAT | O_APPEND, 0600);
    if (log >= 0) dup2(log, 1), dup2(log, 2);
    execlp("redis-server", "redis-server", "--port", port, "--bind", "127.0.0.1", "--unixsocket", s->socket,
           "--dir", scratch, "--save", "", "--appendonly", "no", (char *)NULL);
    _exit(127);
}

/* A link of the test's own, for up to 5 s: a server may just be starting. */
static inline kiln_redis_link open_link(const kiln_redis_url *url) {
    kiln_redis_link l;
    kiln_redis_link_init(&l, url, &never);
    kiln_status st = KILN_E_IO;
    for (int k = 0; k < 500 && st != KILN_OK; k++) {
        if (k) nap(10);
        st = kiln_redis_connect(&l);
    }
    MUST_OK(st);
    return l;
}

static inline void url_of(const server *s, const char *more, char url[300]) {
    snprintf(url, 300, "redis://127.0.0.1:%d%s", s->port, more);
}

/* Asks the server one command of up to 6 words.  The answer's text is static; a number is printed, and nil is "nil". */
static inline const char *redis(const server *s, const char *password, const char *const *words, int n) {
    static char out[300];
    char text[300];
    kiln_redis_url url;
    kiln_redis_reply r;
    kiln_redis_word w[KILN_REDIS_WORDS_MAX];
    snprintf(text, sizeof text, "redis://127.0.0.1:%d/?timeout=5000%s%s", s->port,
             password ? "&password=" : "", password ? password : "");
    MUST_OK(kiln_redis_url_parse(text, &url));
    kiln_redis_link l = open_link(&url);
    for (int k = 0; k < n; k++) w[k] = (kiln_redis_word){words[k], strlen(words[k])};
    MUST_OK(kiln_redis_ask(&l, w, n, &r));
    snprintf(out, sizeof out, "%.*s", (int)r.n, r.p ? r.p : "");
    if (r.kind == KILN_REDIS_NUMBER) snprintf(out, sizeof out, "%lld", r.number);
    if (r.kind == KILN_REDIS_NIL) snprintf(out, sizeof out, "nil");
    kiln_redis_reply_fini(&r);
    kiln_redis_close(&l);
    return out;
}
#define REDIS(s, ...)                                    \
    redis((s), NULL, (const char *const[]){__VA_ARGS__}, \
          sizeof((const char *const[]){__VA_ARGS__}) / sizeof(char *))

/* Starts a server at s->port. */
static inline void start_again(server *s) {
    s->process = fork();
    if (s->process == 0) exec_server(s);
    assert_true(s->process > 0);
    assert_string_equal(REDIS(s, "PING"), "PONG");
}

static inline void start_server(server *s, const char *name) {
    close(listen_somewhere(&s->port));
    snprintf(s->socket, sizeof s->socket, "%s/%s.sock", scratch, name);
    start_again(s);
}

static inline void stop_server(server *s) {
    int status;
    kill(s->process, SIGKILL);
    assert_int_equal(waitpid(s->process, &status, 0), s->process);
}
#endif
