/* fuzz_call.c - any bytes as a call: they choose operator, arguments, shapes, strides, values and aliasing.
 *
 * Each call is built twice and made twice.  Whatever it is, nothing may be read or written out of bounds
 * (memory is exactly as large as sizes and strides reach), both must end alike, and a refused call must have
 * changed no byte, no header and no result slot. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "op/op.h"
#include "tensor/tensor.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MAX_TENSORS = 12, MAX_VALUES = 24, MOST_ELEMENTS = 4096, MOST_CLASSES = 2000 };

typedef struct reader {
    const uint8_t *p, *end;
} reader;

static unsigned take(reader *r) { return r->p < r->end ? *r->p++ : 0; }

static bool one_in(reader *r, unsigned n) { return take(r) % n == n - 1; }

/* A tensor, its memory, and what both were before the call. */
typedef struct subject {
    kiln_tensor *t;
    char *memory, *before;
    size_t nbytes;
    bool borrowed; /* memory is another subject's */
    int rank;
    int64_t sizes[KILN_MAX_RANK], strides[KILN_MAX_RANK];
    char *data;
} subject;

typedef struct trial {
    const kiln_op *op;
    kiln_value args[KILN_MAX_ARGS], items[MAX_VALUES];
    size_t nargs, nitems;
    subject subjects[MAX_TENSORS];
    int nsubjects;
    kiln_tensor *outs[KILN_MAX_RETS];
    kiln_status st;
} trial;

static void check(bool right, const char *what) {
    if (right) return;
    fprintf(stderr, "%s: %s\n", what, kiln_last_error());
    abort();
}

/* -- building ----------------------------------------------------------------------------------------- */

static int make_shape(reader *r, int64_t *sizes) {
    static const int64_t choices[] = {0, 1, 1, 1, 2, 3, 4, 5};
    unsigned kind = take(r);
    int rank = kind % 16 == 15 ? (int)(take(r) % (KILN_MAX_RANK + 1)) : (int)(kind % 5);
    int64_t total = 1;
    for (int d = 0; d < rank; d++) {
        int64_t n = rank > 6 ? 1 + (d % 9 == 0) : choices[take(r) % 8];
        if (d == rank - 1 && kind > 200) n = 1 + take(r) % 70;
        if (total * (n ? n : 1) > MOST_ELEMENTS) n = 1;
        total *= n ? n : 1;
        sizes[d] = n;
    }
    return rank;
}

static void make_strides(reader *r, bool negative, int rank, const int64_t *sizes, int64_t *strides) {
    int64_t next = 1;
    unsigned kind = take(r);
    for (int k = 0; k < rank; k++) {
        int d = kind & 1 ? k : rank - 1 - k; /* column-major or row-major */
        strides[d] = next;
        next *= sizes[d] > 1 ? sizes[d] : 1;
        if (kind & 2) next += kind >> 5;
        unsigned odd = kind & 4 && rank <= 6 ? take(r) : 0;
        if (odd % 8 == 1) strides[d] = 0;
        if (odd % 8 == 2) strides[d] *= 2;
        if (odd % 8 == 3 && negative) strides[d] = -strides[d];
        if (odd % 8 == 4) strides[d] = odd >> 3;
    }
}

static void fill(reader *r, char *p, size_t n) {
    uint32_t state = take(r) * 2654435761u + 1;
    unsigned small = take(r) % 3;
    for (size_t k = 0; k < n; k++) {
        state = state * 1664525u + 1013904223u;
        p[k] = (char)(small == 0 ? state >> 24 : small == 1 ? (state >> 24) % 5 : state >> 31);
    }
}

/* Memory for s: its own, or that of an earlier tensor which has enough, so that the two overlap. */
static void make_memory(reader *r, const trial *c, subject *s) {
    const subject *other = &c->subjects[c->nsubjects ? take(r) % (unsigned)c->nsubjects : 0];
    s->borrowed = c->nsubjects > 0 && other->memory && other->nbytes >= s->nbytes && one_in(r, 6);
    if (s->borrowed)
        s->memory = other->memory;
    else
        s->memory = malloc(s->nbytes ? s->nbytes : 1);
    if (!s->borrowed) fill(r, s->memory, s->nbytes);
}

static void make_tensor(reader *r, trial *c, subject *s) {
    kiln_dtype t = (kiln_dtype)(take(r) % KILN_DTYPE_COUNT);
    int64_t size = (int64_t)kiln_dtype_size(t), low = 0, high = 0;
    bool owned = one_in(r, 4), none = false;
    s->rank = make_shape(r, s->sizes);
    make_strides(r, !owned, s->rank, s->sizes, s->strides);
    for (int d = 0; d < s->rank; d++) {
        if (s->sizes[d] == 0)
            none = true;
        else if (s->strides[d] < 0)
            low += (s->sizes[d] - 1) * s->strides[d];
        else
            high += (s->sizes[d] - 1) * s->strides[d];
    }
    s->nbytes = none ? 0 : (size_t)((high - low + 1) * size);
    if (owned) {
        check(kiln_tensor_new(t, s->rank, s->sizes, s->strides, &s->t) == KILN_OK, "kiln_tensor_new");
        fill(r, s->t->data, s->nbytes);
    } else {
        make_memory(r, c, s);
        check(kiln_tensor_wrap(s->memory - low * size * !none, t, s->rank, s->sizes, s->strides, NULL, NULL,
                               &s->t) == KILN_OK,
              "kiln_tensor_wrap");
    }
    if (one_in(r, 32)) kiln_tensor_set_readonly(s->t);
    s->data = s->t->data;
    s->before = malloc(s->nbytes ? s->nbytes : 1);
    memcpy(s->before, owned ? s->t->data : s->memory, s->nbytes);
}

/* A tensor argument: a new one, or one that is an argument already. */
static kiln_value tensor_value(reader *r, trial *c) {
    unsigned b = take(r);
    if (c->nsubjects == MAX_TENSORS || (c->nsubjects > 0 && b % 4 == 3))
        return kiln_v_tensor(c->subjects[(b >> 2) % (unsigned)c->nsubjects].t);
    make_tensor(r, c, &c->subjects[c->nsubjects]);
    return kiln_v_tensor(c->subjects[c->nsubjects++].t);
}

static kiln_value number_value(reader *r) {
    static const double floats[] = {0.0, -0.0, 1.5, -1.5, 1e300, 1e-300, 65520.0, 0x1p63};
    static const int64_t ints[] = {0, 1, -1, 2, 127, 255, 256, INT64_MIN};
    unsigned b = take(r), k = b >> 2 & 7;
    if (b % 4 == 0) return kiln_v_bool(k & 1);
    if (b % 4 == 1) return kiln_v_float(k == 7 ? __builtin_nan("") : floats[k]);
    return kiln_v_int(b % 4 == 2 ? ints[k] : (int64_t)(b >> 2) - 20);
}

static kiln_value text_value(reader *r) {
    static const char *const texts[] = {"floor", "trunc", "none",
                                        "tanh",  "",      "a longer text that no operator takes"};
    return kiln_v_str(texts[take(r) % 6]);
}

static kiln_value any_value(reader *r, trial *c, const kiln_type *type, int depth);

static kiln_value list_value(reader *r, trial *c, const kiln_type *type, int depth) {
    size_t n = take(r) % 4;
    if (depth > 2 || n > MAX_VALUES - c->nitems) n = 0;
    kiln_value *items = c->items + c->nitems;
    c->nitems += n;
    for (size_t k = 0; k < n; k++) items[k] = any_value(r, c, type->elem, depth + 1);
    return kiln_v_list(items, (uint32_t)n);
}

/* A value of that type, or now and then of another. */
static kiln_value any_value(reader *r, trial *c, const kiln_type *type, int depth) {
    bool optional;
    type = kiln_type_strip(type, &optional);
    if (optional && one_in(r, 3)) return kiln_v_none();
    kiln_tkind kind = one_in(r, 40) ? (kiln_tkind)(take(r) % (KILN_T_APPLY + 1)) : type->kind;
    if (kind == KILN_T_LIST && type->kind != KILN_T_LIST) kind = KILN_T_STR;
    switch (kind) {
    case KILN_T_TENSOR: return tensor_value(r, c);
    case KILN_T_STR: return text_value(r);
    case KILN_T_BOOL: return kiln_v_bool(take(r) & 1);
    case KILN_T_DTYPE: return kiln_v_dtype((kiln_dtype)(take(r) % (KILN_DTYPE_COUNT + 2)));
    case KILN_T_LIST: return list_value(r, c, type, depth);
    case KILN_T_INT:
    case KILN_T_SYMINT: return kiln_v_int((int)(take(r) % 9) - 4);
    default: return number_value(r);
    }
}

static void build(kiln_ctx *ctx, const uint8_t *data, size_t size, trial *c) {
    reader r = {data, data + size};
    memset(c, 0, sizeof *c);
    unsigned which = take(&r) << 8;
    which |= take(&r);
    c->op = kiln_op_at(ctx, which % kiln_op_count(ctx));
    for (int a = 0; a < c->op->schema->nargs; a++) {
        const kiln_param *p = &c->op->schema->args[a];
        if (p->def.kind != KILN_DEF_ABSENT && one_in(&r, 2)) continue;
        if (one_in(&r, 60)) continue; /* forgotten */
        kiln_value v = any_value(&r, c, p->type, 0);
        if (c->nargs < (size_t)a || p->kwarg_only || one_in(&r, 8)) v = kiln_v_named(p->name, v);
        c->args[c->nargs++] = v;
    }
    if (c->nargs < KILN_MAX_ARGS && one_in(&r, 60)) c->args[c->nargs++] = number_value(&r);
}

/* -- judging ------------------------------------------------------------------------------------------ */

static void run(kiln_ctx *ctx, trial *c) {
    kiln_tensor *mark = (kiln_tensor *)(uintptr_t)64;
    for (int k = 0; k < KILN_MAX_RETS; k++) c->outs[k] = mark;
    c->st = kiln_call(ctx, c->op, c->args, c->nargs, c->outs, KILN_MAX_RETS);
    size_t n = c->st == KILN_OK ? kiln_op_nrets(c->op) : 0;
    for (size_t k = n; k < KILN_MAX_RETS; k++) check(c->outs[k] == mark, "a result slot was written");
    if (c->st == KILN_OK) return;
    check(kiln_last_error()[0] != 0, "a failure without a message");
    check(c->st != KILN_E_BUG && c->st != KILN_E_VERIFY && c->st != KILN_E_NOMEM, "not the caller's fault");
    for (int k = 0; k < c->nsubjects; k++) {
        const subject *s = &c->subjects[k];
        check(s->t->data == s->data && s->t->rank == s->rank, "a failed call changed a header");
        size_t words = (size_t)s->rank * sizeof(int64_t);
        check(!words || (memcmp(s->t->sizes, s->sizes, words) == 0 &&
                         memcmp(s->t->strides, s->strides, words) == 0),
              "a failed call changed sizes or strides");
        check(memcmp(s->memory ? s->memory : s->t->data, s->before, s->nbytes) == 0,
              "a failed call wrote an element");
    }
}

/* Every element of a result, read; equal in both.  A result that the call's mask leaves out is NULL in both. */
static void compare(const kiln_tensor *a, const kiln_tensor *b) {
    check(!a == !b, "a result in one run alone");
    if (!a) return;
    size_t size = kiln_dtype_size((kiln_dtype)a->dtype), words = a->rank * sizeof(int64_t);
    check(a->dtype == b->dtype && a->rank == b->rank && a->nelem == b->nelem, "results of two shapes");
    check(!words || (memcmp(a->sizes, b->sizes, words) == 0 && memcmp(a->strides, b->strides, words) == 0),
          "results of two layouts");
    int64_t index[KILN_MAX_RANK] = {0};
    for (int64_t n = 0; n < a->nelem; n++) {
        int64_t at = 0;
        for (int d = 0; d < a->rank; d++) at += index[d] * a->strides[d] * (int64_t)size;
        check(memcmp(a->data + at, b->data + at, size) == 0, "two runs, two results");
        for (int d = a->rank - 1; d >= 0 && ++index[d] == a->sizes[d]; d--) index[d] = 0;
    }
}

static void judge(const trial *a, const trial *b) {
    check(a->st == b->st, "two runs, two statuses");
    for (size_t k = 0; a->st == KILN_OK && k < kiln_op_nrets(a->op); k++) compare(a->outs[k], b->outs[k]);
    for (int k = 0; k < a->nsubjects; k++)
        if (a->subjects[k].memory)
            check(memcmp(a->subjects[k].memory, b->subjects[k].memory, a->subjects[k].nbytes) == 0,
                  "two runs, two inputs");
}

static void explain(kiln_ctx *ctx, const trial *c) {
    static const char *const stages[] = {"bind", "plan", "key", "ir", "source"};
    for (size_t k = 0; k < sizeof stages / sizeof *stages; k++) {
        char *text = NULL;
        kiln_status st = kiln_explain(ctx, c->op, c->args, c->nargs, stages[k], &text);
        check(st != KILN_E_BUG, "explain");
        kiln_text_free(text);
    }
}

static void drop(trial *c) {
    for (size_t k = 0; c->st == KILN_OK && k < kiln_op_nrets(c->op); k++) kiln_tensor_release(c->outs[k]);
    for (int k = 0; k < c->nsubjects; k++) {
        kiln_tensor_release(c->subjects[k].t);
        if (!c->subjects[k].borrowed) free(c->subjects[k].memory);
        free(c->subjects[k].before);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static kiln_ctx *ctx;
    static trial one, two;
    kiln_stats s = {0};
    kiln_config config = {.size = sizeof config, .mode = KILN_MODE_INTERP};
    if (ctx) kiln_stats_get(ctx, &s, sizeof s);
    if (s.misses > MOST_CLASSES) { /* classes live as long as their context */
        kiln_close(ctx);
        ctx = NULL;
    }
    if (!ctx) check(kiln_open(&config, &ctx) == KILN_OK, "kiln_open");
    build(ctx, data, size, &one);
    build(ctx, data, size, &two);
    if (size && data[size - 1] % 16 == 7) explain(ctx, &one);
    run(ctx, &one);
    run(ctx, &two);
    judge(&one, &two);
    drop(&one);
    drop(&two);
    return 0;
}
