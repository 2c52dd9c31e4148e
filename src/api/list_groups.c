/* list_groups.c - items of lists -> groups that one launch serves, each item a run of its elements.
 *
 * Items of a group have tensors of the same dtypes, row-major and of one shape within each item.  The first is bound, inferred
 * and looked up like a call; what others must have in common with it is one lane for each tensor, so that an item
 * costs a few comparisons.  All is checked before anything runs (src/run/segments.c).  Knows no operator. */
#include <string.h>

#include "api/list_call.h"
#include "api/memo.h"

/* Bits of a signature that items of a group have alike. */
#define SIG_ALIKE                                                                                            \
    (KILN_SIG_TYPE | KILN_SIG_FLAGS(KILN_TF_CANONICAL | KILN_TF_SCALAR | KILN_TF_NUMBER | KILN_TF_READONLY | \
                                    KILN_TF_SINGLE))
#define SIG_SINGLE KILN_SIG_FLAGS(KILN_TF_SINGLE)

typedef kiln_list_group group;

/* -- the first item ------------------------------------------------------------------------------------------ */

/* The kernel's one nest goes over elements that lie side by side, or are one for all. */
static bool is_flat(const kiln_listing *l, const group *g) {
    const kiln_plan *p = &g->plan;
    if (p->kind != KILN_CLASS_KERNEL || p->aside || p->axes.nelem == 0 || p->work.nsteps != 1) return false;
    if (p->axes.nbuffers > KILN_SEGMENT_BUFFERS || !kiln_memo_is_flat(p, l->args, (size_t)l->nargs))
        return false;
    for (int k = 0; k < p->typed.nrets; k++)
        if (p->result[k].resized) return false;
    return true;
}

static bool fits_group(const kiln_class *c) {
    return c->nests.n == 1 && c->nests.nguards == 0 && c->nscalars <= KILN_LIST_PARS;
}

/* Value i, a tensor that is bound to argument a of the row (-1: it receives a result); false: conditions or host numbers ask too much. */
static bool add_lane(const kiln_listing *l, group *g, int i, int a, bool written) {
    const kiln_row *row = l->item->row;
    uint64_t mask = a >= 0 && row->asked_single >> a & 1 ? SIG_ALIKE : SIG_ALIKE & ~SIG_SINGLE;
    if (g->nlanes == KILN_LIST_LANES || (a >= 0 && (row->asked | row->hosted) >> a & 1)) return false;
    const kiln_tensor *t = l->args[i].u.tensor;
    kiln_lane *x = &g->lane[g->nlanes];
    *x = (kiln_lane){.at = l->walked[i] ? l->walked[i] : &l->args[i],
                     .step = l->walked[i] != NULL,
                     .bits = {mask, t->sig & mask},
                     .bytes = kiln_elem_bytes[t->dtype],
                     .single = t->rank == 0,
                     .written = written};
    if (g->like < 0 || t->rank) g->like = g->nlanes;
    g->nlanes++;
    return true;
}

/* Adds value i, a number, to the group as argument a.  If all items share the value, there is nothing to add.  False: the group cannot take
 * the value. */
static bool add_number(const kiln_listing *l, group *g, int i, int a) {
    const kiln_value *v = &l->args[i];
    if (!l->walked[i]) return true;
    if (a < 0 || g->nnumbers == KILN_LIST_LANES) return false;
    bool asked = l->item->row->asked >> a & 1;
    if (asked && (v->kind == KILN_STR_V || v->kind == KILN_LIST_V)) return false;
    g->number[g->nnumbers++] = (kiln_lane_number){
        .at = l->walked[i], .first = *v, .item = l->items >> i & 1, .asked = asked, .to = (int8_t)a};
    return true;
}

/* Lanes of which an item's tensors must lie apart: one of the two is written. */
static bool set_pairs(group *g) {
    g->npairs = 0;
    for (int i = 0; i < g->nlanes; i++)
        for (int j = 0; j < g->nlanes; j++) {
            if (!g->lane[i].written || i == j || (g->lane[j].written && j < i)) continue;
            if (g->npairs == KILN_LIST_PAIRS) return false;
            const kiln_lane *a = &g->lane[i], *b = &g->lane[j];
            bool aligned = !b->written && a->single == b->single && a->bytes == b->bytes;
            g->pair[g->npairs++] = (kiln_lane_pair){(uint8_t)i, (uint8_t)j, aligned};
        }
    return true;
}

/* What the values of other items must have in common with the first one's; false: no lane can say it.
 * lane_of: of each value. */
static bool set_lanes(const kiln_listing *l, group *g, int8_t *lane_of) {
    int8_t to[KILN_MAX_ARGS];
    uint64_t written = 0;
    memset(to, -1, sizeof to);
    for (int a = 0; a < l->item->row->schema->nargs; a++)
        if (g->call.given[a] >= 0) to[g->call.given[a]] = (int8_t)a;
    for (int k = 0; k < g->call.nout; k++) written |= 1ull << g->call.given_out[k];
    g->nlanes = g->nnumbers = 0;
    g->like = -1;
    for (int i = 0; i < l->nargs; i++) {
        bool tensor = l->args[i].kind == KILN_TENSOR;
        lane_of[i] = (int8_t)g->nlanes;
        if (!(tensor ? add_lane(l, g, i, to[i], written >> i & 1) : add_number(l, g, i, to[i]))) return false;
    }
    return g->like >= 0 && set_pairs(g);
}

static bool set_buffers(group *g, const int8_t *lane_of) {
    const kiln_plan *p = &g->plan;
    bool sized = p->shape->rank > 0;
    for (int b = 0; b < p->axes.nbuffers; b++) {
        const kiln_buffer *buf = &p->buffer[b];
        bool result = buf->kind == KILN_BUFFER_RESULT;
        if (!kiln_memo_flat_stride(p, b, sized, &g->stride[b])) return false;
        int value = !result            ? g->call.given[buf->which]
                    : g->call.nout > 0 ? g->call.given_out[buf->which]
                                       : -1;
        if (!result && value < 0) return false;
        g->from[b] = value < 0 ? -1 : lane_of[value];
    }
    return true;
}

/* Of an item that will be a call of its own: whatever may end that call without a result is done before any item is written. */
static kiln_status prepare_alone(const group *g) {
    uint64_t converted;
    if (g->c->ctx->mode == KILN_MODE_SYNC) KILN_TRY(kiln_class_compile_if_due(g->c));
    for (int s = 0; s < g->c->nscalars; s++)
        KILN_TRY(kiln_plan_scalar(&g->plan, &g->c->scalars[s], &converted));
    return KILN_OK;
}

/* PyTorch computes the results of an `out` form on lists aside and copies them, and refuses to copy into another dtype. */
static kiln_status check_output(const kiln_listing *l, const group *g) {
    if (!l->outs) return KILN_OK;
    kiln_dtype to = (kiln_dtype)g->call.out[0]->dtype, from = g->plan.typed.ret_dtype[0];
    if (to == from) return KILN_OK;
    return KILN_FAIL(KILN_E_ARG, "%s: argument 'out': found dtype %s but expected %s", l->op->name,
                     kiln_dtype_name(to), kiln_dtype_name(from));
}

/* The item that is looked at, bound and inferred.  *made: it is the first of a group, which is filled in. */
static kiln_status try_group(kiln_listing *l, group *g, bool *made) {
    int8_t lane_of[KILN_MAX_ARGS];
    *made = false;
    KILN_TRY(kiln_bind(l->item, l->args, (size_t)l->nargs, &g->call));
    KILN_TRY(kiln_infer(&g->call, &g->plan));
    KILN_TRY(check_output(l, g));
    if (g->plan.kind == KILN_CLASS_COMPOSITION) return KILN_OK; /* a composition has no class */
    KILN_TRY(kiln_class_of(l->ctx, &g->plan, &g->c));
    bool flat = is_flat(l, g) && fits_group(g->c) && l->ngroups < KILN_LIST_GROUPS;
    if (!flat || !set_lanes(l, g, lane_of) || !set_buffers(g, lane_of)) return prepare_alone(g);
    if (l->ctx->mode == KILN_MODE_SYNC) KILN_TRY(kiln_class_compile_if_due(g->c));
    g->run = (kiln_runner){.fn = atomic_load_explicit(&g->c->fn, memory_order_acquire),
                           .parallel = &l->ctx->parallel,
                           .isa = l->ctx->isa,
                           .cost = &g->c->cost};
    if (g->run.fn)
        g->run.work = g->c->nests.work;
    else
        g->run.interp = g->c->program->interp;
    g->nsegments = 0;
    g->nelem = 0;
    g->par = NULL;
    *made = true;
    return KILN_OK;
}

/* -- other items --------------------------------------------------------------------------------------------- */

/* What is read of an item: of each lane its memory, of each list of numbers the item's; and a tensor in its shape. */
typedef struct seen {
    const kiln_tensor *like;
    char *at[KILN_LIST_LANES];
    kiln_value number[KILN_LIST_LANES];
} seen;

/* Whether each written tensor shares no memory with the item's others, or all of it, element by element; no two written
 * ones are the same. */
static bool writes_apart(const group *g, const seen *item) {
    kiln_extent at[KILN_LIST_LANES];
    uint64_t n = (uint64_t)item->like->nelem;
    for (int i = 0; i < g->nlanes; i++)
        at[i] = (kiln_extent){(uintptr_t)item->at[i], g->lane[i].bytes * (g->lane[i].single ? 1 : n)};
    for (const kiln_lane_pair *p = g->pair, *end = p + g->npairs; p < end; p++)
        if (!kiln_extents_fit(at[p->written], at[p->other], p->aligned)) return false;
    return true;
}

static bool tensors_fit(const group *g, uint32_t k, seen *item) {
    const kiln_tensor *like = g->lane[g->like].at[k * g->lane[g->like].step].u.tensor;
    for (int i = 0; i < g->nlanes; i++) {
        const kiln_lane *x = &g->lane[i];
        const kiln_value *v = x->at + k * x->step;
        if (v->kind != KILN_TENSOR) return false;
        const kiln_tensor *t = v->u.tensor;
        item->at[i] = t->data;
        bool fits = x->single || t == like ? kiln_bits_match(&x->bits, t->sig)
                                           : kiln_tensor_match(&x->bits, t, like);
        if (!fits) return false;
    }
    item->like = like;
    return true;
}

static bool numbers_fit(const group *g, const seen *item) {
    for (int i = 0; i < g->nnumbers; i++) {
        const kiln_value *v = &item->number[i], *first = &g->number[i].first;
        if (g->number[i].asked ? !kiln_same_number(v, first) : v->kind != first->kind) return false;
    }
    return true;
}

static void read_numbers(const group *g, uint32_t k, seen *item) {
    for (int i = 0; i < g->nnumbers; i++) {
        const kiln_value *v = &g->number[i].at[k];
        item->number[i] = g->number[i].item ? kiln_list_number(v->u.tensor) : *v;
    }
}

/* Whether item k is one of the group's. */
static bool is_of(const group *g, uint32_t k, seen *item) {
    if (!tensors_fit(g, k, item)) return false;
    read_numbers(g, k, item);
    return numbers_fit(g, item) && writes_apart(g, item);
}

/* -- items of a group ------------------------------------------------------------------------------------------ */

static bool same_numbers(const group *g, const seen *item) {
    for (int i = 0; i < g->nnumbers; i++)
        if (!kiln_same_number(&item->number[i], &g->call.arg[g->number[i].to])) return false;
    return true;
}

/* The numbers of an item: the last item's where they are the same. */
static kiln_status set_numbers(kiln_listing *l, group *g, const seen *item) {
    if (g->par && same_numbers(g, item)) return KILN_OK;
    for (int i = 0; i < g->nnumbers; i++) {
        kiln_value *v = &g->call.arg[g->number[i].to];
        *v = item->number[i];
        v->name = NULL;
    }
    g->par = l->par_end;
    for (int s = 0; s < g->c->nscalars; s++)
        KILN_TRY(kiln_plan_scalar(&g->plan, &g->c->scalars[s], l->par_end++));
    return KILN_OK;
}

static kiln_status new_result(const kiln_listing *l, const group *g, const kiln_tensor *like,
                              kiln_tensor **out) {
    kiln_dtype t = g->plan.typed.ret_dtype[0];
    if (l->ctx->memory)
        return kiln_tensor_new_in(l->ctx->memory, t, like->rank, like->sizes, like->strides, out);
    kiln_tensor_mold mold = kiln_tensor_mold_like(like, t, kiln_elem_bytes[t]);
    *out = kiln_tensor_make(&mold, like);
    return *out ? KILN_OK : KILN_NOMEM();
}

/* Adds item k to the launch of its group. */
static kiln_status add_segment(kiln_listing *l, group *g, uint32_t k, const seen *item) {
    kiln_segment *s = &g->segment[g->nsegments];
    const kiln_tensor *like = item->like;
    kiln_tensor *out = NULL;
    KILN_TRY(set_numbers(l, g, item));
    if (l->made) {
        KILN_TRY(new_result(l, g, like, &out));
        l->made[k] = kiln_v_tensor(out);
    }
    s->n = like->nelem;
    s->start = g->nelem;
    s->par = g->par;
    for (int b = 0; b < g->plan.axes.nbuffers; b++)
        s->ptr[b] = g->from[b] >= 0 ? item->at[g->from[b]] : out ? out->data : NULL;
    g->nelem += s->n;
    g->nsegments++;
    return KILN_OK;
}

static kiln_status add_first(kiln_listing *l, group *g, uint32_t k) {
    seen item;
    for (int i = 0; i < g->nlanes; i++) {
        const kiln_tensor *t = g->lane[i].at[k * g->lane[i].step].u.tensor;
        item.at[i] = t->data;
        if (i == g->like) item.like = t;
    }
    read_numbers(g, k, &item);
    return add_segment(l, g, k, &item);
}

static kiln_status new_group(const kiln_listing *l, group **out) {
    kiln_home home;
    group *g = kiln_block_take_any(sizeof *g + (size_t)l->n * sizeof *g->segment, &home);
    if (!g) return KILN_NOMEM();
    g->home = home;
    g->segment = (kiln_segment *)(g + 1);
    *out = g;
    return KILN_OK;
}

/* Item k, which is of no group that there is: the first of a new one, or alone; it is checked in any case. */
static __attribute__((noinline)) kiln_status place_anew(kiln_listing *l, uint32_t k) {
    bool made = false;
    group *g;
    kiln_list_enter(l, k);
    l->of[k] = KILN_LIST_GROUPS;
    l->nalone++;
    if (l->made && l->ngroups == KILN_LIST_GROUPS) return KILN_OK; /* its call writes nothing that is there */
    KILN_TRY(new_group(l, &g));
    kiln_status st = try_group(l, g, &made);
    if (st != KILN_OK || !made) {
        kiln_block_give(g, g->home);
        return st;
    }
    l->nalone--;
    l->of[k] = (uint8_t)l->ngroups;
    l->group[l->ngroups++] = g;
    return add_first(l, g, k);
}

kiln_status kiln_list_place(kiln_listing *l, uint32_t k) {
    seen item;
    for (int i = 0; i < l->ngroups; i++) {
        if (!is_of(l->group[i], k, &item)) continue;
        l->of[k] = (uint8_t)i;
        return add_segment(l, l->group[i], k, &item);
    }
    return place_anew(l, k);
}

/* -- running ----------------------------------------------------------------------------------------------------- */

static void count_group(const kiln_listing *l, const group *g) {
    kiln_thread *t = kiln_thread_of(&l->ctx->epochs);
    bool compiled = g->run.fn != NULL;
    KILN_COUNT_IN(t, calls);
    kiln_tier_here = compiled ? kiln_tier_compiled : "interp";
    kiln_entry_touch(&g->c->entry);
    if (compiled) return;
    kiln_count_interpreted(l->ctx, t);
    for (size_t k = 0; k < g->nsegments; k++) (void)kiln_class_heat(g->c, g->segment[k].n, 1);
}

static kiln_axes axes_of(const group *g) {
    return (kiln_axes){.ndim = 1,
                       .ngrid = 1,
                       .nbuffers = g->plan.axes.nbuffers,
                       .nwritten = g->plan.typed.nrets,
                       .pitch = 1,
                       .npoints = g->nelem,
                       .nelem = g->nelem,
                       .n = &g->nelem,
                       .stride = g->stride,
                       .bytes = g->plan.bytes};
}

bool kiln_list_may_share(const kiln_list_group *g) {
    kiln_axes x = axes_of(g);
    return kiln_may_be_shared(&x, &g->run, KILN_POOL_LEAST_NS);
}

kiln_status kiln_list_run_group(const kiln_listing *l, const kiln_list_group *g, bool ordered) {
    kiln_axes x = axes_of(g);
    int32_t trap;
    KILN_TRY(kiln_segments_run(&x, &g->run, g->segment, g->nsegments, ordered, &trap));
    count_group(l, g);
    return trap ? KILN_BUG("%s: the kernel returned %d", l->item->name, (int)trap) : KILN_OK;
}
