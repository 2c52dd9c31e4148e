/* test_target.c - nothing but the target `cpu` knows the CPU: calls of every family by a target that is nothing like it.
 *
 * text_target.h is that target.  One context builds kernels by it, and another one interprets and remembers nothing.  Each
 * call is made several times, so that remembered calls launch the target's kernels, too, and both contexts must give the
 * same bits.  Also what becomes of a target whose builds, objects or kernels are bad, and what kiln_explain and kiln_doctor
 * say. */
#include "text_target.h"
#include "tier_compare.h"

static kiln_ctx *interp, *by_text;
static text_target text;
static uint64_t seed = 1;

static kiln_ctx *open_text(kiln_config config, text_target *t) {
    kiln_ctx *ctx = open_with(config);
    MUST_OK(kiln_targets_add(&ctx->targets, &t->target));
    return ctx;
}

static int open_both(void **state) {
    if (call_setup(state) != 0) return -1;
    text_target_init(&text);
    interp = open_mode(KILN_MODE_INTERP);
    interp->forgets = true;
    by_text = open_text((kiln_config){.mode = KILN_MODE_SYNC, .threads = 4, .cc = "/nonexistent/cc"}, &text);
    return 0;
}

static int close_both(void **state) {
    kiln_close(interp);
    kiln_close(by_text);
    for (int k = 0; k < TEXT_SLOTS; k++) assert_false(text_slots[k].used);
    return call_teardown(state);
}

/* -- calls -------------------------------------------------------------------------------------------------- */

#define LIST(...) \
    kiln_v_list((kiln_value[]){__VA_ARGS__}, sizeof((kiln_value[]){__VA_ARGS__}) / sizeof(kiln_value))

static kiln_value filled(kiln_dtype t, int rank, const int64_t *sizes, bool turned) {
    int64_t strides[KILN_MAX_RANK], next = 1;
    for (int k = 0; k < rank; k++) {
        int d = turned ? k : rank - 1 - k;
        strides[d] = next;
        next *= sizes[d] ? sizes[d] : 1;
    }
    return TEN(guarded_filled(t, rank, sizes, strides, &seed, false));
}
#define T(dtype, ...) filled(KILN_##dtype, SIZES(__VA_ARGS__), false)
#define TURNED(dtype, ...) filled(KILN_##dtype, SIZES(__VA_ARGS__), true)

/* Both contexts give the same bits each time. */
static void agree(const char *name, const kiln_value *args, size_t nargs) {
    enum { TIMES = 4 };
    char why[WHY_MAX];
    kiln_status st;
    for (int k = 0; k < TIMES; k++) {
        if (!tiers_agree(interp, by_text, NULL, name, args, nargs, &st, why)) fail_msg("%s: %s", name, why);
        if (st != KILN_OK) fail_msg("%s: %s", name, kiln_last_error());
    }
    drop_args(args, nargs);
}

static void maps(void **state) {
    (void)state;
    int before = atomic_load(&text.launches);
    agree("add.Tensor", ARGS(T(F32, 3, 5), T(F32, 5), NAMED("alpha", INT(2))));
    agree("add.Tensor", ARGS(T(F32, 33, 7), TURNED(F32, 33, 7)));
    agree("sub.Tensor", ARGS(T(F32, 1000, 3), T(F32, 1000, 1)));
    agree("sub.Tensor", ARGS(T(F32, 1000, 3), T(F32, 3)));
    agree("exp", ARGS(T(F64, 70000)));
    agree("where.self", ARGS(T(BOOL, 17), T(I64, 17), T(I64, 17)));
    agree("floor_divide", ARGS(T(I32, 100), T(I32, 100)));
    agree("mul_.Tensor", ARGS(T(F32, 40), T(F32, 40)));
    agree("frexp.Tensor", ARGS(T(F32, 21)));
    agree("mul.Tensor", ARGS(T(C64, 9, 9), T(C64, 9)));
    agree("neg", ARGS(T(F16, 3000000)));
    assert_true(atomic_load(&text.launches) > before + 11);
}

static void folds(void **state) {
    (void)state;
    agree("sum", ARGS(T(F32, 5000)));
    agree("sum", ARGS(T(F32, 3000000))); /* by parts */
    agree("sum.dim_IntList", ARGS(T(F32, 7, 300), LIST(INT(1))));
    agree("sum.dim_IntList", ARGS(T(F32, 300, 40), LIST(INT(0))));
    agree("sum.dim_IntList", ARGS(T(F32, 2000, 12), LIST(INT(1)))); /* turned */
    agree("sum.dim_IntList", ARGS(T(F64, 4, 5, 6, 7), LIST(INT(0), INT(2))));
    agree("var_mean.correction", ARGS(TURNED(F32, 64, 65), LIST(INT(1))));
    agree("argmax", ARGS(T(F32, 30, 200), INT(1)));
    agree("_softmax", ARGS(T(F32, 20, 100), INT(1), kiln_v_bool(0)));
    agree("_softmax", ARGS(T(F32, 100, 20), INT(0), kiln_v_bool(0)));
    agree("native_layer_norm", ARGS(T(F32, 8, 16), LIST(INT(16)), T(F32, 16), T(F32, 16), FLT(1e-5)));
    agree("native_group_norm",
          ARGS(T(F32, 2, 6, 5), T(F32, 6), T(F32, 6), INT(2), INT(6), INT(5), INT(3), FLT(1e-5)));
    agree("_cdist_forward", ARGS(T(F32, 40, 12), T(F32, 50, 12), FLT(1), kiln_v_none()));
    agree("_pdist_forward", ARGS(T(F32, 50, 8), FLT(2)));
    agree("trace", ARGS(T(F32, 9, 9)));
}

static void scans(void **state) {
    (void)state;
    agree("cumsum", ARGS(T(F32, 50, 60), INT(1)));
    agree("cumsum", ARGS(T(F32, 50, 60), INT(0)));
    agree("cumsum", ARGS(T(F32, 100000), INT(0))); /* by blocks */
    agree("cummax", ARGS(T(F64, 3, 1000), INT(1)));
    agree("logcumsumexp", ARGS(T(F32, 2, 70), INT(1)));
}

static void compositions_and_lists(void **state) {
    (void)state;
    agree("layer_norm", ARGS(T(F32, 8, 16), LIST(INT(16)), T(F32, 16), T(F32, 16)));
    agree("softmax.int", ARGS(T(F32, 8, 16), INT(1)));
    agree("cross_entropy_loss", ARGS(T(F32, 4, 16), TEN(I64(SIZES(4), 3, 0, 15, 7))));
    agree("pairwise_distance", ARGS(T(F32, 8, 16), T(F32, 8, 16)));
    static const char *const lists[] = {"_foreach_mul.Scalar", "_foreach_add.Scalar"};
    for (size_t k = 0; k < sizeof lists / sizeof *lists; k++) {
        kiln_value items[] = {T(F32, 9), T(F32, 100), T(F64, 3)}, out[2];
        kiln_ctx *ctx[] = {interp, by_text};
        char why[WHY_MAX];
        for (int c = 0; c < 2; c++)
            MUST_OK(kiln_call_values(ctx[c], op_of(ctx[c], lists[k]), ARGS(kiln_v_list(items, 3), FLT(2.5)),
                                     &out[c], 1));
        for (int i = 0; i < 3; i++)
            assert_true(same_results(out[0].u.list[i].u.tensor, out[1].u.list[i].u.tensor, why));
        kiln_values_release(out, 2);
        drop_args(items, 3);
    }
}

/* Routines have no kernel, whatever the target. */
static void routines(void **state) {
    (void)state;
    int before = atomic_load(&text.launches);
    agree("median", ARGS(T(F32, 101)));
    agree("kthvalue", ARGS(T(F32, 5, 31), INT(7)));
    agree("mode", ARGS(T(I32, 6, 40)));
    assert_int_equal(atomic_load(&text.launches), before);
}

/* All calls above ran kernels, but for those of routines, and none was interpreted. */
static void nothing_was_interpreted(void **state) {
    (void)state;
    kiln_stats s = stats_of(by_text);
    assert_int_equal(s.compile_failures, 0);
    assert_int_equal(s.fallbacks, 0);
    assert_int_equal(s.interp_calls, 0);
    assert_int_equal(s.compiles, atomic_load(&text.kernels));
    assert_in_range(s.compiles, 30, TEXT_SLOTS);
}

/* -- builds ------------------------------------------------------------------------------------------------- */

/* Classes that are built in the background share units, in groups that the target forms. */
static void classes_share_units(void **state) {
    (void)state;
    static const char *const names[] = {"exp", "sin", "cos", "tan", "log", "sqrt", "neg", "abs"};
    enum { N = sizeof names / sizeof *names };
    text_target t;
    text_target_init(&t);
    kiln_ctx *ctx = open_text((kiln_config){.mode = KILN_MODE_TIERED}, &t);
    kiln_tensor *a = F32(SIZES(3), 1, 2, 3);
    atomic_store(&t.held, true); /* until all classes wait for a build */
    for (size_t k = 0; k < N; k++)
        for (int calls = 0; calls < 400; calls++) kiln_tensor_release(call1(ctx, names[k], ARGS(TEN(a))));
    atomic_store(&t.held, false);
    MUST_OK(kiln_wait_idle(ctx));
    for (size_t k = 0; k < N; k++) {
        kiln_tensor_release(call1(ctx, names[k], ARGS(TEN(a))));
        assert_string_equal(kiln_last_tier(), "compiled");
    }
    assert_int_equal(stats_of(ctx).compile_failures, 0);
    kiln_tensor_release(a);
    kiln_close(ctx);
    assert_int_equal(atomic_load(&t.kernels), N);
    assert_true(atomic_load(&t.units) < N);
    assert_int_equal(atomic_load(&t.stops), 1);
    assert_int_equal(atomic_load(&t.closes), 1);
}

static void sources_are_kept_in_their_language(void **state) {
    (void)state;
    char dir[500];
    text_target t;
    text_target_init(&t);
    snprintf(dir, sizeof dir, "%s", in_scratch("sources"));
    kiln_ctx *ctx = open_text((kiln_config){.mode = KILN_MODE_SYNC, .dump_dir = dir}, &t);
    check_add(ctx);
    assert_string_equal(kiln_last_tier(), "compiled");
    assert_int_equal(count_entries(dir, ".ir"), 1);
    assert_int_equal(count_entries(dir, ""), 1);
    kiln_close(ctx);
}

/* A build that fails costs speed only, and is counted by its cause. */
static void faults_cost_speed_only(void **state) {
    (void)state;
    for (int fault = 0; fault < 5; fault++) {
        text_target t;
        text_target_init(&t);
        t.fails = fault < 3 ? KILN_E_BUILD : KILN_OK;
        t.failure = (kiln_build_failure)fault;
        t.garbles = fault == 3;
        t.lies = fault == 4;
        kiln_ctx *ctx = open_text((kiln_config){.mode = KILN_MODE_SYNC}, &t);
        check_add(ctx);
        assert_string_equal(kiln_last_tier(), "interp");
        kiln_stats s = stats_of(ctx);
        uint64_t causes[] = {s.no_compiler, s.compiler_errors, s.compiler_timeouts, s.load_failures,
                             s.selftest_failures};
        for (int k = 0; k < 5; k++) assert_int_equal(causes[k], k == fault);
        assert_int_equal(kiln_has_compiler(ctx), t.fails == KILN_OK);
        kiln_close(ctx);
    }
}

/* -- looking in ----------------------------------------------------------------------------------------------- */

static char *explained(const char *stage) {
    char *out = NULL;
    kiln_tensor *a = F32(SIZES(3), 1, 2, 3);
    MUST_OK(kiln_explain(by_text, op_of(by_text, "neg"), ARGS(TEN(a)), stage, &out));
    kiln_tensor_release(a);
    return out;
}

static void what_is_shown_is_the_targets(void **state) {
    (void)state;
    static const char *const shown[][2] = {{"key", "\ntarget: text verse\n"},
                                           {"source", "kernel \"aten::neg\""},
                                           {"asm", "; nothing is assembled"}};
    for (size_t k = 0; k < sizeof shown / sizeof *shown; k++) {
        char *out = explained(shown[k][0]);
        if (!strstr(out, shown[k][1])) fail_msg("%s: %s", shown[k][0], out);
        kiln_text_free(out);
    }
    char *out;
    MUST_OK(kiln_doctor(by_text, &out));
    assert_non_null(strstr(out, "build a stamp of its own"));
    assert_non_null(strstr(out, "isa: verse\n"));
    assert_non_null(strstr(out, "compiler: a printer\n"));
    kiln_text_free(out);
}

/* -- the table of numbers ------------------------------------------------------------------------------------- */

static void every_number_of_the_cpu_is_told_of(void **state) {
    (void)state;
    const kiln_target *cpu = kiln_ctx_host_target(interp);
    assert_string_equal(cpu->name, "cpu");
    assert_true(cpu->ntuning > 70);
    for (int k = 0; k < cpu->ntuning; k++) {
        const kiln_tuning *t = &cpu->tuning[k];
        if (t->value <= 0 || !t->unit[0] || !t->decides[0] || !t->measured) fail_msg("%s", t->name);
        for (int j = 0; j < k; j++) assert_string_not_equal(t->name, cpu->tuning[j].name);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_number_of_the_cpu_is_told_of),
        cmocka_unit_test(maps),
        cmocka_unit_test(folds),
        cmocka_unit_test(scans),
        cmocka_unit_test(compositions_and_lists),
        cmocka_unit_test(routines),
        cmocka_unit_test(nothing_was_interpreted),
        cmocka_unit_test(classes_share_units),
        cmocka_unit_test(sources_are_kept_in_their_language),
        cmocka_unit_test(faults_cost_speed_only),
        cmocka_unit_test(what_is_shown_is_the_targets),
    };
    return cmocka_run_group_tests(tests, open_both, close_both);
}
