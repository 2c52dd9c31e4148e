/* fleet_cases.h - what tests of the fleet store share: a real Redis server that ends with the test, contexts that use it, and rows.
 *
 * Each helper fails the running test by itself. */
#ifndef KILN_TEST_FLEET_CASES_H
#define KILN_TEST_FLEET_CASES_H
#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>
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

/* -- contexts --------------------------------------------------------------------------------------------------- */

static inline const char *key_file(const char *name) {
    static char path[400];
    snprintf(path, sizeof path, "%s/%s.key", scratch, name);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    assert_true(fd >= 0 && dprintf(fd, "%s is a key of the fleet", name) > 0);
    close(fd);
    return path;
}

static const char fleet_rows[] =
    "map test::one(Tensor a) -> Tensor : promote(a) takes int = a * a + 7\n"
    "map test::same(Tensor other) -> Tensor : promote(other) takes int = other * other + 7\n"
    "map test::near(Tensor a) -> Tensor : promote(a) takes int = a * a + 8\n"
    "map test::far(Tensor a) -> Tensor : promote(a) takes int = a * a + 9\n";

/* What contexts say to their logs. */
static char heard[20000];
static inline void hear(void *user, int level, const char *topic, const char *text) {
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    (void)user, (void)level;
    pthread_mutex_lock(&lock);
    size_t n = strlen(heard);
    snprintf(heard + n, sizeof heard - n, "%s: %s\n", topic, text);
    pthread_mutex_unlock(&lock);
}

/* A context with its own cache folder of that name. */
static inline kiln_ctx *open_fleet(kiln_mode mode, const char *folder, const char *url, const char *key) {
    char path[400];
    kiln_ctx *ctx;
    snprintf(path, sizeof path, "%s/%s", scratch, folder);
    ctx = open_with((kiln_config){
        .mode = mode, .cache = "disk", .cache_dir = path, .redis_url = url, .key_file = key, .log = hear});
    MUST_OK(kiln_ops_load(ctx, fleet_rows, sizeof fleet_rows - 1));
    return ctx;
}

/* Calls an operator on 1, 2 and -3; the results must be the squares plus `more`.  Returns the tier. */
static inline const char *call_row(kiln_ctx *ctx, const char *name, int more, bool hot) {
    kiln_tensor *a = I32(SIZES(3), 1, 2, -3), *out = NULL;
    if (hot) make_hot(ctx, op_of(ctx, name), ARGS(TEN(a)));
    MUST_OK(kiln_call(ctx, op_of(ctx, name), ARGS(TEN(a)), &out, 1));
    HOLDS_I32(out, SIZES(3), 1 + more, 4 + more, 9 + more);
    drop_args(ARGS(TEN(a), TEN(out)));
    return kiln_last_tier();
}

static inline void assert_compiled(kiln_ctx *ctx, const char *name, int more) {
    assert_string_equal(call_row(ctx, name, more, false), "compiled");
}

/* The text is static. */
static inline const char *doctor_of(kiln_ctx *ctx) {
    static char text[2000];
    kiln_sb out;
    kiln_sb_init(&out);
    kiln_stores_doctor(&ctx->stores, &out);
    snprintf(text, sizeof text, "%s", out.p ? out.p : "");
    kiln_sb_fini(&out);
    return text;
}

static inline void assert_says(const char *text, const char *part) {
    if (!strstr(text, part)) fail_msg("'%s' lacks '%s'", text, part);
}

static inline void assert_hides(const char *text, const char *part) {
    if (strstr(text, part)) fail_msg("'%s' tells '%s'", text, part);
}
#endif
