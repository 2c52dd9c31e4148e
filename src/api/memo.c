/* memo.c - a call that is like one before -> its results, in tens of nanoseconds.
 *
 * See memo.h for what "like" means.  What is compared here is all that the general path would have looked at
 * to arrive at the same kernel and the same shape of results; tests/unit/test_slot.c holds a case for each.
 * memo_make.c decides what a memo asks and asked.h compares it; nothing here knows why.  `replay` answers by every memo.
 * Slot hits of one to three flat tensors have functions of their own, since loops over values and results would add half to
 * what they cost.  A call with a `rest` calls its other operator here and not by the steps of a work, which would add a tenth to it. */
#include "api/memo.h"

#include <fenv.h>
#include <float.h>
#include <math.h>
#include <string.h>

#define UNLIKELY(x) __builtin_expect(!!(x), 0)
#define INLINE static inline __attribute__((always_inline))
#define NO_MEMORY (-1)               /* beside the traps that kernels return */
#define DRIVE_FAILED INT32_MIN       /* plus a status */
#define NELEM_MAX ((int64_t)1 << 36) /* elements from which on the general path counts bytes with care */

/* -- matching: nothing is written that a miss would have to undo ----------------------------------------------- */

/* Takes on the shape of `like`, the value that has the call's.  False: it is not as this memo asks. */
static __attribute__((noinline)) bool learn_shape(kiln_memo *m, const kiln_tensor *like) {
    const kiln_memo_arg *a = &m->asked.arg[m->like];
    if (m->rounded && m->rounding != fegetround()) return false;
    if (like->sig == m->last_sig && like->nelem == m->n[0]) return true;
    if (!kiln_bits_match(&a->bits, like->sig) || like->nelem >= NELEM_MAX) return false;
    m->last_sig = like->sig;
    m->like_sig = m->rounded ? 0 : like->sig; /* 0: each call comes here, so that modes are compared */
    m->n[0] = like->nelem;
    m->direct = like->nelem <= KILN_MEMO_SERIAL;
    for (unsigned k = 0; k < m->nrets && !m->given_outs; k++)
        m->mold[k] = kiln_tensor_mold_like(like, (kiln_dtype)m->dtype[k], m->elem[k]);
    if (!m->given_outs) return true;
    m->reach[m->like] = (uint64_t)like->nelem * a->elem;
    for (unsigned k = 0; k < m->nsized; k++)
        m->reach[m->sized[k]] = (uint64_t)like->nelem * m->asked.arg[m->sized[k]].elem;
    return true;
}

/* The same, and nothing to do where it is as the last time. */
INLINE bool shape_matches(kiln_memo *m, const kiln_tensor *like) {
    return (like->sig == m->like_sig && like->nelem == m->n[0]) || learn_shape(m, like);
}

INLINE bool shapes_match(kiln_memo *m, const kiln_value *args) {
    const kiln_tensor *like = args[m->like].u.tensor;
    if (!shape_matches(m, like)) return false;
    for (long k = m->nsized; k-- > 0;)
        if (!kiln_has_shape(args[m->sized[k]].u.tensor, like->rank, like->sizes)) return false;
    return true;
}

/* Value i, where it must be a tensor in the shape of value 0, which is `like`. */
INLINE bool tensor_matches(kiln_memo *m, const kiln_value *args, unsigned i, const kiln_tensor *like) {
    const kiln_memo_arg *a = &m->asked.arg[i];
    const kiln_tensor *t = args[i].u.tensor;
    if (args[i].kind != KILN_TENSOR || args[i].name != a->name || !t) return false;
    if (i == 0 ? !shape_matches(m, t) : !kiln_tensor_match(&a->bits, t, like)) return false;
    *a->data = t->data;
    return true;
}

/* Whether `lead` tensors that come first, all in the shape of the call, and the values after them, none a tensor, are as asked. */
INLINE bool lead_matches(kiln_memo *m, const kiln_value *args, unsigned lead) {
    const kiln_tensor *like = args[0].u.tensor;
    return tensor_matches(m, args, 0, like) && (lead < 2 || tensor_matches(m, args, 1, like)) &&
           (lead < 3 || tensor_matches(m, args, 2, like)) &&
           kiln_values_match(&m->asked, m->asked.arg + lead, m->arg_end, NULL, args + lead,
                             KILN_LOOK_NUMBERS);
}

/* Whether a call is as m's guard says. */
INLINE bool guard_holds(kiln_memo *m, const kiln_value *args, kiln_look look) {
    const int64_t *layout = m->flat ? NULL : m->layout;
    if (!kiln_values_match(&m->asked, m->asked.arg, m->arg_end, layout, args, look)) return false;
    return layout || shapes_match(m, args);
}

bool kiln_memo_laid_out_alike(const kiln_memo *m, const kiln_value *args) {
    return kiln_values_match(&m->asked, m->asked.arg, m->arg_end, m->layout, args, KILN_LOOK_ALL);
}

/* Where value i, a tensor, lies. */
INLINE kiln_extent extent_of(const kiln_memo *m, const kiln_value *args, unsigned i) {
    return (kiln_extent){(uintptr_t)args[i].u.tensor->data, m->reach[i]};
}

/* Whether the tensor that is written to as buffer b shares memory with no tensor, but with those in `same` element by element;
 * unless the memo is flat it must do so.  lead: as many tensors come first and no others follow; or 0. */
INLINE bool is_apart(const kiln_memo *m, const kiln_value *args, unsigned b, unsigned lead) {
    kiln_extent to = extent_of(m, args, m->written[b]);
    uint32_t same = m->same[b];
    if (lead)
        return kiln_extents_fit(to, extent_of(m, args, 0), same & 1) &&
               (lead < 2 || kiln_extents_fit(to, extent_of(m, args, 1), same >> 1 & 1)) &&
               (lead < 3 || kiln_extents_fit(to, extent_of(m, args, 2), same >> 2 & 1));
    for (unsigned i = 0; i < m->nargs; i++) {
        if (m->asked.arg[i].kind != KILN_TENSOR) continue;
        kiln_extent at = extent_of(m, args, i);
        bool aligned = same >> i & 1;
        if (!kiln_extents_fit(to, at, aligned) || (aligned && !m->flat && at.low != to.low)) return false;
    }
    return true;
}

/* The scalars that need no more than an instruction or two.  False: not one of those, or it does not fit. */
INLINE bool set_scalars(kiln_memo *m, const kiln_value *args) {
    for (const kiln_memo_scalar *r = m->scalar; r != m->scalar_end; r++) {
        const kiln_value *v = &args[r->arg];
        float f;
        if (r->how == KILN_MEMO_F64_TO_F32) {
            if (!(fabs(v->u.f) <= FLT_MAX)) return false;
            f = (float)v->u.f;
            memcpy(r->par, &f, sizeof f);
        } else if (r->how == KILN_MEMO_COPY) {
            *r->par = (uint64_t)v->u.i;
        } else if (r->how == KILN_MEMO_INT_TO_F32) {
            f = (float)v->u.i;
            memcpy(r->par, &f, sizeof f);
        } else if (r->how == KILN_MEMO_INT_TO_I32 && v->u.i == (int32_t)v->u.i) {
            *r->par = (uint32_t)v->u.i;
        } else {
            return false;
        }
    }
    return true;
}

/* -- running ------------------------------------------------------------------------------------------------ */

/* Large calls are the driver's: it knows caches and threads.  Returns 0, or DRIVE_FAILED plus a status.  Addresses and
 * scalars are copied, since a host's pool may run a call of the same operator in this thread meanwhile, which has the slot
 * next. */
static int32_t drive(const kiln_memo *m, int nest) {
    char *ptr[KILN_MEMO_BUFFERS];
    uint64_t par[KILN_MEMO_SCALARS];
    int64_t n = m->n[0], stride[KILN_MEMO_BUFFERS * 2];
    uint8_t bytes[KILN_MEMO_BUFFERS];
    memcpy(ptr, m->ptr, sizeof ptr);
    memcpy(par, m->par, sizeof par);
    memcpy(bytes, m->elem, sizeof bytes);
    memcpy(stride, m->stride, sizeof stride);
    const kiln_ctx *ctx = m->c->ctx;
    kiln_runner run = {.fn = m->interp ? NULL : m->fn,
                       .interp = m->interp,
                       .parallel = &ctx->parallel,
                       .isa = ctx->isa,
                       .cost = &m->c->cost};
    kiln_axes x = {.ndim = 1,
                   .ngrid = 1,
                   .nbuffers = (int)m->nbuffers,
                   .nwritten = m->nrets,
                   .pitch = 2,
                   .npoints = n,
                   .nelem = n,
                   .n = &n,
                   .stride = stride,
                   .bytes = bytes};
    int32_t trap = 0;
    kiln_status st = kiln_drive(&x, &run, nest, ptr, par, &trap);
    if (st == KILN_OK && trap != 0) st = KILN_BUG("a kernel without guards returned %d", (int)trap);
    return st == KILN_OK ? 0 : DRIVE_FAILED + (int32_t)st;
}

/* -- replaying ------------------------------------------------------------------------------------------------ */

static __attribute__((noinline)) bool set_any_scalars(kiln_memo *m, const kiln_value *args) {
    for (const kiln_memo_scalar *r = m->scalar; r != m->scalar_end; r++)
        if (!kiln_number_convert(&args[r->arg], r->src, r->checked, r->par)) return false;
    return true;
}

/* What must hold beside the guard: numbers were computed in the mode of the floating-point unit that is set now, and what is
 * written to lies apart from the other tensors.  Sets the addresses of what is written to. */
static __attribute__((noinline)) bool checks_hold(kiln_memo *m, const kiln_value *args) {
    if (m->rounded && m->rounding != fegetround()) return false;
    if (m->flat && !m->direct && m->nnests > 1)
        return false; /* the memo may be another call's between them */
    for (unsigned b = m->first_written; b < m->end_written; b++) {
        if (!is_apart(m, args, b, 0)) return false;
        m->ptr[b] = args[m->written[b]].u.tensor->data;
    }
    return true;
}

/* Result k: the tensor that is given for it, or a new one.  Where sizes and signature do not tell the strides, all of the header is
 * written anew. */
INLINE kiln_tensor *result_of(const kiln_memo *m, const kiln_value *args, unsigned k) {
    if (m->given_outs) {
        kiln_tensor *to = args[m->written[k]].u.tensor;
        atomic_fetch_add_explicit(&to->refs, 1, memory_order_relaxed);
        return to;
    }
    const kiln_tensor_mold *mold = &m->mold[k];
    const kiln_tensor *shape = m->flat ? args[m->like].u.tensor : m->shape_of[k];
    if (shape->flags & KILN_TF_CANONICAL) return kiln_tensor_make(mold, shape);
    size_t nbytes = kiln_tensor_head(shape->rank) + mold->data_bytes;
    return kiln_tensor_make_afresh(mold, shape, kiln_block_take_kept(mold->block, nbytes));
}

/* Runs a nest that is more than one launch, or a launch that needs memory. */
static __attribute__((noinline)) int32_t run_launches(kiln_memo *m) {
    char *ptr[KILN_WALK_BUFFERS];
    kiln_home home;
    if (m->flat) return drive(m, m->launch.nest);
    if (m->work && !(m->launch.work = kiln_block_take_any(m->work, &home))) return NO_MEMORY;
    for (unsigned b = 0; b < m->nbuffers; b++) ptr[b] = m->ptr[b];
    bool lone = !m->walk.whole && m->walk.outer.ngrid == 0;
    int32_t trap = lone ? m->fn(&m->launch)
                        : kiln_walk_run(&m->walk, m->fn, m->launch.nest, ptr, m->par, m->launch.work);
    if (m->work) kiln_block_give(m->launch.work, home);
    return trap;
}

/* Runs the nest that the launch names. */
INLINE int32_t run_nest(kiln_memo *m) { return m->direct ? m->fn(&m->launch) : run_launches(m); }

/* Runs nests from..to. */
static int32_t run_nests(kiln_memo *m, unsigned from, unsigned to) {
    int32_t trap = 0;
    for (unsigned nest = from; nest < to && trap == 0; nest++) {
        m->launch.nest = (int32_t)nest;
        trap = run_nest(m);
    }
    return trap;
}

/* After a launch that failed, or for want of a result.  The general path says what is wrong; but if the driver ran the launch,
 * the memo may be another call's by now. */
static __attribute__((noinline)) kiln_memo_ran give_up(kiln_tensor *const *made, unsigned n, int32_t trap,
                                                       kiln_status *st) {
    while (n > 0) kiln_tensor_release(made[--n]);
    if (trap >= NO_MEMORY) return KILN_MEMO_NOT;
    *st = (kiln_status)(trap - DRIVE_FAILED);
    return KILN_MEMO_CALLED;
}

/* Runs the one nest of a memo whose one result is `out`; if `out` is NULL, there was no memory for the result. */
INLINE int32_t run_one(kiln_memo *m, kiln_tensor *out, kiln_tensor **outs) {
    if (UNLIKELY(!out)) return NO_MEMORY;
    m->ptr[0] = out->data;
    int32_t trap = run_nest(m);
    if (UNLIKELY(trap != 0)) return trap;
    *outs = out;
    return 0;
}

/* Runs guards, makes all results and runs the other nests. */
static __attribute__((noinline)) kiln_memo_ran run_all(kiln_memo *m, const kiln_value *args,
                                                       kiln_tensor **outs, kiln_status *st) {
    kiln_tensor *made[KILN_MEMO_RETS];
    unsigned k = 0, nrets = (unsigned)m->nrets;
    if (m->nguards && run_nests(m, 0, m->nguards) != 0) return KILN_MEMO_NOT;
    for (; k < nrets; k++) {
        bool absent = m->absent >> k & 1;
        made[k] = absent ? NULL : result_of(m, args, k);
        if (!made[k] && !absent) return give_up(made, k, 0, st);
        m->ptr[k] = absent ? NULL : made[k]->data;
    }
    int32_t trap = run_nests(m, m->nguards, m->nnests);
    if (trap != 0) return give_up(made, k, trap, st);
    memcpy(outs, made, nrets * sizeof *made);
    return KILN_MEMO_RAN;
}

/* Sets the scalars.  False: one does not fit, or a check does not hold. */
INLINE bool make_ready(kiln_memo *m, const kiln_value *args) {
    if (!set_scalars(m, args) && !set_any_scalars(m, args)) return false;
    return !m->is_checked || checks_hold(m, args);
}

/* Calls the operator that gives the other results, and then makes its own.  After the call the memo may be another call's, or have
 * the addresses of one. */
static __attribute__((noinline)) kiln_memo_ran run_with_rest(kiln_memo *m, const kiln_value *args,
                                                             kiln_tensor **outs, kiln_status *st) {
    kiln_value given[KILN_MEMO_ARGS];
    kiln_tensor *others[KILN_MEMO_RETS];
    const kiln_op *op = m->op;
    kiln_ctx *ctx = m->ctx;
    kiln_thread *t = kiln_thread_of(&ctx->epochs); /* which has entered */
    kiln_inner in;
    uint32_t serial = m->serial;
    unsigned nown = m->nown, n = (unsigned)m->nrets - nown;
    for (unsigned i = 0; i < m->nrest; i++) {
        given[i] = args[m->rest_arg[i]];
        given[i].name = NULL;
    }
    kiln_inner_begin(t, &in);
    *st = kiln_note(kiln_call(ctx, m->rest, given, m->nrest, others, n), "%s", op->name);
    bool interpreted = kiln_inner_end(t, &in);
    if (*st != KILN_OK) return KILN_MEMO_CALLED;
    bool mine = m->op == op && m->serial == serial && guard_holds(m, args, KILN_LOOK_ALL);
    kiln_memo_ran ran = mine && make_ready(m, args) ? run_all(m, args, outs, st) : KILN_MEMO_NOT;
    for (unsigned k = 0; k < n; k++) {
        if (ran == KILN_MEMO_RAN)
            outs[nown + k] = others[k];
        else
            kiln_tensor_release(others[k]);
    }
    if (ran == KILN_MEMO_RAN && interpreted && !m->interp)
        kiln_count_interpreted(ctx, t); /* else the caller counts it */
    return ran;
}

/* Answers a call that m's guard lets pass.  A launch that is not the driver's runs on one thread, so nobody else has the memo
 * meanwhile. */
INLINE kiln_memo_ran replay(kiln_memo *m, const kiln_value *args, kiln_tensor **outs, kiln_status *st) {
    if (!make_ready(m, args)) return KILN_MEMO_NOT;
    m->used = true;
    if (m->work_is == KILN_MEMO_ONE) {
        kiln_tensor *made[] = {result_of(m, args, 0)};
        int32_t trap = run_one(m, made[0], outs);
        return UNLIKELY(trap != 0) ? give_up(made, 1, trap, st) : KILN_MEMO_RAN;
    }
    if (m->work_is == KILN_MEMO_LAUNCHES) return run_all(m, args, outs, st);
    if (m->work_is == KILN_MEMO_REST) return run_with_rest(m, args, outs, st);
    *st = kiln_memo_run_calls(m, args, outs);
    return KILN_MEMO_CALLED;
}

kiln_memo_ran kiln_memo_run(kiln_memo *m, const kiln_value *args, kiln_tensor **outs, kiln_status *st) {
    kiln_look look = m->flat ? KILN_LOOK_TENSORS : KILN_LOOK_ALL;
    return guard_holds(m, args, look) ? replay(m, args, outs, st) : KILN_MEMO_NOT;
}

/* -- slot hits -------------------------------------------------------------------------------------------------- */

INLINE kiln_status finish(kiln_thread *t, const kiln_memo *m) {
    KILN_COUNT_IN(t, slot_hits);
    kiln_entry_touch(&m->c->entry);
    kiln_tier_here = kiln_tier_compiled;
    kiln_thread_leave(t);
    return KILN_OK;
}

/* A call that is not like the last one of its operator. */
static __attribute__((noinline)) kiln_status call_other(kiln_ctx *ctx, const kiln_op *op,
                                                        const kiln_value *args, size_t nargs,
                                                        kiln_tensor **outs, size_t nouts) {
    kiln_thread *t = kiln_thread_last.record; /* which has entered */
    kiln_status st = kiln_call_general(ctx, op, args, nargs, outs, nouts);
    kiln_thread_leave(t);
    return st;
}

void kiln_memo_interpreted(kiln_thread *t, kiln_memo *m) {
    kiln_count_interpreted(m->c->ctx, t);
    kiln_tier_here = kiln_tier_interp;
    if (kiln_class_heat(m->c, m->flat ? m->n[0] : m->nelem, m->rows))
        m->op = (const kiln_op *)m; /* the next call is to build */
}

/* A call that something else than a kernel has answered. */
static __attribute__((noinline)) kiln_status finish_other(kiln_thread *t, kiln_memo *m, kiln_memo_ran ran,
                                                          kiln_status st) {
    if (st == KILN_OK) KILN_COUNT_IN(t, slot_hits);
    if (ran == KILN_MEMO_RAN) {
        kiln_entry_touch(&m->c->entry);
        kiln_memo_interpreted(t, m);
    }
    kiln_thread_leave(t);
    return st;
}

/* Answers by any memo.  Once replay has called another operator m may be another call's, so what the general path takes is kept. */
KILN_HOT static kiln_status hit_any(kiln_thread *t, kiln_memo *m, const kiln_value *args, size_t nargs,
                                    kiln_tensor **outs, size_t nouts) {
    kiln_status st = KILN_OK;
    kiln_ctx *ctx = m->ctx;
    const kiln_op *op = m->op;
    kiln_memo_ran ran = guard_holds(m, args, KILN_LOOK_ALL) ? replay(m, args, outs, &st) : KILN_MEMO_NOT;
    if (UNLIKELY(ran == KILN_MEMO_NOT)) return call_other(ctx, op, args, nargs, outs, nouts);
    if (UNLIKELY(ran == KILN_MEMO_CALLED || m->interp)) return finish_other(t, m, ran, st);
    return finish(t, m);
}

/* A call that a hit of leading tensors did not answer.  Names may be equal as texts, and scalars may be of any kind. */
static __attribute__((noinline)) kiln_status miss(kiln_memo *m, const kiln_value *args, kiln_tensor **outs) {
    const kiln_memo_arg *like = &m->asked.arg[m->like];
    const kiln_value *v = &args[m->like];
    bool other = v->kind == KILN_TENSOR && v->u.tensor && !kiln_bits_match(&like->bits, v->u.tensor->sig);
    if (other) return call_other(m->ctx, m->op, args, m->nargs, outs, m->nrets);
    return hit_any(kiln_thread_last.record, m, args, m->nargs, outs, m->nrets);
}

static __attribute__((noinline)) kiln_status fail(kiln_memo *m, const kiln_value *args, kiln_tensor **outs,
                                                  kiln_tensor *out, int32_t trap) {
    kiln_status st = KILN_OK;
    if (give_up(&out, 1, trap, &st) == KILN_MEMO_NOT)
        return call_other(m->ctx, m->op, args, m->nargs, outs, m->nrets);
    return finish_other(kiln_thread_last.record, m, KILN_MEMO_CALLED, st);
}

/* Calls nothing but the kernel where the shape is the last one's and a block is kept.  lead: see lead_matches. */
INLINE kiln_status hit(kiln_thread *t, kiln_memo *m, const kiln_value *args, kiln_tensor **outs,
                       unsigned lead) {
    if (UNLIKELY(!lead_matches(m, args, lead) || !set_scalars(m, args))) return miss(m, args, outs);
    if (m->given_outs && UNLIKELY(!is_apart(m, args, 0, lead))) return miss(m, args, outs);
    kiln_tensor *out = args[m->given_outs ? m->written[0] : 0].u.tensor;
    if (m->given_outs)
        atomic_fetch_add_explicit(&out->refs, 1, memory_order_relaxed);
    else
        out = kiln_tensor_make(&m->mold[0], out);
    int32_t trap = run_one(m, out, outs);
    if (UNLIKELY(trap != 0)) return fail(m, args, outs, out, trap);
    return finish(t, m);
}

#define HIT(lead)                                                                                     \
    static kiln_status hit_##lead(kiln_thread *t, kiln_memo *m, const kiln_value *args, size_t nargs, \
                                  kiln_tensor **outs, size_t nouts) {                                 \
        (void)nargs, (void)nouts;                                                                     \
        return hit(t, m, args, outs, lead);                                                           \
    }
HIT(1)
HIT(2)
HIT(3)

kiln_memo_hit *const kiln_memo_hits[KILN_MEMO_LEAD + 1] = {hit_any, hit_1, hit_2, hit_3};

/* -- the call --------------------------------------------------------------------------------------------------- */

/* A call of the thread that kiln_thread_last names, which has entered the epochs of ctx: by the memo that the operator's slot points
 * at if that may hold the call. */
INLINE kiln_status call_entered(kiln_ctx *ctx, const kiln_op *op, const kiln_value *args, size_t nargs,
                                kiln_tensor **outs, size_t nouts) {
    kiln_thread *t = kiln_thread_last.record;
    kiln_memo *m = *kiln_slot_of(t->user, op);
    if (m->op == op && args && m->nargs == nargs && m->nrets <= nouts &&
        kiln_generation(&ctx->epochs) == m->generation && outs)
        return m->hit(t, m, args, nargs, outs, nouts);
    return call_other(ctx, op, args, nargs, outs, nouts);
}

/* kiln_call comes here if the thread has made no call yet, if its last call was in another context, if readers must fence, or if ctx or
 * op is NULL, which is an error. */
static __attribute__((noinline)) kiln_status call_first(kiln_ctx *ctx, const kiln_op *op,
                                                        const kiln_value *args, size_t nargs,
                                                        kiln_tensor **outs, size_t nouts) {
    KILN_NEED_IN("kiln_call", ctx, op);
    kiln_thread *t = kiln_thread_of(&ctx->epochs);
    if (!t) return KILN_NOMEM();
    kiln_thread_enter(&ctx->epochs, t);
    return call_entered(ctx, op, args, nargs, outs, nouts);
}

KILN_HOT kiln_status kiln_call(kiln_ctx *ctx, const kiln_op *op, const kiln_value *args, size_t nargs,
                               kiln_tensor **outs, size_t nouts) {
    if (UNLIKELY(!ctx || !op || kiln_thread_last.id != ctx->epochs.id))
        return call_first(ctx, op, args, nargs, outs, nouts);
    (void)kiln_thread_enter_unfenced(&ctx->epochs, kiln_thread_last.record);
    return call_entered(ctx, op, args, nargs, outs, nouts);
}
