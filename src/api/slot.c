/* slot.c - a call that is like the last one of its operator -> its results, in tens of nanoseconds.
 *
 * See slot.h for what "like" means.  What is compared here is all that the general path would have looked at
 * to arrive at the same kernel and the same shape of results; tests/unit/test_slot.c holds a case for each.
 * slot_fill.c decides what a slot asks; nothing here knows why. */
#include "api/slot.h"

#include <float.h>
#include <math.h>
#include <string.h>

#define UNLIKELY(x) __builtin_expect(!!(x), 0)
#define INLINE static inline __attribute__((always_inline))
#define NELEM_MAX ((int64_t)1 << 36) /* elements from which on the general path counts bytes with care */

/* -- matching: nothing is written that a miss would have to undo ----------------------------------------------- */

/* Takes on the shape of `like`, the value that has the call's.  False: it is not as this slot asks. */
static __attribute__((noinline)) bool learn_shape(kiln_slot *s, const kiln_tensor *like) {
    const kiln_slot_arg *a = &s->arg[s->like];
    if ((like->sig & a->mask) != a->want || like->nelem >= NELEM_MAX) return false;
    s->like_sig = like->sig;
    s->n[0] = like->nelem;
    for (unsigned k = 0; k < s->nrets && !s->given_outs; k++)
        s->mold[k] = kiln_tensor_mold_like(like, (kiln_dtype)s->dtype[k], s->elem[k]);
    return true;
}

/* The same, and nothing to do where it is as the last time. */
INLINE bool shape_matches(kiln_slot *s, const kiln_tensor *like) {
    return (like->sig == s->like_sig && like->nelem == s->n[0]) || learn_shape(s, like);
}

INLINE bool same_shape(const kiln_tensor *a, const kiln_tensor *b) {
    return a->rank == b->rank && kiln_same_sizes(a->rank, a->sizes, b->sizes);
}

INLINE bool shapes_match(kiln_slot *s, const kiln_value *args) {
    const kiln_tensor *like = args[s->like].u.tensor;
    if (!shape_matches(s, like)) return false;
    for (long k = s->nsized; k-- > 0;)
        if (!same_shape(args[s->sized[k]].u.tensor, like)) return false;
    return true;
}

/* Kinds, signatures and payloads of the values from `first` on: all of them, or those after the tensors.  Names
 * only where they are the schema's own texts; see matches_by_text. */
INLINE bool values_match(kiln_slot *s, const kiln_value *args, unsigned first) {
    const kiln_slot_arg *a = s->arg + first, *end = s->arg_end;
    for (const kiln_value *v = args + first; a != end; a++, v++) {
        uint64_t word = (uint64_t)v->u.i;
        if (v->kind != a->kind || v->name != a->name) return false;
        if (first == 0 && v->kind == KILN_TENSOR) {
            if (!word) return false;
            word = v->u.tensor->sig;
            *a->data = v->u.tensor->data;
        }
        if ((word & a->mask) != a->want) return false;
    }
    return true;
}

/* Value i, where it must be a tensor in the shape of value 0, which is `like`. */
INLINE bool tensor_matches(kiln_slot *s, const kiln_value *args, unsigned i, const kiln_tensor *like) {
    const kiln_slot_arg *a = &s->arg[i];
    const kiln_tensor *t = args[i].u.tensor;
    if (args[i].kind != KILN_TENSOR || args[i].name != a->name || !t) return false;
    if (i == 0 ? !shape_matches(s, t) : (t->sig & a->mask) != a->want || !same_shape(t, like)) return false;
    *a->data = t->data;
    return true;
}

/* All values.  lead: as many tensors come first and no others follow, all in the shape of the call; or 0. */
INLINE bool matches(kiln_slot *s, const kiln_value *args, unsigned lead) {
    if (lead == 0) return values_match(s, args, 0) && shapes_match(s, args);
    const kiln_tensor *like = args[0].u.tensor;
    return tensor_matches(s, args, 0, like) && (lead < 2 || tensor_matches(s, args, 1, like)) &&
           (lead < 3 || tensor_matches(s, args, 2, like)) && values_match(s, args, lead);
}

/* Whether na bytes from a on and nb from b on are disjoint. */
INLINE bool apart(const char *a, uint64_t na, const char *b, uint64_t nb) {
    uint64_t ahead = (uint64_t)((uintptr_t)b - (uintptr_t)a); /* of one another, around the end of memory */
    return ahead >= na && -ahead >= nb;
}

/* Whether `out`, of nbytes, shares no memory with the tensor that is value i, or all of it, element by element: an
 * only element with dimensions is not the one of a tensor without. */
INLINE bool out_is_apart(const kiln_slot *s, const kiln_value *args, unsigned i, const kiln_tensor *out,
                         uint64_t nbytes) {
    const kiln_tensor *t = args[i].u.tensor;
    uint64_t n = (uint64_t)t->nelem * s->arg[i].elem;
    return t == out || apart(out->data, nbytes, t->data, n) ||
           (out->data == t->data && nbytes == n && out->rank == t->rank);
}

/* The same of result k and every tensor.  lead: see matches. */
INLINE bool out_is_free(const kiln_slot *s, const kiln_value *args, unsigned k, unsigned lead) {
    const kiln_tensor *out = args[s->target[k]].u.tensor;
    uint64_t n = (uint64_t)out->nelem * s->elem[k];
    if (lead)
        return out_is_apart(s, args, 0, out, n) && (lead < 2 || out_is_apart(s, args, 1, out, n)) &&
               (lead < 3 || out_is_apart(s, args, 2, out, n));
    for (unsigned i = 0; i < s->nargs; i++)
        if (s->arg[i].kind == KILN_TENSOR && !out_is_apart(s, args, i, out, n)) return false;
    return true;
}

/* The scalars that need no more than an instruction or two.  False: not one of those, or it does not fit. */
INLINE bool set_scalars(kiln_slot *s, const kiln_value *args) {
    for (const kiln_slot_scalar *r = s->scalar; r != s->scalar_end; r++) {
        const kiln_value *v = &args[r->arg];
        float f;
        if (r->how == KILN_SLOT_F64_TO_F32) {
            if (!(fabs(v->u.f) <= FLT_MAX)) return false;
            f = (float)v->u.f;
            memcpy(r->par, &f, sizeof f);
        } else if (r->how == KILN_SLOT_COPY) {
            *r->par = (uint64_t)v->u.i;
        } else if (r->how == KILN_SLOT_INT_TO_F32) {
            f = (float)v->u.i;
            memcpy(r->par, &f, sizeof f);
        } else if (r->how == KILN_SLOT_INT_TO_I32 && v->u.i == (int32_t)v->u.i) {
            *r->par = (uint32_t)v->u.i;
        } else {
            return false;
        }
    }
    return true;
}

/* -- running ------------------------------------------------------------------------------------------------ */

/* Large calls are the driver's: it knows caches and threads.  Addresses and scalars are copied, since a host's pool
 * may run a call of the same operator in this thread meanwhile, which has the slot next. */
static int32_t drive(const kiln_slot *s, int nest) {
    char *ptr[KILN_SLOT_OPERANDS];
    uint64_t par[KILN_SLOT_SCALARS];
    int64_t n = s->n[0], stride[KILN_SLOT_OPERANDS];
    uint8_t bytes[KILN_SLOT_OPERANDS];
    memcpy(ptr, s->ptr, sizeof ptr);
    memcpy(par, s->par, sizeof par);
    memcpy(bytes, s->elem, sizeof bytes);
    for (unsigned b = 0; b < s->noperands; b++) stride[b] = s->stride[2 * b];
    const kiln_ctx *ctx = s->c->ctx;
    kiln_runner run = {
        .fn = s->fn, .parallel = &ctx->parallel, .isa = ctx->isa, .cost_ps = s->c->cost_element};
    kiln_axes x = {.ndim = 1,
                   .ngrid = 1,
                   .nbuffers = (int)s->noperands,
                   .nwritten = s->nrets,
                   .pitch = 1,
                   .npoints = n,
                   .nelem = n,
                   .n = &n,
                   .stride = stride,
                   .bytes = bytes};
    int32_t trap;
    return kiln_drive(&x, &run, nest, ptr, par, &trap) == KILN_OK ? trap : -1;
}

INLINE kiln_status finish(kiln_thread *t, const kiln_slot *s) {
    KILN_COUNT_IN(t, slot_hits);
    kiln_entry_touch(&s->c->entry);
    kiln_tier_here = kiln_tier_compiled;
    kiln_thread_leave(t);
    return KILN_OK;
}

/* -- the less simple ------------------------------------------------------------------------------------------ */

/* As matches, with names and texts read wherever they are. */
static bool matches_by_text(kiln_slot *s, const kiln_value *args) {
    for (unsigned i = 0; i < s->nargs; i++) {
        const kiln_value *v = &args[i];
        uint64_t word = (uint64_t)v->u.i;
        if (v->kind != s->arg[i].kind || !kiln_same_text(v->name, s->arg[i].name)) return false;
        if (v->kind == KILN_TENSOR) {
            if (!word) return false;
            word = v->u.tensor->sig;
            *s->arg[i].data = v->u.tensor->data;
        }
        if ((word & s->arg[i].mask) != s->arg[i].want) return false;
        if (v->kind == KILN_STR_V && !kiln_same_text(v->u.s, s->text.letters)) return false;
    }
    return true;
}

static bool set_any_scalars(kiln_slot *s, const kiln_value *args) {
    for (const kiln_slot_scalar *r = s->scalar; r != s->scalar_end; r++)
        if (!kiln_number_convert(&args[r->arg], r->part, (kiln_dtype)r->via, (kiln_dtype)r->dtype, r->checked,
                                 r->par))
            return false;
    return true;
}

static bool outs_are_free(const kiln_slot *s, const kiln_value *args) {
    for (unsigned k = 0; k < s->nrets && s->given_outs; k++) {
        if (!out_is_free(s, args, k, 0)) return false;
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
    if (s->n[0] > KILN_SLOT_SERIAL && s->nnests > 1)
        return false; /* the slot may be another's between them */
    if (!set_scalars(s, args) && !set_any_scalars(s, args)) return false;
    if (!run_nests(s, 0, s->nguards)) return false;
    for (; k < s->nrets; k++) {
        kiln_tensor *from = args[s->target[k]].u.tensor;
        made[k] = s->given_outs ? kiln_tensor_retain(from) : kiln_tensor_make(&s->mold[k], from);
        if (!made[k]) break;
        s->ptr[k] = made[k]->data;
    }
    if (k < s->nrets || !run_nests(s, s->nguards, s->nnests)) {
        while (k > 0) kiln_tensor_release(made[--k]);
        return false;
    }
    memcpy(outs, made, k * sizeof *made); /* the slot may be another operator's by now */
    return true;
}

static __attribute__((noinline)) kiln_status call_any(kiln_ctx *ctx, const kiln_op *op,
                                                      const kiln_value *args, size_t nargs,
                                                      kiln_tensor **outs, size_t nouts) {
    kiln_thread *t = kiln_thread_last.record; /* which has entered */
    kiln_slot *s = *kiln_slot_of(t->user, op);
    bool mine = s->op == op && s->nargs == nargs && nouts >= s->nrets && args && outs &&
                s->generation == kiln_generation(&ctx->epochs);
    if (mine && hit_any(s, args, outs)) return finish(t, s);
    kiln_status st = kiln_call_general(ctx, t, op, args, nargs, outs, nouts);
    kiln_thread_leave(t);
    return st;
}

/* -- the call --------------------------------------------------------------------------------------------------- */

/* The first call of a thread, or after one in another context; or there is no context. */
static __attribute__((noinline)) kiln_status call_first(kiln_ctx *ctx, const kiln_op *op,
                                                        const kiln_value *args, size_t nargs,
                                                        kiln_tensor **outs, size_t nouts) {
    KILN_NEED_IN("kiln_call", ctx);
    kiln_thread *t = kiln_thread_of(&ctx->epochs);
    if (!t) return KILN_NOMEM();
    kiln_thread_enter(&ctx->epochs, t);
    return call_any(ctx, op, args, nargs, outs, nouts);
}

/* What a simple slot does not hold goes on to call_any, which needs nothing that the slot does not know. */
static __attribute__((noinline)) kiln_status miss(kiln_slot *s, const kiln_value *args, kiln_tensor **outs) {
    return call_any(s->c->ctx, s->op, args, s->nargs, outs, s->nrets);
}

static __attribute__((noinline)) kiln_status fail(kiln_thread *t, const kiln_slot *s, kiln_tensor *out,
                                                  int32_t trap) {
    kiln_thread_leave(t);
    if (!out) return KILN_E_NOMEM;
    kiln_tensor_release(out);
    return KILN_BUG("%s: the kernel returned %d", s->op->name, (int)trap); /* only guards have traps */
}

/* Calls nothing but the kernel where the shape is the last one's and a block is kept.  lead: see matches. */
INLINE kiln_status hit(kiln_thread *t, kiln_slot *s, const kiln_value *args, kiln_tensor **outs,
                       unsigned lead) {
    if (UNLIKELY(!matches(s, args, lead) || !set_scalars(s, args))) return miss(s, args, outs);
    if (s->given_outs && UNLIKELY(!out_is_free(s, args, 0, lead))) return miss(s, args, outs);
    kiln_tensor *out = args[lead && !s->given_outs ? 0 : s->target[0]].u.tensor;
    if (s->given_outs)
        atomic_fetch_add_explicit(&out->refs, 1, memory_order_relaxed);
    else if (UNLIKELY(!(out = kiln_tensor_make(&s->mold[0], out))))
        return fail(t, s, out, 0);
    s->ptr[0] = out->data;
    int32_t trap = UNLIKELY(s->n[0] > KILN_SLOT_SERIAL) ? drive(s, 0) : s->fn(&s->launch);
    if (UNLIKELY(trap != 0)) return fail(t, s, out, trap);
    *outs = out;
    return finish(t, s);
}

#define HIT(lead)                                                                                     \
    static kiln_status hit_##lead(kiln_thread *t, kiln_slot *s, const kiln_value *args, size_t nargs, \
                                  kiln_tensor **outs) {                                               \
        (void)nargs;                                                                                  \
        return hit(t, s, args, outs, lead);                                                           \
    }
HIT(0)
HIT(1)
HIT(2)
HIT(3)
kiln_slot_hit *const kiln_slot_hits[KILN_SLOT_LEAD + 1] = {hit_0, hit_1, hit_2, hit_3};

kiln_status kiln_call(kiln_ctx *ctx, const kiln_op *op, const kiln_value *args, size_t nargs,
                      kiln_tensor **outs, size_t nouts) {
    if (UNLIKELY(!ctx || kiln_thread_last.id != ctx->epochs.id))
        return call_first(ctx, op, args, nargs, outs, nouts);
    kiln_thread *t = kiln_thread_last.record;
    kiln_thread_enter(&ctx->epochs, t);
    kiln_slot *s = *kiln_slot_of(t->user, op);
    if (s->op == op && args && s->simple_nargs == nargs && nouts &&
        kiln_generation(&ctx->epochs) == s->generation && outs)
        return s->hit(t, s, args, nargs, outs);
    return call_any(ctx, op, args, nargs, outs, nouts);
}
