/* test_sequence.c - random sequences of calls: does what earlier calls left behind change a later one?
 *
 * A few calls take turns; each time something of one is changed: a number or its kind, a name, a shape, a
 * layout, where a tensor lies, whether it may be written, the dtype.  One context answers by slots, recipes and
 * replays, of kernels and then of interpreted calls, in memory that is used again.  The other one remembers
 * nothing and works on a copy of the same memory: the status and message, the results and
 * every byte must be the same.  A slot and a replay that ask too little are planted, and must be found. */
#include "api/memo.h"
#include "tier_compare.h"
#include "whole.h"

enum { EPISODES = 200, STEPS = 60, CALLS = 3, RANK_MAX = 5, NELEM_MAX = 64, ROOM = 512, REGIONS = 3 };

static const char *const ops[] = {"neg",          "neg_",          "neg.out",
                                  "add.Tensor",   "add_.Tensor",   "add.out",
                                  "add.Scalar",   "add_.Scalar",   "div.Tensor_mode",
                                  "div.out_mode", "where.self",    "where.self_out",
                                  "clamp",        "clamp_",        "clamp.out",
                                  "gelu",         "gelu.out",      "frexp.Tensor_out",
                                  "relu.out",     "mul.Tensor",    "mul.out",
                                  "_to_copy",     "lerp.Tensor",   "floor_divide",
                                  "gt.Scalar",    "gt.Scalar_out", "masked_fill_.Tensor"};
enum { OPS = sizeof ops / sizeof *ops };

/* Elements of each region are of its dtype; a tensor lies in one. */
static const kiln_dtype region_dtype[REGIONS] = {KILN_F32, KILN_I32, KILN_BOOL};

/* The same memory twice: for the context that remembers nothing and for the other one. */
static _Alignas(64) char memory[2][REGIONS][ROOM * 4];

typedef struct placed {
    int region, rank;
    int64_t sizes[RANK_MAX], strides[RANK_MAX], at; /* at: the first element */
    enum { WRAPPED, BORROWED, OWNED, KINDS } kind;
    bool readonly;
} placed;

typedef struct argument {
    bool given, named;
    kiln_value v; /* unless it is a tensor */
    placed t;
} argument;

typedef struct one_call {
    const char *name;
    argument arg[KILN_MAX_ARGS];
    bool backwards; /* the last two that are named change places */
} one_call;

typedef struct fuzz {
    uint64_t seed;
    bool plant_slot, plant_replay;
    one_call calls[CALLS];
    long made, refused;
    char why[WHY_MAX];
} fuzz;

static bool one_in(fuzz *f, uint64_t n) { return draw(&f->seed) % n == 0; }
static int64_t below(fuzz *f, uint64_t n) { return (int64_t)(draw(&f->seed) >> 8) % (int64_t)n; }

/* -- calls -------------------------------------------------------------------------------------------------- */

static int any_shape(fuzz *f, int64_t *shape) {
    int rank = one_in(f, 3) ? 1 : (int)below(f, RANK_MAX + 1);
    int64_t nelem = 1;
    for (int d = 0; d < rank; d++) {
        shape[d] = one_in(f, 40) ? 0 : 1 + below(f, rank == 1 && one_in(f, 2) ? 40 : 4);
        if (nelem * shape[d] > NELEM_MAX) shape[d] = 1;
        nelem *= shape[d] ? shape[d] : 1;
    }
    return rank;
}

/* Moves p so that all its elements are in its region. */
static void keep_inside(placed *p) {
    int64_t low = 0, high = 0;
    for (int d = 0; d < p->rank; d++) {
        int64_t far = p->sizes[d] ? (p->sizes[d] - 1) * p->strides[d] : 0;
        *(far < 0 ? &low : &high) += far;
    }
    if (p->at + low < 0) p->at = -low;
    if (p->at + high >= ROOM) p->at = ROOM - 1 - high;
}

/* Row-major more often than not; else permuted, with gaps, stretched, backwards. */
static void any_layout(fuzz *f, placed *p) {
    int order[RANK_MAX];
    bool plain = !one_in(f, 3);
    int64_t next = !plain && one_in(f, 3) ? 2 : 1;
    for (int d = 0; d < p->rank; d++) {
        int other = (int)below(f, (uint64_t)d + 1);
        order[d] = d;
        if (plain) continue;
        order[d] = order[other];
        order[other] = d;
    }
    for (int k = p->rank - 1; k >= 0; k--) {
        int d = order[k];
        p->strides[d] = plain || !one_in(f, 8) ? next : one_in(f, 2) ? 0 : -next;
        next *= p->sizes[d] ? p->sizes[d] : 1;
    }
    static const int64_t usual[] = {0, 8, 64, 128};
    p->at = one_in(f, 2) ? usual[below(f, 4)] : below(f, 140);
    keep_inside(p);
}

static void any_sizes(fuzz *f, placed *p, int rank, const int64_t *shape) {
    int from = one_in(f, 8) ? (int)below(f, (uint64_t)rank + 1) : 0;
    p->rank = rank - from;
    for (int d = 0; d < p->rank; d++) p->sizes[d] = one_in(f, 20) ? 1 : shape[from + d];
    any_layout(f, p);
}

static kiln_value any_number(fuzz *f) {
    static const double floats[] = {0.5, -1.25, 2, 0, INFINITY, NAN, 1e300, 0x1p-149};
    static const int64_t ints[] = {0, 1, 2, -3, INT32_MAX, INT64_MIN, (int64_t)1 << 40};
    if (one_in(f, 12)) return kiln_v_none();
    if (one_in(f, 10)) return kiln_v_bool((int)below(f, 2));
    if (one_in(f, 25)) return (kiln_value){.kind = KILN_COMPLEX_V, .u.c = {1.5, (double)below(f, 2)}};
    if (one_in(f, 2)) return kiln_v_int(ints[one_in(f, 4) ? below(f, 7) : below(f, 4)]);
    return kiln_v_float(floats[one_in(f, 4) ? below(f, 8) : below(f, 4)]);
}

static kiln_value any_value(fuzz *f, kiln_tkind kind) {
    static const char *const texts[] = {"floor", "trunc", "none", "tanh", "no such text"};
    if (kind == KILN_T_STR)
        return one_in(f, 6) ? kiln_v_none() : kiln_v_str(texts[one_in(f, 12) ? 4 : below(f, 4)]);
    if (kind == KILN_T_DTYPE)
        return one_in(f, 4) ? kiln_v_none() : kiln_v_dtype(region_dtype[below(f, REGIONS)]);
    return kind == KILN_T_SCALAR || kind == KILN_T_FLOAT ? any_number(f) : kiln_v_none();
}

static bool is_tensor(const kiln_op *op, int a) {
    return kiln_type_strip(op->schema->args[a].type, NULL)->kind == KILN_T_TENSOR;
}

static void any_call(fuzz *f, one_call *c) {
    int64_t shape[RANK_MAX];
    int rank = any_shape(f, shape), region = one_in(f, 3) ? 1 : 0;
    *c = (one_call){.name = ops[below(f, OPS)]};
    const kiln_op *op = op_of(contexts[1], c->name);
    bool named = false;
    for (int a = 0; a < op->schema->nargs; a++) {
        const kiln_param *p = &op->schema->args[a];
        argument *to = &c->arg[a];
        kiln_tkind kind = kiln_type_strip(p->type, NULL)->kind;
        to->given = p->def.kind == KILN_DEF_ABSENT || (kind != KILN_T_OTHER && !one_in(f, 3));
        named = named || !to->given || p->kwarg_only || one_in(f, 12);
        to->named = named;
        to->v = any_value(f, kind);
        bool condition = kiln_op_arg(op, a) >= 0 && op->row->arg_takes[a] == KILN_DT(KILN_BOOL);
        to->t.region = condition ? 2 : region;
        any_sizes(f, &to->t, rank, shape);
    }
}

/* -- changes: one thing at a time --------------------------------------------------------------------------- */

static void change_shapes(fuzz *f, one_call *c, int nargs) {
    int64_t shape[RANK_MAX];
    int rank = any_shape(f, shape);
    for (int a = 0; a < nargs; a++) any_sizes(f, &c->arg[a].t, rank, shape);
}

static void change(fuzz *f, one_call *c) {
    const kiln_op *op = op_of(contexts[1], c->name);
    int n = op->schema->nargs, a = (int)below(f, (uint64_t)n), other = (int)below(f, (uint64_t)n);
    argument *to = &c->arg[a];
    const kiln_param *p = &op->schema->args[a];
    switch (below(f, 12)) {
    case 0: change_shapes(f, c, n); break;
    case 1: any_layout(f, &to->t); break;
    case 2: to->t = c->arg[other].t; break; /* the same place */
    case 3: to->t.at = c->arg[other].t.at; break;
    case 4: to->t.at += to->t.at > 0 && one_in(f, 2) ? -1 : to->t.at < 64; break;
    case 5: to->t.kind = (unsigned)below(f, KINDS); break;
    case 6: to->t.readonly = one_in(f, 3); break;
    case 7: to->t.region = (int)below(f, REGIONS); break;
    case 8:
        to->t.rank = 0;
        if (one_in(f, 2)) to->t.at = c->arg[other].t.at;
        break;
    case 9: c->backwards = !c->backwards; break;
    case 10:
        to->given = p->def.kind == KILN_DEF_ABSENT || !to->given;
        for (int b = 0; b < n; b++) c->arg[b].named = c->arg[b].named || (b > a && !to->given);
        break;
    default: to->v = any_value(f, kiln_type_strip(p->type, NULL)->kind); break;
    }
    keep_inside(&to->t);
}

/* -- making and judging ------------------------------------------------------------------------------------- */

static kiln_tensor *tensor_at(const placed *p, int world, kiln_tensor_header *header) {
    kiln_dtype dtype = region_dtype[p->region];
    char *data = memory[world][p->region] + p->at * (int64_t)kiln_dtype_size(dtype);
    kiln_tensor *t;
    if (p->kind == BORROWED) {
        MUST_OK(kiln_tensor_borrow(header, data, dtype, p->rank, p->sizes, p->strides, p->readonly, &t));
        return t;
    }
    if (p->kind == WRAPPED) {
        MUST_OK(kiln_tensor_wrap(data, dtype, p->rank, p->sizes, p->strides, NULL, NULL, &t));
        if (p->readonly) kiln_tensor_set_readonly(t);
        return t;
    }
    MUST_OK(kiln_tensor_new(dtype, p->rank, p->sizes, NULL, &t));
    memcpy(t->data, memory[world][p->region], (size_t)t->nelem * kiln_dtype_size(dtype));
    return t;
}

static bool same_place(const placed *a, const placed *b) {
    size_t n = (size_t)a->rank * sizeof *a->sizes;
    return a->region == b->region && a->at == b->at && a->rank == b->rank &&
           memcmp(a->sizes, b->sizes, n) == 0 && memcmp(a->strides, b->strides, n) == 0;
}

/* The tensor of argument a: that of an earlier one if they are alike in all, else its own. */
static kiln_tensor *tensor_of_arg(const one_call *c, int a, int world, kiln_tensor_header *headers,
                                  kiln_tensor **made) {
    const placed *p = &c->arg[a].t;
    for (int b = 0; b < a; b++)
        if (made[b] && same_place(&c->arg[b].t, p) && c->arg[b].t.kind == p->kind &&
            c->arg[b].t.readonly == p->readonly)
            return made[a] = kiln_tensor_retain(made[b]);
    return made[a] = tensor_at(p, world, &headers[a]);
}

/* The call's values, tensors in one of the two memories. */
static size_t make_values(const one_call *c, const kiln_op *op, int world, kiln_tensor_header *headers,
                          kiln_value *args) {
    size_t n = 0;
    kiln_tensor *made[KILN_MAX_ARGS] = {NULL};
    for (int a = 0; a < op->schema->nargs; a++) {
        const argument *from = &c->arg[a];
        if (!from->given) continue;
        kiln_value v = from->v;
        if (is_tensor(op, a)) v = kiln_v_tensor(tensor_of_arg(c, a, world, headers, made));
        args[n++] = from->named ? kiln_v_named(op->schema->args[a].name, v) : v;
    }
    if (c->backwards && n > 1 && args[n - 2].name) {
        kiln_value last = args[n - 1];
        args[n - 1] = args[n - 2];
        args[n - 2] = last;
    }
    return n;
}

static bool is_dense(const placed *p) {
    int64_t nelem = 1;
    for (int d = 0; d < p->rank; d++) nelem *= p->sizes[d];
    return kiln_layout_flags(p->rank, p->sizes, p->strides, nelem) & KILN_TF_DENSE;
}

/* Whether the call writes a tensor that may share some elements with another without being refused for it: with
 * gaps in one of them that is too hard to say, and what is read then depends on the order. */
static bool is_undefined(const one_call *c, const kiln_op *op) {
    for (int k = 0; k < op->nout; k++)
        for (int a = 0; a < op->schema->nargs; a++) {
            const placed *out = &c->arg[kiln_op_out_arg(op, k)].t, *in = &c->arg[a].t;
            if (a == kiln_op_out_arg(op, k) || !is_tensor(op, a) || in->region != out->region) continue;
            if (!same_place(in, out) && !(is_dense(in) && is_dense(out))) return true;
        }
    return false;
}

typedef struct outcome {
    kiln_status status;
    size_t nargs;
    kiln_tensor_header headers[KILN_MAX_ARGS];
    kiln_value args[KILN_MAX_ARGS];
    kiln_tensor *outs[KILN_MAX_RETS];
    char said[WHY_MAX];
} outcome;

static void run(const one_call *c, int world, outcome *to) {
    const kiln_op *op = op_of(contexts[world], c->name);
    to->nargs = make_values(c, op, world, to->headers, to->args);
    memset(to->outs, 0, sizeof to->outs);
    to->status = kiln_call(contexts[world], op, to->args, to->nargs, to->outs, KILN_MAX_RETS);
    snprintf(to->said, sizeof to->said, "%s", to->status ? kiln_last_error() : "");
    to->said[strcspn(to->said, "[")] = 0; /* where in the source it was found may differ */
}

/* Whether t's header is what its sizes and strides make it. */
static bool is_sound(const kiln_tensor *t) {
    unsigned kept = KILN_TF_READONLY | KILN_TF_OWNED | KILN_TF_BORROWED;
    int64_t nelem = 1;
    for (int d = 0; d < t->rank; d++) nelem *= t->sizes[d];
    unsigned flags = (t->flags & kept) | kiln_layout_flags(t->rank, t->sizes, t->strides, nelem);
    if (t->nelem != nelem || t->sig != KILN_SIG(t->dtype, flags, t->rank)) return false;
    return !(t->flags & KILN_TF_OWNED) ||
           (size_t)nelem * kiln_dtype_size((kiln_dtype)t->dtype) <= t->data_cap;
}

/* Of a call that was refused, its tensors as well: nothing may have been written. */
static bool same_tensors(const outcome *a, const outcome *b, char *why) {
    for (size_t k = 0; k < a->nargs; k++) {
        if (a->args[k].kind != KILN_TENSOR) continue;
        const kiln_tensor *x = a->args[k].u.tensor, *y = b->args[k].u.tensor;
        if (!is_sound(y) || !same_results(x, y, why)) return false;
    }
    for (int k = 0; k < KILN_MAX_RETS && a->outs[k]; k++)
        if (!b->outs[k] || !is_sound(b->outs[k]) || !same_results(a->outs[k], b->outs[k], why)) return false;
    return true;
}

static bool same_memory(char *why) {
    for (int r = 0; r < REGIONS; r++) {
        size_t size = kiln_dtype_size(region_dtype[r]);
        for (size_t at = 0; at < ROOM * size; at += size)
            if (!same_element(region_dtype[r], memory[0][r] + at, memory[1][r] + at)) {
                snprintf(why, WHY_MAX, "%s at %zu was written otherwise", kiln_dtype_name(region_dtype[r]),
                         at);
                return false;
            }
    }
    return true;
}

static void drop(outcome *o) {
    for (int k = 0; k < KILN_MAX_RETS; k++) kiln_tensor_release(o->outs[k]);
    drop_args(o->args, o->nargs);
}

static bool agree(fuzz *f, const one_call *c) {
    static outcome a, b;
    char detail[WHY_MAX] = "an unsound header, or no result";
    if (is_undefined(c, op_of(contexts[1], c->name))) return true;
    run(c, 0, &a);
    run(c, 1, &b);
    bool same = a.status == b.status && strcmp(a.said, b.said) == 0;
    if (!same) snprintf(detail, sizeof detail, "'%.200s' and '%.200s'", a.said, b.said);
    same = same && same_tensors(&a, &b, detail) && same_memory(detail);
    f->made += a.status == KILN_OK;
    f->refused += a.status != KILN_OK;
    if (!same) snprintf(f->why, sizeof f->why, "%s: %.500s", c->name, detail);
    drop(&a);
    drop(&b);
    return same;
}

/* -- sequences ---------------------------------------------------------------------------------------------- */

static void fill_memory(fuzz *f) {
    for (int r = 0; r < REGIONS; r++) {
        size_t size = kiln_dtype_size(region_dtype[r]);
        for (size_t at = 0; at < ROOM * size; at += size)
            draw_element(region_dtype[r], &f->seed, one_in(f, 4), memory[0][r] + at);
    }
    memcpy(memory[1], memory[0], sizeof memory[0]);
}

/* Slots that do not ask whether tensors may be written, replays that take the first tensor's last stride for 1. */
static void plant(const fuzz *f, const char *name) {
    const kiln_op *op = op_of(contexts[1], name);
    kiln_thread *t = kiln_thread_of(&contexts[1]->epochs);
    kiln_memo *s = *kiln_slot_of(t->user, op);
    if (f->plant_slot && s && s->op == op)
        for (unsigned k = 0; k < s->nargs; k++) {
            s->asked.arg[k].bits.mask &= ~KILN_SIG_FLAGS(KILN_TF_READONLY);
            s->asked.arg[k].bits.want &= s->asked.arg[k].bits.mask;
        }
    kiln_recipe **r = kiln_slots_of(t)->recipes;
    for (int k = 0; f->plant_replay && r && k < KILN_RECIPE_COUNT; k++)
        for (int way = 0; r[k]->op == op && way < KILN_RECIPE_WAYS; way++) {
            kiln_memo *m = r[k]->way[way];
            int rank = m && m->op == op ? (int)(m->asked.arg[0].bits.want >> 32 & 0xff) : 0;
            if (rank && !m->flat && m->asked.arg[0].kind == KILN_TENSOR) m->layout[2 * rank - 1] = 1;
        }
}

static bool search(fuzz *f, int episodes) {
    for (int e = 0; e < episodes; e++) {
        for (int k = 0; k < CALLS; k++) any_call(f, &f->calls[k]);
        for (int step = 0; step < STEPS; step++) {
            one_call *c = &f->calls[below(f, CALLS)], before = *c;
            if (step % 8 == 0) fill_memory(f);
            if (!one_in(f, 3)) change(f, c);
            if (!agree(f, c)) return false;
            if (f->plant_slot || f->plant_replay) plant(f, c->name);
            if (!one_in(f, 5)) *c = before; /* mostly a change is of one call only */
        }
    }
    return true;
}

static void earlier_calls_change_nothing(void **state) {
    (void)state;
    static fuzz f;
    f = (fuzz){.seed = 1001};
    kiln_stats before = stats_of(contexts[1]);
    bool same = search(&f, whole_run() ? EPISODES : EPISODES / 2);
    kiln_stats after = stats_of(contexts[1]);
    print_message("%ld calls made, %ld refused; %llu slot hits\n", f.made, f.refused,
                  (unsigned long long)(after.slot_hits - before.slot_hits));
    if (!same) fail_msg("%s", f.why);
    assert_true(f.made > f.refused && (long)after.slot_hits > f.made / 8);
}

static void a_slot_that_asks_too_little_is_found_out(void **state) {
    (void)state;
    static fuzz f;
    f = (fuzz){.seed = 12, .plant_slot = true};
    assert_false(search(&f, EPISODES));
}

static void a_replay_that_asks_too_little_is_found_out(void **state) {
    (void)state;
    static fuzz f;
    f = (fuzz){.seed = 13, .plant_replay = true};
    assert_false(search(&f, EPISODES));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(earlier_calls_change_nothing),
        cmocka_unit_test(a_slot_that_asks_too_little_is_found_out),
        cmocka_unit_test(a_replay_that_asks_too_little_is_found_out),
    };
    return RUN_COMPILED_AND_INTERPRETED(tests);
}
