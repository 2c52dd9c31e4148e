/* test_context.c - contexts from outside.
 *
 * What a context counts, explains, logs and says of its surroundings; rows loaded while operators are in
 * use. */
#include "call_cases.h"

static void assert_contains(const char *text, const char *part) {
    if (!strstr(text, part)) fail_msg("'%s' lacks '%s'", text, part);
}

/* -- counters ----------------------------------------------------------------------------------------- */

static void expect_counts(kiln_ctx *ctx, int line, kiln_stats want) {
    kiln_stats s = stats_of(ctx);
#define SAME(field)                                                                      \
    if (s.field != want.field)                                                           \
    fail_msg("line %d: %s is %llu, not %llu", line, #field, (unsigned long long)s.field, \
             (unsigned long long)want.field)
    SAME(calls);
    SAME(misses);
    SAME(compiles);
    SAME(compile_failures);
    SAME(interp_calls);
    SAME(fallbacks);
    SAME(selftest_failures);
    SAME(kernels);
    SAME(evictions);
    SAME(disk_hits);
    SAME(corrupt_entries);
#undef SAME
    if (hits_of(&s) != want.table_hits) fail_msg("line %d: %llu hits", line, (unsigned long long)hits_of(&s));
    assert_true((s.bytes_cached > 0) == (s.kernels > 0));
}
#define COUNTS(ctx, ...) expect_counts((ctx), __LINE__, (kiln_stats){__VA_ARGS__})

static void call_and_drop(kiln_ctx *ctx, const char *name, const kiln_value *args, size_t nargs) {
    kiln_tensor_release(call1(ctx, name, args, nargs));
}

static void counters_follow_a_script(void **state) {
    (void)state;
    kiln_ctx *ctx = open_mode(KILN_MODE_SYNC);
    kiln_tensor *a = F32(SIZES(3), 1, 2, 3), *m = F32(SIZES(1, 3), 1, 2, 3), *d = F64(SIZES(3), 1, 2, 3),
                *i = I32(SIZES(2), 4, 0), *out;
    COUNTS(ctx, .calls = 0);
    call_and_drop(ctx, "add.Tensor", ARGS(TEN(a), TEN(a)));
    COUNTS(ctx, .calls = 1, .misses = 1, .compiles = 1, .kernels = 1);
    uint64_t one = stats_of(ctx).bytes_cached;
    call_and_drop(ctx, "add.Tensor",
                  ARGS(TEN(a), TEN(a), NAMED("alpha", INT(7)))); /* values are no part of the class */
    call_and_drop(ctx, "add.Tensor", ARGS(TEN(m), TEN(m)));      /* nor is rank */
    call_and_drop(ctx, "add_.Tensor", ARGS(TEN(m), TEN(a)));     /* nor the form */
    COUNTS(ctx, .calls = 4, .misses = 1, .table_hits = 3, .compiles = 1, .kernels = 1);
    call_and_drop(ctx, "add.Tensor", ARGS(TEN(d), TEN(d)));
    COUNTS(ctx, .calls = 5, .misses = 2, .table_hits = 3, .compiles = 2, .kernels = 2);
    assert_true(stats_of(ctx).bytes_cached > one);
    assert_int_equal(kiln_call(ctx, op_of(ctx, "add.Tensor"), ARGS(TEN(a)), &out, 1), KILN_E_TYPE);
    COUNTS(ctx, .calls = 5, .misses = 2, .table_hits = 3, .compiles = 2, .kernels = 2);
    assert_int_equal(kiln_call(ctx, op_of(ctx, "floor_divide"), ARGS(TEN(i), TEN(i)), &out, 1),
                     KILN_E_DIVZERO);
    COUNTS(ctx, .calls = 5, .misses = 3, .table_hits = 3, .compiles = 3,
           .kernels = 3); /* no result, no call */
    kiln_wait_idle(ctx);
    kiln_trim();
    COUNTS(ctx, .calls = 5, .misses = 3, .table_hits = 3, .compiles = 3, .kernels = 3);
    kiln_close(ctx);
    drop_args(ARGS(TEN(a), TEN(m), TEN(d), TEN(i)));
}

static void interpreted_calls_are_counted(void **state) {
    (void)state;
    kiln_ctx *ctx = open_mode(KILN_MODE_INTERP);
    check_add(ctx);
    check_add(ctx);
    COUNTS(ctx, .calls = 2, .misses = 1, .table_hits = 1, .interp_calls = 2);
    kiln_close(ctx);
    ctx = open_with((kiln_config){.mode = KILN_MODE_SYNC, .cc = "/nonexistent/cc"});
    check_add(ctx);
    check_add(ctx);
    assert_string_equal(kiln_last_tier(), "interp");
    COUNTS(ctx, .calls = 2, .misses = 1, .table_hits = 1, .interp_calls = 2, .fallbacks = 2,
           .compile_failures = 1);
    kiln_close(ctx);
}

static void a_shorter_stats_struct_is_filled_as_far(void **state) {
    (void)state;
    kiln_ctx *ctx = open_mode(KILN_MODE_INTERP);
    check_add(ctx);
    kiln_stats s;
    memset(&s, 0x55, sizeof s);
    kiln_stats_get(ctx, &s, sizeof s.calls);
    assert_int_equal(s.calls, 1);
    assert_int_equal(s.slot_hits, 0x5555555555555555);
    kiln_stats_get(ctx, &s, 0);
    assert_int_equal(s.calls, 1);
    struct {
        kiln_stats known;
        uint64_t newer;
    } wide = {.newer = 77};
    kiln_stats_get(ctx, &wide.known, sizeof wide);
    assert_int_equal(wide.known.interp_calls, 1);
    assert_int_equal(wide.newer, 77);
    kiln_close(ctx);
}

/* -- explanations ------------------------------------------------------------------------------------- */

static void explain_and_expect(kiln_ctx *ctx, const char *stage, const char *part) {
    kiln_tensor *a = new_tensor(KILN_F32, SIZES(4, 8), NULL), *b = new_tensor(KILN_F32, SIZES(8), NULL);
    char *text = NULL;
    MUST_OK(kiln_explain(ctx, op_of(ctx, "add.Tensor"), ARGS(TEN(a), TEN(b), NAMED("alpha", INT(2))), stage,
                         &text));
    assert_contains(text, part);
    kiln_text_free(text);
    drop_args(ARGS(TEN(a), TEN(b)));
}

static void every_stage_is_explained(void **state) {
    (void)state;
    kiln_ctx *ctx = open_mode(KILN_MODE_INTERP);
    explain_and_expect(ctx, "schema",
                       "aten::add.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor");
    explain_and_expect(ctx, "schema", "family: map\n");
    explain_and_expect(ctx, "bind", "alpha");
    explain_and_expect(ctx, "plan", "f32");
    explain_and_expect(ctx, "key", "operator: aten::add.Tensor");
    explain_and_expect(ctx, "ir", "store");
    explain_and_expect(ctx, "source", "kiln_kernel");
    explain_and_expect(ctx, "asm", "kiln_kernel:");
    kiln_stats s = stats_of(ctx);
    assert_int_equal(s.calls + s.compiles + s.kernels + s.bytes_cached, 0); /* nothing was called or kept */
    char *text = scratch;
    assert_int_equal(kiln_explain(ctx, op_of(ctx, "neg"), NULL, 0, "nonsense", &text), KILN_E_VALUE);
    assert_contains(kiln_last_error(), "nonsense");
    assert_int_equal(kiln_explain(ctx, op_of(ctx, "neg"), NULL, 0, "plan", &text), KILN_E_TYPE);
    assert_ptr_equal(text, scratch);
    MUST_OK(kiln_explain(ctx, op_of(ctx, "neg"), NULL, 0, "schema", &text)); /* rows need no arguments */
    assert_contains(text, "family: map");
    kiln_text_free(text);
    kiln_text_free(NULL);
    kiln_close(ctx);
}

static void the_source_is_kept_on_request(void **state) {
    (void)state;
    char dir[400], *text = NULL;
    snprintf(dir, sizeof dir, "%s/dump/deep", scratch);
    kiln_ctx *ctx = open_with((kiln_config){.mode = KILN_MODE_SYNC, .dump_dir = dir});
    check_add(ctx);
    assert_int_equal(count_entries(dir, ".c"), 1);
    check_add(ctx);
    assert_int_equal(count_entries(dir, ".c"), 1);
    MUST_OK(kiln_doctor(ctx, &text));
    assert_contains(text, "dump folder: ");
    kiln_text_free(text);
    kiln_close(ctx);
    snprintf(dir, sizeof dir, "%s/dump2", scratch);
    setenv("KILN_DUMP_DIR", dir, 1);
    ctx = open_mode(KILN_MODE_SYNC);
    unsetenv("KILN_DUMP_DIR");
    check_add(ctx);
    assert_int_equal(count_entries(dir, ".c"), 1);
    kiln_close(ctx);
}

/* -- log ---------------------------------------------------------------------------------------------- */

/* The last warning or error, and what was told beside those. */
typedef struct heard {
    int n, level;
    char topic[32], text[1100];
    int nbuilt, nclasses;
    char built[200], class[200];
} heard;

static void listen(void *user, int level, const char *topic, const char *text) {
    heard *h = user;
    if (level == 2 && !strcmp(topic, "compile")) {
        h->nbuilt++;
        snprintf(h->built, sizeof h->built, "%s", text);
        return;
    }
    if (level == 3 && !strcmp(topic, "class")) {
        h->nclasses++;
        snprintf(h->class, sizeof h->class, "%s", text);
        return;
    }
    h->n++;
    h->level = level;
    snprintf(h->topic, sizeof h->topic, "%s", topic);
    snprintf(h->text, sizeof h->text, "%s", text);
}

static void a_failed_compile_is_logged_once(void **state) {
    (void)state;
    heard h = {0};
    kiln_ctx *ctx = open_with((kiln_config){.mode = KILN_MODE_SYNC,
                                            .cc = script("no-licence", "echo no licence >&2; exit 1"),
                                            .log = listen,
                                            .log_user = &h});
    check_add(ctx);
    check_add(ctx);
    assert_int_equal(h.n, 1);
    assert_int_equal(h.level, 1);
    assert_string_equal(h.topic, "compile");
    assert_contains(h.text, "aten::add.Tensor");
    assert_contains(h.text, "no licence");
    assert_string_equal(kiln_last_error(), ""); /* the calls themselves succeeded */
    kiln_close(ctx);
}

static void classes_and_builds_are_logged(void **state) {
    (void)state;
    static const char words[] = "aten::add.Tensor: self f32 contig, other f32 contig -> f32 contig; in f32";
    heard h = {0};
    kiln_ctx *ctx = open_with((kiln_config){.mode = KILN_MODE_SYNC, .log = listen, .log_user = &h});
    check_add(ctx);
    check_add(ctx);
    assert_true(h.n == 0 && h.nbuilt == 1 && h.nclasses == 1);
    assert_string_equal(h.class, words);
    assert_int_equal(strncmp(h.built, words, strlen(words)), 0);
    assert_contains(h.built, ": built in ");
    kiln_close(ctx);
}

static void a_dump_that_cannot_be_written_is_logged(void **state) {
    (void)state;
    heard h = {0};
    kiln_ctx *ctx = open_with(
        (kiln_config){.mode = KILN_MODE_SYNC, .dump_dir = "/proc/nowhere", .log = listen, .log_user = &h});
    check_add(ctx);
    assert_string_equal(kiln_last_tier(), "compiled");
    assert_int_equal(h.n, 1);
    assert_string_equal(h.topic, "dump");
    assert_contains(h.text, "/proc/nowhere");
    kiln_close(ctx);
}

/* -- doctor ------------------------------------------------------------------------------------------- */

static void expect_doctor(kiln_config config, const char *part, int complaints) {
    char *text = NULL;
    kiln_ctx *ctx = open_with(config);
    MUST_OK(kiln_doctor(ctx, &text));
    assert_contains(text, part);
    int n = text[0] == '!';
    for (const char *p = text; (p = strstr(p, "\n!")); p++) n++;
    if (n != complaints) fail_msg("%d complaints, not %d:\n%s", n, complaints, text);
    assert_int_equal(text[strlen(text) - 1], '\n');
    kiln_text_free(text);
    check_add(ctx); /* whatever is missing, calls are right */
    kiln_close(ctx);
}

static int has_compiler(const char *cc) {
    kiln_ctx *ctx = open_with((kiln_config){.cc = cc});
    int has = kiln_has_compiler(ctx);
    kiln_close(ctx);
    return has;
}

static void a_context_says_whether_it_has_a_compiler(void **state) {
    (void)state;
    assert_int_equal(has_compiler(NULL), 1);
    assert_int_equal(has_compiler("/nonexistent/cc"), 0);
    assert_int_equal(kiln_has_compiler(NULL), 0);
}

static void doctor_tells_what_is_wrong(void **state) {
    (void)state;
    char good[400], line[500];
    snprintf(good, sizeof good, "%s/cache", scratch);
    snprintf(line, sizeof line, "cache folder: %s\n", good);
    expect_doctor((kiln_config){.cache_dir = good}, line, 0);
    expect_doctor((kiln_config){.cache_dir = good}, "compiler: gcc-", 0);
    expect_doctor((kiln_config){.mode = KILN_MODE_INTERP}, "mode: interp\n", 0);
    expect_doctor((kiln_config){.threads = 3}, "threads: 3\npool: Kiln's\n", 0);
    expect_doctor((kiln_config){0}, "memory: Kiln's\n", 0);
    expect_doctor((kiln_config){.max_kernels = 17}, "max_kernels: 17\n", 0);
    expect_doctor((kiln_config){.dump_dir = good}, "dump folder: /", 0);
    expect_doctor((kiln_config){.cc = "/nonexistent/cc"}, "!compiler: none: ", 1);
    expect_doctor((kiln_config){.cc = "/nonexistent/cc"}, "calls without a kernel are interpreted", 1);
    expect_doctor((kiln_config){.cache_dir = "/proc/kiln"},
                  "!cache folder: /proc/kiln cannot be written; using /tmp/kiln-", 1);
    expect_doctor((kiln_config){.cache_dir = "/dev/null/x", .cc = "/nonexistent/cc"},
                  "!cache folder: /dev/null/x", 2);
}

static void the_environment_names_the_folder(void **state) {
    (void)state;
    char line[500];
    unsetenv("HOME");
    expect_doctor((kiln_config){0},
                  "!cache folder: none: set KILN_CACHE_DIR, XDG_CACHE_HOME or HOME; using /tmp/kiln-", 1);
    setenv("HOME", scratch, 1);
    snprintf(line, sizeof line, "cache folder: %s/.cache/kiln\n", scratch);
    expect_doctor((kiln_config){0}, line, 0);
    setenv("XDG_CACHE_HOME", in_scratch("xdg"), 1);
    snprintf(line, sizeof line, "cache folder: %s/xdg/kiln\n", scratch);
    expect_doctor((kiln_config){0}, line, 0);
    setenv("KILN_CACHE_DIR", in_scratch("own"), 1);
    snprintf(line, sizeof line, "cache folder: %s/own\n", scratch);
    expect_doctor((kiln_config){0}, line, 0);
    setenv("KILN_CC", "/nonexistent/cc", 1);
    expect_doctor((kiln_config){0}, "!compiler: none", 1);
    unsetenv("KILN_CC");
    unsetenv("KILN_CACHE_DIR");
    unsetenv("XDG_CACHE_HOME");
}

/* -- rows loaded at run time -------------------------------------------------------------------------- */

static kiln_status load(kiln_ctx *ctx, const char *text) { return kiln_ops_load(ctx, text, strlen(text)); }

static void rows_may_be_loaded_while_operators_are_in_use(void **state) {
    (void)state;
    kiln_ctx *ctx = open_mode(KILN_MODE_SYNC);
    kiln_tensor *x = F32(SIZES(2), 3, 4), *y = F32(SIZES(2), 4, 3), *out = NULL;
    const kiln_op *old = op_of(ctx, "add.Tensor"), *hyp = NULL;
    size_t n = kiln_op_count(ctx);
    kiln_kernel *k = NULL;
    MUST_OK(kiln_prepare(ctx, old, ARGS(TEN(x), TEN(y)), &k));
    MUST_OK(load(
        ctx, "map test::hyp(Tensor a, Tensor b) -> Tensor : promote(a, b) to_float = sqrt(a * a + b * b)\n"));
    assert_int_equal(kiln_op_count(ctx), n + 1);
    hyp = op_of(ctx, "test::hyp");
    MUST_OK(kiln_call(ctx, hyp, ARGS(TEN(x), TEN(y)), &out, 1));
    assert_string_equal(kiln_last_tier(), "compiled");
    HOLDS_F32(out, SIZES(2), 5, 5);
    kiln_tensor_release(out);
    MUST_OK(load(ctx, "map test::twice(Tensor a) -> Tensor : promote(a) = a + a\n"));
    assert_string_equal(kiln_op_name(old), "aten::add.Tensor"); /* what was found before stays good */
    MUST_OK(kiln_call(ctx, old, ARGS(TEN(x), TEN(y)), &out, 1));
    HOLDS_F32(out, SIZES(2), 7, 7);
    kiln_tensor_release(out);
    MUST_OK(kiln_kernel_run(k, ARGS(TEN(x), TEN(x)), &out, 1));
    HOLDS_F32(out, SIZES(2), 6, 8);
    kiln_tensor_release(out);
    MUST_OK(kiln_call(ctx, hyp, ARGS(TEN(y), TEN(x)), &out, 1));
    HOLDS_F32(out, SIZES(2), 5, 5);
    kiln_tensor_release(out);
    assert_int_equal(stats_of(ctx).misses, 2); /* classes outlive the registry they came from */
    kiln_kernel_release(k);
    kiln_close(ctx);
    drop_args(ARGS(TEN(x), TEN(y)));
}

static void bad_rows_add_nothing(void **state) {
    (void)state;
    kiln_ctx *ctx = open_mode(KILN_MODE_INTERP);
    size_t n = kiln_op_count(ctx);
    const kiln_op *op;
    assert_int_equal(
        load(ctx,
             "map test::ok(Tensor a) -> Tensor : promote(a) = a\nmap test::bad(Tensor a -> Tensor = a\n"),
        KILN_E_PARSE);
    assert_contains(kiln_last_error(), "rows:2:");
    assert_true(load(ctx, "map aten::neg(Tensor self) -> Tensor : takes real = -self\n") != KILN_OK);
    assert_true(load(ctx, "nonsense") != KILN_OK);
    assert_int_equal(kiln_op_count(ctx), n);
    assert_int_equal(kiln_op_find(ctx, "test::ok", &op), KILN_E_NOTFOUND);
    MUST_OK(load(ctx, ""));
    MUST_OK(load(ctx, "# only a remark\n"));
    assert_int_equal(kiln_op_count(ctx), n);
    check_add(ctx);
    kiln_close(ctx);
}

static void note_row(void *user, const kiln_op *op, int ntyped, const char *error) {
    if (error) fail_msg("%s: %s", kiln_op_name(op), error);
    assert_true(ntyped > 0);
    ++*(int *)user;
}

static void every_row_is_checked(void **state) {
    (void)state;
    kiln_ctx *ctx = open_mode(KILN_MODE_INTERP);
    int rows = 0;
    MUST_OK(kiln_ops_check(ctx, note_row, &rows));
    assert_true(rows > 60);
    kiln_close(ctx);
}

/* -- short names ----------------------------------------------------------------------------------------- */

static void chooses(kiln_ctx *ctx, const char *name, const kiln_value *args, size_t nargs, const char *want) {
    const kiln_op *op = NULL;
    kiln_status st = kiln_op_choose(ctx, name, args, nargs, &op);
    if (st != KILN_OK) fail_msg("%s: %s", name, kiln_last_error());
    assert_string_equal(kiln_op_name(op), want);
}

static void arguments_choose_the_overload(void **state) {
    (void)state;
    kiln_ctx *ctx = open_mode(KILN_MODE_INTERP);
    kiln_tensor *a = F32(SIZES(3), 1, 2, 3);
    const kiln_op *op = NULL;
    assert_int_equal(kiln_op_find(ctx, "nosuch", &op), KILN_E_NOTFOUND);
    chooses(ctx, "add", ARGS(TEN(a), TEN(a)), "aten::add.Tensor");
    assert_contains(kiln_last_error(), "nosuch"); /* what did not fit leaves no message */
    chooses(ctx, "add", ARGS(TEN(a), INT(2)), "aten::add.Scalar");
    chooses(ctx, "aten::add", ARGS(TEN(a), TEN(a), NAMED("alpha", INT(2))), "aten::add.Tensor");
    chooses(ctx, "add", ARGS(TEN(a), TEN(a), NAMED("out", TEN(a))), "aten::add.out");
    chooses(ctx, "add_", ARGS(TEN(a), FLT(2)), "aten::add_.Scalar");
    chooses(ctx, "pow", ARGS(INT(2), TEN(a)), "aten::pow.Scalar");
    chooses(ctx, "pow", ARGS(TEN(a), INT(2)), "aten::pow.Tensor_Scalar");
    chooses(ctx, "div", ARGS(TEN(a), TEN(a), NAMED("rounding_mode", kiln_v_str("floor"))),
            "aten::div.Tensor_mode");
    chooses(ctx, "clamp", ARGS(TEN(a), INT(1)), "aten::clamp");
    chooses(ctx, "clamp", ARGS(TEN(a), TEN(a)), "aten::clamp.Tensor");
    chooses(ctx, "aten::clamp", ARGS(TEN(a), TEN(a)), "aten::clamp"); /* a full name means itself */
    chooses(ctx, "neg", ARGS(kiln_v_str("x")), "aten::neg"); /* the only one: its own complaint says more */
    chooses(ctx, "add.Scalar", ARGS(TEN(a), TEN(a)), "aten::add.Scalar");
    chooses(ctx, "relu.default", ARGS(TEN(a)), "aten::relu");
    assert_int_equal(kiln_op_choose(ctx, "add", ARGS(TEN(a), kiln_v_str("x")), &op), KILN_E_TYPE);
    assert_contains(kiln_last_error(),
                    "aten::add: no overload fits these arguments\n  aten::add.Scalar: argument");
    assert_contains(kiln_last_error(), "\n  aten::add.Tensor: argument 'other' must be Tensor, not str");
    op = NULL;
    assert_int_equal(kiln_op_choose(ctx, "nosuch", ARGS(TEN(a)), &op), KILN_E_NOTFOUND);
    assert_null(op);
    kiln_tensor_release(a);
    kiln_close(ctx);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(counters_follow_a_script),
        cmocka_unit_test(interpreted_calls_are_counted),
        cmocka_unit_test(a_shorter_stats_struct_is_filled_as_far),
        cmocka_unit_test(every_stage_is_explained),
        cmocka_unit_test(the_source_is_kept_on_request),
        cmocka_unit_test(a_failed_compile_is_logged_once),
        cmocka_unit_test(classes_and_builds_are_logged),
        cmocka_unit_test(a_dump_that_cannot_be_written_is_logged),
        cmocka_unit_test(a_context_says_whether_it_has_a_compiler),
        cmocka_unit_test(doctor_tells_what_is_wrong),
        cmocka_unit_test(the_environment_names_the_folder),
        cmocka_unit_test(arguments_choose_the_overload),
        cmocka_unit_test(rows_may_be_loaded_while_operators_are_in_use),
        cmocka_unit_test(bad_rows_add_nothing),
        cmocka_unit_test(every_row_is_checked),
    };
    return cmocka_run_group_tests(tests, call_setup, call_teardown);
}
