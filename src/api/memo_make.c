/* memo_make.c - a call that the general path has answered -> a memo that answers later calls like it.
 *
 * A kernel or the interpreter ran the call.  This file decides which calls a memo can hold, and what a later call
 * must have in common with them.  memo.h says what a memo promises, memo.c how it is used, asked.c how values
 * are kept.  In doubt it makes no memo: a call that is not remembered only costs time. */
#include <fenv.h>
#include <string.h>

#include "api/memo.h"

/* Bits of a signature that decide the class of a flat call. */
#define SIG_FLAT (KILN_SIG_TYPE | KILN_SIG_FLAGS(KILN_TF_CANONICAL | KILN_TF_SCALAR | KILN_TF_NUMBER))
/* Of a tensor whose layout is kept, which says more than CANONICAL. */
#define SIG_LAID_OUT (KILN_SIG_TYPE | KILN_SIG_RANK | KILN_SIG_FLAGS(KILN_TF_SCALAR | KILN_TF_NUMBER))

/* -- values -------------------------------------------------------------------------------------------------- */

typedef struct filling {
    kiln_memo *m;
    const kiln_recipe *r; /* of the call */
    const kiln_value *args;
    const kiln_plan *plan;
    kiln_asking asking; /* whose `sized` says nothing here: a memo that is not flat compares all sizes */
    bool any_sized;     /* some tensor has dimensions */
    int first;          /* tensor argument, or -1 */
} filling;

/* What is asked of value i; false if no memo can tell. */
static bool fill_arg(filling *f, unsigned i) {
    const kiln_value *v = &f->args[i];
    kiln_recipe_place place = f->r->place[i];
    kiln_memo_arg *to = &f->m->asked.arg[i];
    uint64_t sig = f->m->flat ? SIG_FLAT : SIG_LAID_OUT;
    if (place.out >= 0 || (place.to >= 0 && f->plan->call->op->row->written >> place.to & 1))
        sig |= KILN_SIG_FLAGS(KILN_TF_READONLY);
    if (!kiln_ask(&f->asking, v, i, place.to, sig)) return false;
    to->name = f->r->asked.arg[i].name;
    if (v->kind != KILN_TENSOR) return true;
    if (f->first < 0) f->first = (int)i;
    to->elem = kiln_dtype_size((kiln_dtype)v->u.tensor->dtype);
    return true;
}

/* Every tensor of rank above 0 has the shape of the call. */
static bool fill_shape(filling *f) {
    f->m->nsized = 0;
    if (f->first < 0) return false;
    f->m->like = (uint8_t)f->first;
    for (int i = 0; i < (int)f->m->nargs; i++) {
        if (f->args[i].kind != KILN_TENSOR || f->args[i].u.tensor->rank == 0) continue;
        if (f->any_sized)
            f->m->sized[f->m->nsized++] = (uint8_t)i;
        else
            f->m->like = (uint8_t)i;
        f->any_sized = true;
    }
    return true;
}

/* Where each tensor's address goes that is read. */
static bool fill_addresses(filling *f) {
    const kiln_plan *p = f->plan;
    for (int b = p->axes.nwritten; b < p->axes.nbuffers; b++) {
        const kiln_buffer *buf = &p->buffer[b];
        if (buf->kind != KILN_BUFFER_ARG) continue;
        if (p->call->given[buf->which] < 0) return false;
        f->m->asked.arg[p->call->given[buf->which]].data = &f->m->ptr[b];
    }
    return true;
}

bool kiln_memo_flat_stride(const kiln_plan *p, int b, bool sized, int64_t *stride) {
    const kiln_buffer *buf = &p->buffer[b];
    bool stretched = buf->kind != KILN_BUFFER_RESULT && sized && kiln_plan_tensor(p, b)->rank == 0;
    *stride = stretched ? 0 : p->bytes[b];
    return buf->stride == (stretched ? KILN_STRIDE_BCAST : KILN_STRIDE_CONTIG);
}

static bool fill_buffers(filling *f) {
    const kiln_plan *p = f->plan;
    kiln_memo *m = f->m;
    for (int b = 0; b < p->axes.nbuffers; b++) {
        const kiln_buffer *buf = &p->buffer[b];
        if (!kiln_memo_flat_stride(p, b, f->any_sized, &m->stride[2 * b])) return false;
        m->elem[b] = p->bytes[b];
        m->dtype[b] = buf->dtype;
        m->stride[2 * b + 1] = 0;
    }
    return true;
}

/* Which of kiln_memo_hits answers by a flat memo. */
static unsigned leading_tensors(const kiln_memo *m) {
    unsigned n = 0, all = 0;
    if (m->work_is != KILN_MEMO_ONE || m->asked.has_text || m->asked.has_list) return 0;
    while (n < m->nargs && m->asked.arg[n].kind == KILN_TENSOR) n++;
    for (unsigned i = 0; i < m->nargs; i++) all += m->asked.arg[i].kind == KILN_TENSOR;
    return m->like == 0 && n == all && n == m->nsized + 1u && n <= KILN_MEMO_LEAD ? n : 0;
}

static kiln_memo_how how_of(const kiln_value *v, const kiln_scalar_source *src) {
    bool is_int = v->kind == KILN_INT_V, is_float = v->kind == KILN_FLOAT_V;
    if (src->part != KILN_PART_WHOLE || src->via != src->dtype) return KILN_MEMO_ANY;
    if ((is_int && src->dtype == KILN_I64) || (is_float && src->dtype == KILN_F64)) return KILN_MEMO_COPY;
    if (is_float && src->dtype == KILN_F32) return KILN_MEMO_F64_TO_F32;
    if (is_int && src->dtype == KILN_F32) return KILN_MEMO_INT_TO_F32;
    return is_int && src->dtype == KILN_I32 ? KILN_MEMO_INT_TO_I32 : KILN_MEMO_ANY;
}

/* Whether what v becomes depends on the mode of the floating-point unit. */
static bool is_rounded(const kiln_value *v, const kiln_scalar_source *src, bool checked) {
    uint64_t up = 0, down = 0;
    int mode = fegetround();
    bool fits = fesetround(FE_UPWARD) == 0 && kiln_number_convert(v, src, checked, &up) &&
                fesetround(FE_DOWNWARD) == 0 && kiln_number_convert(v, src, checked, &down);
    (void)fesetround(mode);
    return !fits || up != down;
}

static bool fill_scalars(filling *f, const kiln_class *c) {
    const kiln_plan *p = f->plan;
    kiln_memo *m = f->m;
    m->scalar_end = m->scalar;
    m->rounded = false;
    m->rounding = fegetround();
    for (int k = 0; k < c->nscalars; k++) {
        const kiln_scalar_source *src = &c->scalars[k];
        if (src->arg >= KILN_HOST_ID || src->index >= 0) { /* what it comes from is asked */
            if (m->flat || kiln_plan_scalar(p, src, &m->par[k]) != KILN_OK) return false;
            m->rounded = true;
            continue;
        }
        bool checked = kiln_plan_scalar_checked(p, src->arg);
        const kiln_value *v = &p->call->arg[src->arg];
        m->par[k] = 0;
        if (p->call->given[src->arg] < 0) { /* a default, converted once */
            if (!kiln_number_convert(v, src, checked, &m->par[k])) return false;
            m->rounded = m->rounded || is_rounded(v, src, checked);
            continue;
        }
        *m->scalar_end++ = (kiln_memo_scalar){.how = how_of(v, src),
                                              .arg = (uint32_t)p->call->given[src->arg],
                                              .par = &m->par[k],
                                              .src = src,
                                              .checked = checked};
    }
    return true;
}

/* -- what is written to --------------------------------------------------------------------------------------- */

/* What tells from where tensors begin whether one that is written to shares memory with another. */
static bool keep_reaches(filling *f) {
    for (unsigned i = 0; i < f->m->nargs; i++) {
        if (f->args[i].kind != KILN_TENSOR) continue;
        const kiln_tensor *t = f->args[i].u.tensor;
        kiln_extent e = kiln_tensor_extent(t);
        f->m->reach[i] = e.nbytes;
        bool begins = e.low == (uintptr_t)t->data; /* no element lies before the first one */
        if (e.nbytes == 0 || !begins) return false;
    }
    return true;
}

/* Which tensors may lie on result k, which is given: itself; of a flat call all that have an element of as many bytes for each of its
 * elements, of any other those that do so now.  Two results lie on each other in no call. */
static uint32_t may_be_same(const filling *f, unsigned k) {
    uint32_t same = 0;
    const kiln_tensor *to = f->plan->call->out[k];
    for (unsigned i = 0; i < f->m->nargs; i++) {
        if (f->args[i].kind != KILN_TENSOR) continue;
        const kiln_tensor *t = f->args[i].u.tensor;
        bool alike = (t->rank == 0) == (to->rank == 0) &&
                     kiln_elem_bytes[t->dtype] == kiln_elem_bytes[to->dtype];
        if (f->m->flat ? alike : t->data == to->data) same |= UINT32_C(1) << i;
    }
    for (unsigned j = 0; j < f->m->nrets; j++)
        if (j != k) same &= ~(UINT32_C(1) << f->plan->call->given_out[j]);
    return same;
}

/* Results that are given, and arguments that are written to.  These must share memory with no other tensor. */
static bool keep_written(filling *f) {
    const kiln_plan *p = f->plan;
    kiln_memo *m = f->m;
    unsigned nrets = p->typed.nrets;
    m->first_written = (uint8_t)(m->given_outs ? 0 : nrets);
    m->end_written = (uint8_t)p->axes.nwritten;
    if (m->first_written == m->end_written) return true;
    if (m->end_written > KILN_MEMO_WRITTEN) return false;
    for (unsigned b = m->first_written; b < m->end_written; b++) {
        int value = b < nrets ? p->call->given_out[b] : p->call->given[p->buffer[b].which];
        if (value < 0) return false;
        m->written[b] = (uint8_t)value;
        m->same[b] = b < nrets ? may_be_same(f, b) : UINT32_C(1) << value;
    }
    return keep_reaches(f);
}

/* -- flat calls ---------------------------------------------------------------------------------------------- */

/* Row-major and in the shape of the call, or without dimensions. */
static bool fits_flat(const kiln_plan *p, const kiln_tensor *t) {
    return (t->flags & KILN_TF_CANONICAL) &&
           (t->rank == 0 || kiln_has_shape(t, p->shape->rank, p->shape->sizes));
}

/* The kernel's grid is one dimension that every tensor walks alike, which every shape comes to. */
bool kiln_memo_is_flat(const kiln_plan *p, const kiln_value *args, size_t nargs) {
    if (p->axes.strided || p->axes.ndim != 1) return false;
    for (size_t i = 0; i < nargs; i++)
        if (args[i].kind == KILN_TENSOR && !fits_flat(p, args[i].u.tensor)) return false;
    kiln_strides s = p->branch->typing.strides; /* results are row-major */
    return s != KILN_STRIDES_CHANNELS_LAST && s != KILN_STRIDES_CHANNELS_LAST_3D;
}

static bool make_flat(filling *f) {
    static const int64_t origin[2] = {0, 0};
    kiln_memo *m = f->m;
    const kiln_plan *p = f->plan;
    if (p->typed.absent || p->axes.nwritten != p->typed.nrets) return false;
    if (!fill_shape(f) || !fill_buffers(f)) return false;
    m->last_sig = m->like_sig = 0;
    m->n[1] = 1;
    m->launch = (kiln_launch){
        .ndim = 2, .n = m->n, .ptr = m->ptr, .stride = m->stride, .origin = origin, .par = m->par};
    m->hit = kiln_memo_hits[leading_tensors(m)];
    m->is_checked = m->given_outs || m->nnests > 1;
    return true;
}

/* -- one layout ---------------------------------------------------------------------------------------------- */

static bool keep_layout(filling *f) {
    kiln_memo *m = f->m;
    int64_t *to = m->layout, *end = to + KILN_MEMO_WORDS;
    for (unsigned i = 0; i < m->nargs; i++) {
        if (m->asked.arg[i].kind != KILN_TENSOR) continue;
        const kiln_tensor *t = f->args[i].u.tensor;
        if (end - to < 2 * t->rank) return false;
        for (int d = 0; d < t->rank; d++) *to++ = t->sizes[d];
        for (int d = 0; d < t->rank; d++) *to++ = t->strides[d];
    }
    return true;
}

/* A header in the shape of a result, as shape s of the memo. */
static bool keep_shape(kiln_memo *m, unsigned s, const kiln_tensor *made) {
    if (s == KILN_MEMO_SHAPES || made->rank > KILN_MEMO_RANK) return false;
    m->shape[s] = *made;
    m->shape[s].sizes = m->shape_sizes[s];
    m->shape[s].strides = m->shape_strides[s];
    for (int d = 0; d < made->rank; d++) {
        m->shape_sizes[s][d] = made->sizes[d];
        m->shape_strides[s][d] = made->strides[d];
    }
    return true;
}

/* Results that are made. */
static bool keep_shapes(kiln_memo *m, const kiln_plan *p, kiln_tensor *const *made) {
    unsigned nshapes = 0;
    uint8_t kept[KILN_MEMO_SHAPES]; /* of the plan's shapes */
    for (unsigned k = 0; k < m->nrets; k++) {
        unsigned s = 0;
        if (m->absent >> k & 1) continue;
        while (s < nshapes && kept[s] != p->result[k].shape) s++;
        if (s == nshapes && !keep_shape(m, nshapes++, made[k])) return false;
        kept[s] = p->result[k].shape;
        m->shape_of[k] = &m->shape[s];
        m->mold[k] = (kiln_tensor_mold){
            .sig = made[k]->sig,
            .data_bytes = made[k]->data_cap,
            .block = kiln_block_class_or_large(kiln_tensor_head(made[k]->rank) + made[k]->data_cap)};
    }
    return true;
}

/* The last results may come of a call before the kernel runs; given ones would be copied to. */
static bool keep_call(filling *f) {
    const kiln_plan *p = f->plan;
    kiln_memo *m = f->m;
    const kiln_step *s = kiln_work_steps(&p->work);
    m->rest = p->work.ncalls ? p->op[0] : NULL;
    if (!m->rest) return p->work.nsteps == 1;
    bool one = p->work.nsteps == 2 && s->kind == KILN_STEP_CALL && s->u.call.nargs <= KILN_MEMO_ARGS;
    if (!one || m->given_outs) return false;
    m->work_is = KILN_MEMO_REST;
    m->nown = (uint8_t)(p->typed.nrets - s->u.call.nrets);
    m->nrest = s->u.call.nargs;
    for (int i = 0; i < m->nrest; i++) {
        int from = kiln_work_call_args(&p->work, s)[i].from, value = from < 0 ? -1 : p->call->given[from];
        if (value < 0) return false;
        m->rest_arg[i] = (uint8_t)value;
    }
    m->absent |= ~UINT32_C(0) << m->nown;
    return true;
}

static bool make_laid_out(filling *f, const kiln_class *c, const kiln_runner *run, kiln_tensor *const *made) {
    static const int64_t origin[KILN_WALK_DIMS];
    const kiln_plan *p = f->plan;
    kiln_memo *m = f->m;
    if (!keep_call(f) || p->work.parts || c->nests.blocks.length)
        return false; /* the call does more than run its kernel over the axes */
    kiln_axes x;
    kiln_work_axes(&p->work, &x);
    if (!kiln_walk_make(&x, run, &m->walk) || !keep_layout(f)) return false;
    if (!m->given_outs && !keep_shapes(m, p, made)) return false;
    m->work = m->walk.whole ? 0 : run->work;
    m->direct = !m->walk.whole && m->walk.outer.ngrid == 0 && m->work == 0;
    m->is_checked = m->rounded || m->first_written < m->end_written;
    m->launch = (kiln_launch){.ndim = m->walk.ndim,
                              .n = m->walk.n,
                              .ptr = m->ptr,
                              .stride = m->walk.stride,
                              .origin = origin,
                              .par = m->par,
                              .flags = m->walk.flags};
    return true;
}

/* -- memos --------------------------------------------------------------------------------------------------- */

static bool fits(const kiln_plan *p, const kiln_class *c) {
    if (p->axes.nbuffers > KILN_MEMO_BUFFERS || p->typed.nrets > KILN_MEMO_RETS) return false;
    if (c->nscalars > KILN_MEMO_SCALARS || c->nests.n > UINT8_MAX) return false;
    for (int k = 0; k < p->typed.nrets; k++)
        if (p->result[k].resized || (p->result[k].made && !p->work.ncalls)) return false;
    if (!p->call->nout && c->ctx->memory) return false; /* a memo makes results in Kiln's blocks */
    /* A replay launches without asking whether there is a place to write: a triangle of one row has none, and folds elements all the same. */
    return !p->aside && p->axes.nelem > 0 && p->axes.npoints > 0;
}

/* Lets the interpreter answer: as the memo's function, with the program where a kernel would be given memory.  False: a run may
 * need memory that cannot be had, but a memo's function does not fail once something may be written. */
static bool make_interpreted(filling *f, const kiln_runner *run) {
    enum { GRID = 2 }; /* dimensions of a launch before those that are folded or scanned */
    int64_t n[GRID + KILN_MAX_DIMS] = {1, 1};
    kiln_axes x;
    kiln_memo *m = f->m;
    kiln_work_axes(&f->plan->work, &x);
    for (int d = x.ngrid; d < x.ndim; d++) n[GRID + d - x.ngrid] = x.n[d];
    if (!kiln_interp_fits(run->interp, n)) return false;
    if (run->across && !kiln_interp_fits(run->across, n)) return false;
    m->interp = run->interp;
    m->fn = kiln_interp_kernel;
    m->launch.work = (char *)(uintptr_t)run->interp;
    m->hit = kiln_memo_hits[0];
    m->nelem = x.nelem;
    m->rows = kiln_rows_walked(&x);
    return true;
}

/* What a memo of any kind keeps of its class. */
static void keep_class(kiln_memo *m, kiln_class *c, const kiln_runner *run) {
    m->c = c;
    m->nnests = (uint8_t)(c ? c->nests.n : 0);
    m->nguards = (uint8_t)(c ? c->nests.nguards : 0);
    m->fn = run->fn;
    m->interp = NULL;
}

/* What a memo of any kind keeps of the call, and nothing of what was written there for another one. */
static void begin(kiln_memo *m, const kiln_recipe *r, const kiln_answered *call) {
    const kiln_plan *plan = call->plan;
    m->op = (const kiln_op *)m; /* until all of it is right */
    m->ctx = call->ctx;
    m->generation = r->generation;
    m->serial = r->serial;
    m->nargs = r->nargs;
    m->nrets = plan->typed.nrets;
    m->nbuffers = (uint32_t)plan->axes.nbuffers;
    m->absent = plan->typed.absent;
    m->given_outs = plan->call->nout > 0;
    m->used = m->asked.has_text = m->asked.has_list = m->rounded = false;
    m->asked.nitems = 0;
    m->arg_end = m->asked.arg + m->nargs;
    m->scalar_end = m->scalar;
    m->hit = kiln_memo_hits[0];
    keep_class(m, call->c, call->run);
}

/* The launch of a call that has a class. */
static bool make_launch(filling *f, const kiln_answered *call) {
    kiln_memo *m = f->m;
    bool one = m->nrets == 1 && !m->absent && m->nnests == 1 && m->nguards == 0;
    m->work_is = one ? KILN_MEMO_ONE : KILN_MEMO_LAUNCHES;
    if (!fill_scalars(f, call->c) || !fill_addresses(f) || !keep_written(f)) return false;
    if (!(m->flat ? make_flat(f) : make_laid_out(f, call->c, call->run, call->made))) return false;
    return !call->run->interp || make_interpreted(f, call->run);
}

static bool make_calls(filling *f) {
    f->m->work_is = KILN_MEMO_CALLS_OTHERS;
    f->m->is_checked = false;
    return keep_layout(f) && kiln_memo_keep_calls(f->m, f->plan);
}

bool kiln_memo_make(kiln_memo *m, bool flat, const kiln_recipe *r, const kiln_answered *call) {
    const kiln_plan *plan = call->plan;
    const kiln_row *row = plan->call->op->row;
    bool composed = plan->kind == KILN_CLASS_COMPOSITION;
    uint64_t values = row->makes_calls || composed ? UINT64_MAX : row->asked | row->shaped | row->hosted;
    filling f = {.m = m,
                 .r = r,
                 .args = call->args,
                 .plan = plan,
                 .asking = {&m->asked, plan, values, false},
                 .first = -1};
    begin(m, r, call);
    m->flat = flat;
    if (!composed && !fits(plan, call->c)) return false;
    for (unsigned i = 0; i < m->nargs; i++)
        if (!fill_arg(&f, i)) return false;
    if (!(composed ? make_calls(&f) : make_launch(&f, call))) return false;
    m->op = plan->call->op;
    return true;
}
