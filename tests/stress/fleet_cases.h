/* fleet_cases.h - what tests of the fleet store share: contexts that use a server, their rows, what they say, and a server for all tests.
 *
 * Each helper fails the running test by itself. */
#ifndef KILN_TEST_FLEET_CASES_H
#define KILN_TEST_FLEET_CASES_H
#include "redis_server.h"

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
/* -- a server for all tests of a program, emptied before each --------------------------------------------------- */

static server redis_server;
static char url[300]; /* of it, with time for a busy machine */

static inline int set_up(void **state) {
    if (call_setup(state) != 0) return -1;
    start_server(&redis_server, "redis");
    url_of(&redis_server, "?timeout=3000", url);
    return 0;
}

static inline int tear_down(void **state) {
    stop_server(&redis_server);
    return call_teardown(state);
}

/* Before each test: an empty server, and folders that no test has used. */
static char folders[3][40];
static inline int empty(void **state) {
    static int count;
    (void)state;
    heard[0] = 0;
    count++;
    for (int k = 0; k < 3; k++) snprintf(folders[k], sizeof folders[k], "folder-%d-%d", count, k);
    return strcmp(REDIS(&redis_server, "FLUSHALL"), "OK") == 0 ? 0 : -1;
}

static inline kiln_ctx *open_sync(int folder, const char *at) {
    return open_fleet(KILN_MODE_SYNC, folders[folder], at, key_file("our"));
}

/* The server's n-th key, entries and leases alike, in alphabetical order; the text is static. */
static inline const char *key_at(int n) {
    static const char script[] =
        "local k = redis.call('keys', '*') table.sort(k) return k[tonumber(ARGV[1])] or 'none'";
    char number[12];
    snprintf(number, sizeof number, "%d", n);
    return REDIS(&redis_server, "EVAL", script, "0", number);
}

/* Builds and stores test::one, and test::near if both. */
static inline void fill_server(bool both) {
    kiln_ctx *ctx = open_sync(2, url);
    assert_compiled(ctx, "test::one", 7);
    if (both) assert_compiled(ctx, "test::near", 8);
    assert_int_equal(stats_of(ctx).remote_stored, 1 + both);
    kiln_close(ctx);
}

static inline kiln_store *remote_of(kiln_ctx *ctx) {
    for (int k = 0; k < ctx->stores.n; k++)
        if (strcmp(ctx->stores.at[k]->name, "remote") == 0) return ctx->stores.at[k];
    fail();
    return NULL;
}

#define TEST(f) cmocka_unit_test_setup(f, empty)
#endif
