/* test_packs.c - packs, kernels that are built ahead of time, and recorded calls: what a pack holds is compiled from the first call on, and a pack
 * that is damaged, cut short, foreign or changed while it is in use costs speed and nothing else.
 *
 * Packs are made of the cache folder of store_cases.h, and used by contexts whose folder is another one. */
#include <sys/resource.h>

#include "store/packfile.h"
#include "store_cases.h"

enum { ROWS = 5, STRANGER = 12345 };

static const char *pack_path(void) {
    static char path[PATH_ROOM];
    snprintf(path, sizeof path, "%s/all.pack", scratch);
    return path;
}

static void make_pack(int n) {
    kiln_pack_report report;
    fill_cache(n);
    kiln_ctx *ctx = open_disk(KILN_MODE_FROZEN, n);
    MUST_OK(kiln_pack_export(ctx, pack_path(), NULL, &report));
    assert_int_equal(report.kernels, n);
    assert_int_equal(report.left_out, 0);
    kiln_close(ctx);
    drop_cache();
}

static char *elsewhere(void) {
    static char path[PATH_ROOM];
    snprintf(path, sizeof path, "%s/other", scratch);
    return path;
}

/* Without a compiler, and with an empty folder. */
static kiln_ctx *open_packed(kiln_mode mode, const char *packs) {
    remove_tree(elsewhere());
    kiln_config config = {.mode = mode, .packs = packs, .cache_dir = elsewhere(), .cc = "/nonexistent/cc"};
    return open_disk_with(config, ROWS);
}

/* -- use ------------------------------------------------------------------------------------------------------- */

static void packed_kernels_answer_first_calls(void **state) {
    (void)state;
    static const kiln_mode modes[] = {KILN_MODE_TIERED, KILN_MODE_SYNC, KILN_MODE_FROZEN};
    make_pack(ROWS);
    for (size_t m = 0; m < sizeof modes / sizeof *modes; m++) {
        kiln_ctx *ctx = open_packed(modes[m], pack_path());
        for (int k = 0; k < ROWS; k++) call_rk(ctx, k, "compiled");
        kiln_stats s = stats_of(ctx);
        assert_int_equal(s.pack_hits, ROWS);
        assert_int_equal(s.interp_calls, 0);
        assert_int_equal(s.compiles + s.compile_failures + s.frozen_misses + s.store_errors, 0);
        kiln_close(ctx);
        assert_int_not_equal(access(elsewhere(), F_OK), 0); /* nothing is written: a pack needs no copy */
    }
}

static void interp_and_memory_use_no_packs(void **state) {
    (void)state;
    make_pack(1);
    kiln_ctx *ctx = open_packed(KILN_MODE_INTERP, pack_path());
    call_rk(ctx, 0, "interp");
    assert_int_equal(stats_of(ctx).pack_hits, 0);
    kiln_close(ctx);
    ctx = open_with((kiln_config){.mode = KILN_MODE_FROZEN, .cache = "memory", .packs = pack_path()});
    load_rows(ctx, 1);
    call_rk(ctx, 0, "interp");
    kiln_close(ctx);
}

/* The first pack that has a kernel gives it; a missing one is said and skipped. */
static void several_packs_are_asked_in_order(void **state) {
    (void)state;
    char paths[3 * PATH_ROOM], small[PATH_ROOM];
    make_pack(1);
    snprintf(small, sizeof small, "%s/small.pack", scratch);
    assert_int_equal(rename(pack_path(), small), 0);
    make_pack(ROWS);
    snprintf(paths, sizeof paths, "%s:/nonexistent/pack::%s", small, pack_path());
    kiln_ctx *ctx = open_packed(KILN_MODE_FROZEN, paths);
    for (int k = 0; k < ROWS; k++) call_rk(ctx, k, "compiled");
    assert_int_equal(stats_of(ctx).pack_hits, ROWS);
    assert_int_equal(stats_of(ctx).store_errors, 1);
    kiln_close(ctx);
}

static void names_may_choose_what_is_packed(void **state) {
    (void)state;
    const char *const ops[] = {"test::r1", "test::r3"};
    kiln_pack_how how = {.ops = ops, .nops = 2, .without_ir = 1};
    kiln_pack_report report;
    fill_cache(ROWS);
    kiln_ctx *ctx = open_disk(KILN_MODE_FROZEN, ROWS);
    MUST_OK(kiln_pack_export(ctx, pack_path(), &how, &report));
    assert_int_equal(report.kernels, 2);
    kiln_close(ctx);
    ctx = open_packed(KILN_MODE_FROZEN, pack_path());
    for (int k = 0; k < ROWS; k++) call_rk(ctx, k, k == 1 || k == 3 ? "compiled" : "interp");
    assert_int_equal(stats_of(ctx).frozen_misses, 3);
    kiln_close(ctx);
}

static void a_pack_is_imported(void **state) {
    (void)state;
    kiln_pack_report report;
    make_pack(ROWS);
    kiln_ctx *ctx = open_disk(KILN_MODE_FROZEN, ROWS);
    MUST_OK(kiln_pack_import(ctx, pack_path(), &report));
    assert_int_equal(report.kernels, ROWS);
    assert_int_equal(count_kernels(), ROWS);
    for (int k = 0; k < ROWS; k++) call_rk(ctx, k, "compiled");
    assert_int_equal(stats_of(ctx).disk_hits, ROWS);
    kiln_close(ctx);
}

static kiln_status count_name(void *user, const char *name) {
    ++*(int *)user;
    return strncmp(name, "test::r", 7) == 0 ? KILN_OK : KILN_E_BUG;
}

static void packs_say_which_operators_they_have(void **state) {
    (void)state;
    make_pack(2);
    int n = 0;
    kiln_ctx *ctx = open_packed(KILN_MODE_TIERED, pack_path());
    MUST_OK(kiln_packed_ops(ctx, count_name, &n));
    assert_true(n >= 2); /* in-place and out forms run the kernels, too */
    kiln_close(ctx);
}

/* -- damage ------------------------------------------------------------------------------------------------------ */

/* Right results whatever the pack holds; hits: how many of its kernels are used. */
static void expect(const char *packs, int hits, bool error, int line) {
    kiln_ctx *ctx = open_packed(KILN_MODE_FROZEN, packs);
    for (int k = 0; k < ROWS; k++) call_rk(ctx, k, NULL);
    kiln_stats s = stats_of(ctx);
    bool refused = s.store_errors + s.corrupt_entries + s.load_failures + s.stale_entries +
                       s.foreign_entries >
                   0;
    if ((int)s.pack_hits != hits || refused != error)
        fail_msg("line %d: %d hits, %s", line, (int)s.pack_hits, refused ? "refused" : "not refused");
    kiln_close(ctx);
}

/* Each byte of the head and the index, and some of the entries: none of them is used, or those that are whole. */
static void flipped_bytes_cost_speed(void **state) {
    (void)state;
    make_pack(ROWS);
    file_bytes good = read_whole(pack_path());
    size_t index = good.n - ROWS * 32;
    for (size_t at = 0; at < good.n; at += at < 56 || at >= index ? 7 : 977) {
        good.p[at] ^= 0x20;
        write_whole(pack_path(), good.p, good.n);
        good.p[at] ^= 0x20;
        kiln_ctx *ctx = open_packed(KILN_MODE_FROZEN, pack_path());
        for (int k = 0; k < ROWS; k++) call_rk(ctx, k, NULL);
        if (stats_of(ctx).pack_hits >= ROWS) fail_msg("byte %zu may have any value", at);
        kiln_close(ctx);
    }
    free(good.p);
}

static void truncated_packs_cost_speed(void **state) {
    (void)state;
    make_pack(ROWS);
    file_bytes good = read_whole(pack_path());
    for (size_t n = 0; n < good.n; n += 1 + good.n / 23) {
        write_whole(pack_path(), good.p, n);
        expect(pack_path(), 0, true, __LINE__);
    }
    free(good.p);
}

/* The index is in memory by then, and each entry that is read is missing. */
static void a_pack_may_shrink_while_it_is_used(void **state) {
    (void)state;
    make_pack(ROWS);
    kiln_ctx *ctx = open_packed(KILN_MODE_FROZEN, pack_path());
    call_rk(ctx, 0, "compiled");
    assert_int_equal(truncate(pack_path(), 100), 0);
    for (int k = 1; k < ROWS; k++) call_rk(ctx, k, "interp");
    assert_int_equal(stats_of(ctx).pack_hits, 1);
    assert_true(stats_of(ctx).store_errors >= ROWS - 1);
    call_rk(ctx, 0, "compiled");
    kiln_close(ctx);
}

static void packs_of_others_are_refused(void **state) {
    (void)state;
    make_pack(1);
    assert_int_equal(chmod(pack_path(), 0666), 0);
    expect(pack_path(), 0, true, __LINE__);
    assert_int_equal(chmod(pack_path(), 0600), 0);
    expect(pack_path(), 1, false, __LINE__);
    if (geteuid() == 0) {
        assert_int_equal(chown(pack_path(), STRANGER, STRANGER), 0);
        expect(pack_path(), 0, true, __LINE__);
    }
    (void)unlink(pack_path());
    assert_int_equal(mkfifo(pack_path(), 0600), 0);
    expect(pack_path(), 0, true, __LINE__);
    (void)unlink(pack_path());
    expect(scratch, 0, true, __LINE__); /* a folder */
}

/* An entry under the digest of another one. */
static void swapped_entries_are_refused(void **state) {
    (void)state;
    kiln_packfile *from;
    kiln_packing *to;
    kiln_digest d[2];
    void *entry[2];
    size_t n[2], count;
    uint64_t nbytes;
    make_pack(2);
    MUST_OK(kiln_packfile_open(pack_path(), &from));
    for (size_t k = 0; k < 2; k++) MUST_OK(kiln_packfile_at(from, k, &d[k], &entry[k], &n[k]));
    kiln_packfile_close(from);
    MUST_OK(kiln_packing_begin(pack_path(), &to));
    for (size_t k = 0; k < 2; k++) MUST_OK(kiln_packing_add(to, &d[k], entry[1 - k], n[1 - k]));
    MUST_OK(kiln_packing_end(to, true, &count, &nbytes));
    for (size_t k = 0; k < 2; k++) kiln_free(entry[k]);
    expect(pack_path(), 0, true, __LINE__);
}

static void a_full_disk_leaves_no_half_pack(void **state) {
    (void)state;
    kiln_pack_report report;
    struct rlimit most, none = {100, RLIM_INFINITY};
    fill_cache(2);
    (void)unlink(pack_path());
    int before = count_entries(scratch, "");
    kiln_ctx *ctx = open_disk(KILN_MODE_FROZEN, 2);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &most), 0);
    none.rlim_max = most.rlim_max;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &none), 0);
    kiln_status st = kiln_pack_export(ctx, pack_path(), NULL, &report);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &most), 0);
    assert_int_equal(st, KILN_E_IO);
    assert_int_not_equal(access(pack_path(), F_OK), 0);
    assert_int_equal(kiln_pack_export(ctx, "/nonexistent/folder/pack", NULL, &report), KILN_E_IO);
    kiln_close(ctx);
    assert_int_equal(count_entries(scratch, ""), before); /* temporary files are gone */
}

/* -- ahead of time ------------------------------------------------------------------------------------------------- */

static void add_rows(kiln_ctx *ctx, kiln_warm *w, int n) {
    kiln_tensor *a = I32(SIZES(3), 1, 2, -3);
    char name[20];
    for (int k = 0; k < n; k++) {
        snprintf(name, sizeof name, "test::r%d", k);
        MUST_OK(kiln_warm_add(w, op_of(ctx, name), ARGS(TEN(a))));
        MUST_OK(kiln_warm_add(w, op_of(ctx, name), ARGS(TEN(a)))); /* noted already */
    }
    kiln_tensor_release(a);
}

static int stop_after(void *user, const kiln_warm_report *so_far) {
    return so_far->built >= *(uint64_t *)user;
}

static void warming_builds_what_is_missing(void **state) {
    (void)state;
    kiln_warm_report report;
    kiln_warm *w;
    fill_cache(2);
    kiln_ctx *ctx = open_disk(KILN_MODE_FROZEN, ROWS);
    MUST_OK(kiln_warm_begin(ctx, NULL, &w));
    add_rows(ctx, w, ROWS);
    assert_int_equal(kiln_warm_waiting(w), ROWS);
    MUST_OK(kiln_warm_run(w, 2, NULL, NULL, &report));
    assert_int_equal(report.present, 2);
    assert_int_equal(report.built, ROWS - 2);
    assert_int_equal(report.failed, 0);
    assert_int_equal(count_kernels(), ROWS);
    assert_int_equal(kiln_warm_waiting(w), 0);
    kiln_warm_end(w);
    for (int k = 0; k < ROWS; k++) call_rk(ctx, k, "compiled");
    kiln_close(ctx);
}

static void warming_may_be_called_off(void **state) {
    (void)state;
    kiln_warm_report report;
    kiln_warm *w;
    uint64_t none = 0;
    make_cache();
    kiln_ctx *ctx = open_disk(KILN_MODE_FROZEN, ROWS);
    MUST_OK(kiln_warm_begin(ctx, NULL, &w));
    add_rows(ctx, w, ROWS);
    assert_int_equal(kiln_warm_run(w, 1, stop_after, &none, &report), KILN_E_INTERRUPTED);
    kiln_warm_end(w);
    assert_int_equal(kiln_warm_begin(ctx, "x86-64-v9", &w), KILN_E_VALUE);
    assert_error_names("x86-64-v9");
    kiln_close(ctx);
    ctx = open_with((kiln_config){.cache = "memory"});
    assert_int_equal(kiln_warm_begin(ctx, NULL, &w), KILN_E_ARG);
    kiln_close(ctx);
}

static void without_a_compiler_warming_fails(void **state) {
    (void)state;
    kiln_warm_report report;
    kiln_warm *w;
    make_cache();
    kiln_ctx *ctx = open_disk_with((kiln_config){.mode = KILN_MODE_FROZEN, .cc = "/nonexistent/cc"}, ROWS);
    MUST_OK(kiln_warm_begin(ctx, NULL, &w));
    add_rows(ctx, w, ROWS);
    MUST_OK(kiln_warm_run(w, 0, NULL, NULL, &report));
    assert_int_equal(report.failed, ROWS);
    kiln_warm_end(w);
    kiln_close(ctx);
    assert_int_equal(count_kernels(), 0);
}

/* -- kernels that nobody has tested ---------------------------------------------------------------------------------- */

/* Writes the pack anew with entries that say they are not tested. */
static void make_untested(bool wrong) {
    kiln_packfile *from;
    kiln_packing *to;
    size_t count;
    uint64_t nbytes;
    kiln_stored other = {0};
    void *first = NULL;
    MUST_OK(kiln_packfile_open(pack_path(), &from));
    MUST_OK(kiln_packing_begin(pack_path(), &to));
    for (size_t k = 0; k < kiln_packfile_count(from); k++) {
        kiln_digest d;
        kiln_stored says;
        void *entry, *made;
        size_t n, nmade;
        MUST_OK(kiln_packfile_at(from, k, &d, &entry, &n));
        assert_int_equal(kiln_stored_read(entry, n, &d, NULL, &says), KILN_STORED_FINE);
        says.tested = 0;
        if (k == 0) other = says;
        if (k > 0 && wrong) {
            says.image = other.image;
            says.nimage = other.nimage;
        }
        MUST_OK(kiln_stored_write(&says, NULL, &made, &nmade));
        MUST_OK(kiln_packing_add(to, &d, made, nmade));
        kiln_free(made);
        if (k == 0)
            first = entry; /* other points into it */
        else
            kiln_free(entry);
    }
    MUST_OK(kiln_packing_end(to, true, &count, &nbytes));
    kiln_packfile_close(from);
    kiln_free(first);
}

/* The call that makes a class does not wait for a self-test; the background does it, and later calls are compiled. */
static void untested_kernels_are_tested_in_the_background(void **state) {
    (void)state;
    make_pack(ROWS);
    make_untested(false);
    kiln_ctx *ctx = open_packed(KILN_MODE_TIERED, pack_path());
    for (int k = 0; k < ROWS; k++) call_rk(ctx, k, "interp");
    for (int k = 0; k < ROWS; k++) assert_true(row_is_right(ctx, k, true));
    MUST_OK(kiln_wait_idle(ctx));
    for (int k = 0; k < ROWS; k++) call_rk(ctx, k, "compiled");
    assert_int_equal(stats_of(ctx).pack_hits, ROWS);
    assert_int_equal(stats_of(ctx).selftest_failures + stats_of(ctx).compile_failures, 0);
    kiln_close(ctx);
}

static void untested_kernels_that_are_wrong_are_refused(void **state) {
    (void)state;
    make_pack(2);
    make_untested(true);
    kiln_ctx *ctx = open_packed(KILN_MODE_SYNC, pack_path());
    int compiled = 0;
    for (int k = 0; k < 2; k++) {
        call_rk(ctx, k, NULL);
        compiled += strcmp(kiln_last_tier(), "compiled") == 0;
    }
    assert_int_equal(compiled, 1);
    assert_true(stats_of(ctx).selftest_failures > 0);
    assert_int_equal(stats_of(ctx).pack_hits, 1);
    kiln_close(ctx);
}

/* -- recorded calls ---------------------------------------------------------------------------------------------------- */

static void new_classes_are_recorded(void **state) {
    (void)state;
    char record[PATH_ROOM];
    snprintf(record, sizeof record, "%s/calls", scratch);
    for (int round = 0; round < 2; round++) { /* the second process appends */
        kiln_ctx *ctx = open_with((kiln_config){.mode = KILN_MODE_INTERP, .record = record});
        load_rows(ctx, 2);
        for (int k = 0; k < 4; k++) call_rk(ctx, k % 2, "interp");
        kiln_close(ctx);
    }
    file_bytes lines = read_whole(record);
    static const char want[] = "test::r0(a=i32[3])\ntest::r1(a=i32[3])\n";
    assert_int_equal(lines.n, 2 * (sizeof want - 1));
    assert_memory_equal(lines.p, want, sizeof want - 1);
    free(lines.p);
    kiln_ctx *ctx = open_with((kiln_config){.mode = KILN_MODE_INTERP, .record = "/nonexistent/folder/calls"});
    load_rows(ctx, 2);
    for (int k = 0; k < 2; k++) call_rk(ctx, k, "interp"); /* costs nothing */
    kiln_close(ctx);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(packed_kernels_answer_first_calls),
        cmocka_unit_test(interp_and_memory_use_no_packs),
        cmocka_unit_test(several_packs_are_asked_in_order),
        cmocka_unit_test(names_may_choose_what_is_packed),
        cmocka_unit_test(a_pack_is_imported),
        cmocka_unit_test(packs_say_which_operators_they_have),
        cmocka_unit_test(flipped_bytes_cost_speed),
        cmocka_unit_test(truncated_packs_cost_speed),
        cmocka_unit_test(a_pack_may_shrink_while_it_is_used),
        cmocka_unit_test(packs_of_others_are_refused),
        cmocka_unit_test(swapped_entries_are_refused),
        cmocka_unit_test(a_full_disk_leaves_no_half_pack),
        cmocka_unit_test(warming_builds_what_is_missing),
        cmocka_unit_test(warming_may_be_called_off),
        cmocka_unit_test(without_a_compiler_warming_fails),
        cmocka_unit_test(untested_kernels_are_tested_in_the_background),
        cmocka_unit_test(untested_kernels_that_are_wrong_are_refused),
        cmocka_unit_test(new_classes_are_recorded),
    };
    return cmocka_run_group_tests_name("packs", tests, call_setup, call_teardown);
}
