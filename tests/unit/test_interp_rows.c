/* test_interp_rows.c - short rows that the interpreter folds side by side have the bits of the kernels that fold each row by vectors.
 *
 * The interpreter turns such rows and goes through its instructions once for many of them (src/run/turned.c), with a program of its
 * own.  Kernels are the judge; under sanitizers, which see nothing in kernels, the judge is the interpreter one row at a time.
 * Inputs end at forbidden pages. */
#include "tier_compare.h"

static kiln_ctx *interp, *judge;

static int open_both(void **state) {
    if (call_setup(state) != 0) return -1;
    interp = open_mode(KILN_MODE_INTERP);
    judge = open_mode(SANITIZED ? KILN_MODE_INTERP : KILN_MODE_SYNC);
    return 0;
}

static int close_both(void **state) {
    kiln_close(interp);
    kiln_close(judge);
    return call_teardown(state);
}

/* -- calls ------------------------------------------------------------------------------------------------ */

/* What follows the tensor. */
typedef enum more { DIMS, DIM, FLAG, NORM, WEIGHTED, PAIR } more;

static const struct fold_case {
    const char *name;
    more more;
    kiln_dtype dtypes[3]; /* KILN_DTYPE_COUNT ends them */
} cases[] = {{"sum.dim_IntList", DIMS, {KILN_F32, KILN_F16, KILN_C64}},
             {"amax", DIMS, {KILN_F32, KILN_I32, KILN_U8}},
             {"argmin", DIM, {KILN_F32, KILN_I64, KILN_BF16}},
             {"max.dim", DIM, {KILN_F32, KILN_I16, KILN_F64}},
             {"any.dim", DIM, {KILN_F32, KILN_BOOL, KILN_DTYPE_COUNT}},
             {"prod.dim_int", DIM, {KILN_F32, KILN_I32, KILN_BOOL}},
             {"var_mean.dim", DIMS, {KILN_F32, KILN_F64, KILN_F16}},
             {"logsumexp", DIMS, {KILN_F32, KILN_F64, KILN_DTYPE_COUNT}},
             {"norm.ScalarOpt_dim", NORM, {KILN_F32, KILN_C64, KILN_DTYPE_COUNT}},
             {"_softmax", FLAG, {KILN_F32, KILN_F64, KILN_BF16}},
             {"_log_softmax", FLAG, {KILN_F32, KILN_F16, KILN_DTYPE_COUNT}},
             {"native_layer_norm", WEIGHTED, {KILN_F32, KILN_F64, KILN_DTYPE_COUNT}},
             {"cosine_similarity", PAIR, {KILN_F32, KILN_F64, KILN_DTYPE_COUNT}}};
enum { CASES = sizeof cases / sizeof *cases };

/* Rows from the fewest that are turned on, of both sides of what fills vectors, blocks and the longest; and some that are not. */
static const int64_t shapes[][3] = {{1, 8, 2},    {1, 8, 16},    {1, 9, 17},   {1, 16, 32},  {1, 13, 5},
                                    {1, 33, 63},  {1, 32, 32},   {1, 63, 64},  {1, 64, 100}, {3, 20, 40},
                                    {2, 64, 65},  {1, 130, 128}, {1, 300, 70}, {1, 7, 9},    {1, 8, 17},
                                    {1, 70, 129}, {1, 12, 0},    {1, 12, 1}};
enum { SHAPES = sizeof shapes / sizeof *shapes };

typedef struct request {
    kiln_value args[8], item;
    size_t n;
} request;

/* gap: elements between rows. */
static kiln_value tensor(kiln_dtype t, const int64_t *s, int64_t gap, uint64_t *seed) {
    const int64_t strides[3] = {s[1] * (s[2] + gap), s[2] + gap, 1};
    return kiln_v_tensor(guarded_filled(t, 3, s, strides, seed, true));
}

static void make_request(const struct fold_case *f, kiln_dtype t, const int64_t *s, int64_t gap,
                         uint64_t *seed, request *r) {
    r->n = 1;
    r->args[0] = tensor(t, s, gap, seed);
    r->item = kiln_v_int(f->more == WEIGHTED ? s[2] : 2);
    if (f->more == PAIR) r->args[r->n++] = tensor(t, s, gap, seed);
    if (f->more == NORM) r->args[r->n++] = kiln_v_float(2);
    if (f->more == DIMS || f->more == NORM || f->more == WEIGHTED) r->args[r->n++] = kiln_v_list(&r->item, 1);
    if (f->more == DIM || f->more == FLAG || f->more == PAIR) r->args[r->n++] = r->item;
    if (f->more == FLAG) r->args[r->n++] = kiln_v_bool(0);
    for (int k = 0; k < 2 && f->more == WEIGHTED; k++)
        r->args[r->n++] = kiln_v_tensor(guarded_filled(t, 1, &s[2], (int64_t[]){1}, seed, true));
    if (f->more == WEIGHTED) r->args[r->n++] = kiln_v_float(1e-5);
}

/* Whether ctx folds the call's rows side by side.  never: from now on it does not. */
static bool turns(kiln_ctx *ctx, const struct fold_case *f, const request *r, bool never) {
    kiln_bound call;
    kiln_plan plan;
    kiln_class *c = NULL;
    MUST_OK(kiln_bind(op_of(ctx, f->name), r->args, r->n, &call));
    if (kiln_infer(&call, &plan) != KILN_OK) return false;
    kiln_thread *t = kiln_thread_of(&ctx->epochs);
    kiln_thread_enter(&ctx->epochs, t);
    MUST_OK(kiln_class_of(ctx, &plan, &c));
    kiln_axes x;
    kiln_work_axes(&plan.work, &x);
    bool turned = c->kind == KILN_CLASS_KERNEL && c->program->can_turn && kiln_turned_by_interp(&x);
    if (turned && !never) assert_non_null(atomic_load(&c->program->across));
    if (turned && never) c->program->can_turn = false;
    kiln_thread_leave(t);
    return turned;
}

static long check_case(const struct fold_case *f, kiln_dtype t, int64_t gap, uint64_t *seed) {
    long turned = 0;
    char why[WHY_MAX];
    kiln_status st;
    for (int k = 0; k < SHAPES; k++) {
        request r;
        make_request(f, t, shapes[k], gap, seed, &r);
        if (SANITIZED) (void)turns(judge, f, &r, true);
        for (int again = 0; again < 3; again++) { /* by a memo as well */
            if (!tiers_agree(interp, judge, NULL, f->name, r.args, r.n, &st, why))
                fail_msg("%s of %s [%d, %d, %d]: %s", f->name, kiln_dtype_name(t), (int)shapes[k][0],
                         (int)shapes[k][1], (int)shapes[k][2], why);
        }
        turned += st == KILN_OK && turns(interp, f, &r, false);
        drop_args(r.args, r.n);
    }
    return turned;
}

static void rows_side_by_side_have_the_bits_of_kernels(void **state) {
    (void)state;
    uint64_t seed = 3;
    for (int k = 0; k < CASES; k++) {
        long turned = 0;
        for (int t = 0; t < 3 && cases[k].dtypes[t] != KILN_DTYPE_COUNT; t++)
            for (int64_t gap = 0; gap < 4; gap += 3)
                turned += check_case(&cases[k], cases[k].dtypes[t], gap, &seed);
        if (turned < 8) fail_msg("%s: rows of %ld calls were folded side by side", cases[k].name, turned);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(rows_side_by_side_have_the_bits_of_kernels)};
    return cmocka_run_group_tests(tests, open_both, close_both);
}
