/* tier_compare.h - one call in two contexts: are the results the same, bit for bit?
 *
 * tiers_agree is the judge, compare_row the prosecution: it calls a row in every variant (optional arguments
 * present or not, every text its body names) over shapes, layouts and values with specials.  The tests of
 * agreement and the tests that plant faults use these same functions, so what is proven is what is used.
 * Any NaN equals any NaN. */
#ifndef KILN_TEST_TIER_COMPARE_H
#define KILN_TEST_TIER_COMPARE_H
#include <math.h>
#include <sys/mman.h>

#include "api/ctx.h"
#include "call_cases.h"
#include "float_env.h"
#include "op/op.h"
#include "tensor/tensor.h"

/* -- what is remembered, beside what is not ------------------------------------------------------------ */

/* contexts[0] interprets and remembers nothing, so that it says what each call means.  contexts[1] remembers its calls, which are
 * compiled or interpreted. */
static inline int open_beside_the_forgetful(void **state, kiln_mode mode) {
    if (call_setup(state) != 0) return -1;
    contexts[0] = open_mode(KILN_MODE_INTERP);
    contexts[0]->forgets = true;
    contexts[1] = open_mode(mode);
    return 0;
}

static inline int open_compiling(void **state) { return open_beside_the_forgetful(state, KILN_MODE_SYNC); }
static inline int open_interpreting(void **state) {
    return open_beside_the_forgetful(state, KILN_MODE_INTERP);
}

/* Runs the tests twice: with compiled calls in contexts[1], and with interpreted ones. */
#define RUN_COMPILED_AND_INTERPRETED(tests)                                           \
    (cmocka_run_group_tests_name("compiled", tests, open_compiling, close_contexts) + \
     cmocka_run_group_tests_name("interpreted", tests, open_interpreting, close_contexts))

/* -- values ------------------------------------------------------------------------------------------- */

static inline uint64_t draw(uint64_t *seed) {
    *seed += 0x9e3779b97f4a7c15u;
    uint64_t z = *seed;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static inline double draw_float(uint64_t *seed) {
    static const double special[] = {0.0,     -0.0,     1.0,       -1.0,      0.5,      1.5,       2.5,
                                     -2.5,    INFINITY, NAN,       1e-8,      0x1p-149, 3e-39,     65504.0,
                                     65520.0, 88.7228,  -87.33655, -INFINITY, 1e22,     -103,      0x1p-1074,
                                     709.78,  -745.13,  3.4e38,    1.7e308,   12345678, 0.70710678};
    uint64_t r = draw(seed);
    if (r % 4 == 0) return special[(r >> 8) % (sizeof special / sizeof *special)];
    return (double)((int64_t)((r >> 8) % 20001) - 10000) / 512.0;
}

static inline int64_t draw_int(uint64_t *seed, bool zeros) {
    static const int64_t special[] = {-1,  1,     2,      7,         -8,        63,        127,          -128,
                                      255, 32767, -32768, INT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN + 1};
    uint64_t r = draw(seed);
    if (zeros && r % 8 == 1) return 0;
    if (r % 4 == 0) return special[(r >> 8) % (sizeof special / sizeof *special)];
    return (int64_t)((r >> 8) % 41) - 20;
}

/* One element of any dtype.  Without `zeros` no integer is zero, so that every division can be made. */
static inline void draw_element(kiln_dtype t, uint64_t *seed, bool zeros, char *out) {
    kiln_dtype part = kiln_dtype_real(t);
    if (part != t) { /* complex: two numbers */
        draw_element(part, seed, zeros, out);
        draw_element(part, seed, zeros, out + kiln_dtype_size(part));
        return;
    }
    double d = kiln_dtype_is_float(t) ? draw_float(seed) : 0;
    float f = (float)d;
    uint16_t h = t == KILN_F16 ? kiln_f32_to_half(f) : kiln_f32_to_bf16(f);
    int64_t i = kiln_dtype_is_float(t) ? 0 : draw_int(seed, zeros);
    if (t == KILN_BOOL)
        i &= 1;
    else if (!zeros && kiln_dtype_is_int(t) && (i & 0xff) == 0)
        i = 3; /* low bytes are what a narrow type keeps */
    if (t == KILN_F64)
        memcpy(out, &d, sizeof d);
    else if (t == KILN_F32)
        memcpy(out, &f, sizeof f);
    else if (t == KILN_F16 || t == KILN_BF16)
        memcpy(out, &h, sizeof h);
    else
        memcpy(out, &i, kiln_dtype_size(t));
}

/* -- tensors whose memory ends at a forbidden page ---------------------------------------------------- */

typedef struct guarded {
    void *map;
    size_t map_bytes, nbytes; /* nbytes: of elements, at the map's end before the forbidden page */
    char *data;
} guarded;

static inline void guarded_free(void *owner) {
    guarded *g = owner;
    munmap(g->map, g->map_bytes);
    free(g);
}

static inline guarded *guarded_new(size_t nbytes) {
    guarded *g = calloc(1, sizeof *g);
    assert_non_null(g);
    size_t page = (size_t)sysconf(_SC_PAGESIZE), room = (nbytes + page - 1) / page * page;
    g->map_bytes = room + page;
    g->nbytes = nbytes;
    g->map = mmap(NULL, g->map_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(g->map != MAP_FAILED);
    assert_int_equal(mprotect((char *)g->map + room, page, PROT_NONE), 0);
    g->data = (char *)g->map + room - nbytes;
    return g;
}

static inline kiln_tensor *guarded_tensor(kiln_dtype dtype, int rank, const int64_t *sizes,
                                          const int64_t *strides) {
    int64_t last = 0;
    for (int d = 0; d < rank; d++) {
        if (sizes[d] == 0) last = -1;
        if (last >= 0) last += (sizes[d] - 1) * strides[d];
    }
    guarded *g = guarded_new((size_t)(last + 1) * kiln_dtype_size(dtype));
    kiln_tensor *t = NULL;
    MUST_OK(kiln_tensor_wrap(g->data, dtype, rank, sizes, strides, guarded_free, g, &t));
    return t;
}

static inline kiln_tensor *guarded_filled(kiln_dtype dtype, int rank, const int64_t *sizes,
                                          const int64_t *strides, uint64_t *seed, bool zeros) {
    kiln_tensor *t = guarded_tensor(dtype, rank, sizes, strides);
    const guarded *g = t->owner;
    for (size_t at = 0; at < g->nbytes; at += kiln_dtype_size(dtype))
        draw_element(dtype, seed, zeros, g->data + at);
    return t;
}

static inline kiln_tensor *guarded_clone(const kiln_tensor *from) {
    kiln_tensor *t = guarded_tensor((kiln_dtype)from->dtype, from->rank, from->sizes, from->strides);
    const guarded *a = from->owner, *b = t->owner;
    memcpy(b->data, a->data, a->nbytes);
    return t;
}

/* -- the judge ---------------------------------------------------------------------------------------- */

enum { WHY_MAX = 600 };

static inline bool is_nan_at(kiln_dtype t, const char *p) {
    double d;
    float f;
    uint16_t h;
    if (!kiln_dtype_is_float(t)) return false;
    if (t == KILN_F64) {
        memcpy(&d, p, sizeof d);
        return isnan(d);
    }
    if (t == KILN_F32) {
        memcpy(&f, p, sizeof f);
        return isnan(f);
    }
    memcpy(&h, p, sizeof h);
    return isnan(t == KILN_F16 ? kiln_half_to_f32(h) : kiln_bf16_to_f32(h));
}

/* Equal bits, or both NaN; of a complex element part by part. */
static inline bool same_element(kiln_dtype t, const char *p, const char *q) {
    kiln_dtype part = kiln_dtype_real(t);
    size_t size = kiln_dtype_size(part);
    if (part != t) return same_element(part, p, q) && same_element(part, p + size, q + size);
    return memcmp(p, q, size) == 0 || (is_nan_at(t, p) && is_nan_at(t, q));
}

/* Equal dtype, sizes, strides and elements; where not, `why` says it. */
static inline bool same_results(const kiln_tensor *a, const kiln_tensor *b, char *why) {
    size_t size = kiln_dtype_size((kiln_dtype)a->dtype);
    if (a->dtype != b->dtype || a->rank != b->rank ||
        (a->rank && (memcmp(a->sizes, b->sizes, a->rank * sizeof *a->sizes) != 0 ||
                     memcmp(a->strides, b->strides, a->rank * sizeof *a->strides) != 0))) {
        snprintf(why, WHY_MAX, "the results have different dtypes, sizes or strides");
        return false;
    }
    int64_t index[KILN_MAX_RANK] = {0};
    for (int64_t n = 0; n < a->nelem; n++) {
        int64_t at = 0;
        for (int d = 0; d < a->rank; d++) at += index[d] * a->strides[d];
        const char *p = a->data + at * (int64_t)size, *q = b->data + at * (int64_t)size;
        if (!same_element((kiln_dtype)a->dtype, p, q)) {
            uint64_t x[2] = {0}, y[2] = {0};
            memcpy(x, p, size);
            memcpy(y, q, size);
            snprintf(why, WHY_MAX, "element %lld of %lld is %#llx %#llx and %#llx %#llx", (long long)n,
                     (long long)a->nelem, (unsigned long long)x[0], (unsigned long long)x[1],
                     (unsigned long long)y[0], (unsigned long long)y[1]);
            return false;
        }
        for (int d = a->rank - 1; d >= 0 && ++index[d] == a->sizes[d]; d--) index[d] = 0;
    }
    return true;
}

/* Calls in ctx; written arguments are replaced by copies, so that a second call sees the same input. */
static inline kiln_status call_copied(kiln_ctx *ctx, const char *name, const kiln_value *args, size_t nargs,
                                      kiln_tensor **outs) {
    const kiln_op *op = op_of(ctx, name);
    kiln_value copy[KILN_MAX_ARGS];
    assert_true(nargs <= KILN_MAX_ARGS);
    memcpy(copy, args, nargs * sizeof *args);
    bool copies = op->form == KILN_FORM_INPLACE;
    if (copies) copy[0].u.tensor = guarded_clone(args[0].u.tensor);
    kiln_status st = kiln_call(ctx, op, copy, nargs, outs, KILN_MAX_RETS);
    if (copies) kiln_tensor_release(copy[0].u.tensor);
    return st;
}

/* True if the call gives the same in both contexts: the same results, or the same refusal.  *ran: it was not
 * refused.  Tensors of an in-place call must be guarded ones. */
static inline bool tiers_agree(kiln_ctx *a, kiln_ctx *b, const float_env *env, const char *name,
                               const kiln_value *args, size_t nargs, kiln_status *st, char *why) {
    kiln_tensor *one[KILN_MAX_RETS] = {0}, *two[KILN_MAX_RETS] = {0};
    fenv_t before;
    why[0] = 0;
    enter_env(env, &before);
    *st = call_copied(a, name, args, nargs, one);
    kiln_status other = call_copied(b, name, args, nargs, two);
    fesetenv(&before);
    bool same = *st == other;
    if (!same) snprintf(why, WHY_MAX, "statuses %s and %s", kiln_status_name(*st), kiln_status_name(other));
    for (int k = 0; k < KILN_MAX_RETS; k++) {
        if (same && one[k]) same = same_results(one[k], two[k], why);
        kiln_tensor_release(one[k]);
        kiln_tensor_release(two[k]);
    }
    return same;
}

/* -- the prosecution ---------------------------------------------------------------------------------- */

typedef enum tier_layout {
    LAYOUT_DENSE,
    LAYOUT_ROWS,
    LAYOUT_BCAST,
    LAYOUT_BCAST_FIRST,
    LAYOUT_STRIDED,
    LAYOUT_COUNT
} tier_layout;

/* DENSE and ROWS are of one class, each of the others is a class of its own. */
enum {
    USUAL_LAYOUTS = 1 << LAYOUT_DENSE | 1 << LAYOUT_ROWS | 1 << LAYOUT_BCAST | 1 << LAYOUT_STRIDED,
    ALL_LAYOUTS = (1 << LAYOUT_COUNT) - 1
};

static const struct tier_shape {
    int rank;
    int64_t sizes[3];
} tier_shapes[] = {{0, {0}},       {1, {1}},  {1, {3}},        {1, {4}},     {1, {7}},     {1, {8}},
                   {1, {15}},      {1, {16}}, {1, {17}},       {1, {31}},    {1, {33}},    {1, {63}},
                   {1, {64}},      {1, {65}}, {1, {1000}},     {1, {2500}},  {2, {3, 17}}, {2, {5, 64}},
                   {3, {2, 3, 9}}, {1, {0}},  {3, {4, 1, 33}}, {2, {150, 3}}};

/* How to compare a row: dtypes by argument, contexts, how far to go. */
typedef struct tier_task {
    kiln_ctx *a, *b;
    const char *name;
    kiln_dtype first, rest; /* of the first tensor and of the others */
    unsigned layouts;       /* bit k: layout k; 0: the usual ones */
    const float_env *env;   /* NULL: the default */
    uint64_t seed;
    long calls; /* out: calls that gave results */
} tier_task;

/* Strides of tensor `which` of a call. */
static inline void tier_strides(tier_layout layout, int which, bool alone, const struct tier_shape *s,
                                int64_t *strides) {
    int64_t next = layout == LAYOUT_STRIDED ? 2 : 1;
    bool bcast = (layout == LAYOUT_BCAST && (which > 0 || alone)) ||
                 (layout == LAYOUT_BCAST_FIRST && which == 0);
    for (int d = s->rank - 1; d >= 0; d--) {
        strides[d] = bcast && d == s->rank - 1 ? 0 : next;
        next *= s->sizes[d] && strides[d] ? s->sizes[d] : 1;
        if (layout == LAYOUT_ROWS) next += 2 + which;
    }
}

/* The k-th text that the row compares argument `name` with, or NULL. */
static inline const char *nth_text(const kiln_row *row, const char *name, int k, char *buf, size_t cap) {
    char start[100];
    snprintf(start, sizeof start, "%s == \"", name);
    const char *p = row->text;
    for (int n = 0; (p = strstr(p, start)); n++) {
        p += strlen(start);
        size_t len = strcspn(p, "\"");
        if (n < k || len >= cap) continue;
        memcpy(buf, p, len);
        buf[len] = 0;
        return buf;
    }
    return NULL;
}

/* Whether the row asks how many dimensions a tensor has: it is then given without any as well. */
static inline bool asks_rank(const kiln_row *row, int arg) {
    char text[160];
    snprintf(text, sizeof text, "rank(%.100s)", row->schema->args[arg].name);
    return strstr(row->text, text);
}

/* Values that are drawn for an argument; of other types only the default is. */
static inline int count_choices(const kiln_row *row, int arg) {
    bool optional;
    char text[32];
    const kiln_param *p = &row->schema->args[arg];
    const kiln_type *t = kiln_type_strip(p->type, &optional);
    int n = 1;
    if (t->kind == KILN_T_BOOL) return optional ? 1 : 2;
    if (t->kind == KILN_T_STR)
        for (n = 0; nth_text(row, p->name, n, text, sizeof text);) n++;
    else if (t->kind == KILN_T_TENSOR)
        n += asks_rank(row, arg);
    else if (t->kind != KILN_T_SCALAR && t->kind != KILN_T_FLOAT)
        return 1;
    return n + optional;
}

static inline kiln_value number_for(kiln_dtype t, uint64_t *seed, bool zeros) {
    static const double floats[] = {1.25, -0.75, 0.0, 2.0, 1e3};
    uint64_t r = draw(seed);
    if (t == KILN_BOOL) return kiln_v_bool(r & 1);
    if (kiln_dtype_is_int(t) || r % 5 == 0) return kiln_v_int((int64_t)(r >> 8) % 9 + !zeros);
    return kiln_v_float(floats[(r >> 8) % 5]);
}

static inline bool has_one_tensor(const kiln_row *row) {
    int n = 0;
    for (int a = 0; a < row->schema->nargs; a++) n += kiln_row_is_tensor(row, a);
    return n == 1;
}

/* Fills the arguments of one call; texts lives as long as they. */
static inline size_t make_args(tier_task *task, const kiln_row *row, tier_layout layout,
                               const struct tier_shape *shape, int variant, bool zeros, kiln_value *args,
                               char (*texts)[32]) {
    size_t n = 0;
    int tensors = 0;
    for (int a = 0; a < row->schema->nargs; a++) {
        const kiln_param *p = &row->schema->args[a];
        bool optional;
        kiln_tkind kind = kiln_type_strip(p->type, &optional)->kind;
        int choices = count_choices(row, a), choice = variant % choices;
        variant /= choices;
        kiln_value v = kiln_v_none();
        if (optional && (choices == 1 || choice == choices - 1)) {
            if (p->def.kind == KILN_DEF_ABSENT) args[n++] = kiln_v_named(p->name, v);
            continue;
        }
        if (kind == KILN_T_TENSOR) {
            int64_t strides[3];
            kiln_dtype t = tensors ? task->rest : task->first;
            kiln_dtypes own = row->arg_takes[a];
            bool listed = own && !(row->typing.args >> a & 1);
            if (listed && !(own & KILN_DT(t))) t = (kiln_dtype)__builtin_ctz(own);
            int rank = asks_rank(row, a) && choice == 1 ? 0 : shape->rank;
            tier_strides(layout, tensors++, has_one_tensor(row), shape, strides);
            v = kiln_v_tensor(guarded_filled(t, rank, shape->sizes, strides, &task->seed, zeros));
        } else if (row->items >> a & 1) {
            v = kiln_v_tensor(guarded_filled(task->first, 0, NULL, NULL, &task->seed, zeros));
        } else if (kind == KILN_T_SCALAR || kind == KILN_T_FLOAT) {
            v = number_for(kiln_dtype_promote(task->first, task->rest), &task->seed, zeros);
        } else if (kind == KILN_T_STR && nth_text(row, p->name, choice, texts[a], sizeof *texts)) {
            v = kiln_v_str(texts[a]);
        } else if (kind == KILN_T_BOOL) {
            v = kiln_v_bool(choice);
        } else if (kind == KILN_T_INT) {
            v = kiln_v_int((int64_t)(draw(&task->seed) >> 8) % 4);
        } else {
            continue; /* its default */
        }
        args[n++] = kiln_v_named(p->name, v);
    }
    return n;
}

static inline bool compare_call(tier_task *task, const kiln_row *row, tier_layout layout,
                                const struct tier_shape *shape, int variant, bool zeros, kiln_status *st,
                                char *why) {
    kiln_value args[KILN_MAX_ARGS];
    char texts[KILN_MAX_ARGS][32], detail[WHY_MAX];
    uint64_t seed = task->seed;
    size_t n = make_args(task, row, layout, shape, variant, zeros, args, texts);
    bool same = tiers_agree(task->a, task->b, task->env, task->name, args, n, st, detail);
    drop_args(args, n);
    if (*st == KILN_OK) task->calls++;
    if (!same)
        snprintf(why, WHY_MAX, "%s %s %s %s variant %d layout %d rank %d of %lld seed %#llx: %.300s",
                 task->name, kiln_dtype_name(task->first), kiln_dtype_name(task->rest),
                 task->env ? task->env->name : "by default", variant, (int)layout, shape->rank,
                 (long long)(shape->rank ? shape->sizes[shape->rank - 1] : 1), (unsigned long long)seed,
                 detail);
    return same;
}

/* The same, and where a divisor was zero once more without zeros. */
static inline bool compare_shape(tier_task *task, const kiln_row *row, tier_layout layout,
                                 const struct tier_shape *shape, int variant, char *why) {
    kiln_status st;
    if (!compare_call(task, row, layout, shape, variant, true, &st, why)) return false;
    if (st != KILN_E_DIVZERO) return true;
    if (!compare_call(task, row, layout, shape, variant, false, &st, why)) return false;
    if (st == KILN_E_DIVZERO) fail_msg("%s: no divisor was zero", task->name);
    return true;
}

/* Every shape in the default environment, one in each of the others. */
static inline bool compare_layout(tier_task *task, const kiln_row *row, tier_layout layout, int variant,
                                  char *why) {
    static const struct tier_shape some = {2, {3, 333}};
    bool same = true;
    for (size_t s = 0; same && s < sizeof tier_shapes / sizeof *tier_shapes; s++)
        same = compare_shape(task, row, layout, &tier_shapes[s], variant, why);
    for (int e = 0; same && e < FLOAT_ENVS; e++) {
        task->env = &float_envs[e];
        same = compare_shape(task, row, layout, &some, variant, why);
    }
    task->env = NULL;
    return same;
}

/* Every variant and layout of a row; false at the first difference, which `why` describes. */
static inline bool compare_row(tier_task *task, char *why) {
    const kiln_row *row = op_of(task->a, task->name)->row;
    unsigned layouts = task->layouts ? task->layouts : USUAL_LAYOUTS;
    int variants = 1;
    for (int a = 0; a < row->schema->nargs; a++) variants *= count_choices(row, a);
    why[0] = 0;
    for (int v = 0; v < variants; v++)
        for (int layout = 0; layout < LAYOUT_COUNT; layout++)
            if (layouts >> layout & 1 && !compare_layout(task, row, (tier_layout)layout, v, why))
                return false;
    return true;
}
#endif
