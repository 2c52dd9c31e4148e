/* test_remote_builds.c - who builds a kernel where machines share a Redis server: the one that has the lease, about once, and after a fork the
 * child by connections and leases of its own. */
#include <sys/mman.h>

#include "fleet_cases.h"

/* -- who builds -------------------------------------------------------------------------------------------------------------- */

/* The name of the lease of test::one, which no machine has built. */
static const char *lease_of_one(void) {
    static char name[200];
    fill_server(false);
    snprintf(name, sizeof name, "kiln:lease:%s", key_at(1) + strlen("kiln:"));
    assert_int_equal(empty(NULL), 0);
    return name;
}

static void another_machine_has_the_lease(void **state) {
    (void)state;
    const char *lease = lease_of_one();
    assert_string_equal(REDIS(&redis_server, "SET", lease, "another", "PX", "60000"), "OK");
    kiln_ctx *ctx = open_fleet(KILN_MODE_TIERED, folders[0], url, key_file("our"));
    for (int k = 0; k < 200 && stats_of(ctx).builds_elsewhere == 0; k++) {
        assert_string_equal(call_row(ctx, "test::one", 7, true), "interp");
        MUST_OK(kiln_wait_idle(ctx));
    }
    assert_true(stats_of(ctx).builds_elsewhere > 0);
    assert_int_equal(stats_of(ctx).compiles, 0);
    assert_string_equal(REDIS(&redis_server, "GET", lease), "another");
    assert_string_equal(REDIS(&redis_server, "DEL", lease), "1"); /* that machine gives up */
    for (int k = 0; k < 200 && stats_of(ctx).compiles == 0; k++) {
        (void)call_row(ctx, "test::one", 7, true);
        MUST_OK(kiln_wait_idle(ctx));
        nap(2); /* the answer that another machine builds holds for a moment */
    }
    assert_compiled(ctx, "test::one", 7);
    assert_int_equal(stats_of(ctx).compiles, 1);
    kiln_close(ctx);
    assert_string_equal(REDIS(&redis_server, "EXISTS", lease), "0");
}

/* A machine that died holds nobody up for longer than its lease lasts. */
static void a_lease_ends_by_itself(void **state) {
    (void)state;
    const char *lease = lease_of_one();
    assert_string_equal(REDIS(&redis_server, "SET", lease, "dead", "PX", "400"), "OK");
    kiln_ctx *ctx = open_sync(0, url);
    assert_compiled(ctx, "test::one", 7);
    assert_int_equal(stats_of(ctx).builds_elsewhere, 1);
    assert_int_equal(stats_of(ctx).compiles, 1);
    kiln_close(ctx);
}

/* A context that closes while it builds gives its lease back. */
static void a_lease_ends_with_its_context(void **state) {
    (void)state;
    char all[400], path[300];
    snprintf(all, sizeof all, "sleep 30; exit 1");
    snprintf(path, sizeof path, "%s", compiler(all));
    setenv("KILN_CC", path, 1);
    kiln_ctx *ctx = open_fleet(KILN_MODE_TIERED, folders[0], url, key_file("our"));
    unsetenv("KILN_CC");
    for (int k = 0; k < 5000 && strcmp(REDIS(&redis_server, "DBSIZE"), "1") != 0; k++) {
        (void)call_row(ctx, "test::one", 7, true);
        nap(1);
    }
    assert_string_equal(REDIS(&redis_server, "DBSIZE"), "1");
    kiln_close(ctx);
    assert_string_equal(REDIS(&redis_server, "DBSIZE"), "0");
}

/* One whose lease has ended leaves the next one's alone. */
static void a_lease_is_released_by_its_owner(void **state) {
    (void)state;
    const kiln_digest d = {1, 2};
    static const char lease[] = "kiln:lease:00000000000000020000000000000001";
    kiln_ctx *ctx = open_sync(0, url), *other = open_sync(1, url);
    kiln_store *s = remote_of(ctx), *t = remote_of(other);
    assert_int_equal(s->claim(s, &d), KILN_CLAIM_OURS);
    assert_int_equal(t->claim(t, &d), KILN_CLAIM_BUSY);
    assert_in_range(atoi(REDIS(&redis_server, "PTTL", lease)), 1, 30000);
    t->unclaim(t, &d);
    nap(30);
    assert_int_equal(t->claim(t, &d), KILN_CLAIM_BUSY);
    s->unclaim(s, &d);
    nap(30);
    assert_int_equal(t->claim(t, &d), KILN_CLAIM_OURS);
    s->unclaim(s, &d);
    assert_string_equal(REDIS(&redis_server, "EXISTS", lease), "1");
    t->unclaim(t, &d);
    assert_string_equal(REDIS(&redis_server, "EXISTS", lease), "0");
    kiln_close(ctx);
    kiln_close(other);
}

enum { MACHINES = 8, CLASSES = 20 };

/* In mode tiered a call may have to come again, until the kernel was built here or got from the server. */
static void call_until_compiled(kiln_ctx *ctx, const char *name, int more) {
    for (int k = 0; k < 10000 && strcmp(call_row(ctx, name, more, true), "compiled") != 0; k++) nap(2);
    assert_compiled(ctx, name, more);
}

static void run_machine(kiln_mode mode, int id, const char *key, atomic_int *compiles) {
    char folder[40], rows[CLASSES * 100] = "";
    snprintf(folder, sizeof folder, "machine-%d-%d", (int)mode, id);
    kiln_ctx *ctx = open_fleet(mode, folder, url, key);
    for (int k = 0; k < CLASSES; k++)
        sprintf(rows + strlen(rows),
                "map test::m%d(Tensor a) -> Tensor : promote(a) takes int = a * a + %d\n", k, 100 + k);
    MUST_OK(kiln_ops_load(ctx, rows, strlen(rows)));
    for (int k = 0; k < CLASSES; k++) {
        int which = (k + 5 * id) % CLASSES;
        char name[40];
        snprintf(name, sizeof name, "test::m%d", which);
        if (mode == KILN_MODE_TIERED && k % 2 == 0)
            (void)call_row(ctx, name, 100 + which, true); /* later */
        else
            call_until_compiled(ctx, name, 100 + which);
    }
    for (int k = 0; k < CLASSES; k++) {
        char name[40];
        snprintf(name, sizeof name, "test::m%d", k);
        call_until_compiled(ctx, name, 100 + k);
    }
    kiln_stats s = stats_of(ctx);
    assert_int_equal(s.compile_failures + s.corrupt_entries + s.unsigned_entries, 0);
    assert_int_equal(s.compiles + s.remote_hits, CLASSES);
    atomic_fetch_add(compiles, (int)s.compiles);
    kiln_close(ctx);
}

/* Machines share nothing but the server.  Each class is built by about one of them. */
static void build_in_a_fleet(kiln_mode mode) {
    atomic_int *compiles = mmap(NULL, sizeof *compiles, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
                                -1, 0);
    assert_true(compiles != MAP_FAILED);
    const char *key = key_file("our");
    pid_t machine[MACHINES];
    for (int k = 0; k < MACHINES; k++) {
        machine[k] = fork();
        if (machine[k] == 0) {
            run_machine(mode, k, key, compiles);
            _exit(0);
        }
    }
    for (int k = 0; k < MACHINES; k++) {
        int status = -1;
        assert_int_equal(waitpid(machine[k], &status, 0), machine[k]);
        assert_int_equal(status, 0);
    }
    assert_in_range(atomic_load(compiles), CLASSES, CLASSES * 12 / 10);
    munmap(compiles, sizeof *compiles);
}

static void a_fleet_builds_once(void **state) {
    (void)state;
    build_in_a_fleet(KILN_MODE_SYNC);
    assert_int_equal(empty(NULL), 0);
    build_in_a_fleet(KILN_MODE_TIERED);
}

/* -- forks ---------------------------------------------------------------------------------------------------------------------- */

static void ask_often(kiln_ctx *ctx, uint64_t lo) {
    kiln_store *s = remote_of(ctx);
    for (uint64_t k = 0; k < 100; k++) {
        kiln_digest d = {lo, k};
        bool found = true;
        kiln_blob b = {0};
        MUST_OK(s->get(s, &d, &b, &found));
        assert_false(found);
        assert_int_equal(s->claim(s, &d), KILN_CLAIM_OURS);
    }
}

/* Parent and child use the server at the same time, each by connections and leases of its own. */
static void a_forked_child_connects_anew(void **state) {
    (void)state;
    kiln_ctx *ctx = open_sync(0, url);
    assert_compiled(ctx, "test::one", 7);
    kiln_store *s = remote_of(ctx);
    kiln_digest held = {77, 77};
    assert_int_equal(s->claim(s, &held), KILN_CLAIM_OURS);
    pid_t child = fork();
    if (child == 0) {
        ask_often(ctx, 1);
        s->unclaim(s, &held); /* the parent's */
        assert_compiled(ctx, "test::near", 8);
        bool right = stats_of(ctx).store_errors == 0 && s->claim(s, &held) == KILN_CLAIM_BUSY;
        kiln_close(ctx);
        _exit(right ? 0 : 1);
    }
    ask_often(ctx, 2);
    assert_compiled(ctx, "test::far", 9);
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(stats_of(ctx).store_errors, 0);
    ask_often(ctx, 3);
    kiln_close(ctx);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(another_machine_has_the_lease), TEST(a_lease_ends_by_itself),
        TEST(a_lease_ends_with_its_context), TEST(a_lease_is_released_by_its_owner),
        TEST(a_fleet_builds_once),           TEST(a_forked_child_connects_anew),
    };
    return cmocka_run_group_tests_name("remote_builds", tests, set_up, tear_down);
}
