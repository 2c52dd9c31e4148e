/* test_remote.c - the fleet store with a real Redis server: who is served, by what settings, and whose entries are used.
 *
 * Servers run on the loopback device and end with the test.  test_remote_builds.c says who
 * builds, and test_remote_faults.c has servers that misbehave. */
#include "fleet_cases.h"

/* -- who is served --------------------------------------------------------------------------------------------- */

/* The second context has an empty folder and compiles nothing; what it gets it keeps in memory and on disk. */
static void other_machines_are_served(void **state) {
    (void)state;
    kiln_ctx *ctx = open_sync(0, url);
    assert_compiled(ctx, "test::one", 7);
    assert_int_equal(stats_of(ctx).compiles, 1);
    assert_int_equal(stats_of(ctx).remote_stored, 1);
    assert_says(doctor_of(ctx), "signed by the key of KILN_KEY_FILE");
    kiln_close(ctx);
    assert_string_equal(REDIS(&redis_server, "DBSIZE"), "1"); /* the lease is gone */

    ctx = open_sync(1, url);
    assert_compiled(ctx, "test::one", 7);
    assert_compiled(ctx, "test::same", 7);
    kiln_stats s = stats_of(ctx);
    assert_int_equal(s.compiles, 0);
    assert_int_equal(s.remote_hits, 1);
    assert_int_equal(s.memory_hits, 1);
    assert_int_equal(s.stored, 1);
    assert_int_equal(s.remote_stored, 0);
    assert_int_equal(s.store_errors, 0);
    kiln_close(ctx);

    ctx = open_sync(1, url);
    assert_compiled(ctx, "test::one", 7);
    assert_int_equal(stats_of(ctx).disk_hits, 1);
    assert_int_equal(stats_of(ctx).remote_hits, 0);
    kiln_close(ctx);
}

/* The source of a kernel stays on the machine that built it. */
static void entries_hold_no_source(void **state) {
    (void)state;
    fill_server(false);
    char name[200];
    snprintf(name, sizeof name, "%s", key_at(1));
    int length = atoi(REDIS(&redis_server, "STRLEN", name));
    int announced = atoi(
        REDIS(&redis_server, "EVAL",
              "local e = redis.call('get', KEYS[1]) local n = struct.unpack('<I8', e, 113) "
              "for k = 0, 6 do n = n + struct.unpack('<I4', e, 129 + 4 * k) end return n + 256",
              "1", name));
    assert_int_equal(length, announced);
}

/* In the background, at the store's price: far sooner than a build would pay, and no call waits. */
static void calls_do_not_wait(void **state) {
    (void)state;
    fill_server(false);
    kiln_ctx *ctx = open_fleet(KILN_MODE_TIERED, folders[0], url, key_file("our"));
    int calls = 0;
    while (stats_of(ctx).remote_hits == 0 && calls < 60) {
        assert_string_equal(call_row(ctx, "test::one", 7, false), "interp");
        MUST_OK(kiln_wait_idle(ctx));
        calls++;
    }
    assert_true(calls < 60);
    assert_compiled(ctx, "test::one", 7);
    assert_int_equal(stats_of(ctx).compiles, 0);
    kiln_close(ctx);
}

/* -- settings ------------------------------------------------------------------------------------------------------ */

/* Builds a kernel with this URL, and gets it from there in another folder. */
static void must_serve(const char *at) {
    for (int k = 0; k < 2; k++) {
        kiln_ctx *ctx = open_sync(k, at);
        assert_compiled(ctx, "test::one", 7);
        assert_int_equal(stats_of(ctx).remote_stored, !k);
        assert_int_equal(stats_of(ctx).remote_hits, k);
        assert_int_equal(stats_of(ctx).store_errors, 0);
        kiln_close(ctx);
    }
}

static void entries_expire(void **state) {
    (void)state;
    static const struct {
        const char *text;
        int least, most;
    } cases[] = {{"?timeout=3000", 2591990, 2592000},
                 {"?timeout=3000&ttl=100", 90, 100},
                 {"?ttl=0&timeout=3000", -1, -1}};
    for (int k = 0; k < 3; k++) {
        char at[300], name[200];
        assert_int_equal(empty(NULL), 0);
        url_of(&redis_server, cases[k].text, at);
        kiln_ctx *ctx = open_sync(0, at);
        assert_compiled(ctx, "test::one", 7);
        kiln_close(ctx);
        snprintf(name, sizeof name, "%s", key_at(1));
        int ttl = atoi(REDIS(&redis_server, "TTL", name));
        assert_in_range(ttl + 1, cases[k].least + 1, cases[k].most + 1);
    }
}

static void prefix_and_database_keep_fleets_apart(void **state) {
    (void)state;
    char at[300];
    url_of(&redis_server, "?timeout=3000&prefix=our%20fleet/", at);
    must_serve(at);
    assert_int_equal(strncmp(key_at(1), "our fleet/", 10), 0);
    assert_int_equal(empty(NULL), 0);
    url_of(&redis_server, "/3?timeout=3000", at);
    must_serve(at);
    assert_string_equal(REDIS(&redis_server, "DBSIZE"), "0");
    kiln_ctx *ctx = open_sync(2, url); /* the first database */
    assert_compiled(ctx, "test::one", 7);
    assert_int_equal(stats_of(ctx).compiles, 1);
    kiln_close(ctx);
}

static void a_socket_is_served(void **state) {
    (void)state;
    char at[300];
    snprintf(at, sizeof at, "unix://%s?timeout=3000&db=2", redis_server.socket);
    must_serve(at);
    assert_string_equal(REDIS(&redis_server, "DBSIZE"), "0");
}

/* The password %s of a user, or of nobody. */
static void users_and_passwords(void **state) {
    (void)state;
    char at[300];
    assert_string_equal(REDIS(&redis_server, "ACL", "SETUSER", "kiln", "on", ">hun:t@er2", "+@all"), "OK");
    assert_string_equal(REDIS(&redis_server, "ACL", "SETUSER", "kiln", "~*"), "OK");
    snprintf(at, sizeof at, "redis://kiln:hun:t%%40er2@127.0.0.1:%d?timeout=3000", redis_server.port);
    must_serve(at);
    for (int k = 0; k < 3; k++) {
        static const char *const wrong[] = {"kiln:hunter3@", "nobody:hunter3@", ":hunter3@"};
        assert_int_equal(empty(NULL), 0);
        snprintf(at, sizeof at, "redis://%s127.0.0.1:%d?timeout=3000", wrong[k], redis_server.port);
        kiln_ctx *ctx = open_sync(0, at);
        assert_compiled(ctx, "test::one", 7);
        assert_int_equal(stats_of(ctx).compiles, 1);
        assert_int_equal(stats_of(ctx).remote_stored, 0);
        assert_int_equal(stats_of(ctx).store_errors, 3);
        assert_says(heard, "refuses the user or the password");
        assert_says(doctor_of(ctx), "!kernels in the fleet store: not used");
        assert_hides(doctor_of(ctx), "hunter3");
        assert_hides(heard, "hunter3");
        kiln_close(ctx);
    }
}

#define LONG "hunter2hunter2hunter2hunter2hunter2hunter2hunter2"
static void malformed_urls_are_errors(void **state) {
    (void)state;
    static const char *const wrong[] = {
        "http://x",
        "redis:/x",
        "redis://",
        "redis://:hunter2@",
        "redis://:hunter2@host:port",
        "redis://:hunter2@host:0",
        "redis://:hunter2@host:65536",
        "redis://host/hunter2",
        "redis://host/-1",
        "redis://host?hunter2=3",
        "redis://host?ttl=hunter2",
        "redis://host?ttl",
        "redis://host?unsigned=hunter2",
        "redis://kiln:hunter2%@host",
        "redis://kiln:hunter2%4@host",
        "redis://kiln:hunter2%00@host",
        "redis://hunter2@host",
        "redis://kiln:hunter2/@host:x",
        "redis://[::1:hunter2",
        "redis://[::1]hunter2",
        "redis://host:00000080",
        "unix://hunter2",
        "unix:///x?db=hunter2",
        "redis://host?prefix=" LONG LONG LONG,
    };
    for (size_t k = 0; k < sizeof wrong / sizeof *wrong; k++) {
        kiln_config config = {.size = sizeof config, .redis_url = wrong[k]};
        kiln_ctx *ctx = NULL;
        kiln_status st = kiln_open(&config, &ctx);
        if (st != KILN_E_ARG) fail_msg("%s: %s", wrong[k], kiln_status_name(st));
        assert_null(ctx);
        assert_says(kiln_last_error(), "KILN_REDIS_URL");
        assert_hides(kiln_last_error(), "hunter2");
    }
}

static void urls_are_read(void **state) {
    (void)state;
    kiln_redis_url u;
    MUST_OK(kiln_redis_url_parse("redis://a%2f@b/c:d/e@f@[::1]:70/8?prefix=%3a&unsigned=1&rest=2&ca=/x", &u));
    assert_string_equal(u.user, "a/@b/c");
    assert_string_equal(u.password, "d/e@f");
    assert_string_equal(u.host, "::1");
    assert_string_equal(u.port, "70");
    assert_int_equal(u.database, 8);
    assert_string_equal(u.prefix, ":");
    assert_true(u.allows_unsigned && !u.is_tls && !u.is_unix);
    MUST_OK(kiln_redis_url_parse("rediss://h/", &u));
    assert_true(u.is_tls && u.database == 0 && u.ttl_s == 2592000 && u.timeout_ms == 200);
    assert_string_equal(u.port, "6379");
    assert_string_equal(u.prefix, "kiln:");
}

/* With a library that cannot speak TLS, and a server that does not: a clear word, and kernels as ever. */
static void tls_fails_clearly(void **state) {
    (void)state;
    char at[300];
    snprintf(at, sizeof at, "rediss://127.0.0.1:%d", redis_server.port);
    kiln_ctx *ctx = open_sync(0, at);
    assert_compiled(ctx, "test::one", 7);
    assert_true(stats_of(ctx).store_errors > 0);
    const kiln_hiredis_tls *tls;
    bool can = kiln_hiredis_open_tls(&tls) == KILN_OK;
    assert_says(heard, can ? "store: remote: " : "rediss:// needs libhiredis 1.x with libhiredis_ssl");
    assert_says(doctor_of(ctx), "!kernels in the fleet store: not used now: rediss://127.0.0.1");
    kiln_close(ctx);
}

/* -- whose entries are used ---------------------------------------------------------------------------------------------- */

static void without_a_key_the_store_is_off(void **state) {
    (void)state;
    kiln_ctx *ctx = open_fleet(KILN_MODE_SYNC, folders[0], url, NULL);
    assert_compiled(ctx, "test::one", 7);
    assert_int_equal(stats_of(ctx).compiles, 1);
    assert_says(doctor_of(ctx), "there is no key: set KILN_KEY_FILE");
    kiln_close(ctx);
    assert_string_equal(REDIS(&redis_server, "DBSIZE"), "0");
}

static void unsigned_entries_must_be_allowed(void **state) {
    (void)state;
    char at[300];
    url_of(&redis_server, "?timeout=3000&unsigned=1", at);
    for (int k = 0; k < 2; k++) {
        kiln_ctx *ctx = open_fleet(KILN_MODE_SYNC, folders[k], at, NULL);
        assert_compiled(ctx, "test::one", 7);
        assert_int_equal(stats_of(ctx).remote_hits, k);
        assert_says(doctor_of(ctx), "unsigned entries");
        kiln_close(ctx);
    }
    kiln_ctx *ctx = open_sync(2, at); /* with a key, its signature is asked for */
    assert_compiled(ctx, "test::one", 7);
    assert_int_equal(stats_of(ctx).remote_hits, 0);
    assert_int_equal(stats_of(ctx).compiles, 1);
    assert_true(stats_of(ctx).unsigned_entries > 0);
    kiln_close(ctx);
    assert_int_equal(empty(NULL), 0);
}

static void signatures_of_others_are_refused(void **state) {
    (void)state;
    fill_server(false);
    for (int k = 0; k < 2; k++) {
        kiln_ctx *ctx = open_fleet(KILN_MODE_SYNC, folders[k], url, key_file("another"));
        assert_compiled(ctx, "test::one", 7);
        assert_int_equal(stats_of(ctx).remote_hits, k); /* the build has replaced the entry */
        assert_int_equal(stats_of(ctx).compiles, !k);
        assert_int_equal(stats_of(ctx).unsigned_entries > 0, !k);
        kiln_close(ctx);
    }
}

/* Changes what the server holds of test::one and test::near, by a script.  Both must be built anew, and right. */
static void must_refuse(const char *script) {
    assert_int_equal(empty(NULL), 0);
    fill_server(true);
    char all[600];
    snprintf(
        all, sizeof all,
        "local k = redis.call('keys', '*') local a = redis.call('get', k[1]) local b = redis.call('get', k[2]) "
        "local function set(x, y) redis.call('set', k[1], x) redis.call('set', k[2], y) end %s return 'done'",
        script);
    assert_string_equal(REDIS(&redis_server, "EVAL", all, "0"), "done");
    kiln_ctx *ctx = open_sync(0, url);
    assert_compiled(ctx, "test::one", 7);
    assert_compiled(ctx, "test::near", 8);
    kiln_stats s = stats_of(ctx);
    assert_int_equal(s.remote_hits, 0);
    assert_int_equal(s.compiles, 2);
    assert_int_equal(s.remote_stored, 2);
    assert_true(s.corrupt_entries + s.unsigned_entries + s.stale_entries + s.store_errors >= 2);
    kiln_close(ctx);
    ctx = open_sync(1, url); /* by now the right ones are there again */
    assert_compiled(ctx, "test::one", 7);
    assert_compiled(ctx, "test::near", 8);
    assert_int_equal(stats_of(ctx).remote_hits, 2);
    kiln_close(ctx);
}

static void entries_at_wrong_places_are_refused(void **state) {
    (void)state;
    must_refuse("set(b, a)"); /* both valid and signed, swapped */
    /* One replayed under the digest of the other: with the digest in its head, too, and then the checksum is wrong. */
    must_refuse("set(a:sub(1, 32)..b:sub(33), b:sub(1, 32)..a:sub(33))");
    must_refuse("set(a:sub(1, 32)..b:sub(33, 48)..a:sub(49), b:sub(1, 32)..a:sub(33, 48)..b:sub(49))");
}

static void damaged_entries_are_refused(void **state) {
    (void)state;
    must_refuse("set(a:sub(1, -2)..'x', b:sub(1, 300)..'x'..b:sub(302))");
    must_refuse("set(a:sub(1, -2), b..'x')");
    must_refuse("set('', 'x')");
    must_refuse("set(a:sub(1, 255), b:sub(1, 256))");
    must_refuse("set('KILNKERN'..string.rep('\\255', 300), string.rep('\\0', 20000))");
    /* Other types than bytes are errors of the server. */
    must_refuse(
        "redis.call('del', k[1], k[2]) redis.call('lpush', k[1], a) redis.call('hset', k[2], 'x', b)");
}

/* The server's n-th entry, which the caller frees. */
static char *take_entry(int n, size_t *nbytes) {
    kiln_redis_url u;
    kiln_redis_reply r;
    MUST_OK(kiln_redis_url_parse(url, &u));
    kiln_redis_link l = open_link(&u);
    const char *name = key_at(n);
    MUST_OK(kiln_redis_ask(&l, (const kiln_redis_word[]){{"GET", 3}, {name, strlen(name)}}, 2, &r));
    assert_true(r.kind == KILN_REDIS_BYTES && r.n > KILN_STORED_HEAD);
    char *p = memcpy(malloc(r.n), r.p, r.n);
    *nbytes = r.n;
    kiln_redis_reply_fini(&r);
    kiln_redis_close(&l);
    return p;
}

/* Puts bytes at the place of the server's n-th entry, with the checksum that fits them. */
static void put_forgery(int n, char *p, size_t nbytes) {
    enum { CHECK = 16, CHECKED = 32 }; /* offsets in the head */
    kiln_redis_url u;
    kiln_redis_reply r;
    kiln_digest check = kiln_hash128(p + CHECKED, nbytes - CHECKED);
    memcpy(p + CHECK, &check, sizeof check);
    MUST_OK(kiln_redis_url_parse(url, &u));
    kiln_redis_link l = open_link(&u);
    const char *name = key_at(n);
    MUST_OK(
        kiln_redis_ask(&l, (const kiln_redis_word[]){{"SET", 3}, {name, strlen(name)}, {p, nbytes}}, 3, &r));
    kiln_redis_reply_fini(&r);
    kiln_redis_close(&l);
}

/* Who can write to the server, and knows the format, but has no key: everything fits but the signature. */
static void forgeries_are_refused(void **state) {
    (void)state;
    enum { DIGEST = 32, MAC = 48, KEY_ID = 80, WORK = 88, IMAGE_END = -1, OTHER_DIGEST = -2 };
    static const int at[] = {MAC, KEY_ID, WORK, IMAGE_END, OTHER_DIGEST};
    for (size_t k = 0; k < sizeof at / sizeof *at; k++) {
        size_t n, nother;
        assert_int_equal(empty(NULL), 0);
        fill_server(true);
        char *p = take_entry(1, &n), *other = take_entry(2, &nother);
        if (at[k] == OTHER_DIGEST) memcpy(other + DIGEST, p + DIGEST, sizeof(kiln_digest));
        if (at[k] >= IMAGE_END) other[at[k] == IMAGE_END ? nother - 1 : (size_t)at[k]] ^= 1;
        put_forgery(at[k] == OTHER_DIGEST ? 1 : 2, other, nother);
        kiln_ctx *ctx = open_sync(0, url);
        assert_compiled(ctx, "test::one", 7);
        assert_compiled(ctx, "test::near", 8);
        kiln_stats s = stats_of(ctx);
        assert_int_equal(s.compiles, 1);
        assert_int_equal(s.remote_hits, 1);
        assert_true(s.unsigned_entries > 0);
        assert_int_equal(s.corrupt_entries, 0);
        kiln_close(ctx);
        free(p);
        free(other);
    }
}

/* -- no memory ------------------------------------------------------------------------------------------------------ */

/* Opening a context fails cleanly, and an entry for which there is no memory is a failure of that question alone. */
static void memory_may_run_out(void **state) {
    (void)state;
    kiln_config config = {.size = sizeof config,
                          .redis_url = url,
                          .key_file = key_file("our"),
                          .cache = "disk",
                          .cache_dir = scratch};
    kiln_ctx *ctx = NULL;
    kiln_status st = KILN_E_NOMEM;
    for (long n = 1; st != KILN_OK; n++) {
        assert_int_equal(st, KILN_E_NOMEM);
        kiln_alloc_fail_after(n);
        st = kiln_open(&config, &ctx);
        kiln_alloc_fail_after(0);
    }
    fill_server(false);
    kiln_digest d;
    kiln_blob b = {0};
    bool found = false;
    assert_true(kiln_digest_parse(key_at(1) + strlen("kiln:"), &d));
    kiln_store *s = remote_of(ctx);
    kiln_alloc_fail_after(1);
    assert_int_equal(s->get(s, &d, &b, &found), KILN_E_NOMEM);
    kiln_alloc_fail_after(0);
    assert_false(found);
    MUST_OK(s->get(s, &d, &b, &found));
    assert_true(found);
    kiln_blob_fini(&b);
    kiln_close(ctx);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(other_machines_are_served),
        TEST(entries_hold_no_source),
        TEST(calls_do_not_wait),
        TEST(entries_expire),
        TEST(prefix_and_database_keep_fleets_apart),
        TEST(a_socket_is_served),
        TEST(users_and_passwords),
        TEST(malformed_urls_are_errors),
        TEST(urls_are_read),
        TEST(tls_fails_clearly),
        TEST(without_a_key_the_store_is_off),
        TEST(unsigned_entries_must_be_allowed),
        TEST(signatures_of_others_are_refused),
        TEST(entries_at_wrong_places_are_refused),
        TEST(damaged_entries_are_refused),
        TEST(forgeries_are_refused),
        TEST(memory_may_run_out),
    };
    return cmocka_run_group_tests_name("remote", tests, set_up, tear_down);
}
