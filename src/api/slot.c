/* slot.c - a call that is like the last one of its operator -> its results, in tens of nanoseconds.
 *
 * See slot.h for what "like" means.  What is compared here is all that the general path would have looked at
 * to arrive at the same kernel and the same shape of results; tests/unit/test_slot.c holds a case for each.
 * The rest of the file fills slots, after the general path has answered a call. */
#include "api/slot.h"

#include <float.h>
#include <math.h>
#include <string.h>

#define UNLIKELY(x) __builtin_expect(!!(x), 0)
#define INLINE static inline __attribute__((always_inline))
#define NELEM_MAX ((int64_t)1 << 36) /* elements from which on the general path counts bytes with care */

/* -- matching: nothing is called, nothing is written that a miss would have to undo --------------------------- */

/* Kinds, signatures and values.  Names only where they are the schema's own texts; see matches_by_text. */
INLINE bool matches(kiln_slot *s, const kiln_value *v) {
    const kiln_slot_arg *a = s->arg, *end = a + s->nargs;
    do { /* a slot has an argument */
        uint64_t word = (uint64_t)v->u.i;
        if (v->kind != a->kind || v->name != a->name) return false;
        if (v->kind == KILN_TENSOR) {
            if (!word) return false;
            word = v->u.tensor->sig;
            *a->data = v->u.tensor->data;
        }
        if ((word & a->mask) != a->want) return false;
        a++, v++;
    } while (a != end);
    return true;
}

INLINE bool same_sizes(const kiln_tensor *a, const kiln_tensor *b) {
    if ((a->sig ^ b->sig) & KILN_SIG_RANK) return false;
    const int64_t *x = a->sizes, *y = b->sizes;
    for (long d = a->rank; d-- > 0;)
        if (x[d] != y[d]) return false;
    return true;
}

INLINE bool shapes_match(kiln_slot *s, const kiln_value *args) {
    const kiln_tensor *like = args[s->like].u.tensor;
    s->n[0] = like->nelem;
    if (like->nelem >= NELEM_MAX) return false;
    for (long k = s->nsized; k-- > 0;)
        if (!same_sizes(args[s->sized[k]].u.tensor, like)) return false;
    return true;
}

/* Whether memory from a on and from b on is disjoint, or the same elements one by one. */
INLINE bool apart_or_same(const char *a, uint64_t na, const char *b, uint64_t nb) {
    if (a == b && na == nb) return true;
    return (uintptr_t)a + na <= (uintptr_t)b || (uintptr_t)b + nb <= (uintptr_t)a;
}

/* Whether result k shares no memory with a tensor among the arguments, or all of it. */
INLINE bool out_is_free(const kiln_slot *s, const kiln_value *args, unsigned k) {
    const kiln_tensor *out = args[s->target[k]].u.tensor;
    uint64_t nk = (uint64_t)out->nelem * s->elem[k];
    for (long i = s->nargs; i-- > 0;) {
        const kiln_tensor *t = args[i].u.tensor;
        if (s->arg[i].kind != KILN_TENSOR || t == out) continue;
        if (!apart_or_same(out->data, nk, t->data, (uint64_t)t->nelem << s->log_elem[i])) return false;
    }
    return true;
}

/* The scalars that need no more than an instruction or two.  False: not one of those, or it does not fit. */
INLINE bool set_scalars(kiln_slot *s, const kiln_value *args) {
    for (long k = s->nscalars; k-- > 0;) {
        const kiln_slot_scalar *r = &s->scalar[k];
        const kiln_value *v = &args[r->arg];
        uint64_t *out = &s->par[r->par];
        float f;
        if (r->how == KILN_SLOT_COPY) {
            *out = (uint64_t)v->u.i;
        } else if (r->how == KILN_SLOT_F64_TO_F32) {
            if (!(fabs(v->u.f) <= FLT_MAX)) return false;
            f = (float)v->u.f;
            memcpy(out, &f, sizeof f);
        } else if (r->how == KILN_SLOT_INT_TO_F32) {
            f = (float)v->u.i;
            memcpy(out, &f, sizeof f);
        } else if (r->how == KILN_SLOT_INT_TO_I32 && v->u.i == (int32_t)v->u.i) {
            *out = (uint32_t)v->u.i;
        } else {
            return false;
        }
    }
    return true;
}

/* -- running ------------------------------------------------------------------------------------------------ */

/* Large calls are the driver's: it knows caches and threads. */
static int32_t drive(const kiln_slot *s, int nest) {
    kiln_plan plan;
    kiln_runner run = {.fn = s->fn, .parallel = &s->c->ctx->parallel, .cost_ps = s->c->cost_element};
    int32_t trap;
    plan.nrets = s->nrets;
    plan.noperands = (int)s->noperands;
    plan.ndim = 1;
    plan.n[0] = plan.nelem = s->n[0];
    plan.strided = false;
    for (unsigned o = 0; o < s->noperands; o++) {
        plan.operand[o].dtype = (kiln_dtype)s->dtype[o];
        plan.stride[o][0] = s->stride[2 * o];
    }
    return kiln_drive(&plan, &run, nest, s->ptr, s->par, &trap) == KILN_OK ? trap : -1;
}

INLINE kiln_status finish(kiln_thread *t, const kiln_slot *s) {
    KILN_COUNT_IN(t, slot_hits);
    kiln_entry_touch(&s->c->entry);
    kiln_tier_here = kiln_tier_compiled;
    kiln_thread_leave(t);
    return KILN_OK;
}

static kiln_status fail(kiln_thread *t, kiln_status st) {
    kiln_thread_leave(t);
    return st;
}

/* -- the less simple ------------------------------------------------------------------------------------------ */

static bool same_text(const char *a, const char *b) { return a == b || (a && b && strcmp(a, b) == 0); }

/* As matches, with names and texts read wherever they are. */
static bool matches_by_text(kiln_slot *s, const kiln_value *args) {
    for (unsigned i = 0; i < s->nargs; i++) {
        const kiln_value *v = &args[i];
        uint64_t word = (uint64_t)v->u.i;
        if (v->kind != s->arg[i].kind || !same_text(v->name, s->arg[i].name)) return false;
        if (v->kind == KILN_TENSOR) {
            if (!word) return false;
            word = v->u.tensor->sig;
            *s->arg[i].data = v->u.tensor->data;
        }
        if ((word & s->arg[i].mask) != s->arg[i].want) return false;
        if (v->kind == KILN_STR_V && !same_text(v->u.s, s->text)) return false;
    }
    return true;
}

static bool set_any_scalars(kiln_slot *s, const kiln_value *args) {
    for (unsigned k = 0; k < s->nscalars; k++) {
        const kiln_slot_scalar *r = &s->scalar[k];
        if (!kiln_number_convert(&args[r->arg], r->part, (kiln_dtype)r->via, (kiln_dtype)r->dtype, r->checked,
                                 &s->par[r->par]))
            return false;
    }
    return true;
}

static bool outs_are_free(const kiln_slot *s, const kiln_value *args) {
    for (unsigned k = 0; k < s->nrets && s->given_outs; k++) {
        if (!out_is_free(s, args, k)) return false;
        for (unsigned j = 0; j < k; j++) /* two results in one place: one of them would be lost */
            if (args[s->target[j]].u.tensor->data == args[s->target[k]].u.tensor->data) return false;
    }
    return true;
}

/* Runs nests from..to; false after a trap. */
static bool run_nests(kiln_slot *s, unsigned from, unsigned to) {
    for (unsigned nest = from; nest < to; nest++) {
        s->launch.nest = (int32_t)nest;
        if ((s->n[0] > KILN_SLOT_SERIAL ? drive(s, (int)nest) : s->fn(&s->launch)) != 0) return false;
    }
    return true;
}

/* Any call a slot holds.  False: nothing has happened. */
static bool hit_any(kiln_slot *s, const kiln_value *args, kiln_tensor **outs) {
    kiln_tensor *made[KILN_SLOT_RETS];
    unsigned k = 0;
    if (!matches_by_text(s, args) || !shapes_match(s, args) || !outs_are_free(s, args)) return false;
    if (!set_scalars(s, args) && !set_any_scalars(s, args)) return false;
    if (!run_nests(s, 0, s->nguards)) return false;
    for (; k < s->nrets; k++) {
        kiln_tensor *from = args[s->target[k]].u.tensor;
        made[k] = s->given_outs ? kiln_tensor_retain(from)
                                : kiln_tensor_new_like(from, (kiln_dtype)s->dtype[k], s->elem[k]);
        if (!made[k]) break;
        s->ptr[k] = made[k]->data;
    }
    if (k < s->nrets || !run_nests(s, s->nguards, s->nnests)) {
        while (k > 0) kiln_tensor_release(made[--k]);
        return false;
    }
    memcpy(outs, made, s->nrets * sizeof *made);
    return true;
}

static __attribute__((noinline)) kiln_status call_any(kiln_ctx *ctx, const kiln_op *op,
                                                      const kiln_value *args, size_t nargs,
                                                      kiln_tensor **outs, size_t nouts) {
    kiln_thread *t = kiln_thread_of(&ctx->domain); /* entered: cannot fail */
    kiln_slot *s = t->user ? *kiln_slot_of(t->user, op) : NULL;
    bool mine = s && s->op == op && s->nargs == nargs && nouts >= s->nrets && outs &&
                s->generation == kiln_generation(&ctx->domain);
    if (mine && hit_any(s, args, outs)) return finish(t, s);
    kiln_status st = kiln_call_general(ctx, t, op, args, nargs, outs, nouts);
    kiln_thread_leave(t);
    return st;
}

/* -- the call --------------------------------------------------------------------------------------------------- */

/* The first call of a thread, or after one in another context. */
static __attribute__((noinline)) kiln_status call_first(kiln_ctx *ctx, const kiln_op *op,
                                                        const kiln_value *args, size_t nargs,
                                                        kiln_tensor **outs, size_t nouts) {
    kiln_thread *t = kiln_thread_of(&ctx->domain);
    if (!t) return KILN_NOMEM();
    kiln_thread_enter(&ctx->domain, t);
    return call_any(ctx, op, args, nargs, outs, nouts);
}

/* A call of s's operator with as many values: one result, one nest.  What s does not hold goes on to call_any,
 * which needs nothing that s does not know. */
static __attribute__((noinline)) kiln_status call_simple(kiln_thread *t, kiln_slot *s, const kiln_value *args,
                                                         kiln_tensor **outs) {
    if (!matches(s, args) || !shapes_match(s, args) || !set_scalars(s, args) ||
        (s->given_outs && !out_is_free(s, args, 0)))
        return call_any(s->c->ctx, s->op, args, s->nargs, outs, s->nrets);
    kiln_tensor *out = args[s->target[0]].u.tensor;
    if (s->given_outs)
        atomic_fetch_add_explicit(&out->refs, 1, memory_order_relaxed);
    else
        out = kiln_tensor_new_like(out, (kiln_dtype)s->dtype[0], s->elem[0]);
    if (UNLIKELY(!out)) return fail(t, KILN_E_NOMEM);
    s->ptr[0] = out->data;
    int32_t trap = UNLIKELY(s->n[0] > KILN_SLOT_SERIAL) ? drive(s, 0) : s->fn(&s->launch);
    if (UNLIKELY(trap != 0)) { /* only guards have traps */
        kiln_tensor_release(out);
        return fail(t, KILN_BUG("%s: the kernel returned %d", s->op->name, (int)trap));
    }
    *outs = out;
    return finish(t, s);
}

kiln_status kiln_call(kiln_ctx *ctx, const kiln_op *op, const kiln_value *args, size_t nargs,
                      kiln_tensor **outs, size_t nouts) {
    if (UNLIKELY(kiln_thread_last.id != ctx->domain.id)) return call_first(ctx, op, args, nargs, outs, nouts);
    kiln_thread *t = kiln_thread_last.record;
    kiln_slot *s;
    kiln_thread_enter(&ctx->domain, t);
    if (t->user && (s = *kiln_slot_of(t->user, op))->op == op && s->simple_nargs == nargs && nouts && outs &&
        s->generation == kiln_generation(&ctx->domain))
        return call_simple(t, s, args, outs);
    return call_any(ctx, op, args, nargs, outs, nouts);
}

/* -- filling ------------------------------------------------------------------------------------------------ */

/* Bits of a signature that decide the class; of a tensor that is written also whether it may be. */
#define SIG_READ (KILN_SIG_TYPE | KILN_SIG_FLAGS(KILN_TF_CANONICAL | KILN_TF_SCALAR))
#define SIG_WRITTEN (SIG_READ | KILN_SIG_FLAGS(KILN_TF_READONLY))

typedef struct filling {
    kiln_slot *s;
    const kiln_value *args;
    const kiln_plan *plan;
    bool any_sized; /* some tensor has dimensions */
    int first;      /* tensor argument, or -1 */
} filling;

/* Whether value i may stand in argument a of the row (-1: a result), and what is asked of it. */
static bool fill_arg(filling *f, int i, int a, bool written) {
    const kiln_value *v = &f->args[i];
    const kiln_row *row = f->plan->call->op->row;
    kiln_slot_arg *to = &f->s->arg[i];
    bool asked = a >= 0 && row->asked >> a & 1;
    *to = (kiln_slot_arg){.kind = v->kind};
    switch ((kiln_kind)v->kind) {
    case KILN_NONE: return true;
    case KILN_TENSOR:
        if (asked) return false; /* its sizes matter */
        if (f->first < 0) f->first = i;
        f->s->log_elem[i] = (uint8_t)__builtin_ctzll(kiln_dtype_size((kiln_dtype)v->u.tensor->dtype));
        to->mask = written ? SIG_WRITTEN : SIG_READ;
        if (a >= 0 && row->asked_single >> a & 1) to->mask |= KILN_SIG_FLAGS(KILN_TF_SINGLE);
        to->want = v->u.tensor->sig & to->mask;
        return (v->u.tensor->flags & KILN_TF_CANONICAL) != 0;
    case KILN_STR_V:
        if (f->s->text_arg < KILN_SLOT_ARGS || strlen(v->u.s) >= KILN_SLOT_TEXT) return false;
        memcpy(f->s->text, v->u.s, strlen(v->u.s) + 1);
        f->s->text_arg = (uint8_t)i;
        return true;
    case KILN_DTYPE_V:
    case KILN_BOOL_V:
    case KILN_INT_V:
    case KILN_FLOAT_V:
        if (a < 0 || v->kind != f->plan->call->slot[a].kind) return false; /* converted when bound */
        if (asked || v->kind == KILN_DTYPE_V) to->mask = UINT64_MAX;
        to->want = (uint64_t)v->u.i & to->mask;
        return true;
    case KILN_COMPLEX_V: return a >= 0 && !asked;
    case KILN_LIST_V: break;
    }
    return false;
}

static bool fill_args(filling *f) {
    const kiln_bound *call = f->plan->call;
    const kiln_op *op = call->op;
    unsigned filled = 0;
    for (int a = 0; a < op->schema->nargs; a++) {
        int slot = op->slot[a], i = slot >= 0 ? call->given[slot] : -1;
        bool written = false;
        for (int k = 0; k < op->nout; k++) {
            if (op->out_arg[k] != a) continue;
            i = call->given_out[k];
            written = true;
        }
        if (i < 0) continue; /* its default, like the last time */
        if (!fill_arg(f, i, slot, written)) return false;
        if (f->args[i].name) f->s->arg[i].name = op->schema->args[a].name;
        filled |= 1u << i;
    }
    return filled == (1u << f->s->nargs) - 1;
}

/* Every tensor of rank above 0 has the shape of the call. */
static bool fill_shape(filling *f) {
    const kiln_plan *p = f->plan;
    f->s->nsized = 0;
    if (f->first < 0) return false;
    f->s->like = (uint8_t)f->first;
    for (int i = 0; i < (int)f->s->nargs; i++) {
        if (f->args[i].kind != KILN_TENSOR || f->args[i].u.tensor->rank == 0) continue;
        const kiln_tensor *t = f->args[i].u.tensor;
        if (t->rank != p->rank || memcmp(t->sizes, p->sizes, t->rank * sizeof *t->sizes) != 0) return false;
        if (f->any_sized)
            f->s->sized[f->s->nsized++] = (uint8_t)i;
        else
            f->s->like = (uint8_t)i;
        f->any_sized = true;
    }
    return true;
}

static bool fill_operands(filling *f) {
    enum { CONTIG = 1, BCAST = 2 }; /* ORDER STRIDE */
    const kiln_plan *p = f->plan;
    kiln_slot *s = f->s;
    for (unsigned i = 0; i < s->nargs; i++) s->arg[i].data = &s->unused;
    for (int o = 0; o < p->noperands; o++) {
        const kiln_operand *op = &p->operand[o];
        bool stretched = op->arg >= 0 && f->any_sized && op->tensor->rank == 0;
        if (op->step != (stretched ? BCAST : CONTIG)) return false;
        if (op->arg >= 0) {
            if (p->call->given[op->arg] < 0) return false;
            s->arg[p->call->given[op->arg]].data = &s->ptr[o];
        } else {
            s->target[o] = s->given_outs ? (uint8_t)p->call->given_out[o] : s->like;
        }
        s->elem[o] = (uint8_t)kiln_dtype_size(op->dtype);
        s->dtype[o] = (uint8_t)op->dtype;
        s->stride[2 * o] = stretched ? 0 : s->elem[o];
        s->stride[2 * o + 1] = 0;
    }
    return true;
}

static kiln_slot_how how_of(const kiln_value *v, const kiln_scalar_source *src) {
    bool is_int = v->kind == KILN_INT_V, is_float = v->kind == KILN_FLOAT_V;
    if (src->part != KILN_PART_WHOLE || src->via != src->dtype) return KILN_SLOT_ANY;
    if ((is_int && src->dtype == KILN_I64) || (is_float && src->dtype == KILN_F64)) return KILN_SLOT_COPY;
    if (is_float && src->dtype == KILN_F32) return KILN_SLOT_F64_TO_F32;
    if (is_int && src->dtype == KILN_F32) return KILN_SLOT_INT_TO_F32;
    return is_int && src->dtype == KILN_I32 ? KILN_SLOT_INT_TO_I32 : KILN_SLOT_ANY;
}

static bool fill_scalars(filling *f, const kiln_class *c) {
    const kiln_plan *p = f->plan;
    kiln_slot *s = f->s;
    s->nscalars = 0;
    for (int k = 0; k < c->nscalars; k++) {
        const kiln_scalar_source *src = &c->scalars[k];
        if (src->slot >= KILN_HOST_ID || src->index >= 0) return false;
        bool checked = kiln_plan_scalar_checked(p, src->slot);
        const kiln_value *v = &p->call->slot[src->slot];
        s->par[k] = 0;
        if (p->call->given[src->slot] < 0) { /* a default, converted once */
            if (!kiln_number_convert(v, (int)src->part, src->via, src->dtype, checked, &s->par[k]))
                return false;
            continue;
        }
        s->scalar[s->nscalars++] = (kiln_slot_scalar){.how = (uint8_t)how_of(v, src),
                                                      .arg = (uint8_t)p->call->given[src->slot],
                                                      .par = (uint8_t)k,
                                                      .part = (uint8_t)src->part,
                                                      .via = (uint8_t)src->via,
                                                      .dtype = (uint8_t)src->dtype,
                                                      .checked = checked};
    }
    return true;
}

static bool fits_slot(const kiln_plan *p, const kiln_class *c, size_t nargs) {
    if (nargs == 0 || nargs > KILN_SLOT_ARGS || p->noperands > KILN_SLOT_OPERANDS) return false;
    if (p->nrets > KILN_SLOT_RETS || c->nscalars > KILN_SLOT_SCALARS || c->nnests > UINT8_MAX) return false;
    for (int k = 0; k < p->nrets; k++)
        if (p->resize_out[k]) return false;
    kiln_strides s =
        p->call->op->row->branches[p->branch].typing.strides; /* a slot's results are row-major */
    if (s == KILN_STRIDES_CHANNELS_LAST || s == KILN_STRIDES_CHANNELS_LAST_3D) return false;
    return !p->strided && !p->copy_out && p->ndim == 1 && p->nelem > 0;
}

static kiln_slot empty; /* never written: its op is no operator */

/* The slot of op, to be filled; NULL without memory. */
static kiln_slot *slot_for(kiln_thread *t, const kiln_op *op) {
    if (!t->user) {
        kiln_slots *slots = kiln_alloc(sizeof *slots);
        for (int k = 0; slots && k < KILN_SLOT_COUNT; k++) slots->at[k] = &empty;
        t->user = slots;
    }
    if (!t->user) return NULL;
    kiln_slot **at = kiln_slot_of(t->user, op);
    if (*at == &empty) {
        kiln_slot *s = kiln_calloc(1, sizeof *s);
        if (s) *at = s;
    }
    return *at == &empty ? NULL : *at;
}

void kiln_slots_free(void *user) {
    kiln_slots *slots = user;
    for (int k = 0; slots && k < KILN_SLOT_COUNT; k++)
        if (slots->at[k] != &empty) kiln_free(slots->at[k]);
    kiln_free(slots);
}

void kiln_slot_fill(kiln_thread *t, uint64_t generation, const kiln_value *args, size_t nargs,
                    const kiln_plan *plan, kiln_class *c, kiln_kernel_fn fn) {
    static const int64_t origin[2] = {0, 0};
    const kiln_op *op = plan->call->op;
    if (!fits_slot(plan, c, nargs)) return;
    kiln_slot *s = slot_for(t, op);
    if (!s) return; /* slower, not wrong */
    filling f = {.s = s, .args = args, .plan = plan, .first = -1};
    s->op = NULL; /* until all of it is right */
    s->generation = generation;
    s->c = c;
    s->nargs = (uint32_t)nargs;
    s->nrets = (uint8_t)plan->nrets;
    s->noperands = (uint32_t)plan->noperands;
    s->nnests = (uint8_t)c->nnests;
    s->nguards = (uint8_t)c->nguards;
    s->given_outs = plan->call->nout > 0;
    s->text_arg = KILN_SLOT_ARGS;
    s->fn = fn;
    s->n[1] = 1;
    s->launch = (kiln_launch){
        .ndim = 2, .n = s->n, .ptr = s->ptr, .stride = s->stride, .origin = origin, .par = s->par};
    if (!fill_args(&f) || !fill_shape(&f) || !fill_operands(&f) || !fill_scalars(&f, c)) return;
    bool simple = s->nrets == 1 && s->nnests == 1 && s->nguards == 0 && s->text_arg == KILN_SLOT_ARGS;
    s->simple_nargs = simple ? s->nargs : 0;
    s->op = op;
}
