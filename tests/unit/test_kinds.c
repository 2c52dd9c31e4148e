/* test_kinds.c - classes that are no kernels, called as any operator is: a routine, a composition, a view.
 *
 * The program has a table of families of its own, in which three rows that look like maps become what no shipped row is
 * yet.  Everything else is the library's: binding, keys, the cache, memos, steps, modes. */
#include "call_cases.h"
#include "family/family.h"
#include "infer/infer_parts.h"
#include "family/lower.h"

static const char rows[] =
    "map my::odd(Tensor self) -> Tensor : takes float = self\n"
    "map my::turned(Tensor self) -> Tensor : takes float = self\n"
    "map my::opposite_sum(Tensor self, Tensor other) -> Tensor : takes float promote(self, other) = self + other\n";

static bool is_row(const kiln_plan *p, const char *name) {
    return strcmp(p->call->op->row->schema->name, name) == 0;
}

/* -- a routine: 2 x + 1, of what is not negative ------------------------------------------------------------- */

static int nroutine;

static int32_t odd(const kiln_launch *l) {
    assert_int_equal(l->ndim, 2);
    nroutine++;
    for (int64_t j = 0; j < l->n[1]; j++)
        for (int64_t i = 0; i < l->n[0]; i++) {
            float *out = (float *)(l->ptr[0] + i * l->stride[0] + j * l->stride[1]);
            const float *x = (const float *)(l->ptr[1] + i * l->stride[2] + j * l->stride[3]);
            if (l->nest == 0 && *x < 0) return KILN_TRAP_BASE;
            if (l->nest == 1) *out = 2 * *x + 1;
        }
    return 0;
}

static const kiln_ir_trap odd_traps[] = {{KILN_E_ARG, "expected no negative element"}};
static const kiln_nests odd_nests = {.n = 2, .nguards = 1, .ntraps = 1, .traps = odd_traps};

/* -- the table ------------------------------------------------------------------------------------------------ */

static kiln_status shape(kiln_plan *p) { return kiln_family_map.shape(p); }

static void set_view(kiln_plan *p) {
    const kiln_tensor *x = p->in[0];
    kiln_shape *s = &p->shape[1];
    kiln_plan_shape(p, s, x->rank);
    s->nelem = x->nelem;
    for (int d = 0; d < x->rank; d++) {
        s->sizes[d] = x->sizes[x->rank - 1 - d];
        s->strides[d] = x->strides[x->rank - 1 - d];
    }
    p->result[0] = (kiln_result){.shape = 1, .view = 1};
}

/* A step that calls operator k of the plan, on n arguments. */
static kiln_call_arg *add_call(kiln_plan *p, uint8_t k, uint8_t n) {
    kiln_step *s = kiln_plan_step(p, KILN_STEP_CALL);
    s->u.call.op = s->u.call.first = k;
    s->u.call.nargs = n;
    s->u.call.nrets = 1;
    p->work.ncalls++;
    return kiln_work_take(&p->work, kiln_work_words_of(n, sizeof(kiln_call_arg)), &s->u.call.args);
}

static void set_calls(kiln_plan *p) {
    const kiln_registry *shipped = kiln_registry_shipped();
    MUST_OK(kiln_registry_find_row(shipped, "aten::add.Tensor", &p->op[0]));
    MUST_OK(kiln_registry_find_row(shipped, "aten::neg", &p->op[1]));
    kiln_call_arg *args = add_call(p, 0, 2);
    args[0] = (kiln_call_arg){.from = 0};
    args[1] = (kiln_call_arg){.from = 1};
    *add_call(p, 1, 1) = (kiln_call_arg){.made = 1, .from = -1};
    p->result[0] = (kiln_result){.shape = 0, .made = 2};
}

static kiln_status axes(kiln_plan *p) {
    KILN_TRY(kiln_family_map.axes(p));
    if (is_row(p, "odd")) p->kind = KILN_CLASS_ROUTINE;
    if (is_row(p, "turned")) p->kind = KILN_CLASS_VIEW;
    if (is_row(p, "opposite_sum")) p->kind = KILN_CLASS_COMPOSITION;
    if (p->kind == KILN_CLASS_VIEW) set_view(p);
    if (p->kind == KILN_CLASS_COMPOSITION) set_calls(p);
    return KILN_OK;
}

static kiln_status lower(kiln_arena *arena, const kiln_plan *p, kiln_lowered *out) {
    if (!is_row(p, "odd")) return kiln_family_map.lower(arena, p, out);
    out->fn = odd;
    out->nests = odd_nests;
    return KILN_OK;
}

static const kiln_family_fns maps = {.shape = shape, .axes = axes, .lower = lower};
const kiln_family_fns *const kiln_families[KILN_FAMILY_COUNT] = {[KILN_FAMILY_MAP] = &maps};

/* -- calls ----------------------------------------------------------------------------------------------------- */

static kiln_ctx *open_rows(kiln_mode mode) {
    kiln_ctx *ctx = open_mode(mode);
    MUST_OK(kiln_ops_load(ctx, rows, strlen(rows)));
    return ctx;
}

#define EACH_MODE(mode) \
    for (kiln_mode mode = KILN_MODE_TIERED; mode <= KILN_MODE_FROZEN; mode = (kiln_mode)(mode + 1))

static void a_routine_answers_and_is_remembered(void **state) {
    (void)state;
    EACH_MODE(mode) {
        kiln_ctx *ctx = open_rows(mode);
        kiln_tensor *x = F32(SIZES(2, 3), 0, 1, 2, 3, 4, 5);
        nroutine = 0;
        for (int k = 1; k <= 5; k++) {
            kiln_tensor *y = call1(ctx, "my::odd", ARGS(TEN(x)));
            HOLDS_F32(y, SIZES(2, 3), 1, 3, 5, 7, 9, 11);
            kiln_tensor_release(y);
            assert_int_equal(nroutine, 2 * k);
        }
        kiln_stats s = stats_of(ctx);
        assert_int_equal(s.calls, 5);
        assert_int_equal(s.misses, 1);
        assert_int_equal(s.interp_calls + s.compiles + s.compile_failures + s.frozen_misses + s.fallbacks, 0);
        kiln_tensor_release(x);
        kiln_close(ctx);
    }
}

static void a_routine_may_refuse_before_anything_is_written(void **state) {
    (void)state;
    kiln_ctx *ctx = open_rows(KILN_MODE_TIERED);
    kiln_tensor *x = F32(SIZES(2), 0, -1), *out = NULL;
    for (int k = 0; k < 3; k++) {
        assert_int_equal(kiln_call(ctx, op_of(ctx, "my::odd"), ARGS(TEN(x)), &out, 1), KILN_E_ARG);
        assert_string_equal(kiln_last_error(), "my::odd: expected no negative element");
    }
    kiln_tensor_release(x);
    kiln_close(ctx);
}

static void a_view_shares_memory_and_keeps_it(void **state) {
    (void)state;
    EACH_MODE(mode) {
        kiln_ctx *ctx = open_rows(mode);
        kiln_tensor *x = F32(SIZES(2, 3), 0, 1, 2, 3, 4, 5);
        for (int k = 0; k < 3; k++) kiln_tensor_release(call1(ctx, "my::turned", ARGS(TEN(x))));
        kiln_tensor *y = call1(ctx, "my::turned", ARGS(TEN(x)));
        assert_ptr_equal(kiln_tensor_data(y), kiln_tensor_data(x));
        assert_shape(y, KILN_F32, SIZES(3, 2));
        kiln_tensor_release(x);
        kiln_tensor *z = call1(ctx, "my::odd", ARGS(TEN(y)));
        const float want[] = {1, 7, 3, 9, 5, 11};
        for (int i = 0; i < 3; i++)
            for (int j = 0; j < 2; j++) {
                const int64_t *st = kiln_tensor_strides(z);
                assert_true(((const float *)kiln_tensor_data(z))[i * st[0] + j * st[1]] == want[i * 2 + j]);
            }
        assert_int_equal(stats_of(ctx).interp_calls + stats_of(ctx).compiles, 0);
        kiln_tensor_release(y);
        kiln_tensor_release(z);
        kiln_close(ctx);
    }
}

static void a_view_of_what_must_not_be_written_is_such(void **state) {
    (void)state;
    kiln_ctx *ctx = open_rows(KILN_MODE_INTERP);
    kiln_tensor *x = F32(SIZES(2), 1, 2);
    kiln_tensor_set_readonly(x);
    kiln_tensor *y = call1(ctx, "my::turned", ARGS(TEN(x))), *out;
    assert_int_equal(kiln_call(ctx, op_of(ctx, "aten::neg_"), ARGS(TEN(y)), &out, 1), KILN_E_ARG);
    kiln_tensor_release(x);
    kiln_tensor_release(y);
    kiln_close(ctx);
}

static void a_composition_calls_operators(void **state) {
    (void)state;
    EACH_MODE(mode) {
        kiln_ctx *ctx = open_rows(mode);
        kiln_tensor *x = F32(SIZES(2, 2), 1, 2, 3, 4), *row = F32(SIZES(2), 10, 20);
        for (int k = 0; k < 4; k++) {
            kiln_tensor *y = call1(ctx, "my::opposite_sum", ARGS(TEN(x), TEN(row)));
            HOLDS_F32(y, SIZES(2, 2), -11, -22, -13, -24);
            kiln_tensor_release(y);
        }
        kiln_stats s = stats_of(ctx);
        assert_int_equal(s.calls, 4);
        assert_int_equal(s.inner_calls, 8);
        assert_int_equal(s.misses, 2); /* one for each class: a composition has none */
        assert_int_equal(s.slot_hits + s.table_hits, 3);
        assert_int_equal(s.interp_calls, mode == KILN_MODE_SYNC ? 0 : 4);
        kiln_tensor_release(x);
        kiln_tensor_release(row);
        kiln_close(ctx);
    }
}

/* -- in words --------------------------------------------------------------------------------------------------- */

static void assert_explains(kiln_ctx *ctx, const char *name, const kiln_value *args, size_t nargs,
                            const char *has) {
    char *text;
    MUST_OK(kiln_explain(ctx, op_of(ctx, name), args, nargs, "plan", &text));
    if (!strstr(text, has)) fail_msg("%s: not found: %s\nin: %s", name, has, text);
    kiln_text_free(text);
    MUST_OK(kiln_explain(ctx, op_of(ctx, name), args, nargs, "key", &text));
    kiln_text_free(text);
    assert_int_equal(kiln_explain(ctx, op_of(ctx, name), args, nargs, "ir", &text), KILN_E_UNSUP);
}

static void kinds_are_explained(void **state) {
    (void)state;
    kiln_ctx *ctx = open_rows(KILN_MODE_INTERP);
    kiln_tensor *x = F32(SIZES(2, 3), 0, 1, 2, 3, 4, 5);
    assert_explains(ctx, "my::odd", ARGS(TEN(x)), "kind: routine\n");
    assert_explains(ctx, "my::turned", ARGS(TEN(x)), "f32[3, 2] strides (1, 3), view of self at byte 0\n");
    assert_explains(ctx, "my::opposite_sum", ARGS(TEN(x), TEN(x)),
                    "steps:\n  call aten::add.Tensor\n  call aten::neg\n");
    kiln_tensor_release(x);
    kiln_close(ctx);
}

/* A kernel that is held needs no compiler if there is nothing to compile. */
static void what_needs_no_kernel_is_prepared_at_once(void **state) {
    (void)state;
    kiln_ctx *ctx = open_with((kiln_config){.mode = KILN_MODE_TIERED, .cc = "/no/such/compiler"});
    MUST_OK(kiln_ops_load(ctx, rows, strlen(rows)));
    kiln_tensor *x = F32(SIZES(2), 3, 4), *y;
    static const char *const names[] = {"my::odd", "my::turned"};
    for (int k = 0; k < 2; k++) {
        kiln_kernel *held;
        MUST_OK(kiln_prepare(ctx, op_of(ctx, names[k]), ARGS(TEN(x)), &held));
        MUST_OK(kiln_kernel_run(held, ARGS(TEN(x)), &y, 1));
        HOLDS_F32(y, SIZES(2), k ? 3 : 7, k ? 4 : 9);
        kiln_tensor_release(y);
        kiln_kernel_release(held);
    }
    kiln_tensor_release(x);
    kiln_close(ctx);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_routine_answers_and_is_remembered),
        cmocka_unit_test(a_routine_may_refuse_before_anything_is_written),
        cmocka_unit_test(a_view_shares_memory_and_keeps_it),
        cmocka_unit_test(a_view_of_what_must_not_be_written_is_such),
        cmocka_unit_test(a_composition_calls_operators),
        cmocka_unit_test(kinds_are_explained),
        cmocka_unit_test(what_needs_no_kernel_is_prepared_at_once),
    };
    return cmocka_run_group_tests(tests, call_setup, call_teardown);
}
