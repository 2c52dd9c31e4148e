/* test_planted.c - the suite tested: faults are planted, and what should notice them must.
 *
 * A wrong kernel must be refused by the self-test, and seen by the comparison of tiers where it got past
 * that; a class under another class's key and a row with a wrong body must be seen as well.  The comparison
 * is the one of test_tiers.c. */
#include "api/ctx.h"
#include "target/cpu/build.h"
#include "target/cpu/emit.h"
#include "run/selftest.h"
#include "tier_compare.h"

static kiln_ctx *honest; /* interpreted: the oracle */

static int open_honest(void **state) {
    if (call_setup(state) != 0) return -1;
    honest = open_mode(KILN_MODE_INTERP);
    return 0;
}

static int close_honest(void **state) {
    kiln_close(honest);
    return call_teardown(state);
}

/* Whether the comparison sees a difference between ctx and the oracle. */
static bool notices(kiln_ctx *a, kiln_ctx *b, const char *name, kiln_dtype t) {
    char why[WHY_MAX];
    tier_task task = {.a = a, .b = b, .name = name, .first = t, .rest = t, .seed = 1};
    bool same = compare_row(&task, why);
    assert_true(same == (why[0] == 0));
    return !same;
}

/* -- wrong kernels: the self-test --------------------------------------------------------------------- */

/* a * b + b of f32, right whatever tier; a row of our own: no change of a shipped row can disarm a lie. */
static void check_planted(kiln_ctx *ctx, const char *tier) {
    kiln_tensor *a = F32(SIZES(3), 1, 2, 3), *b = F32(SIZES(3), 10, 20, 30);
    kiln_tensor *out = call1(ctx, "test::planted", ARGS(TEN(a), TEN(b)));
    HOLDS_F32(out, SIZES(3), 20, 60, 120);
    assert_string_equal(kiln_last_tier(), tier);
    drop_args(ARGS(TEN(a), TEN(b), TEN(out)));
}

/* A context whose compiler passes each source through sed first; told and compiled are the last source. */
static kiln_ctx *open_liar(const char *sed) {
    static const char row[] = "map test::planted(Tensor a, Tensor b) -> Tensor : promote(a, b) = a * b + b\n";
    char text[800];
    snprintf(text, sizeof text, DRIVER_ONLY "tee %s/told | sed '%s' | tee %s/compiled | gcc \"$@\"", scratch,
             sed, scratch);
    kiln_ctx *ctx = open_with((kiln_config){.mode = KILN_MODE_SYNC, .cc = script("liar", text)});
    MUST_OK(kiln_ops_load(ctx, row, sizeof row - 1));
    return ctx;
}

static bool it_lied(void) {
    char *told, *compiled;
    size_t n, m;
    MUST_OK(kiln_file_read(in_scratch("told"), &told, &n));
    MUST_OK(kiln_file_read(in_scratch("compiled"), &compiled, &m));
    bool lied = n != m || memcmp(told, compiled, n) != 0;
    kiln_free(told);
    kiln_free(compiled);
    return lied;
}

static void expect_refusal(const char *sed) {
    kiln_ctx *ctx = open_liar(sed);
    check_planted(ctx, "interp"); /* right all the same */
    check_planted(ctx, "interp");
    if (!it_lied()) fail_msg("%s changes nothing", sed);
    kiln_stats s = stats_of(ctx);
    if (s.selftest_failures != 1) fail_msg("%s: %llu refusals", sed, (unsigned long long)s.selftest_failures);
    assert_int_equal(s.compile_failures, 1);
    assert_int_equal(s.compiles + s.kernels + s.bytes_cached, 0);
    assert_int_equal(s.fallbacks, 2);
    kiln_close(ctx);
}

static void the_self_test_refuses_a_corrupted_kernel(void **state) {
    (void)state;
    static const char *const lies[] = {
        "s/= add_f32(\\(t[0-9]*\\), t[0-9]*)/= add_f32(\\1, \\1)/",     /* another operand */
        "s/= mul_f32(/= add_f32(/",                                     /* another primitive */
        "s/tail_out(m0, e0, k \\* 4)/tail_out(m0, e0, k * 4 - 4)/",     /* not the last element of a row */
        "s/^    for (long r = 0; r < n1;/    for (long r = 0; r < 1;/", /* only the first row */
        "s/q0 += d0;//",                                                /* every row in one place */
        "s/return nest0(L)/return 1000/",                               /* a trap that was not there */
    };
    for (size_t k = 0; k < sizeof lies / sizeof *lies; k++) expect_refusal(lies[k]);
}

/* The same of a kernel for rows beside a column: its loop for short ones. */
static void the_self_test_sees_the_loop_for_columns(void **state) {
    (void)state;
    static const char *const lies[] = {
        "s/no such text//", "s/lanes32\\[c\\]/lanes32[0]/", /* the first vector's elements in all */
        "s/q2 += used \\* 4/q2 += 4/",                      /* the next row, not the next that is needed */
        "s/^        q0 = p0;//",                            /* the last rows where the first belong */
    };
    kiln_tensor *a = F32(SIZES(2, 3), 1, 2, 3, 4, 5, 6), *b = F32(SIZES(2, 1), 10, 20);
    for (size_t k = 0; k < sizeof lies / sizeof *lies; k++) {
        kiln_ctx *ctx = open_liar(lies[k]);
        kiln_tensor *out = call1(ctx, "test::planted", ARGS(TEN(a), TEN(b)));
        HOLDS_F32(out, SIZES(2, 3), 20, 30, 40, 100, 120, 140);
        assert_int_equal(it_lied(), k > 0);
        if (k == 0) assert_string_equal(kiln_last_tier(), "compiled");
        if (k > 0 && stats_of(ctx).selftest_failures != 1) fail_msg("%s is believed", lies[k]);
        kiln_tensor_release(out);
        kiln_close(ctx);
    }
    drop_args(ARGS(TEN(a), TEN(b)));
}

/* The made input of the self-test meets zero divisors here; what comes after the traps is tested too. */
static void the_self_test_sees_behind_a_trap(void **state) {
    (void)state;
    static const char row[] =
        "map test::behind(Tensor a, Tensor b) -> Tensor : promote(a, b) takes int = floordiv(a, b - 1)\n";
    static const char *const lies[] = {"s/no such text//",
                                       "s/= floordiv_i32(\\(t[0-9]*\\), /= floordiv_i32(-\\1, /"};
    kiln_tensor *a = I32(SIZES(3), 10, 21, -7), *b = I32(SIZES(3), 3, 5, 3), *one = I32(SIZES(1), 3);
    for (int k = 0; k < 2; k++) {
        kiln_ctx *ctx = open_liar(lies[k]);
        MUST_OK(kiln_ops_load(ctx, row, sizeof row - 1));
        kiln_tensor *out = call1(ctx, "test::behind", ARGS(TEN(a), TEN(b)));
        assert_int_equal(it_lied(), k);
        HOLDS_I32(out, SIZES(3), 5, 5, -4);
        assert_string_equal(kiln_last_tier(), k ? "interp" : "compiled");
        kiln_tensor_release(out);
        out = call1(ctx, "test::behind", ARGS(TEN(a), TEN(one))); /* a divisor for a whole row */
        HOLDS_I32(out, SIZES(3), 5, 10, -4);
        assert_string_equal(kiln_last_tier(), k ? "interp" : "compiled");
        kiln_tensor_release(out);
        assert_int_equal(stats_of(ctx).selftest_failures, k ? 2 : 0);
        kiln_close(ctx);
    }
    drop_args(ARGS(TEN(a), TEN(b), TEN(one)));
}

/* The control: the same compiler without a lie is believed. */
static void the_same_compiler_is_believed_when_it_does_not_lie(void **state) {
    (void)state;
    kiln_ctx *ctx = open_liar("s/no such text//");
    check_planted(ctx, "compiled");
    assert_false(it_lied());
    assert_int_equal(stats_of(ctx).selftest_failures, 0);
    kiln_close(ctx);
}

/* -- wrong kernels past the self-test ----------------------------------------------------------------- */

/* The class of a call, made if need be. */
static kiln_class *class_of(kiln_ctx *ctx, const char *name, const kiln_value *args, size_t nargs,
                            kiln_key *key) {
    kiln_bound call;
    kiln_plan plan;
    kiln_class *c = NULL;
    MUST_OK(kiln_bind(op_of(ctx, name), args, nargs, &call));
    MUST_OK(kiln_infer(&call, &plan));
    MUST_OK(kiln_class_of(ctx, &plan, &c));
    kiln_plan_key(&plan, ctx->isa, key);
    return c;
}

static kiln_class *victim; /* the class whose interpreter the wrong kernels start from */

static int32_t right_kernel(const kiln_launch *l) {
    int32_t trap = 0;
    return kiln_interp_run(victim->program->interp, l, &trap) == KILN_OK ? trap : -1;
}

/* One bit of the last element of the last row. */
static int32_t last_bit_kernel(const kiln_launch *l) {
    int32_t trap = right_kernel(l);
    if (l->n[0] > 0 && l->n[1] > 0)
        l->ptr[0][(l->n[0] - 1) * l->stride[0] + (l->n[1] - 1) * l->stride[1]] ^= 1;
    return trap;
}

/* Right but for vectors of more than 1,024 elements. */
static int32_t long_row_kernel(const kiln_launch *l) {
    int32_t trap = right_kernel(l);
    if (l->n[0] > 1024) l->ptr[0][1024 * l->stride[0]] ^= 64;
    return trap;
}

static int32_t idle_kernel(const kiln_launch *l) {
    (void)l;
    return 0;
}

static int32_t trapping_kernel(const kiln_launch *l) {
    (void)l;
    return KILN_TRAP_BASE;
}

/* Publishes fn for sigmoid of contiguous f32, past every check, and looks whether the comparison minds. */
static bool notices_kernel(kiln_kernel_fn fn) {
    kiln_ctx *ctx = open_mode(KILN_MODE_INTERP);
    kiln_tensor *x = F32(SIZES(3), 1, 2, 3);
    kiln_key key;
    victim = class_of(ctx, "sigmoid", ARGS(TEN(x)), &key);
    atomic_store(&victim->fn, fn);
    bool seen = notices(honest, ctx, "sigmoid", KILN_F32);
    kiln_close(ctx);
    kiln_tensor_release(x);
    return seen;
}

static void the_comparison_sees_a_wrong_kernel(void **state) {
    (void)state;
    assert_false(notices_kernel(right_kernel));
    assert_true(notices_kernel(last_bit_kernel));
    assert_true(notices_kernel(long_row_kernel));
    assert_true(notices_kernel(idle_kernel));
    assert_true(notices_kernel(trapping_kernel));
}

/* A kernel built from the class's own source with one call changed, in each of its loops. */
static void the_comparison_sees_a_wrong_source(void **state) {
    (void)state;
    kiln_ctx *ctx = open_mode(KILN_MODE_INTERP);
    kiln_tensor *x = I32(SIZES(3), 1, 2, 3);
    kiln_toolchain *tc = NULL;
    kiln_object object = {0};
    kiln_code *code = NULL;
    kiln_key key;
    kiln_sb source;
    kiln_sb_init(&source);
    victim = class_of(ctx, "maximum", ARGS(TEN(x), TEN(x)), &key);
    MUST_OK(kiln_emit_c(victim->program->ir, ctx->isa, &source));
    char *use = strstr(source.p, " = max_i32(");
    assert_non_null(use);
    for (; use; use = strstr(use, " = max_i32(")) {
        memcpy(strstr(use, ", t"), " +t", 3); /* max(a, b) -> a + b in the place of the call */
        memcpy(use, " =  (vi32)(", 11);
    }
    MUST_OK(kiln_toolchain_open(NULL, scratch, &tc));
    MUST_OK(kiln_build(tc, ctx->isa, source.p, source.len, &object));
    MUST_OK(kiln_code_load(tc, &object, KILN_KERNEL_SYMBOL, &code));
    assert_int_equal(kiln_selftest(victim->program->ir, victim->program->interp, kiln_code_entry(code), 0),
                     KILN_E_BUG);
    assert_false(notices(honest, ctx, "maximum", KILN_I32));
    atomic_store(&victim->fn, kiln_code_entry(code));
    assert_true(notices(honest, ctx, "maximum", KILN_I32));
    kiln_close(ctx);
    kiln_code_free(code);
    kiln_object_fini(&object);
    kiln_toolchain_close(tc);
    kiln_sb_fini(&source);
    kiln_tensor_release(x);
}

/* -- wrong keys --------------------------------------------------------------------------------------- */

/* Puts the class of call A where call B will look for its own, as a key that forgets a field would. */
static void confuse(kiln_ctx *ctx, const char *name, const kiln_value *a, const kiln_value *b, size_t nargs) {
    kiln_bound call_a, call_b;
    kiln_plan plan_a, plan_b;
    kiln_key key;
    kiln_class *c = NULL;
    kiln_entry *winner = NULL;
    MUST_OK(kiln_bind(op_of(ctx, name), a, nargs, &call_a));
    MUST_OK(kiln_bind(op_of(ctx, name), b, nargs, &call_b));
    MUST_OK(kiln_infer(&call_a, &plan_a));
    MUST_OK(kiln_infer(&call_b, &plan_b));
    kiln_plan_key(&plan_b, ctx->isa, &key);
    MUST_OK(kiln_class_new(ctx, &plan_a, &key, &c));
    MUST_OK(kiln_cache_put(ctx->cache, &c->entry, &winner));
    assert_ptr_equal(winner, &c->entry);
}

static void the_comparison_sees_a_key_without_dtypes(void **state) {
    (void)state;
    kiln_tensor *f = F32(SIZES(4), 1, 2, 3, 4), *i = I32(SIZES(4), 1, 2, 3, 4);
    for (int tier = 0; tier < 2; tier++) {
        kiln_ctx *ctx = open_mode(tier ? KILN_MODE_SYNC : KILN_MODE_INTERP);
        confuse(ctx, "mul.Tensor", (const kiln_value[]){TEN(f), TEN(f)}, (const kiln_value[]){TEN(i), TEN(i)},
                2);
        assert_true(notices(honest, ctx, "mul.Tensor", KILN_I32));
        assert_false(notices(honest, ctx, "mul.Tensor", KILN_F32));
        kiln_close(ctx);
    }
    drop_args(ARGS(TEN(f), TEN(i)));
}

static void the_comparison_sees_a_key_without_branches(void **state) {
    (void)state;
    kiln_tensor *i = I32(SIZES(4), 1, 2, 3, 4);
    kiln_value trunc[3] = {TEN(i), TEN(i), NAMED("rounding_mode", kiln_v_str("trunc"))};
    kiln_value floor[3] = {TEN(i), TEN(i), NAMED("rounding_mode", kiln_v_str("floor"))};
    kiln_ctx *ctx = open_mode(KILN_MODE_SYNC);
    confuse(ctx, "div.Tensor_mode", trunc, floor, 3);
    assert_true(notices(honest, ctx, "div.Tensor_mode", KILN_I32));
    kiln_close(ctx);
    kiln_tensor_release(i);
}

/* Both layouts reach as far, so that the wrong kernel reads wrongly but not out of bounds. */
static void the_comparison_sees_a_key_without_layout(void **state) {
    (void)state;
    kiln_tensor *dense = new_tensor(KILN_F32, SIZES(4), NULL),
                *gaps = new_tensor(KILN_F32, SIZES(4), STRIDES(2));
    kiln_ctx *ctx = open_mode(KILN_MODE_SYNC);
    confuse(ctx, "neg", (const kiln_value[]){TEN(dense)}, (const kiln_value[]){TEN(gaps)}, 1);
    assert_true(notices(honest, ctx, "neg", KILN_F32));
    kiln_close(ctx);
    drop_args(ARGS(TEN(dense), TEN(gaps)));
}

/* -- wrong rows --------------------------------------------------------------------------------------- */

static bool notices_row(const char *head, const char *right, const char *wrong, kiln_dtype t) {
    char text[2][500];
    kiln_ctx *ctx[2];
    for (int k = 0; k < 2; k++) {
        snprintf(text[k], sizeof text[k], "map test::row%s = %s\n", head, k ? wrong : right);
        ctx[k] = open_mode(KILN_MODE_INTERP);
        MUST_OK(kiln_ops_load(ctx[k], text[k], strlen(text[k])));
    }
    bool seen = notices(ctx[0], ctx[1], "test::row", t);
    kiln_close(ctx[0]);
    kiln_close(ctx[1]);
    return seen;
}

static void the_comparison_sees_a_wrong_row(void **state) {
    (void)state;
    static const char one[] = "(Tensor self) -> Tensor : to_float";
    static const char two[] = "(Tensor self, Tensor other) -> Tensor : promote(self, other)";
    static const char truth[] = "(Tensor self, Tensor other) -> Tensor : promote(self, other) -> bool";
    static const char whole[] = "(Tensor self, Tensor other) -> Tensor : promote(self, other) takes int";
    static const char real[] = "(Tensor self, Tensor other) -> Tensor : promote(self, other) takes real";
    assert_false(notices_row(two, "self * other", "(self * other)", KILN_F32));
    assert_true(notices_row(two, "self * other", "self + other", KILN_F32));
    assert_true(notices_row(real, "self - other", "other - self", KILN_I64));
    assert_true(notices_row(truth, "self < other", "self <= other", KILN_F64));
    assert_true(notices_row(real, "mod(self, other)", "rem(self, other)", KILN_I32));
    assert_true(notices_row(whole, "floordiv(self, other)", "idiv(self, other)", KILN_I16));
    assert_true(
        notices_row(one, "1 / (1 + exp(-self))", "exp(self) / (1 + exp(self))", KILN_F32)); /* overflows */
    assert_true(notices_row(one, "abs(self)", "self < 0 ? -self : self", KILN_F16)); /* the sign of zero */
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_self_test_refuses_a_corrupted_kernel),
        cmocka_unit_test(the_self_test_sees_behind_a_trap),
        cmocka_unit_test(the_self_test_sees_the_loop_for_columns),
        cmocka_unit_test(the_same_compiler_is_believed_when_it_does_not_lie),
        cmocka_unit_test(the_comparison_sees_a_wrong_kernel),
        cmocka_unit_test(the_comparison_sees_a_wrong_source),
        cmocka_unit_test(the_comparison_sees_a_key_without_dtypes),
        cmocka_unit_test(the_comparison_sees_a_key_without_branches),
        cmocka_unit_test(the_comparison_sees_a_key_without_layout),
        cmocka_unit_test(the_comparison_sees_a_wrong_row),
    };
    return cmocka_run_group_tests(tests, open_honest, close_honest);
}
