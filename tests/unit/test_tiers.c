/* test_tiers.c - compiled kernels and the interpreter give the same bits, for every served operator.
 *
 * One overload of each name, as others compute the same, of a seeded choice of dtypes, each dense, and in other layouts the
 * first call of each combination of operands: how a kernel reaches them does not depend on what it computes.
 * KILN_TEST_ALL takes every row, every dtype it takes, and every layout.
 * Inputs end at forbidden pages, so that a kernel which reads past them dies.  Sanitizers do not see into kernels,
 * and each costs a compile: under them both contexts interpret, so that they watch over every row's loops. */
#include "tier_compare.h"
#include "whole.h"

static const kiln_mode FAST = SANITIZED ? KILN_MODE_INTERP : KILN_MODE_SYNC;
static kiln_ctx *interp, *compiled;

static int open_tiers(void **state) {
    if (call_setup(state) != 0) return -1;
    interp = open_mode(KILN_MODE_INTERP);
    compiled = open_mode(FAST);
    return 0;
}

static int close_tiers(void **state) {
    kiln_close(interp);
    kiln_close(compiled);
    return call_teardown(state);
}

static size_t name_length(const kiln_op *op) { return strcspn(op->name, "."); }

/* Whether operator k is an element-wise one whose name no operator before it has, or any such in a whole run. */
static bool is_compared(size_t k) {
    const kiln_op *op = kiln_op_at(interp, k);
    if (op->form != KILN_FORM_FUNCTIONAL || op->row->family != KILN_FAMILY_MAP) return false;
    for (size_t j = 0; j < k && !whole_run(); j++) {
        const kiln_op *other = kiln_op_at(interp, j);
        if (other->form == KILN_FORM_FUNCTIONAL && name_length(other) == name_length(op) &&
            memcmp(other->name, op->name, name_length(op)) == 0)
            return false;
    }
    return true;
}

static size_t count_rows(void) {
    size_t n = 0;
    for (size_t k = 0; k < kiln_op_count(interp); k++) n += is_compared(k);
    return n;
}

/* The dtypes a row is compared for: all it takes, or seeded ones among them, fewer the more rows there are:
 * each class costs a compile. */
static kiln_dtypes chosen_dtypes(const kiln_row *row, size_t seed, size_t nrows) {
    kiln_dtypes takes = row->takes ? row->takes : KILN_DT_ALL, chosen = 0;
    if (whole_run()) return takes;
    int want = nrows <= 100 ? 2 : 1;
    for (int n = 0; n < want && takes & ~chosen; n++) {
        kiln_dtypes left = takes & ~chosen;
        size_t skip = (seed * 7 + (size_t)n * 3) % (size_t)__builtin_popcount(left);
        for (; skip > 0; skip--) left &= left - 1;
        chosen |= left & -left;
    }
    return chosen;
}

/* A row that is the first with so many tensors, results of such kinds and arguments of dtype t is compared in each
 * usual layout, the others in those of the dense class. */
static unsigned chosen_layouts(const kiln_row *row, kiln_dtype t) {
    enum { TENSORS = 5, RESULTS = 8 };
    static bool seen[TENSORS][RESULTS][KILN_DTYPE_COUNT];
    int tensors = 0, results = 0;
    for (int a = 0; a < row->schema->nargs; a++) tensors += kiln_row_is_tensor(row, a);
    for (int r = 0; r < row->schema->nrets; r++) results += 1 + 3 * (row->typing.ret[r] == KILN_BOOL);
    bool *known = &seen[tensors % TENSORS][results % RESULTS][t];
    if (whole_run()) return ALL_LAYOUTS;
    if (*known) return 1u << LAYOUT_DENSE | 1u << LAYOUT_ROWS;
    *known = true;
    return USUAL_LAYOUTS;
}

static long compare_dtype(const kiln_op *op, kiln_dtype first, kiln_dtype rest, unsigned layouts,
                          uint64_t seed) {
    char why[WHY_MAX];
    tier_task task = {.a = interp, .b = compiled, .name = op->name, .first = first, .rest = rest};
    task.layouts = layouts;
    task.seed = seed;
    if (!compare_row(&task, why)) fail_msg("%s", why);
    return task.calls;
}

static void compiled_kernels_agree_with_the_interpreter(void **state) {
    (void)state;
    size_t rows = 0, nrows = count_rows();
    for (size_t k = 0; k < kiln_op_count(interp); k++) {
        const kiln_op *op = kiln_op_at(interp, k);
        if (!is_compared(k)) continue;
        kiln_dtypes chosen = chosen_dtypes(op->row, rows, nrows);
        long calls = 0;
        for (kiln_dtype t = 0; t < KILN_DTYPE_COUNT; t++)
            if (chosen & KILN_DT(t)) calls += compare_dtype(op, t, t, chosen_layouts(op->row, t), k);
        rows++;
        if (calls < 20)
            fail_msg("%s was compared in only %ld calls, of dtypes %#x", op->name, calls, (unsigned)chosen);
    }
    assert_true(rows > 150);
    kiln_stats s = stats_of(compiled);
    assert_int_equal(s.compile_failures, 0);
    assert_int_equal(s.fallbacks, 0);
    assert_int_equal(s.compiles, s.kernels);
    if (SANITIZED)
        assert_int_equal(s.compiles, 0);
    else
        assert_int_equal(s.interp_calls, 0);
    assert_int_equal(stats_of(interp).compiles, 0);
}

/* Operands of different dtypes are promoted in both tiers alike. */
static void mixed_dtypes_agree(void **state) {
    (void)state;
    static const kiln_dtype pairs[][2] = {{KILN_F32, KILN_F64},  {KILN_I64, KILN_F16},  {KILN_BOOL, KILN_U8},
                                          {KILN_BF16, KILN_F16}, {KILN_U8, KILN_I8},    {KILN_I16, KILN_F32},
                                          {KILN_F64, KILN_I64},  {KILN_BOOL, KILN_BF16}};
    static const char *const names[] = {"add.Tensor", "where.self", "lt.Tensor", "div.Tensor", "maximum"};
    int every = whole_run() ? 1 : 4;
    for (size_t n = 0; n < sizeof names / sizeof *names; n++)
        for (size_t p = 0; p < sizeof pairs / sizeof *pairs; p++)
            if ((n + p) % (size_t)every == 0)
                assert_true(compare_dtype(op_of(interp, names[n]), pairs[p][0], pairs[p][1], 0, n * 16 + p) >
                            0);
}

/* In-place calls share the functional form's kernels and must not read what they have written. */
static void in_place_calls_agree(void **state) {
    (void)state;
    static const char *const names[] = {"add_.Tensor", "mul_.Tensor", "neg_", "clamp_", "addcmul_"};
    for (size_t n = 0; n < sizeof names / sizeof *names; n++)
        assert_true(compare_dtype(op_of(interp, names[n]), KILN_F32, KILN_F32, 0, n) > 20);
}

/* A compiler that takes rounding to be to nearest says that x - 0 is x; -0 it is when rounding downward. */
static void zeros_that_a_compiler_knows_agree(void **state) {
    (void)state;
    assert_true(compare_dtype(op_of(interp, "lerp.Scalar"), KILN_C64, KILN_C64, 0, 1) > 20);
}

/* -- ISA levels --------------------------------------------------------------------------------------- */

/* Operators whose code differs most between levels: fused arithmetic, conversions, masks, integers. */
static const struct level_case {
    const char *name;
    kiln_dtype dtype;
} level_cases[] = {{"exp", KILN_F32},
                   {"sin", KILN_F64},
                   {"tanh", KILN_F16},
                   {"sigmoid", KILN_BF16},
                   {"gelu", KILN_F32},
                   {"erf", KILN_F64},
                   {"log", KILN_F32},
                   {"mul.Tensor", KILN_I64},
                   {"round", KILN_F32},
                   {"rsqrt", KILN_F32},
                   {"fmod.Tensor", KILN_F64},
                   {"floor_divide", KILN_I32},
                   {"pow.Tensor_Tensor", KILN_F32},
                   {"where.self", KILN_U8},
                   {"frexp.Tensor", KILN_F64},
                   {"addcmul", KILN_F32},
                   {"isnan", KILN_F16},
                   {"lerp.Scalar", KILN_F32}};

static void compare_levels(kiln_ctx *a, kiln_ctx *b, int every) {
    char why[WHY_MAX];
    for (size_t k = 0; k < sizeof level_cases / sizeof *level_cases; k++) {
        if (!whole_run() && (int)k % every != 0) continue;
        tier_task task = {.a = a,
                          .b = b,
                          .name = level_cases[k].name,
                          .first = level_cases[k].dtype,
                          .rest = level_cases[k].dtype,
                          .seed = k};
        if (!compare_row(&task, why)) fail_msg("%s", why);
        assert_true(task.calls > 20);
    }
}

static kiln_ctx *open_level(kiln_mode mode, const char *isa) {
    kiln_ctx *ctx = NULL;
    kiln_config c = {.size = sizeof c, .mode = mode, .isa = isa};
    return kiln_open(&c, &ctx) == KILN_OK ? ctx : NULL;
}

/* Levels with fused multiply-add give equal bits at every vector width; a level's own tiers always agree. */
static void levels_agree(void **state) {
    (void)state;
    static const char *const levels[] = {"generic", "x86-64-v2", "x86-64-v3", "x86-64-v4"};
    enum { N = sizeof levels / sizeof *levels, FUSED = 2 };
    kiln_ctx *slow[N], *fast[N];
    for (int k = 0; k < N; k++) {
        slow[k] = open_level(KILN_MODE_INTERP, levels[k]);
        fast[k] = open_level(FAST, levels[k]);
        if (slow[k] && fast[k]) compare_levels(slow[k], fast[k], k == N - 1 ? 1 : 3);
    }
    for (int k = FUSED + 1; k < N; k++) {
        if (slow[FUSED] && slow[k]) compare_levels(slow[FUSED], slow[k], 1);
        if (fast[FUSED] && fast[k]) compare_levels(fast[FUSED], fast[k], 3);
    }
    for (int k = 0; k < N; k++) {
        kiln_close(slow[k]);
        kiln_close(fast[k]);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(compiled_kernels_agree_with_the_interpreter),
        cmocka_unit_test(mixed_dtypes_agree),
        cmocka_unit_test(in_place_calls_agree),
        cmocka_unit_test(zeros_that_a_compiler_knows_agree),
        cmocka_unit_test(levels_agree),
    };
    return cmocka_run_group_tests(tests, open_tiers, close_tiers);
}
