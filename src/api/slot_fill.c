/* slot_fill.c - a call that the general path has answered -> the slot that answers the next like it.
 *
 * Decides which calls a slot can hold, and what of them has to be asked of the next.  See slot.h for what a slot
 * promises, slot.c for how it is used. */
#include <string.h>

#include "api/slot.h"

/* Bits of a signature that decide the class; of a tensor that is written also whether it may be. */
#define SIG_READ (KILN_SIG_TYPE | KILN_SIG_FLAGS(KILN_TF_CANONICAL | KILN_TF_SCALAR | KILN_TF_NUMBER))
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
    kiln_slot_arg *to = &f->s->arg[i];
    *to = (kiln_slot_arg){.kind = v->kind};
    if (!kiln_asked_of(f->plan, v, a, written ? SIG_WRITTEN : SIG_READ, &f->s->text, &to->mask, &to->want))
        return false;
    if (v->kind != KILN_TENSOR) return true;
    if (f->first < 0) f->first = i;
    to->elem = kiln_dtype_size((kiln_dtype)v->u.tensor->dtype);
    return (v->u.tensor->flags & KILN_TF_CANONICAL) != 0;
}

static bool fill_args(filling *f) {
    const kiln_bound *call = f->plan->call;
    const kiln_op *op = call->op;
    unsigned filled = 0;
    for (int a = 0; a < op->schema->nargs; a++) {
        int slot = kiln_op_arg(op, a), i = slot >= 0 ? call->given[slot] : -1;
        bool written = false;
        for (int k = 0; k < op->nout; k++) {
            if (kiln_op_out_arg(op, k) != a) continue;
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
        if (t->rank != p->shape->rank || memcmp(t->sizes, p->shape->sizes, t->rank * sizeof *t->sizes) != 0)
            return false;
        if (f->any_sized)
            f->s->sized[f->s->nsized++] = (uint8_t)i;
        else
            f->s->like = (uint8_t)i;
        f->any_sized = true;
    }
    return true;
}

static bool fill_operands(filling *f) {
    const kiln_plan *p = f->plan;
    kiln_slot *s = f->s;
    for (unsigned i = 0; i < s->nargs; i++) s->arg[i].data = &s->unused;
    for (int b = 0; b < p->axes.nbuffers; b++) {
        const kiln_buffer *buf = &p->buffer[b];
        bool result = buf->kind == KILN_BUFFER_RESULT;
        bool stretched = !result && f->any_sized && buf->tensor->rank == 0;
        if (buf->stride != (stretched ? KILN_STRIDE_BCAST : KILN_STRIDE_CONTIG)) return false;
        if (result) {
            s->target[b] = s->given_outs ? (uint8_t)p->call->given_out[b] : s->like;
        } else {
            if (p->call->given[buf->which] < 0) return false;
            s->arg[p->call->given[buf->which]].data = &s->ptr[b];
        }
        s->elem[b] = p->bytes[b];
        s->dtype[b] = (uint8_t)buf->dtype;
        s->stride[2 * b] = stretched ? 0 : s->elem[b];
        s->stride[2 * b + 1] = 0;
    }
    return true;
}

/* How many values lead as kiln_slot_hits says; 0 if they do not. */
static unsigned leading_tensors(const kiln_slot *s) {
    unsigned n = 0, all = 0;
    while (n < s->nargs && s->arg[n].kind == KILN_TENSOR) n++;
    for (unsigned i = 0; i < s->nargs; i++) all += s->arg[i].kind == KILN_TENSOR;
    return s->like == 0 && n == all && n == s->nsized + 1u && n <= KILN_SLOT_LEAD ? n : 0;
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
    s->scalar_end = s->scalar;
    for (int k = 0; k < c->nscalars; k++) {
        const kiln_scalar_source *src = &c->scalars[k];
        if (src->arg >= KILN_HOST_ID || src->index >= 0) return false;
        bool checked = kiln_plan_scalar_checked(p, src->arg);
        const kiln_value *v = &p->call->arg[src->arg];
        s->par[k] = 0;
        if (p->call->given[src->arg] < 0) { /* a default, converted once */
            if (!kiln_number_convert(v, (int)src->part, src->via, src->dtype, checked, &s->par[k]))
                return false;
            continue;
        }
        *s->scalar_end++ = (kiln_slot_scalar){.how = how_of(v, src),
                                              .arg = (uint32_t)p->call->given[src->arg],
                                              .par = &s->par[k],
                                              .part = (uint8_t)src->part,
                                              .via = (uint8_t)src->via,
                                              .dtype = (uint8_t)src->dtype,
                                              .checked = checked};
    }
    return true;
}

static bool fits_slot(const kiln_plan *p, const kiln_class *c, size_t nargs) {
    if (nargs == 0 || nargs > KILN_SLOT_ARGS || p->axes.nbuffers > KILN_SLOT_OPERANDS) return false;
    if (p->typed.nrets > KILN_SLOT_RETS || c->nscalars > KILN_SLOT_SCALARS || c->nests.n > UINT8_MAX)
        return false;
    for (int k = 0; k < p->typed.nrets; k++)
        if (p->result[k].resized) return false;
    kiln_strides s =
        p->call->op->row->branches[p->typed.branch].typing.strides; /* a slot's results are row-major */
    if (s == KILN_STRIDES_CHANNELS_LAST || s == KILN_STRIDES_CHANNELS_LAST_3D) return false;
    return !p->axes.strided && !p->aside && p->axes.ndim == 1 && p->axes.nelem > 0;
}

static kiln_slot empty = {.op = (const kiln_op *)&empty}; /* never written */
kiln_slots kiln_slots_none = {.at = {[0 ... KILN_SLOT_COUNT - 1] = &empty}};

kiln_slots *kiln_slots_of(kiln_thread *t) {
    if (t->user == &kiln_slots_none) {
        kiln_slots *slots = kiln_calloc_apart(sizeof *slots);
        if (!slots) return NULL;
        *slots = kiln_slots_none;
        t->user = slots;
    }
    return t->user;
}

/* The slot of op, to be filled; NULL without memory. */
static kiln_slot *slot_for(kiln_thread *t, const kiln_op *op) {
    kiln_slots *slots = kiln_slots_of(t);
    if (!slots) return NULL;
    kiln_slot **at = kiln_slot_of(slots, op);
    if (*at == &empty) {
        kiln_slot *s = kiln_calloc_apart(sizeof *s);
        if (s) *at = s;
    }
    return *at == &empty ? NULL : *at;
}

void kiln_slots_free(void *user) {
    kiln_slots *slots = user;
    if (slots == &kiln_slots_none) return;
    for (int k = 0; k < KILN_SLOT_COUNT; k++)
        if (slots->at[k] != &empty) kiln_free(slots->at[k]);
    kiln_free(slots->recipes);
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
    s->op = (const kiln_op *)s; /* until all of it is right */
    s->generation = generation;
    s->c = c;
    s->nargs = (uint32_t)nargs;
    s->nrets = (uint8_t)plan->typed.nrets;
    s->noperands = (uint32_t)plan->axes.nbuffers;
    s->nnests = (uint8_t)c->nests.n;
    s->nguards = (uint8_t)c->nests.nguards;
    s->given_outs = plan->call->nout > 0;
    s->text.given = false;
    s->fn = fn;
    s->arg_end = s->arg + nargs;
    s->like_sig = 0;
    s->n[1] = 1;
    s->launch = (kiln_launch){
        .ndim = 2, .n = s->n, .ptr = s->ptr, .stride = s->stride, .origin = origin, .par = s->par};
    if (!fill_args(&f) || !fill_shape(&f) || !fill_operands(&f) || !fill_scalars(&f, c)) return;
    bool simple = s->nrets == 1 && s->nnests == 1 && s->nguards == 0 && !s->text.given;
    s->simple_nargs = simple ? s->nargs : SIZE_MAX;
    s->hit = kiln_slot_hits[leading_tensors(s)];
    s->op = op;
}
