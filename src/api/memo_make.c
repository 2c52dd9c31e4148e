/* memo_make.c - a call that the general path has answered -> the memo that answers the next like it.
 *
 * Decides which calls a memo can hold, and what of them has to be asked of the next.  See memo.h for what a memo
 * promises, memo.c for how it is used.  Errs on the side of refusing: a call that is not remembered costs time only. */
#include <fenv.h>
#include <string.h>

#include "api/memo.h"

/* Bits of a signature that decide the class of a flat call. */
#define SIG_FLAT (KILN_SIG_TYPE | KILN_SIG_FLAGS(KILN_TF_CANONICAL | KILN_TF_SCALAR | KILN_TF_NUMBER))
/* Of a tensor whose layout is kept, which says more than CANONICAL. */
#define SIG_LAID_OUT (KILN_SIG_TYPE | KILN_SIG_RANK | KILN_SIG_FLAGS(KILN_TF_SCALAR | KILN_TF_NUMBER))

/* -- what is asked of a value -------------------------------------------------------------------------------- */

static bool keep_text(kiln_asked *asked, const char *text) {
    size_t n = strlen(text) + 1;
    if (asked->has_text || n > sizeof asked->text) return false;
    asked->has_text = true;
    memcpy(asked->text, text, n);
    return true;
}

/* A list of integers, or of truth values, that was bound as it is. */
static bool keep_list(kiln_asked *asked, const kiln_value *v, const kiln_value *bound, kiln_memo_arg *to) {
    if (bound->kind != KILN_LIST_V || bound->u.list != v->u.list) return false;
    if (asked->nitems + (int)v->n > KILN_MEMO_ITEMS) return false;
    to->mask = v->n;
    to->want = (uint64_t)asked->nitems;
    to->elem = v->n && v->u.list[0].kind == KILN_BOOL_V ? KILN_BOOL_V : KILN_INT_V;
    for (uint32_t k = 0; k < v->n; k++) {
        if (v->u.list[k].kind != to->elem) return false;
        asked->items[asked->nitems++] = v->u.list[k].u.i;
    }
    return true;
}

bool kiln_memo_ask(kiln_asked *asked, const kiln_plan *plan, const kiln_value *v, unsigned i, int a,
                   uint64_t sig, uint64_t values, bool *sized) {
    const kiln_row *row = plan->call->op->row;
    bool payload = a >= 0 && values >> a & 1;
    kiln_memo_arg *to = &asked->arg[i];
    to->data = &asked->unused;
    to->kind = v->kind;
    to->mask = to->want = 0;
    if (a < 0 ? v->kind != KILN_TENSOR : v->kind != plan->call->arg[a].kind) return false; /* was converted */
    switch ((kiln_kind)v->kind) {
    case KILN_NONE: return true;
    case KILN_GENERATOR_V: return false;
    case KILN_TENSOR:
        to->mask = sig;
        if (a >= 0 && row->asked_single >> a & 1) to->mask |= KILN_SIG_FLAGS(KILN_TF_SINGLE);
        to->want = v->u.tensor->sig & to->mask;
        *sized |= payload;
        return true;
    case KILN_STR_V: return keep_text(asked, v->u.s);
    case KILN_DTYPE_V:
    case KILN_BOOL_V:
    case KILN_INT_V:
    case KILN_UINT_V:
    case KILN_FLOAT_V:
        if (payload || v->kind == KILN_DTYPE_V) to->mask = UINT64_MAX;
        to->want = (uint64_t)v->u.i & to->mask;
        return true;
    case KILN_COMPLEX_V: return !payload;
    case KILN_LIST_V: return keep_list(asked, v, &plan->call->arg[a], to);
    }
    return false;
}

/* -- values -------------------------------------------------------------------------------------------------- */

typedef struct filling {
    kiln_memo *m;
    const kiln_recipe *r; /* of the call */
    const kiln_value *args;
    const kiln_plan *plan;
    uint64_t values; /* arguments whose payload is asked */
    bool any_sized;  /* some tensor has dimensions */
    int first;       /* tensor argument, or -1 */
} filling;

/* What is asked of value i; false if no memo can tell. */
static bool fill_arg(filling *f, unsigned i) {
    const kiln_value *v = &f->args[i];
    bool sized = false; /* a memo of a row that asks sizes is not flat: it compares them all */
    kiln_recipe_place place = f->r->place[i];
    kiln_memo_arg *to = &f->m->asked.arg[i];
    uint64_t sig = f->m->flat ? SIG_FLAT : SIG_LAID_OUT;
    if (place.out >= 0 || (place.to >= 0 && f->plan->call->op->row->written >> place.to & 1))
        sig |= KILN_SIG_FLAGS(KILN_TF_READONLY);
    if (!kiln_memo_ask(&f->m->asked, f->plan, v, i, place.to, sig, f->values, &sized)) return false;
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

static bool fill_buffers(filling *f) {
    const kiln_plan *p = f->plan;
    kiln_memo *m = f->m;
    for (int b = 0; b < p->axes.nbuffers; b++) {
        const kiln_buffer *buf = &p->buffer[b];
        bool result = buf->kind == KILN_BUFFER_RESULT;
        bool stretched = !result && f->any_sized && buf->tensor->rank == 0;
        if (buf->stride != (stretched ? KILN_STRIDE_BCAST : KILN_STRIDE_CONTIG)) return false;
        if (result) m->target[b] = m->given_outs ? (uint8_t)p->call->given_out[b] : m->like;
        m->elem[b] = p->bytes[b];
        m->dtype[b] = (uint8_t)buf->dtype;
        m->stride[2 * b] = stretched ? 0 : m->elem[b];
        m->stride[2 * b + 1] = 0;
    }
    return true;
}

/* How many values lead as kiln_memo_hits says; 0 if they do not. */
static unsigned leading_tensors(const kiln_memo *m) {
    unsigned n = 0, all = 0;
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
    m->like_sig = 0;
    m->n[1] = 1;
    m->launch = (kiln_launch){
        .ndim = 2, .n = m->n, .ptr = m->ptr, .stride = m->stride, .origin = origin, .par = m->par};
    m->hit = kiln_memo_hits[m->rounded ? KILN_MEMO_ROUNDED : leading_tensors(m)];
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

/* Bytes from where t begins to its end; 0 if it has no elements, or some lie before that. */
static uint64_t reach(const kiln_tensor *t) {
    int64_t last = 0;
    for (int d = 0; d < t->rank; d++) {
        if (t->sizes[d] == 0 || (t->sizes[d] > 1 && t->strides[d] < 0)) return 0;
        last += (t->sizes[d] - 1) * t->strides[d];
    }
    return (uint64_t)(last + 1) * kiln_dtype_size((kiln_dtype)t->dtype);
}

/* What tells from where tensors begin whether one that is written to shares memory with another. */
static bool keep_reaches(filling *f) {
    for (unsigned i = 0; i < f->m->nargs; i++)
        if (f->args[i].kind == KILN_TENSOR && !(f->m->reach[i] = reach(f->args[i].u.tensor))) return false;
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

/* Results that are given.  The plan found that each shares memory with no other tensor, or with all of one, element by
 * element, which begins where it does. */
static void keep_given(filling *f) {
    kiln_memo *m = f->m;
    for (unsigned k = 0; k < m->nrets; k++) {
        const kiln_tensor *to = f->plan->call->out[k];
        m->target[k] = (uint8_t)f->plan->call->given_out[k];
        m->same[k] = 0;
        for (unsigned i = 0; i < m->nargs; i++)
            if (f->args[i].kind == KILN_TENSOR && f->args[i].u.tensor->data == to->data)
                m->same[k] |= (uint16_t)(1u << i);
    }
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
        m->shape_of[k] = (uint8_t)s;
        m->mold[k] = (kiln_tensor_mold){
            .sig = made[k]->sig,
            .data_bytes = made[k]->data_cap,
            .block = kiln_block_class_or_large(kiln_tensor_head(made[k]->rank) + made[k]->data_cap)};
    }
    return true;
}

/* Arguments that are written to.  Each must share memory with no other tensor. */
static bool keep_written(filling *f) {
    const kiln_plan *p = f->plan;
    kiln_memo *m = f->m;
    int n = p->axes.nwritten - p->typed.nrets;
    if (n > KILN_MEMO_RETS) return false;
    m->nwritten = (uint8_t)n;
    for (int k = 0; k < n; k++) {
        int value = p->call->given[p->buffer[p->typed.nrets + k].which];
        if (value < 0) return false;
        m->written[k] = (uint8_t)value;
    }
    return true;
}

/* Results that another operator gives, which is called before the kernel; given ones would be copied to. */
static bool keep_rest(filling *f) {
    const kiln_plan *p = f->plan;
    kiln_memo *m = f->m;
    m->rest = p->call->op->row->rest ? p->rest : NULL;
    if (!m->rest) return p->nsteps == 1;
    if (p->nsteps != 2 || m->given_outs || m->rest->schema->nargs > KILN_MEMO_ARGS) return false;
    m->nown = (uint8_t)kiln_row_nown(p->call->op->row);
    m->nrest = (uint8_t)m->rest->schema->nargs;
    for (int i = 0; i < m->nrest; i++) {
        int value = p->call->given[kiln_schema_arg(p->call->op->row->schema, m->rest->schema->args[i].name)];
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
    m->hit = kiln_memo_hits[m->given_outs ? KILN_MEMO_LAID_OUT_INTO : KILN_MEMO_LAID_OUT];
    m->absent = p->typed.absent;
    if (!keep_rest(f) || p->parts || c->nests.blocks.length) return false; /* more than the kernel is run */
    if (!kiln_walk_make(&p->axes, run, &m->walk) || !keep_layout(f) || !keep_written(f)) return false;
    if ((m->nwritten || m->given_outs) && !keep_reaches(f)) return false;
    if (m->given_outs)
        keep_given(f);
    else if (!keep_shapes(m, p, made))
        return false;
    m->work = m->walk.turned ? 0 : run->work;
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
        if (p->result[k].resized || (p->result[k].made && !p->call->op->row->rest)) return false;
    if (!p->call->nout && c->ctx->memory) return false; /* a memo makes results in Kiln's blocks */
    return !p->aside && p->axes.nelem > 0;
}

bool kiln_memo_make(kiln_memo *m, bool flat, const kiln_recipe *r, const kiln_value *args,
                    const kiln_plan *plan, kiln_class *c, const kiln_runner *run, kiln_tensor *const *made) {
    const kiln_row *row = plan->call->op->row;
    bool composed = plan->kind == KILN_CLASS_COMPOSITION;
    filling f = {.m = m,
                 .r = r,
                 .args = args,
                 .plan = plan,
                 .values = row->rest || composed ? UINT64_MAX : row->asked | row->shaped | row->hosted,
                 .first = -1};
    m->op = (const kiln_op *)m; /* until all of it is right */
    if (!composed && !fits(plan, c)) return false;
    m->generation = r->generation;
    m->serial = r->serial;
    m->c = c;
    m->nargs = r->nargs;
    m->nrets = plan->typed.nrets;
    m->nbuffers = (uint32_t)plan->axes.nbuffers;
    m->nnests = (uint8_t)c->nests.n;
    m->nguards = (uint8_t)c->nests.nguards;
    m->given_outs = plan->call->nout > 0;
    m->used = m->asked.has_text = false;
    m->asked.nitems = 0;
    m->fn = run->fn;
    m->arg_end = m->asked.arg + m->nargs;
    m->flat = flat;
    m->ncalls = 0;
    for (unsigned i = 0; i < m->nargs; i++)
        if (!fill_arg(&f, i)) return false;
    if (composed ? !keep_layout(&f) || !kiln_memo_keep_calls(m, plan)
                 : !fill_addresses(&f) || !fill_scalars(&f, c) ||
                       !(m->flat ? make_flat(&f) : make_laid_out(&f, c, run, made)))
        return false;
    bool simple = m->nrets == 1 && made[0] && m->nnests == 1 && m->nguards == 0 && !m->asked.has_text;
    m->simple_nargs = simple ? m->nargs : SIZE_MAX;
    m->op = plan->call->op;
    return true;
}
