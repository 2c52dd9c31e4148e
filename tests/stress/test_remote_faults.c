/* test_remote_faults.c - the fleet store beside servers that hang, drip, lie, die or are not there: each costs a count and a little time, and
 * no result, no kernel and no caller depends on it.
 *
 * Most servers of this file are a thread that answers every command with a script. */
#include <poll.h>
#include <sys/un.h>

#include "fleet_cases.h"

/* -- a server that follows a script ----------------------------------------------------------------------------- */

typedef struct scripted {
    const char *answer; /* to every command */
    size_t n;
    bool drips; /* a byte at a time, 30 ms apart */
    bool drops; /* closes the connection after the answer */
    int listener, port;
    atomic_int accepted, asked;
    atomic_bool stop;
    pthread_t thread;
} scripted;

static bool wait_readable(scripted *f, int fd) {
    struct pollfd p = {.fd = fd, .events = POLLIN};
    while (!atomic_load(&f->stop))
        if (poll(&p, 1, 5) > 0) return true;
    return false;
}

static void answer(scripted *f, int fd) {
    size_t step = f->drips ? 1 : f->n;
    for (size_t k = 0; k < f->n && !atomic_load(&f->stop); k += step) {
        if (send(fd, f->answer + k, step, MSG_NOSIGNAL) < 0) return;
        if (f->drips) nap(30);
    }
}

static void *follow_script(void *user) {
    scripted *f = user;
    char command[70000];
    while (wait_readable(f, f->listener)) {
        int fd = accept4(f->listener, NULL, NULL, SOCK_CLOEXEC);
        atomic_fetch_add(&f->accepted, 1);
        while (wait_readable(f, fd) && recv(fd, command, sizeof command, 0) > 0) {
            atomic_fetch_add(&f->asked, 1);
            answer(f, fd);
            if (f->drops) break;
        }
        close(fd);
    }
    return NULL;
}

static void start_script(scripted *f) {
    f->listener = listen_somewhere(&f->port);
    assert_int_equal(pthread_create(&f->thread, NULL, follow_script, f), 0);
}

static void stop_script(scripted *f) {
    atomic_store(&f->stop, true);
    assert_int_equal(pthread_join(f->thread, NULL), 0);
    close(f->listener);
}

static char ours[400];
static int make_key(void **state) {
    if (call_setup(state) != 0) return -1;
    snprintf(ours, sizeof ours, "%s", key_file("our"));
    return 0;
}

static const char *new_folder(void) {
    static int count;
    static char name[40];
    snprintf(name, sizeof name, "folder-%d", ++count);
    heard[0] = 0;
    return name;
}

#define LONG_LINE \
    "-xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"
static const struct script_case {
    const char *name, *answer, *says;
    bool drips, drops;
} scripts[] = {
    {"hangs", "", "no whole answer within 200 ms", false, false},
    {"drips", "$100\r\nxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx", "no whole answer", true,
     false},
    {"drips a line", LONG_LINE, "no whole answer", true, false},
    {"drops at once", "", "the connection failed", false, true},
    {"drops in a reply", "$100\r\nxxxxxxxxxxxx", "the connection failed", false, true},
    {"drops in a line", "$10", "the connection failed", false, true},
    {"announces 10 GB", "$10000000000\r\nxxx", "more than the 16777216 bytes", false, false},
    {"announces 1e40 bytes", "$9999999999999999999999999999999999999999\r\n", "more than the", false, false},
    {"announces one byte too many", "$16777217\r\n", "more than the", false, false},
    {"announces less than nothing", "$-5\r\n", "the connection failed", false, false},
    {"an array of 1e9", "*1000000000\r\n", "begins with byte 0x2a", false, false},
    {"arrays in arrays", "*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n", "begins with", false,
     false},
    {"another protocol", "HTTP/1.1 400 Bad Request\r\n\r\n", "begins with byte 0x48", false, false},
    {"two replies", "$1\r\nx\r\n$1\r\ny\r\n", "more than a reply", false, false},
    {"an error", "-ERR \x1b[31mno\r\n", "the server answers: ERR", false, false},
    {"nothing but zeros", "\0\0\0\0", "begins with byte 0x00", false, false},
};

static scripted script_of(const struct script_case *c) {
    scripted f = {.answer = c->answer, .n = strlen(c->answer), .drips = c->drips, .drops = c->drops};
    if (!f.n && strstr(c->says, "0x00")) f.n = 4;
    return f;
}

/* Longer than a command may take, by what a busy machine adds. */
static int64_t slack_ms(void) { return SANITIZED ? 2000 : 500; }

/* -- what a server's faults cost ---------------------------------------------------------------------------------- */

/* A command ends in time whatever the server does. */
static void commands_end_in_time(void **state) {
    (void)state;
    for (size_t k = 0; k < sizeof scripts / sizeof *scripts; k++) {
        scripted f = script_of(&scripts[k]);
        char at[300];
        kiln_redis_url u;
        kiln_redis_reply r = {.kind = KILN_REDIS_NIL};
        const kiln_redis_word words[] = {{"GET", 3}, {"key", 3}};
        start_script(&f);
        snprintf(at, sizeof at, "redis://127.0.0.1:%d", f.port);
        MUST_OK(kiln_redis_url_parse(at, &u));
        kiln_redis_link l = open_link(&u);
        int64_t from = kiln_clock_ns();
        kiln_status st = kiln_redis_ask(&l, words, 2, &r);
        int64_t ms = (kiln_clock_ns() - from) / 1000000;
        if (ms > 200 + slack_ms()) fail_msg("%s: %d ms", scripts[k].name, (int)ms);
        if (st == KILN_OK && r.kind != KILN_REDIS_ERROR) fail_msg("%s is accepted", scripts[k].name);
        kiln_redis_reply_fini(&r);
        kiln_redis_close(&l);
        stop_script(&f);
    }
}

/* A server that fails is asked a few times and then left alone; kernels are built as ever. */
static void faults_cost_a_count(void **state) {
    (void)state;
    for (size_t k = 0; k < sizeof scripts / sizeof *scripts; k++) {
        scripted f = script_of(&scripts[k]);
        char at[300];
        bool is_slow = strstr(scripts[k].says, "no whole answer") !=
                       NULL; /* the others get time for a busy machine */
        start_script(&f);
        snprintf(at, sizeof at, "redis://127.0.0.1:%d/?timeout=%d", f.port, is_slow ? 200 : 3000);
        kiln_ctx *ctx = open_fleet(KILN_MODE_SYNC, new_folder(), at, ours);
        assert_compiled(ctx, "test::one", 7);
        assert_compiled(ctx, "test::near", 8);
        kiln_stats s = stats_of(ctx);
        if (!strstr(heard, scripts[k].says)) fail_msg("%s: %s", scripts[k].name, heard);
        assert_says(heard, "left alone for 10 s");
        assert_int_equal(s.compiles, 2);
        assert_int_equal(s.stored, 2);
        assert_int_equal(s.store_errors, 3);
        assert_int_equal(s.remote_hits + s.remote_stored, 0);
        assert_true(atomic_load(&f.asked) <= 3);
        kiln_close(ctx);
        stop_script(&f);
    }
}

static void nobody_listens(void **state) {
    (void)state;
    int port;
    char at[300];
    const char *urls[] = {at, "unix:///nowhere/redis.sock", "redis://a..b"};
    close(listen_somewhere(&port));
    snprintf(at, sizeof at, "redis://127.0.0.1:%d", port);
    for (int k = 0; k < 3; k++) {
        kiln_ctx *ctx = open_fleet(KILN_MODE_SYNC, new_folder(), urls[k], ours);
        assert_compiled(ctx, "test::one", 7);
        assert_int_equal(stats_of(ctx).store_errors, 3);
        assert_says(heard, k < 2 ? "cannot connect" : "cannot look up the host");
        assert_says(doctor_of(ctx), "!kernels in the fleet store: not used now");
        kiln_close(ctx);
    }
}

/* Answers that are no answer to the question: a status to GET; a number to SET. */
static void other_kinds_are_no_entries(void **state) {
    (void)state;
    static const char *const answers[] = {"+OK\r\n", ":7\r\n", "$0\r\n\r\n", "$5\r\nhello\r\n"};
    for (int k = 0; k < 4; k++) {
        scripted f = {.answer = answers[k], .n = strlen(answers[k])};
        char at[300];
        start_script(&f);
        snprintf(at, sizeof at, "redis://127.0.0.1:%d/?timeout=3000", f.port);
        kiln_ctx *ctx = open_fleet(KILN_MODE_SYNC, new_folder(), at, ours);
        assert_compiled(ctx, "test::one", 7);
        kiln_stats s = stats_of(ctx);
        assert_int_equal(s.compiles, 1);
        assert_int_equal(s.remote_hits, 0);
        assert_true(s.store_errors + s.corrupt_entries > 0);
        kiln_close(ctx);
        stop_script(&f);
    }
}

/* A write to a socket whose other end is closed is an error, and no signal. */
static void a_closed_socket_raises_no_signal(void **state) {
    (void)state;
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    char text[300];
    kiln_redis_url u;
    kiln_redis_reply r;
    sigset_t pending;
    snprintf(at.sun_path, sizeof at.sun_path, "%s/closed.sock", scratch);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0 && bind(fd, (struct sockaddr *)&at, sizeof at) == 0 && listen(fd, 1) == 0);
    snprintf(text, sizeof text, "unix://%s", at.sun_path);
    MUST_OK(kiln_redis_url_parse(text, &u));
    kiln_redis_link l = open_link(&u);
    assert_true(kiln_redis_is_connected(&l));
    close(accept(fd, NULL, NULL));
    close(fd);
    assert_false(kiln_redis_is_connected(&l));
    assert_int_equal(kiln_redis_ask(&l, (const kiln_redis_word[]){{"PING", 4}}, 1, &r), KILN_E_IO);
    assert_true(sigpending(&pending) == 0 && !sigismember(&pending, SIGPIPE));
}

/* -- callers do not wait ------------------------------------------------------------------------------------------------ */

static void hang(scripted *f, char at[300]) {
    *f = (scripted){.answer = "", .n = 0};
    start_script(f);
    snprintf(at, 300, "redis://127.0.0.1:%d/?timeout=10000", f->port);
}

/* The disk is asked first, and the server by one of the next calls. */
static void call_until_asked(kiln_ctx *ctx, scripted *f) {
    for (int k = 0; k < 5000 && atomic_load(&f->asked) == 0; k++) {
        assert_string_equal(call_row(ctx, "test::one", 7, true), "interp");
        nap(1);
    }
    assert_true(atomic_load(&f->asked) > 0);
}

/* While the background waits for the server, calls are interpreted, and the context closes at once. */
static void nobody_waits_for_a_server(void **state) {
    (void)state;
    scripted f;
    char at[300];
    hang(&f, at);
    kiln_ctx *ctx = open_fleet(KILN_MODE_TIERED, new_folder(), at, ours);
    call_until_asked(ctx, &f);
    int64_t from = kiln_clock_ns();
    for (int k = 0; k < 100; k++) assert_string_equal(call_row(ctx, "test::one", 7, true), "interp");
    kiln_close(ctx);
    assert_true(kiln_clock_ns() - from < INT64_C(1000000) * (200 + slack_ms()));
    stop_script(&f);
}

/* A fork in the middle of a command: the child closes its copy of the connection, and goes on. */
static void a_fork_in_the_middle_of_a_command(void **state) {
    (void)state;
    scripted f;
    char at[300];
    int nfds = count_fds();
    hang(&f, at);
    kiln_ctx *ctx = open_fleet(KILN_MODE_TIERED, new_folder(), at, ours);
    call_until_asked(ctx, &f);
    int with_server = count_fds();
    pid_t child = fork();
    if (child == 0) {
        bool closed = count_fds() == with_server - 1;
        (void)call_row(ctx, "test::one", 7, false);
        kiln_close(ctx);
        _exit(closed ? 0 : 1);
    }
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    kiln_close(ctx);
    stop_script(&f);
    assert_int_equal(count_fds(), nfds);
}

/* -- a server that dies ---------------------------------------------------------------------------------------------------- */

static void a_server_dies_and_comes_back(void **state) {
    (void)state;
    server s;
    char at[300];
    start_server(&s, "mortal");
    url_of(&s, "?timeout=3000&rest=1", at);
    kiln_ctx *ctx = open_fleet(KILN_MODE_SYNC, new_folder(), at, ours);
    assert_compiled(ctx, "test::one", 7);
    assert_int_equal(stats_of(ctx).remote_stored, 1);
    stop_server(&s);
    assert_compiled(ctx, "test::near", 8);
    assert_int_equal(stats_of(ctx).store_errors, 3);
    start_again(&s);
    nap(1100);
    assert_compiled(ctx, "test::far", 9);
    assert_int_equal(stats_of(ctx).remote_stored, 2);
    assert_int_equal(stats_of(ctx).store_errors, 3);
    /* A restart between two commands is no failure: the idle connection is seen to be closed. */
    stop_server(&s);
    start_again(&s);
    kiln_store *store = ctx->stores.at[ctx->stores.n - 1];
    kiln_digest d = {1, 2};
    assert_int_equal(store->claim(store, &d), KILN_CLAIM_OURS);
    store->unclaim(store, &d);
    assert_int_equal(stats_of(ctx).store_errors, 3);
    assert_int_equal(stats_of(ctx).compiles, 3);
    kiln_close(ctx);
    stop_server(&s);
}

/* A server that may hold nothing more answers SET with an error; kernels it has are still given. */
static void a_full_server_is_an_error_of_put_alone(void **state) {
    (void)state;
    server s;
    char at[300];
    start_server(&s, "full");
    url_of(&s, "?timeout=3000", at);
    kiln_ctx *ctx = open_fleet(KILN_MODE_SYNC, new_folder(), at, ours);
    assert_compiled(ctx, "test::one", 7);
    kiln_close(ctx);
    assert_string_equal(REDIS(&s, "CONFIG", "SET", "maxmemory", "1"), "OK");
    ctx = open_fleet(KILN_MODE_SYNC, new_folder(), at, ours);
    assert_compiled(ctx, "test::one", 7);
    assert_compiled(ctx, "test::near", 8);
    assert_int_equal(stats_of(ctx).remote_hits, 1);
    assert_int_equal(stats_of(ctx).compiles, 1);
    assert_int_equal(stats_of(ctx).remote_stored, 0);
    assert_true(stats_of(ctx).store_errors > 0);
    assert_says(heard, "OOM");
    kiln_close(ctx);
    stop_server(&s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(commands_end_in_time),
        cmocka_unit_test(faults_cost_a_count),
        cmocka_unit_test(nobody_listens),
        cmocka_unit_test(other_kinds_are_no_entries),
        cmocka_unit_test(a_closed_socket_raises_no_signal),
        cmocka_unit_test(nobody_waits_for_a_server),
        cmocka_unit_test(a_fork_in_the_middle_of_a_command),
        cmocka_unit_test(a_server_dies_and_comes_back),
        cmocka_unit_test(a_full_server_is_an_error_of_put_alone),
    };
    return cmocka_run_group_tests_name("remote_faults", tests, make_key, call_teardown);
}
