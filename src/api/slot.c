/* slot.c - a call that is like the last one of its operator -> its results, in tens of nanoseconds.
 *
 * See slot.h for what "like" means.  What is compared here is all that the general path would have looked at
 * to arrive at the same kernel and the same shape of results; tests/unit/test_slot.c holds a case for each.
 * The rest of the file fills slots, after the general path has answered a call. */
#include "api/slot.h"

#include <float.h>
#include <math.h>
#include <string.h>

/* -- matching ----------------------------------------------------------------------------------------------- */

static inline bool same_text(const char *a, const char *b) {
    while (*a && *a == *b) a++, b++;
    return *a == *b;
}

/* Names are the schema's own texts where the caller took them from there; else they are read. */
static inline bool same_name(const char *given, const char *want) {
    return given == want || (given && want && same_text(given, want));
}

static inline bool matches(const kiln_slot *s, const kiln_value *args) {
    for (unsigned i = 0; i < s->nargs; i++) {
        const kiln_slot_arg *a = &s->arg[i];
        const kiln_value *v = &args[i];
        if (v->kind != a->kind || !same_name(v->name, a->name)) return false;
        uint64_t word = (uint64_t)v->u.i;
        if (a->is_tensor) {
            if (!v->u.tensor) return false;
            word = v->u.tensor->sig;
        }
        if ((word & a->mask) != a->want) return false;
        if (a->is_text && (!v->u.s || !same_text(v->u.s, s->text))) return false;
    }
    return true;
}

static inline bool same_sizes(const kiln_tensor *a, const kiln_tensor *b) {
    if ((a->sig ^ b->sig) & KILN_SIG_RANK) return false;
    for (int d = 0; d < a->rank; d++)
        if (a->sizes[d] != b->sizes[d]) return false;
    return true;
}

/* -- results ------------------------------------------------------------------------------------------------ */

/* Whether memory from a on and from b on is disjoint, or the same elements one by one. */
static inline bool apart_or_same(const char *a, uint64_t na, const char *b, uint64_t nb) {
    if (a == b && na == nb) return true;
    return (uintptr_t)a + na <= (uintptr_t)b || (uintptr_t)b + nb <= (uintptr_t)a;
}

/* Results may be written if they share no memory with an argument, or all of it. */
static bool outs_are_free(const kiln_slot *s, const kiln_value *args, char *const *ptr, int64_t nelem) {
    for (unsigned k = 0; k < s->nrets; k++) {
        uint64_t nk = (uint64_t)nelem * s->elem[k];
        for (unsigned i = 0; i < s->nargs; i++) {
            if (!s->arg[i].is_tensor || i == s->source[k]) continue;
            const kiln_tensor *t = args[i].u.tensor;
            uint64_t ni = (uint64_t)t->nelem * kiln_dtype_size((kiln_dtype)t->dtype);
            if (!apart_or_same(ptr[k], nk, t->data, ni)) return false;
        }
        for (unsigned j = 0; j < k; j++) {
            uint64_t nj = (uint64_t)nelem * s->elem[j];
            if (ptr[k] == ptr[j] || !apart_or_same(ptr[k], nk, ptr[j], nj)) return false;
        }
    }
    return true;
}

/* New results in the shape of `like`; false without memory. */
static inline bool make_outs(const kiln_slot *s, const kiln_tensor *like, kiln_tensor **made, char **ptr) {
    for (unsigned k = 0; k < s->nrets; k++) {
        made[k] = kiln_tensor_new_like(like, (kiln_dtype)s->dtype[k], s->elem[k]);
        if (!made[k]) {
            while (k > 0) kiln_tensor_release(made[--k]);
            return false;
        }
        ptr[k] = made[k]->data;
    }
    return true;
}

static bool drop_outs(const kiln_slot *s, kiln_tensor **made) {
    for (unsigned k = 0; k < s->nrets && !s->given_outs; k++) kiln_tensor_release(made[k]);
    return false;
}

/* -- running ------------------------------------------------------------------------------------------------ */

static inline bool scalar_of(const kiln_slot_scalar *r, const kiln_value *args, uint64_t *out) {
    const kiln_value *v = &args[r->arg];
    float f;
    *out = 0;
    switch ((kiln_slot_how)r->how) {
    case KILN_SLOT_CONST: *out = r->value; return true;
    case KILN_SLOT_COPY: *out = (uint64_t)v->u.i; return true;
    case KILN_SLOT_F64_TO_F32:
        if (!(fabs(v->u.f) <= FLT_MAX)) break;
        f = (float)v->u.f;
        memcpy(out, &f, sizeof f);
        return true;
    case KILN_SLOT_INT_TO_F32:
        f = (float)v->u.i;
        memcpy(out, &f, sizeof f);
        return true;
    case KILN_SLOT_INT_TO_I32:
        if (v->u.i != (int32_t)v->u.i) break;
        *out = (uint32_t)v->u.i;
        return true;
    case KILN_SLOT_ANY: break;
    }
    return kiln_number_convert(v, r->part, (kiln_dtype)r->via, (kiln_dtype)r->dtype, r->checked, out);
}

/* Large calls are the driver's: it knows caches and threads. */
static int32_t drive(const kiln_slot *s, int64_t nelem, int nest, char *const *ptr, const uint64_t *par) {
    kiln_plan plan;
    kiln_runner run = {s->fn, NULL};
    int32_t trap;
    plan.nrets = s->nrets;
    plan.noperands = s->noperands;
    plan.ndim = 1;
    plan.n[0] = plan.nelem = nelem;
    plan.strided = false;
    for (int o = 0; o < s->noperands; o++) {
        plan.operand[o].dtype = (kiln_dtype)s->dtype[o];
        plan.stride[o][0] = s->stride[2 * o];
    }
    return kiln_drive(&plan, &run, nest, ptr, par, &trap) == KILN_OK ? trap : -1;
}

static inline int32_t run_nest(const kiln_slot *s, int64_t nelem, unsigned nest, char *const *ptr,
                               const uint64_t *par) {
    static const int64_t origin[2] = {0, 0};
    if (__builtin_expect(nelem > KILN_SLOT_SERIAL, 0)) return drive(s, nelem, (int)nest, ptr, par);
    const int64_t n[2] = {nelem, 1};
    kiln_launch l = {.nest = (int32_t)nest,
                     .ndim = 2,
                     .n = n,
                     .ptr = ptr,
                     .stride = s->stride,
                     .origin = origin,
                     .par = par};
    return s->fn(&l);
}

bool kiln_slot_hit(const kiln_slot *s, const kiln_value *args, kiln_tensor **outs, size_t nouts) {
    char *ptr[KILN_SLOT_OPERANDS];
    uint64_t par[KILN_SLOT_SCALARS];
    kiln_tensor *made[KILN_SLOT_RETS];
    if (nouts < s->nrets || !outs || !matches(s, args)) return false;
    const kiln_tensor *like = args[s->like].u.tensor;
    for (unsigned k = 0; k < s->nsized; k++)
        if (!same_sizes(args[s->sized[k]].u.tensor, like)) return false;
    for (unsigned k = 0; k < s->nscalars; k++)
        if (!scalar_of(&s->scalar[k], args, &par[k])) return false;
    unsigned from = s->given_outs ? 0 : s->nrets;
    for (unsigned o = from; o < s->noperands; o++) ptr[o] = args[s->source[o]].u.tensor->data;
    if (s->given_outs && !outs_are_free(s, args, ptr, like->nelem)) return false;
    for (unsigned nest = 0; nest < s->nguards; nest++)
        if (run_nest(s, like->nelem, nest, ptr, par) != 0) return false;
    if (!s->given_outs && !make_outs(s, like, made, ptr)) return false;
    for (unsigned nest = s->nguards; nest < s->nnests; nest++)
        if (run_nest(s, like->nelem, nest, ptr, par) != 0) return drop_outs(s, made); /* a broken kernel */
    for (unsigned k = 0; k < s->nrets; k++)
        outs[k] = s->given_outs ? kiln_tensor_retain(args[s->source[k]].u.tensor) : made[k];
    return true;
}

kiln_status kiln_call(kiln_ctx *ctx, const kiln_op *op, const kiln_value *args, size_t nargs,
                      kiln_tensor **outs, size_t nouts) {
    kiln_thread *t = kiln_thread_of(&ctx->domain);
    if (!t) return KILN_NOMEM();
    kiln_thread_enter(&ctx->domain, t);
    kiln_status st = KILN_OK;
    const kiln_slot *s = t->user ? kiln_slot_of(t->user, op) : NULL;
    if (s && s->op == op && s->nargs == nargs && s->generation == kiln_generation(&ctx->domain) &&
        kiln_slot_hit(s, args, outs, nouts)) {
        KILN_COUNT_IN(t, slot_hits);
        kiln_entry_touch(&s->c->entry);
        kiln_tier_here = "compiled";
    } else {
        st = kiln_call_general(ctx, t, op, args, nargs, outs, nouts);
    }
    kiln_thread_leave(t);
    return st;
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
    bool has_text;
    int first; /* tensor argument, or -1 */
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
        to->is_tensor = true;
        to->mask = written ? SIG_WRITTEN : SIG_READ;
        to->want = v->u.tensor->sig & to->mask;
        return (v->u.tensor->flags & KILN_TF_CANONICAL) != 0;
    case KILN_STR_V:
        if (f->has_text || strlen(v->u.s) >= KILN_SLOT_TEXT) return false;
        memcpy(f->s->text, v->u.s, strlen(v->u.s) + 1);
        f->has_text = to->is_text = true;
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
    for (int i = 0; i < f->s->nargs; i++) {
        if (!f->s->arg[i].is_tensor || f->args[i].u.tensor->rank == 0) continue;
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
    for (int o = 0; o < p->noperands; o++) {
        const kiln_operand *op = &p->operand[o];
        int i = op->arg >= 0 ? p->call->given[op->arg] : s->given_outs ? p->call->given_out[-1 - op->arg] : 0;
        bool stretched = op->arg >= 0 && f->any_sized && op->tensor->rank == 0;
        if (i < 0 || op->step != (stretched ? BCAST : CONTIG)) return false;
        s->source[o] = (uint8_t)i;
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
    for (int k = 0; k < c->nscalars; k++) {
        const kiln_scalar_source *src = &c->scalars[k];
        kiln_slot_scalar *r = &f->s->scalar[k];
        if (src->slot >= KILN_HOST_ID || src->index >= 0) return false;
        int i = p->call->given[src->slot];
        *r = (kiln_slot_scalar){.how = KILN_SLOT_CONST, .part = (uint8_t)src->part};
        r->via = (uint8_t)src->via;
        r->dtype = (uint8_t)src->dtype;
        r->checked = kiln_plan_scalar_checked(p, src->slot);
        const kiln_value *v = &p->call->slot[src->slot];
        if (i < 0) {
            if (!kiln_number_convert(v, r->part, src->via, src->dtype, r->checked, &r->value)) return false;
            continue;
        }
        r->arg = (uint8_t)i;
        r->how = (uint8_t)how_of(v, src);
    }
    return true;
}

static bool fits_slot(const kiln_plan *p, const kiln_class *c, size_t nargs) {
    if (nargs == 0 || nargs > KILN_SLOT_ARGS || p->noperands > KILN_SLOT_OPERANDS) return false;
    if (p->nrets > KILN_SLOT_RETS || c->nscalars > KILN_SLOT_SCALARS || c->nnests > UINT8_MAX) return false;
    for (int k = 0; k < p->nrets; k++)
        if (p->resize_out[k]) return false;
    return !p->strided && p->ndim == 1 && p->nelem > 0;
}

void kiln_slot_fill(kiln_thread *t, uint64_t generation, const kiln_value *args, size_t nargs,
                    const kiln_plan *plan, kiln_class *c, kiln_kernel_fn fn) {
    const kiln_op *op = plan->call->op;
    if (!fits_slot(plan, c, nargs)) return;
    if (!t->user) t->user = kiln_calloc(1, sizeof(kiln_slots));
    if (!t->user) return; /* slower, not wrong */
    kiln_slot *s = kiln_slot_of(t->user, op);
    filling f = {.s = s, .args = args, .plan = plan, .first = -1};
    s->op = NULL; /* until all of it is right */
    s->generation = generation;
    s->fn = fn;
    s->c = c;
    s->nargs = (uint8_t)nargs;
    s->nrets = (uint8_t)plan->nrets;
    s->noperands = (uint8_t)plan->noperands;
    s->nscalars = (uint8_t)c->nscalars;
    s->nnests = (uint8_t)c->nnests;
    s->nguards = (uint8_t)c->nguards;
    s->given_outs = plan->call->nout > 0;
    if (fill_args(&f) && fill_shape(&f) && fill_operands(&f) && fill_scalars(&f, c)) s->op = op;
}
