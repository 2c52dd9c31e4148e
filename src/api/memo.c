/* memo.c - a call that is like one before -> its results, in tens of nanoseconds.
 *
 * See memo.h for what "like" means.  What is compared here is all that the general path would have looked at
 * to arrive at the same kernel and the same shape of results; tests/unit/test_slot.c holds a case for each.
 * memo_make.c decides what a memo asks and asked.h compares it; nothing here knows why. */
#include "api/memo.h"

#include <fenv.h>
#include <float.h>
#include <math.h>
#include <string.h>

#define UNLIKELY(x) __builtin_expect(!!(x), 0)
#define INLINE static inline __attribute__((always_inline))
#define NELEM_MAX ((int64_t)1 << 36) /* elements from which on the general path counts bytes with care */

/* -- matching: nothing is written that a miss would have to undo ----------------------------------------------- */

/* Takes on the shape of `like`, the value that has the call's.  False: it is not as this memo asks. */
static __attribute__((noinline)) bool learn_shape(kiln_memo *m, const kiln_tensor *like) {
    const kiln_memo_arg *a = &m->asked.arg[m->like];
    if (!kiln_bits_match(&a->bits, like->sig) || like->nelem >= NELEM_MAX) return false;
    m->like_sig = like->sig;
    m->n[0] = like->nelem;
    for (unsigned k = 0; k < m->nrets && !m->given_outs; k++)
        m->mold[k] = kiln_tensor_mold_like(like, (kiln_dtype)m->dtype[k], m->elem[k]);
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
    if (i == 0 ? !shape_matches(m, t)
               : !kiln_bits_match(&a->bits, t->sig) || !kiln_has_shape(t, like->rank, like->sizes))
        return false;
    *a->data = t->data;
    return true;
}

/* The values from `first` on: all of them, or those after the tensors. */
INLINE bool values_match(const kiln_memo *m, const kiln_value *args, unsigned first) {
    return kiln_values_match(&m->asked, m->asked.arg + first, m->arg_end, NULL, args + first,
                             first ? KILN_LOOK_NUMBERS : KILN_LOOK_WORDS);
}

/* All values.  lead: as many tensors come first and no others follow, all in the shape of the call; or 0. */
INLINE bool matches(kiln_memo *m, const kiln_value *args, unsigned lead) {
    if (lead == 0) return values_match(m, args, 0) && shapes_match(m, args);
    const kiln_tensor *like = args[0].u.tensor;
    return tensor_matches(m, args, 0, like) && (lead < 2 || tensor_matches(m, args, 1, like)) &&
           (lead < 3 || tensor_matches(m, args, 2, like)) && values_match(m, args, lead);
}

INLINE kiln_extent extent(const char *data, uint64_t nbytes) {
    return (kiln_extent){(uintptr_t)data, nbytes};
}

/* Whether `out`, of nbytes, shares no memory with the tensor that is value i, or all of it, element by element: an
 * only element with dimensions is not the one of a tensor without. */
INLINE bool out_is_apart(const kiln_memo *m, const kiln_value *args, unsigned i, const kiln_tensor *out,
                         uint64_t nbytes) {
    const kiln_tensor *t = args[i].u.tensor;
    uint64_t n = (uint64_t)t->nelem * m->asked.arg[i].elem;
    return t == out || kiln_extents_apart(extent(out->data, nbytes), extent(t->data, n)) ||
           (out->data == t->data && nbytes == n && out->rank == t->rank);
}

/* The same of result k and every tensor.  lead: see matches. */
INLINE bool out_is_free(const kiln_memo *m, const kiln_value *args, unsigned k, unsigned lead) {
    const kiln_tensor *out = args[m->target[k]].u.tensor;
    uint64_t n = (uint64_t)out->nelem * m->elem[k];
    if (lead)
        return out_is_apart(m, args, 0, out, n) && (lead < 2 || out_is_apart(m, args, 1, out, n)) &&
               (lead < 3 || out_is_apart(m, args, 2, out, n));
    for (unsigned i = 0; i < m->nargs; i++)
        if (m->asked.arg[i].kind == KILN_TENSOR && !out_is_apart(m, args, i, out, n)) return false;
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

/* Large calls are the driver's: it knows caches and threads.  Addresses and scalars are copied, since a host's pool
 * may run a call of the same operator in this thread meanwhile, which has the slot next. */
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
    int32_t trap;
    return kiln_drive(&x, &run, nest, ptr, par, &trap) == KILN_OK ? trap : -1;
}

INLINE kiln_status finish(kiln_thread *t, const kiln_memo *m, const char *tier) {
    KILN_COUNT_IN(t, slot_hits);
    kiln_entry_touch(&m->c->entry);
    kiln_tier_here = tier;
    kiln_thread_leave(t);
    return KILN_OK;
}

/* -- the less simple ------------------------------------------------------------------------------------------ */

INLINE bool laid_out_alike(const kiln_memo *m, const kiln_value *args) {
    return kiln_values_match(&m->asked, m->asked.arg, m->arg_end, m->layout, args, KILN_LOOK_ALL);
}

bool kiln_memo_laid_out_alike(const kiln_memo *m, const kiln_value *args) { return laid_out_alike(m, args); }

static __attribute__((noinline)) bool set_any_scalars(kiln_memo *m, const kiln_value *args) {
    for (const kiln_memo_scalar *r = m->scalar; r != m->scalar_end; r++)
        if (!kiln_number_convert(&args[r->arg], r->src, r->checked, r->par)) return false;
    return true;
}

static bool outs_are_free(const kiln_memo *m, const kiln_value *args) {
    for (unsigned k = 0; k < m->nrets && m->given_outs; k++) {
        if (!out_is_free(m, args, k, 0)) return false;
        for (unsigned j = 0; j < k; j++) /* two results in one place: one of them would be lost */
            if (args[m->target[j]].u.tensor->data == args[m->target[k]].u.tensor->data) return false;
    }
    return true;
}

/* Runs nests from..to; false after a trap. */
static bool run_nests(kiln_memo *m, unsigned from, unsigned to) {
    for (unsigned nest = from; nest < to; nest++) {
        m->launch.nest = (int32_t)nest;
        if ((m->n[0] > KILN_MEMO_SERIAL ? drive(m, (int)nest) : m->fn(&m->launch)) != 0) return false;
    }
    return true;
}

/* A call of a flat memo. */
static bool run_flat(kiln_memo *m, const kiln_value *args, kiln_tensor **outs) {
    kiln_tensor *made[KILN_MEMO_RETS];
    unsigned k = 0;
    if (!shapes_match(m, args) || !outs_are_free(m, args)) return false;
    if (m->rounded && m->rounding != fegetround()) return false;
    if (m->n[0] > KILN_MEMO_SERIAL && m->nnests > 1)
        return false; /* the memo may be another call's between them */
    if (!set_scalars(m, args) && !set_any_scalars(m, args)) return false;
    if (m->nguards && !run_nests(m, 0, m->nguards)) return false;
    for (; k < m->nrets; k++) {
        kiln_tensor *from = args[m->target[k]].u.tensor;
        made[k] = m->given_outs ? kiln_tensor_retain(from) : kiln_tensor_make(&m->mold[k], from);
        if (!made[k]) break;
        m->ptr[k] = made[k]->data;
    }
    bool small = m->nnests == 1 && m->n[0] <= KILN_MEMO_SERIAL;
    if (k < m->nrets || (small ? m->fn(&m->launch) != 0 : !run_nests(m, m->nguards, m->nnests))) {
        while (k > 0) kiln_tensor_release(made[--k]);
        return false;
    }
    for (unsigned done = 0; done < k; done++) outs[done] = made[done]; /* the memo may be another's by now */
    return true;
}

/* -- one layout --------------------------------------------------------------------------------------------------- */

/* A new tensor in the shape kept.  Where sizes and signature do not tell the strides, all of it is written anew. */
static kiln_tensor *new_in_shape(const kiln_memo *m, unsigned k) {
    const kiln_tensor_mold *mold = &m->mold[k];
    const kiln_tensor *shape = &m->shape[m->shape_of[k]];
    if (shape->flags & KILN_TF_CANONICAL) return kiln_tensor_make(mold, shape);
    size_t nbytes = kiln_tensor_head(shape->rank) + mold->data_bytes;
    return kiln_tensor_make_afresh(mold, shape, kiln_block_take_kept(mold->block, nbytes));
}

/* Runs nests from..to. */
INLINE int32_t launch_all(kiln_memo *m, unsigned from, unsigned to) {
    char *ptr[KILN_WALK_BUFFERS];
    int32_t trap = 0;
    for (unsigned nest = from; nest < to && trap == 0; nest++) {
        m->launch.nest = (int32_t)nest;
        if (m->walk.outer.ngrid == 0) {
            trap = m->fn(&m->launch);
            continue;
        }
        for (unsigned b = 0; b < m->nbuffers; b++) ptr[b] = m->ptr[b];
        trap = kiln_walk_run(&m->walk, m->fn, (int)nest, ptr, m->par, m->launch.work);
    }
    return trap;
}

static __attribute__((noinline)) int32_t launch_with_work(kiln_memo *m, unsigned from, unsigned to) {
    kiln_home home;
    m->launch.work = kiln_block_take_any(m->work, &home);
    if (!m->launch.work) return -1;
    int32_t trap = launch_all(m, from, to);
    kiln_block_give(m->launch.work, home);
    return trap;
}

INLINE int32_t launch(kiln_memo *m, unsigned from, unsigned to) {
    return m->work ? launch_with_work(m, from, to) : launch_all(m, from, to);
}

/* Whether the tensor that is value `to` shares no memory with the others, but that those in the set `same` begin where it
 * does, as they did when the memo was made. */
static bool is_apart(const kiln_memo *m, const kiln_value *args, unsigned to, unsigned same) {
    const char *data = args[to].u.tensor->data;
    for (unsigned i = 0; i < m->nargs; i++) {
        if (i == to || m->asked.arg[i].kind != KILN_TENSOR) continue;
        const char *other = args[i].u.tensor->data;
        if (same >> i & 1 ? other != data
                          : !kiln_extents_apart(extent(data, m->reach[to]), extent(other, m->reach[i])))
            return false;
    }
    return true;
}

/* Sets where arguments are written to.  False: one of them, or a given result, shares memory with another tensor. */
static __attribute__((noinline)) bool written_are_apart(kiln_memo *m, const kiln_value *args) {
    for (unsigned k = 0; k < m->nwritten; k++) {
        if (!is_apart(m, args, m->written[k], 0)) return false;
        m->ptr[m->nrets + k] = args[m->written[k]].u.tensor->data;
    }
    for (unsigned k = 0; k < m->nrets && m->given_outs; k++)
        if (!is_apart(m, args, m->target[k], m->same[k])) return false;
    return true;
}

/* A call laid out as one before.  It needs one thread, so nobody else has the memo meanwhile.  given: its given_outs. */
INLINE bool run_laid_out(kiln_memo *m, const kiln_value *args, kiln_tensor **outs, bool given) {
    kiln_tensor *made[KILN_MEMO_RETS];
    unsigned k = 0;
    if (m->rounded && m->rounding != fegetround()) return false;
    if ((given || m->nwritten) && !written_are_apart(m, args)) return false;
    if (!set_scalars(m, args) && !set_any_scalars(m, args)) return false;
    if (m->nguards && launch(m, 0, m->nguards) != 0) return false;
    for (; k < m->nrets; k++) {
        made[k] = NULL;
        m->ptr[k] = NULL;
        if (m->absent >> k & 1) continue;
        made[k] = given ? kiln_tensor_retain(args[m->target[k]].u.tensor) : new_in_shape(m, k);
        if (!made[k]) break;
        m->ptr[k] = made[k]->data;
    }
    if (k < m->nrets || launch(m, m->nguards, m->nnests) != 0) {
        while (k > 0) kiln_tensor_release(made[--k]);
        return false;
    }
    for (unsigned done = 0; done < k; done++) outs[done] = made[done];
    return true;
}

static __attribute__((noinline)) bool run_laid_out_into(kiln_memo *m, const kiln_value *args,
                                                        kiln_tensor **outs) {
    return run_laid_out(m, args, outs, true);
}

/* The same where another operator gives some of the results.  It is called first; the memo may be another call's after that. */
static __attribute__((noinline)) bool run_with_rest(kiln_memo *m, const kiln_value *args, kiln_tensor **outs,
                                                    kiln_status *st) {
    kiln_value given[KILN_MEMO_ARGS];
    kiln_tensor *others[KILN_MEMO_RETS];
    const kiln_op *op = m->op;
    kiln_ctx *ctx = m->c->ctx;
    kiln_thread *t = kiln_thread_of(&ctx->epochs); /* which has entered */
    kiln_inner in;
    uint32_t serial = m->serial;
    unsigned nown = m->nown, n = m->nrets - nown;
    for (unsigned i = 0; i < m->nrest; i++) {
        given[i] = args[m->rest_arg[i]];
        given[i].name = NULL;
    }
    kiln_inner_begin(t, &in);
    *st = kiln_note(kiln_call(ctx, m->rest, given, m->nrest, others, n), "%s", op->name);
    bool interpreted = kiln_inner_end(t, &in);
    if (*st != KILN_OK) return true;
    bool done = m->op == op && m->serial == serial && laid_out_alike(m, args) &&
                run_laid_out(m, args, outs, false);
    for (unsigned k = 0; k < n; k++) {
        if (done)
            outs[nown + k] = others[k];
        else
            kiln_tensor_release(others[k]);
    }
    if (done && interpreted && !m->interp) kiln_count_interpreted(ctx, t); /* else the caller counts it */
    return done;
}

/* A call laid out as one before, by whatever answers it. */
static kiln_memo_ran run_alike(kiln_memo *m, const kiln_value *args, kiln_tensor **outs, kiln_status *st) {
    bool ran;
    if (m->ncalls) {
        m->used = true; /* now, because the calls may give the memo to another call */
        *st = kiln_memo_run_calls(m, args, outs);
        return KILN_MEMO_CALLED;
    }
    if (m->given_outs)
        ran = run_laid_out_into(m, args, outs);
    else
        ran = m->rest ? run_with_rest(m, args, outs, st) : run_laid_out(m, args, outs, false);
    if (ran) m->used = true;
    return ran ? KILN_MEMO_RAN : KILN_MEMO_NOT;
}

kiln_memo_ran kiln_memo_run(kiln_memo *m, const kiln_value *args, kiln_tensor **outs, bool alike,
                            kiln_status *st) {
    bool matches = !m->flat ? laid_out_alike(m, args)
                   : alike
                       ? kiln_values_match(&m->asked, m->asked.arg, m->arg_end, NULL, args, KILN_LOOK_TENSORS)
                       : kiln_asked_match(&m->asked, m->nargs, args);
    if (!matches) return KILN_MEMO_NOT;
    if (!m->flat) return run_alike(m, args, outs, st);
    if (!run_flat(m, args, outs)) return KILN_MEMO_NOT;
    m->used = true;
    return KILN_MEMO_RAN;
}

/* A call that is not like the last one of its operator. */
static kiln_status call_other(kiln_ctx *ctx, const kiln_op *op, const kiln_value *args, size_t nargs,
                              kiln_tensor **outs, size_t nouts) {
    kiln_thread *t = kiln_thread_last.record; /* which has entered */
    kiln_status st = kiln_call_general(ctx, op, args, nargs, outs, nouts);
    kiln_thread_leave(t);
    return st;
}

/* A call that no memo->hit has answered.  The memo in the slot, if it holds the call, is no interpreted one. */
KILN_HOT static __attribute__((noinline)) kiln_status call_any(kiln_ctx *ctx, const kiln_op *op,
                                                               const kiln_value *args, size_t nargs,
                                                               kiln_tensor **outs, size_t nouts) {
    kiln_thread *t = kiln_thread_last.record; /* which has entered */
    kiln_memo *m = *kiln_slot_of(t->user, op);
    bool mine = m->op == op && m->nargs == nargs && nouts >= m->nrets && args && outs &&
                m->generation == kiln_generation(&ctx->epochs);
    kiln_status st = KILN_OK;
    kiln_memo_ran ran = mine ? kiln_memo_run(m, args, outs, false, &st) : KILN_MEMO_NOT;
    if (ran != KILN_MEMO_NOT) {
        if (st == KILN_OK && ran == KILN_MEMO_RAN) return finish(t, m, kiln_tier_compiled);
        if (st == KILN_OK) KILN_COUNT_IN(t, slot_hits);
        kiln_thread_leave(t);
        return st;
    }
    return call_other(ctx, op, args, nargs, outs, nouts);
}

/* -- the call --------------------------------------------------------------------------------------------------- */

/* What a simple memo does not hold goes on to call_any, which needs nothing that the memo does not know. */
static __attribute__((noinline)) kiln_status miss(kiln_memo *m, const kiln_value *args, kiln_tensor **outs) {
    const kiln_memo_arg *like = &m->asked.arg[m->like];
    const kiln_value *v = &args[m->like];
    bool other = v->kind == KILN_TENSOR && v->u.tensor && !kiln_bits_match(&like->bits, v->u.tensor->sig);
    if (other) return call_other(m->c->ctx, m->op, args, m->nargs, outs, m->nrets);
    return call_any(m->c->ctx, m->op, args, m->nargs, outs, m->nrets);
}

static __attribute__((noinline)) kiln_status fail(kiln_thread *t, const kiln_memo *m, kiln_tensor *out,
                                                  int32_t trap) {
    kiln_thread_leave(t);
    if (!out) return KILN_E_NOMEM;
    kiln_tensor_release(out);
    return KILN_BUG("%s: the kernel returned %d", m->op->name, (int)trap); /* only guards have traps */
}

/* Calls nothing but the kernel where the shape is the last one's and a block is kept.  lead: see matches. */
INLINE kiln_status hit(kiln_thread *t, kiln_memo *m, const kiln_value *args, kiln_tensor **outs,
                       unsigned lead) {
    if (UNLIKELY(!matches(m, args, lead) || !set_scalars(m, args))) return miss(m, args, outs);
    if (m->given_outs && UNLIKELY(!out_is_free(m, args, 0, lead))) return miss(m, args, outs);
    kiln_tensor *out = args[lead && !m->given_outs ? 0 : m->target[0]].u.tensor;
    if (m->given_outs)
        atomic_fetch_add_explicit(&out->refs, 1, memory_order_relaxed);
    else if (UNLIKELY(!(out = kiln_tensor_make(&m->mold[0], out))))
        return fail(t, m, out, 0);
    m->ptr[0] = out->data;
    int32_t trap = UNLIKELY(m->n[0] > KILN_MEMO_SERIAL) ? drive(m, 0) : m->fn(&m->launch);
    if (UNLIKELY(trap != 0)) return fail(t, m, out, trap);
    *outs = out;
    return finish(t, m, kiln_tier_compiled);
}

#define HIT(lead)                                                                                     \
    static kiln_status hit_##lead(kiln_thread *t, kiln_memo *m, const kiln_value *args, size_t nargs, \
                                  kiln_tensor **outs, size_t nouts) {                                 \
        (void)nargs, (void)nouts;                                                                     \
        return hit(t, m, args, outs, lead);                                                           \
    }
HIT(0)
HIT(1)
HIT(2)
HIT(3)

static kiln_status hit_rounded(kiln_thread *t, kiln_memo *m, const kiln_value *args, size_t nargs,
                               kiln_tensor **outs, size_t nouts) {
    (void)nouts;
    if (m->rounding != fegetround()) return call_other(m->c->ctx, m->op, args, nargs, outs, m->nrets);
    return hit(t, m, args, outs, 0);
}

INLINE kiln_status hit_one_layout(kiln_thread *t, kiln_memo *m, const kiln_value *args, size_t nargs,
                                  kiln_tensor **outs, bool given) {
    if (laid_out_alike(m, args) && run_laid_out(m, args, outs, given)) {
        m->used = true;
        return finish(t, m, kiln_tier_compiled);
    }
    return call_other(m->c->ctx, m->op, args, nargs, outs, m->nrets);
}

static kiln_status hit_laid_out(kiln_thread *t, kiln_memo *m, const kiln_value *args, size_t nargs,
                                kiln_tensor **outs, size_t nouts) {
    (void)nouts;
    return hit_one_layout(t, m, args, nargs, outs, false);
}

static kiln_status hit_laid_out_into(kiln_thread *t, kiln_memo *m, const kiln_value *args, size_t nargs,
                                     kiln_tensor **outs, size_t nouts) {
    (void)nouts;
    return hit_one_layout(t, m, args, nargs, outs, true);
}

void kiln_memo_interpreted(kiln_thread *t, kiln_memo *m) {
    kiln_count_interpreted(m->c->ctx, t);
    kiln_tier_here = kiln_tier_interp;
    if (kiln_class_heat(m->c, m->n[0], m->rows)) m->op = (const kiln_op *)m; /* the next call is to build */
}

/* Answers a call by the interpreter.  One function serves memos of every shape: the time to tell them apart is small beside
 * the interpreter's.  m->rest may be called first, and that call may reuse m for another call, so ctx and op are read
 * before. */
static kiln_status hit_interpreted(kiln_thread *t, kiln_memo *m, const kiln_value *args, size_t nargs,
                                   kiln_tensor **outs, size_t nouts) {
    kiln_ctx *ctx = m->c->ctx;
    const kiln_op *op = m->op;
    kiln_status st = KILN_OK;
    if (nouts < m->nrets || kiln_memo_run(m, args, outs, false, &st) == KILN_MEMO_NOT)
        return call_other(ctx, op, args, nargs, outs, nouts);
    if (st == KILN_OK) {
        KILN_COUNT_IN(t, slot_hits);
        kiln_entry_touch(&m->c->entry);
        kiln_memo_interpreted(t, m);
    }
    kiln_thread_leave(t);
    return st;
}

kiln_memo_hit *const kiln_memo_hits[KILN_MEMO_HITS] = {hit_0,
                                                       hit_1,
                                                       hit_2,
                                                       hit_3,
                                                       [KILN_MEMO_ROUNDED] = hit_rounded,
                                                       [KILN_MEMO_LAID_OUT] = hit_laid_out,
                                                       [KILN_MEMO_LAID_OUT_INTO] = hit_laid_out_into,
                                                       [KILN_MEMO_INTERPRETED] = hit_interpreted};

/* A call of the thread that kiln_thread_last names, which has entered the epochs of ctx: by the memo that the operator's slot points
 * at if that may hold the call. */
INLINE kiln_status call_entered(kiln_ctx *ctx, const kiln_op *op, const kiln_value *args, size_t nargs,
                                kiln_tensor **outs, size_t nouts) {
    kiln_thread *t = kiln_thread_last.record;
    kiln_memo *m = *kiln_slot_of(t->user, op);
    if (m->op == op && args && m->simple_nargs == nargs && nouts &&
        kiln_generation(&ctx->epochs) == m->generation && outs)
        return m->hit(t, m, args, nargs, outs, nouts);
    return call_any(ctx, op, args, nargs, outs, nouts);
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
