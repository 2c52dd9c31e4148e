/* test_class_key.c - random calls: do equal class keys mean equal code, and different keys different code?
 *
 * Each call is run by code lowered for it alone and by the code of the first call that had its key; both must
 * give the same bits.  Of two keys of one row, the generated sources must differ, or they are one class that
 * is compiled twice.  A key that says too little is planted, and must be found out.  KILN_TEST_ALL runs more. */
#include "api/ctx.h"
#include "target/cpu/emit.h"
#include "tier_compare.h"
#include "whole.h"

enum { KEYS_MAX = 16384 };

static const char *const ops[] = {"neg",          "bitwise_not",     "add.Tensor",        "add.Scalar",
                                  "mul.Tensor",   "div.Tensor_mode", "pow.Tensor_Scalar", "where.self",
                                  "clamp",        "frexp.Tensor",    "lt.Tensor",         "remainder.Tensor",
                                  "gelu",         "add.out",         "add_.Tensor",       "maximum",
                                  "clamp.Tensor", "lerp.Scalar",     "lerp.Tensor"};
enum { OPS = sizeof ops / sizeof *ops };

typedef struct known {
    kiln_key key;
    kiln_class *c;
    char *source;
    const kiln_row *row;
} known;

typedef struct fuzz {
    uint64_t seed;
    known at[KEYS_MAX];
    int n;
    long ran, shared, wrong, twins;
    bool blind; /* the key leaves out how operands are walked */
    char why[WHY_MAX];
} fuzz;

/* -- calls -------------------------------------------------------------------------------------------------- */

static kiln_tensor *any_tensor(fuzz *f, kiln_dtype dtype, const int64_t *shape) {
    int64_t sizes[3], strides[3], next = 1;
    int rank = (int)(draw(&f->seed) % 4), order = (int)(draw(&f->seed) % 6);
    for (int d = 0; d < rank; d++) sizes[d] = draw(&f->seed) % 5 ? shape[3 - rank + d] : 1;
    for (int d = rank - 1; d >= 0; d--) {
        strides[d] = next * (order == 1 ? 2 : 1);
        next *= sizes[d] > 1 ? sizes[d] : 1;
        if (order == 2) next += 3;
    }
    if (order == 3 && rank > 1) { /* transposed */
        strides[rank - 1] = sizes[rank - 2];
        strides[rank - 2] = 1;
    }
    if (order == 4 && rank > 0) strides[rank - 1] = 0;
    if (order == 5 && rank > 0) strides[0] = 0;
    return guarded_filled(dtype, rank, sizes, strides, &f->seed, false);
}

static kiln_value any_number(fuzz *f) {
    uint64_t r = draw(&f->seed);
    switch (r % 5) {
    case 0: return kiln_v_int((int64_t)(r >> 8) % 7 - 2);
    case 1: return kiln_v_bool((r >> 8) & 1);
    case 2: return kiln_v_none();
    case 3: return kiln_v_float(0.5);
    default: return kiln_v_float((double)((r >> 8) % 64) / 8 - 2);
    }
}

static size_t any_args(fuzz *f, const kiln_op *op, kiln_value *args) {
    static const kiln_dtype dtypes[] = {KILN_F32, KILN_I32, KILN_F16, KILN_BOOL, KILN_F64, KILN_I64, KILN_U8};
    static const char *const texts[] = {"floor", "trunc", "none", "tanh"};
    int64_t shape[3] = {1 + (int64_t)(draw(&f->seed) % 3), 1 + (int64_t)(draw(&f->seed) % 4),
                        1 + (int64_t)(draw(&f->seed) % 20)};
    kiln_dtype first = dtypes[draw(&f->seed) % 7];
    size_t n = 0;
    for (int a = 0; a < op->schema->nargs; a++) {
        bool optional;
        const kiln_param *p = &op->schema->args[a];
        kiln_tkind kind = kiln_type_strip(p->type, &optional)->kind;
        if (p->def.kind != KILN_DEF_ABSENT && draw(&f->seed) % 3 == 0) continue;
        kiln_value v = any_number(f);
        kiln_dtype dtype = draw(&f->seed) % 3 ? first : dtypes[draw(&f->seed) % 7];
        if (kind == KILN_T_TENSOR && (!optional || draw(&f->seed) % 3))
            v = kiln_v_tensor(any_tensor(f, op->row->arg_takes[a] ? KILN_BOOL : dtype, shape));
        else if (kind == KILN_T_STR)
            v = kiln_v_str(texts[draw(&f->seed) % 4]);
        args[n++] = kiln_v_named(p->name, v);
    }
    return n;
}

/* -- running ------------------------------------------------------------------------------------------------- */

/* The call by the interpreter of c, into new tensors.  False if a trap refused it. */
static bool run(const kiln_plan *p, const kiln_class *c, kiln_tensor **outs) {
    char *ptr[KILN_MAX_OPERANDS];
    uint64_t par[KILN_MAX_SCALARS];
    kiln_runner runner = {.interp = c->program->interp};
    for (int k = 0; k < c->nscalars; k++)
        if (kiln_plan_scalar(p, &c->scalars[k], &par[k]) != KILN_OK) return false;
    for (int k = 0; k < p->axes.nbuffers; k++) {
        const kiln_tensor *given = kiln_plan_tensor(p, k); /* of a result: only its layout is taken */
        if (p->buffer[k].kind == KILN_BUFFER_RESULT)
            MUST_OK(kiln_tensor_new((kiln_dtype)p->buffer[k].dtype, p->shape->rank, p->shape->sizes,
                                    given ? given->strides : p->shape->strides, &outs[k]));
        ptr[k] = p->buffer[k].kind == KILN_BUFFER_RESULT ? outs[k]->data : kiln_plan_tensor(p, k)->data;
    }
    kiln_axes x;
    kiln_work_axes(&p->work, &x);
    for (int nest = 0; nest < c->nests.n && p->shape->nelem; nest++) {
        int32_t trap;
        MUST_OK(kiln_drive(&x, &runner, nest, ptr, par, &trap));
        if (trap) return false;
    }
    return true;
}

static void compare(fuzz *f, const kiln_plan *p, const kiln_class *own, const kiln_class *first) {
    kiln_tensor *one[KILN_MAX_RETS] = {0}, *two[KILN_MAX_RETS] = {0};
    bool ran = run(p, own, one), same = ran == run(p, first, two);
    for (int k = 0; k < p->typed.nrets; k++) {
        if (same && ran) same = same_results(one[k], two[k], f->why);
        kiln_tensor_release(one[k]);
        kiln_tensor_release(two[k]);
    }
    f->ran += ran;
    f->wrong += !same;
}

static int find(const fuzz *f, const kiln_key *key) {
    for (int k = 0; k < f->n; k++)
        if (f->at[k].key.n == key->n && memcmp(f->at[k].key.bytes, key->bytes, key->n) == 0) return k;
    return -1;
}

static void learn(fuzz *f, const kiln_plan *p, const kiln_key *key, kiln_class *c) {
    kiln_sb source;
    kiln_sb_init(&source);
    MUST_OK(kiln_emit_c(c->program->ir, contexts[0]->isa, &source));
    assert_true(f->n < KEYS_MAX);
    known *k = &f->at[f->n];
    *k = (known){*key, c, NULL, p->call->op->row};
    MUST_OK(kiln_sb_take(&source, &k->source));
    for (int j = 0; j < f->n; j++) {
        if (f->at[j].row != k->row || strcmp(f->at[j].source, k->source) != 0) continue;
        f->twins++;
        print_message("%s: two keys, one source\n", p->call->op->name);
    }
    f->n++;
}

static void one_call(fuzz *f) {
    kiln_value args[KILN_MAX_ARGS];
    kiln_bound call;
    kiln_plan plan;
    kiln_key key, said;
    kiln_class *c;
    const kiln_op *op = op_of(contexts[0], ops[draw(&f->seed) % OPS]);
    size_t n = any_args(f, op, args);
    if (kiln_bind(op, args, n, &call) == KILN_OK && kiln_infer(&call, &plan) == KILN_OK &&
        !plan.result[0].resized) {
        kiln_plan_key(&plan, contexts[0]->isa, &key);
        said = key;
        if (f->blind)
            for (int o = 0; o < plan.axes.nbuffers; o++) said.bytes[48 + plan.typed.nrets + 2 * o + 1] = 0;
        if (f->blind) said.bytes[48 - 5 - 2] = 0; /* strided */
        MUST_OK(kiln_class_new(contexts[0], &plan, &key, &c));
        int at = find(f, &said);
        f->shared += at >= 0;
        compare(f, &plan, c, at >= 0 ? f->at[at].c : c);
        if (at < 0)
            learn(f, &plan, &said, c);
        else
            kiln_class_free(c);
    }
    drop_args(args, n);
}

static fuzz *search(long calls, bool blind) {
    static fuzz f;
    memset(&f, 0, sizeof f);
    f.seed = 20;
    f.blind = blind;
    for (long k = 0; k < calls; k++) one_call(&f);
    for (int k = 0; k < f.n; k++) {
        kiln_class_free(f.at[k].c);
        kiln_free(f.at[k].source);
    }
    return &f;
}

static void equal_keys_mean_equal_code(void **state) {
    (void)state;
    const fuzz *f = search(whole_run() ? 60000 : 12000, false);
    print_message("%ld calls ran, %d keys, %ld calls shared one\n", f->ran, f->n, f->shared);
    if (f->wrong) fail_msg("%ld calls went wrong, the last: %s", f->wrong, f->why);
    assert_int_equal(f->twins, 0);
    assert_true(f->shared > f->n);
}

static void a_key_that_says_too_little_is_found_out(void **state) {
    (void)state;
    assert_true(search(4000, true)->wrong > 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equal_keys_mean_equal_code),
        cmocka_unit_test(a_key_that_says_too_little_is_found_out),
    };
    return cmocka_run_group_tests(tests, open_contexts, close_contexts);
}
