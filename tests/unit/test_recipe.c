/* test_recipe.c - random calls: does a recipe say what binding and inferring anew would?
 *
 * Calls of a few operators, in all their forms, with arguments that change kind, dtype, name, shape and strides or do
 * not fit.  Where the thread has a recipe, the call it binds, its plan, its class and its failures must be those
 * that kiln_bind, kiln_infer and the key give; and kiln_call, which uses recipes, must end as these say.  A
 * recipe that asks too little is planted, and must be found out. */
#include "api/memo.h"
#include "tier_compare.h"

enum { CALLS = 20000, LIKE_IT = 4, RANK_MAX = 5, ROOM = 4096 };

static const char *const ops[] = {"neg",          "add.Tensor",          "add_.Tensor",
                                  "add.out",      "add.Scalar",          "div.Tensor_mode",
                                  "div.out_mode", "pow.Tensor_Scalar",   "where.self",
                                  "clamp",        "clamp.Tensor",        "gelu",
                                  "lerp.Tensor",  "lerp.Tensor_out",     "addcmul",
                                  "frexp.Tensor", "masked_fill_.Tensor", "nan_to_num",
                                  "maximum.out",  "bitwise_and.Tensor",  "celu.out"};
enum { OPS = sizeof ops / sizeof *ops };

typedef struct fuzz {
    kiln_ctx *ctx;
    uint64_t seed;
    bool forgetful; /* recipes do not ask what their first value is */
    long found, classed, failed, wrong;
    char why[WHY_MAX];
} fuzz;

/* -- calls -------------------------------------------------------------------------------------------------- */

static _Alignas(64) char room[ROOM];

static bool one_in(fuzz *f, uint64_t n) { return draw(&f->seed) % n == 0; }

static int any_shape(fuzz *f, int64_t *shape) {
    int rank = (int)(draw(&f->seed) % (RANK_MAX + 1));
    for (int d = 0; d < rank; d++) shape[d] = one_in(f, 30) ? 0 : 1 + (int64_t)(draw(&f->seed) % 3);
    return rank;
}

/* Of the shape or broadcast to it, in any order of dimensions, with gaps or stretched, seldom of another shape. */
static kiln_tensor *any_tensor(fuzz *f, kiln_dtype dtype, int rank, const int64_t *shape) {
    int64_t sizes[RANK_MAX], strides[RANK_MAX], next = one_in(f, 5) ? 2 : 1;
    int from = one_in(f, 3) ? (int)(draw(&f->seed) % (uint64_t)(rank + 1)) : 0, order[RANK_MAX];
    bool permuted = one_in(f, 2), owned = one_in(f, 4);
    rank -= from;
    for (int d = 0; d < rank; d++) {
        sizes[d] = one_in(f, 6) ? 1 : one_in(f, 60) ? 2 : shape[from + d];
        order[d] = d;
        int other = (int)(draw(&f->seed) % (uint64_t)(d + 1));
        if (!permuted) continue;
        order[d] = order[other];
        order[other] = d;
    }
    for (int k = rank - 1; k >= 0; k--) {
        strides[order[k]] = one_in(f, 20) ? 0 : next;
        next *= sizes[order[k]] ? sizes[order[k]] : 1;
    }
    kiln_tensor *t;
    if (!owned) {
        MUST_OK(kiln_tensor_wrap(room, dtype, rank, sizes, strides, NULL, NULL, &t));
        return t;
    }
    MUST_OK(kiln_tensor_new(dtype, rank, sizes, NULL, &t));
    memset(t->data, 1, (size_t)t->nelem * kiln_dtype_size(dtype));
    return t;
}

static kiln_value any_value(fuzz *f, kiln_tkind kind, kiln_dtype first, int rank, const int64_t *shape) {
    static const kiln_dtype dtypes[] = {KILN_F32, KILN_I32, KILN_F16, KILN_BOOL, KILN_F64};
    static const char *const texts[] = {"floor", "trunc", "none", "tanh", "a text that is too long"};
    uint64_t r = draw(&f->seed) >> 8;
    if (kind == KILN_T_TENSOR)
        return kiln_v_tensor(any_tensor(f, one_in(f, 6) ? dtypes[r % 5] : first, rank, shape));
    if (kind == KILN_T_STR && !one_in(f, 20)) return kiln_v_str(texts[one_in(f, 10) ? 4 : r % 4]);
    switch (r % 8) {
    case 0: return kiln_v_none();
    case 1: return kiln_v_bool(r >> 8 & 1);
    case 2: return (kiln_value){.kind = KILN_COMPLEX_V, .u.c = {1, one_in(f, 2)}};
    case 3: return kiln_v_uint(one_in(f, 4) ? UINT64_MAX - r % 3 : r % 3);
    case 4: return kiln_v_int((int64_t)(r >> 8) % 5 - 1);
    default: return kiln_v_float((double)((r >> 8) % 9) / 4);
    }
}

static size_t any_args(fuzz *f, const kiln_op *op, kiln_value *args) {
    static const kiln_dtype dtypes[] = {KILN_F32, KILN_F32, KILN_I32, KILN_F16, KILN_BOOL};
    int64_t shape[RANK_MAX];
    int rank = any_shape(f, shape);
    size_t n = 0;
    kiln_dtype first = dtypes[draw(&f->seed) % 5];
    bool named = false;
    for (int a = 0; a < op->schema->nargs; a++) {
        const kiln_param *p = &op->schema->args[a];
        if (p->def.kind != KILN_DEF_ABSENT && one_in(f, 2)) {
            named = true;
            continue;
        }
        kiln_dtype dtype = kiln_op_arg(op, a) >= 0 && op->row->arg_takes[a] ? KILN_BOOL : first;
        args[n] = any_value(f, kiln_type_strip(p->type, NULL)->kind, dtype, rank, shape);
        named = named || p->kwarg_only || one_in(f, 8);
        if (named) args[n] = kiln_v_named(p->name, args[n]);
        n++;
    }
    return n;
}

/* -- judging ------------------------------------------------------------------------------------------------ */

static bool same_value(const kiln_value *a, const kiln_value *b) {
    if (a->kind != b->kind || a->name != b->name) return false;
    if (a->kind == KILN_STR_V) return strcmp(a->u.s, b->u.s) == 0;
    if (a->kind == KILN_COMPLEX_V && a->u.c.im != b->u.c.im) return false;
    return a->kind == KILN_NONE || a->u.i == b->u.i;
}

static bool same_bound(const kiln_bound *a, const kiln_bound *b) {
    if (a->op != b->op || a->nout != b->nout) return false;
    for (int k = 0; k < a->nout; k++)
        if (a->out[k] != b->out[k] || a->given_out[k] != b->given_out[k]) return false;
    for (int s = 0; s < a->op->row->schema->nargs; s++)
        if (a->given[s] != b->given[s] || !same_value(&a->arg[s], &b->arg[s])) return false;
    return true;
}

static bool same_axes(const kiln_plan *a, const kiln_plan *b) {
    const kiln_axes_counts *x = &a->axes, *y = &b->axes;
    if (x->ndim != y->ndim || x->ngrid != y->ngrid || x->nbuffers != y->nbuffers ||
        x->strided != y->strided || a->work.nbuffers != b->work.nbuffers ||
        a->work.nsteps != b->work.nsteps || a->form != b->form)
        return false;
    for (int k = 0; k < a->work.nbuffers; k++) {
        const kiln_buffer *u = &a->buffer[k], *v = &b->buffer[k];
        if (kiln_plan_tensor(a, k) != kiln_plan_tensor(b, k) || u->kind != v->kind || u->which != v->which ||
            u->dtype != v->dtype || (k < x->nbuffers && u->stride != v->stride))
            return false;
        if (memcmp(a->stride[k], b->stride[k], (size_t)x->ndim * sizeof *a->n) != 0) return false;
    }
    return memcmp(a->n, b->n, (size_t)x->ndim * sizeof *a->n) == 0;
}

static bool same_shape(const kiln_shape *a, const kiln_shape *b) {
    size_t n = (size_t)a->rank * sizeof *a->sizes;
    return a->rank == b->rank && a->nelem == b->nelem && memcmp(a->sizes, b->sizes, n) == 0 &&
           memcmp(a->strides, b->strides, n) == 0;
}

static bool same_plan(const kiln_plan *a, const kiln_plan *b) {
    const kiln_typed *t = &a->typed, *u = &b->typed;
    if (t->branch != u->branch || t->promoted != u->promoted || t->common != u->common ||
        t->exact != u->exact || t->nrets != u->nrets || a->aside != b->aside || a->uniform != b->uniform ||
        a->stride_bits != b->stride_bits || !same_shape(a->shape, b->shape))
        return false;
    for (int k = 0; k < t->nrets; k++)
        if (t->ret_dtype[k] != u->ret_dtype[k] || a->result[k].resized != b->result[k].resized) return false;
    return same_axes(a, b);
}

/* Statuses, and texts up to where in the source they were written. */
static bool same_failure(kiln_status a, const char *text, kiln_status b) {
    return a == b && (a == KILN_OK || strncmp(text, kiln_last_error(), strcspn(text, "[")) == 0);
}

static void blame(fuzz *f, const kiln_op *op, const char *what) {
    f->wrong++;
    snprintf(f->why, sizeof f->why, "%s: %s", op->name, what);
}

static bool has_key(const kiln_class *c, const kiln_plan *plan) {
    kiln_key key;
    kiln_plan_key(plan, c->ctx->isa, &key);
    return key.n == c->entry.n && memcmp(key.bytes, c->entry.key, key.n) == 0;
}

/* A recipe beside the call bound and inferred anew. */
static void compare(fuzz *f, const kiln_op *op, const kiln_value *args, size_t n) {
    static kiln_bound one, two;
    static kiln_plan a, b;
    char text[WHY_MAX];
    kiln_recipe *r = kiln_recipe_find(kiln_thread_of(&f->ctx->epochs), op, args, n);
    if (!r) return;
    kiln_recipe_bind(r, args, &one);
    f->found++;
    if (kiln_bind(op, args, n, &two) != KILN_OK || !same_bound(&one, &two)) {
        blame(f, op, "bound otherwise");
        return;
    }
    kiln_status st = kiln_infer(&two, &a);
    snprintf(text, sizeof text, "%s", st == KILN_OK ? "" : kiln_last_error());
    if (!same_failure(st, text, kiln_infer_again(&one, &r->typed, &b)))
        blame(f, op, "another failure");
    else if (st == KILN_OK && !same_plan(&a, &b))
        blame(f, op, "another plan");
    if (st != KILN_OK || f->wrong) return;
    const kiln_class *c = kiln_recipe_class(r, kiln_generation(&f->ctx->epochs), &b);
    f->classed += c != NULL;
    if (c && !has_key(c, &a)) blame(f, op, "another class");
}

static bool is_as_inferred(const kiln_result_info *info, const kiln_tensor *t) {
    size_t n = (size_t)info->rank * sizeof *info->sizes;
    return info->dtype == (kiln_dtype)t->dtype && info->rank == t->rank &&
           memcmp(info->sizes, t->sizes, n) == 0 && memcmp(info->strides, t->strides, n) == 0;
}

/* The call itself: refused where and how inferring its results refuses it, and with the results that were inferred. */
static void call(fuzz *f, const kiln_op *op, const kiln_value *args, size_t n) {
    static kiln_result_info info[KILN_MAX_RETS];
    char text[WHY_MAX] = "";
    kiln_tensor *outs[KILN_MAX_RETS];
    size_t nrets = 0;
    kiln_status st = kiln_infer_results(f->ctx, op, args, n, info, KILN_MAX_RETS, &nrets);
    if (st != KILN_OK) snprintf(text, sizeof text, "%s", kiln_last_error());
    kiln_status got = kiln_call(f->ctx, op, args, n, outs, KILN_MAX_RETS);
    f->failed += got != KILN_OK;
    if (st != KILN_OK && !same_failure(st, text, got)) blame(f, op, "the call ended otherwise");
    if (got == KILN_OK && nrets != kiln_op_nrets(op)) blame(f, op, "another number of results was inferred");
    for (size_t k = 0; got == KILN_OK && k < kiln_op_nrets(op); k++) {
        if (k < nrets && !is_as_inferred(&info[k], outs[k]))
            blame(f, op, "a result is not as it was inferred");
        kiln_tensor_release(outs[k]);
    }
}

/* Other tensors of the same dtypes. */
static void any_shapes(fuzz *f, kiln_value *args, size_t n) {
    int64_t shape[RANK_MAX];
    int rank = any_shape(f, shape);
    for (size_t i = 0; i < n; i++) {
        if (args[i].kind != KILN_TENSOR) continue;
        kiln_dtype dtype = (kiln_dtype)args[i].u.tensor->dtype;
        kiln_tensor_release(args[i].u.tensor);
        args[i].u.tensor = any_tensor(f, dtype, rank, shape);
    }
}

static void some_calls(fuzz *f) {
    kiln_value args[KILN_MAX_ARGS];
    const kiln_op *op = op_of(f->ctx, ops[draw(&f->seed) % OPS]);
    size_t n = any_args(f, op, args);
    for (int k = 0; k < LIKE_IT; k++) {
        compare(f, op, args, n);
        if (!f->wrong) call(f, op, args, n); /* by a wrong recipe it could read past its tensors */
        any_shapes(f, args, n);
    }
    kiln_recipe *r = f->forgetful ? kiln_recipe_find(kiln_thread_of(&f->ctx->epochs), op, args, n) : NULL;
    if (r) r->asked.arg[0].bits = (kiln_bits){0, 0};
    drop_args(args, n);
}

static void search(fuzz *f, long calls) {
    kiln_config config = {.size = sizeof config, .mode = KILN_MODE_INTERP};
    memset(room, 1, sizeof room);
    MUST_OK(kiln_open(&config, &f->ctx));
    for (long k = 0; k < calls && !f->wrong; k++) some_calls(f);
    kiln_close(f->ctx);
}

static void recipes_say_what_inference_says(void **state) {
    (void)state;
    fuzz f = {.seed = 5};
    search(&f, CALLS);
    print_message("%ld recipes, %ld of them knew the class, %ld calls failed\n", f.found, f.classed,
                  f.failed);
    if (f.wrong) fail_msg("%s", f.why);
    assert_true(f.found > CALLS / 2 && f.classed > f.found / 4 && f.failed > CALLS / 4);
}

static void a_recipe_that_asks_too_little_is_found_out(void **state) {
    (void)state;
    fuzz f = {.seed = 6, .forgetful = true};
    search(&f, CALLS);
    assert_true(f.wrong > 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(recipes_say_what_inference_says),
        cmocka_unit_test(a_recipe_that_asks_too_little_is_found_out),
    };
    return cmocka_run_group_tests(tests, call_setup, call_teardown);
}
