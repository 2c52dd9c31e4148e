/* lists.c - a call for each item of lists -> one pass over them, in few launches.
 *
 * Items whose tensors have the same dtypes, lie row-major and agree in shape among themselves are of one group: bound,
 * inferred and looked up once, then each is a run of elements of one launch (src/run/segments.c).  Any other item is a call
 * of its own.  All items are checked before the first is written.  Where tensors of different items share
 * memory, all calls are made one after the other.  Owns the results of a call until it has succeeded.  Knows no operator. */
#include "api/lists.h"

#include <stdlib.h>
#include <string.h>

#include "api/memo.h"

enum { GROUPS = 4, PARS = 16 }; /* groups of one call; numbers of an item */

/* Bits of a signature that items of a group have alike. */
#define SIG_ALIKE                                                                                            \
    (KILN_SIG_TYPE | KILN_SIG_FLAGS(KILN_TF_CANONICAL | KILN_TF_SCALAR | KILN_TF_NUMBER | KILN_TF_READONLY | \
                                    KILN_TF_SINGLE))
#define SIG_SINGLE KILN_SIG_FLAGS(KILN_TF_SINGLE)

/* Items that one launch serves. */
typedef struct group {
    kiln_bound call; /* of its first item; its numbers are those of the last one that was looked at */
    kiln_plan plan;
    kiln_class *c;
    kiln_runner run;
    kiln_value first[KILN_MAX_ARGS];   /* values of the first item */
    uint64_t mask[KILN_MAX_ARGS];      /* of signatures and of payloads that must be alike */
    int8_t to[KILN_MAX_ARGS];          /* the argument that a value is bound to */
    int8_t from[KILN_SEGMENT_BUFFERS]; /* the value that a buffer is; -1: a new result */
    int like;                          /* a value that is a tensor in the shape of the item */
    uint64_t written;                  /* bit i: value i is written */
    int64_t stride[KILN_SEGMENT_BUFFERS];
    kiln_segment *segment; /* room for one of each item */
    size_t nsegments;
    int64_t nelem;
    const uint64_t *par; /* of the last item */
    kiln_home home;
} group;

typedef struct listing {
    kiln_ctx *ctx;
    const kiln_op *op, *item; /* what was called; what is called for each item */
    kiln_bound call;
    const kiln_called *called;
    uint32_t n;                     /* items */
    kiln_value args[KILN_MAX_ARGS]; /* of the item that is looked at */
    const kiln_value
        *walked[KILN_MAX_ARGS]; /* items of the list that a value comes from; NULL: all have the same */
    uint64_t items;             /* bit i: value i is the number in the tensor that is walked */
    const kiln_value *outs;     /* OUT: the tensors that results go to */
    int nargs;
    group *group[GROUPS];
    int ngroups;
    uint8_t *of;             /* of each item its group; GROUPS: none */
    uint64_t *par, *par_end; /* numbers of items */
    kiln_value *made;        /* results; NULL: nothing new is made */
    uint32_t nalone;         /* items of no group */
    kiln_home home;
} listing;

/* -- what is walked -------------------------------------------------------------------------------------------- */

static kiln_status wrong_lengths(const listing *l, int a, uint32_t n, uint32_t other) {
    const kiln_type *t = kiln_type_strip(l->op->row->schema->args[a].type, NULL);
    bool tensors = kiln_type_strip(t->elem, NULL)->kind == KILN_T_TENSOR;
    if (tensors)
        return KILN_FAIL(KILN_E_ARG, "%s: Tensor lists must have the same number of tensors, got %u and %u",
                         l->op->name, n, other);
    return KILN_FAIL(KILN_E_ARG,
                     "%s: Tensor list must have same number of elements as scalar list, got %u and %u",
                     l->op->name, n, other);
}

/* A list that the map of an item does not use, and that may be empty. */
static bool is_unused(const listing *l, int a) {
    return !l->called->callee && l->item->row->ignored >> a & 1;
}

/* All lists have as many items, and the first has one. */
static kiln_status count_items(listing *l) {
    uint64_t each = l->called->each;
    bool any = false;
    for (int a = 0; a < l->op->row->schema->nargs; a++) {
        const kiln_value *v = &l->call.arg[a];
        if (!(each >> a & 1) || v->kind != KILN_LIST_V) continue;
        if (!any) l->n = v->n;
        if (!any && v->n == 0)
            return KILN_FAIL(KILN_E_ARG, "%s: Tensor list must have at least one tensor.", l->op->name);
        if (any && v->n == 0 && is_unused(l, a)) continue;
        if (v->n != l->n) return wrong_lengths(l, a, l->n, v->n);
        any = true;
    }
    if (l->outs && l->call.arg[l->op->row->schema->nargs].n != l->n)
        return KILN_FAIL(KILN_E_ARG, "%s: %u tensors were given for %u results", l->op->name,
                         l->call.arg[l->op->row->schema->nargs].n, l->n);
    return KILN_OK;
}

/* Tensors of which the numbers in them are meant have one element each. */
static kiln_status check_numbers(const listing *l, int a) {
    for (uint32_t k = 0; k < l->n; k++)
        if (l->call.arg[a].u.list[k].u.tensor->nelem != 1)
            return KILN_FAIL(KILN_E_ARG, "%s: argument '%s': item %u has %lld elements, expected one",
                             l->op->name, l->op->row->schema->args[a].name, k,
                             (long long)l->call.arg[a].u.list[k].u.tensor->nelem);
    return KILN_OK;
}

/* What each value of an item's call is: an item of a list, or the same for all. */
static kiln_status set_values(listing *l, const kiln_call_env *env) {
    const kiln_called *c = l->called;
    const kiln_schema *s = l->op->row->schema;
    l->items = 0;
    for (int i = 0; i < c->args.n; i++) {
        const kiln_named *v = &c->args.at[i];
        int a = v->expr->kind == KILN_X_NAME ? kiln_schema_arg(s, v->expr->name) : -1;
        bool walks = a >= 0 && c->each >> a & 1, item = walks && l->op->row->items >> a & 1;
        l->walked[i] = walks && !is_unused(l, a) ? l->call.arg[a].u.list : NULL;
        l->args[i] = kiln_v_none();
        if (item) KILN_TRY(check_numbers(l, a));
        if (item) l->items |= 1ull << i;
        if (a < 0)
            KILN_TRY(kiln_call_value(env, v->expr, &l->args[i]));
        else if (!walks)
            l->args[i] = l->call.arg[a];
        l->args[i].name = v->name[0] ? v->name : NULL;
    }
    l->nargs = c->args.n;
    if (!l->outs) return KILN_OK;
    l->walked[l->nargs] = l->outs;
    l->args[l->nargs].name = l->item->schema->args[kiln_op_out_arg(l->item, 0)].name;
    l->nargs++;
    return KILN_OK;
}

static kiln_value number_in(const kiln_tensor *t) {
    kiln_value v = kiln_element_get((kiln_dtype)t->dtype, t->data);
    return v.kind == KILN_FLOAT_V ? v : kiln_v_float((double)v.u.i);
}

static void enter_item(listing *l, uint32_t k) {
    for (int i = 0; i < l->nargs; i++) {
        if (!l->walked[i]) continue;
        const char *name = l->args[i].name;
        l->args[i] = l->items >> i & 1 ? number_in(l->walked[i][k].u.tensor) : l->walked[i][k];
        l->args[i].name = name;
    }
}

/* -- groups -------------------------------------------------------------------------------------------------------- */

/* The kernel's one nest goes over elements that lie side by side, or are one for all. */
static bool is_flat(const listing *l, const group *g) {
    const kiln_plan *p = &g->plan;
    if (p->kind != KILN_CLASS_KERNEL || p->aside || p->axes.nelem == 0 || p->nsteps != 1) return false;
    if (p->axes.nbuffers > KILN_SEGMENT_BUFFERS || !kiln_memo_is_flat(p, l->args, (size_t)l->nargs))
        return false;
    for (int k = 0; k < p->typed.nrets; k++)
        if (p->result[k].resized) return false;
    return true;
}

static bool fits_group(const kiln_class *c) {
    return c->nests.n == 1 && c->nests.nguards == 0 && c->nscalars <= PARS;
}

/* What the values of other items must have in common with the first one's; false: conditions ask too much. */
static bool ask(const listing *l, group *g) {
    const kiln_row *row = l->item->row;
    memset(g->to, -1, sizeof g->to);
    g->written = 0;
    g->like = -1;
    for (int a = 0; a < row->schema->nargs; a++)
        if (g->call.given[a] >= 0) g->to[g->call.given[a]] = (int8_t)a;
    for (int k = 0; k < g->call.nout; k++) g->written |= 1ull << g->call.given_out[k];
    for (int i = 0; i < l->nargs; i++) {
        int a = g->to[i];
        bool asked = a >= 0 && row->asked >> a & 1, tensor = l->args[i].kind == KILN_TENSOR;
        if (asked && tensor) return false;
        bool single = a >= 0 && row->asked_single >> a & 1;
        g->mask[i] = tensor ? (single ? SIG_ALIKE : SIG_ALIKE & ~SIG_SINGLE) : asked ? UINT64_MAX : 0;
        g->first[i] = l->args[i];
        if (tensor && (g->like < 0 || l->args[i].u.tensor->rank)) g->like = i;
    }
    return g->like >= 0;
}

static bool set_buffers(group *g) {
    const kiln_plan *p = &g->plan;
    bool sized = p->shape->rank > 0;
    for (int b = 0; b < p->axes.nbuffers; b++) {
        const kiln_buffer *buf = &p->buffer[b];
        bool result = buf->kind == KILN_BUFFER_RESULT;
        bool stretched = !result && sized && buf->tensor->rank == 0;
        if (buf->stride != (stretched ? KILN_STRIDE_BCAST : KILN_STRIDE_CONTIG)) return false;
        g->stride[b] = stretched ? 0 : p->bytes[b];
        g->from[b] = !result            ? g->call.given[buf->which]
                     : g->call.nout > 0 ? g->call.given_out[buf->which]
                                        : -1;
        if (!result && g->from[b] < 0) return false;
    }
    return true;
}

/* The item that is looked at, bound and inferred.  *made: it is the first of a group, which is filled in. */
static kiln_status try_group(listing *l, group *g, bool *made) {
    *made = false;
    KILN_TRY(kiln_bind(l->item, l->args, (size_t)l->nargs, &g->call));
    KILN_TRY(kiln_infer(&g->call, &g->plan));
    if (!is_flat(l, g) || !ask(l, g) || !set_buffers(g)) return KILN_OK;
    KILN_TRY(kiln_class_of(l->ctx, &g->plan, &g->c));
    if (!fits_group(g->c)) return KILN_OK;
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

/* -- items of a group ---------------------------------------------------------------------------------------------- */

static bool apart(const char *a, uint64_t na, const char *b, uint64_t nb) {
    uint64_t ahead = (uint64_t)((uintptr_t)b - (uintptr_t)a);
    return ahead >= na && -ahead >= nb;
}

static uint64_t bytes_of(const kiln_tensor *t) { return (uint64_t)t->nelem * kiln_elem_bytes[t->dtype]; }

/* Whether each written tensor shares no memory with the item's others, or all of it, element by element; no two written
 * ones are the same. */
static bool writes_apart(const listing *l, const group *g) {
    for (int i = 0; i < l->nargs; i++) {
        if (!(g->written >> i & 1)) continue;
        const kiln_tensor *w = l->args[i].u.tensor;
        uint64_t n = bytes_of(w);
        for (int j = 0; j < l->nargs; j++) {
            if (l->args[j].kind != KILN_TENSOR || j == i) continue;
            const kiln_tensor *t = l->args[j].u.tensor;
            if (apart(w->data, n, t->data, bytes_of(t))) continue;
            bool same = t->data == w->data && bytes_of(t) == n && t->rank == w->rank;
            if (!same || (g->written >> j & 1)) return false;
        }
    }
    return true;
}

/* Whether the item that is looked at is one of the group's, but for its numbers. */
static bool is_of(const listing *l, const group *g) {
    const kiln_tensor *like = NULL;
    for (int i = 0; i < l->nargs; i++) {
        const kiln_value *v = &l->args[i], *first = &g->first[i];
        if (v->kind != first->kind) return false;
        if (v->kind != KILN_TENSOR) {
            if (g->mask[i] && v->u.i != first->u.i) return false;
            if (g->mask[i] && (v->kind == KILN_STR_V || v->kind == KILN_LIST_V) && l->walked[i]) return false;
            continue;
        }
        const kiln_tensor *t = v->u.tensor;
        if ((t->sig ^ first->u.tensor->sig) & g->mask[i]) return false;
        if (t->rank == 0) continue;
        if (like && !kiln_has_shape(t, like->rank, like->sizes)) return false;
        like = t;
    }
    return !g->written || writes_apart(l, g);
}

static bool same_numbers(const listing *l, const group *g) {
    for (int i = 0; i < l->nargs; i++) {
        const kiln_value *v = &l->args[i];
        if (!l->walked[i] || v->kind == KILN_TENSOR) continue;
        const kiln_value *was = &g->call.arg[g->to[i]];
        if (v->u.i != was->u.i || (v->kind == KILN_COMPLEX_V && v->u.c.im != was->u.c.im)) return false;
    }
    return true;
}

/* The numbers of the item that is looked at: the last item's where they are the same. */
static kiln_status set_numbers(listing *l, group *g) {
    if (g->par && same_numbers(l, g)) return KILN_OK;
    for (int i = 0; i < l->nargs; i++)
        if (l->walked[i] && l->args[i].kind != KILN_TENSOR && g->to[i] >= 0) {
            g->call.arg[g->to[i]] = l->args[i];
            g->call.arg[g->to[i]].name = NULL;
        }
    g->par = l->par_end;
    for (int k = 0; k < g->c->nscalars; k++)
        KILN_TRY(kiln_plan_scalar(&g->plan, &g->c->scalars[k], l->par_end++));
    return KILN_OK;
}

static kiln_status new_result(const listing *l, const group *g, kiln_tensor **out) {
    kiln_dtype t = g->plan.typed.ret_dtype[0];
    const kiln_tensor *like = l->args[g->like].u.tensor;
    if (l->ctx->memory)
        return kiln_tensor_new_in(l->ctx->memory, t, like->rank, like->sizes, like->strides, out);
    kiln_tensor_mold mold = kiln_tensor_mold_like(like, t, kiln_elem_bytes[t]);
    *out = kiln_tensor_make(&mold, like);
    return *out ? KILN_OK : KILN_NOMEM();
}

/* Adds the item that is looked at, number k, to the launch of its group. */
static kiln_status add_segment(listing *l, group *g, uint32_t k) {
    kiln_segment *s = &g->segment[g->nsegments];
    kiln_tensor *out = NULL;
    KILN_TRY(set_numbers(l, g));
    if (l->made) {
        KILN_TRY(new_result(l, g, &out));
        l->made[k] = kiln_v_tensor(out);
    }
    s->n = l->args[g->like].u.tensor->nelem;
    s->start = g->nelem;
    s->par = g->par;
    for (int b = 0; b < g->plan.axes.nbuffers; b++)
        s->ptr[b] = g->from[b] >= 0 ? l->args[g->from[b]].u.tensor->data : out ? out->data : NULL;
    g->nelem += s->n;
    g->nsegments++;
    return KILN_OK;
}

/* -- checking and sorting -------------------------------------------------------------------------------------------- */

static kiln_status new_group(listing *l, group **out) {
    kiln_home home;
    group *g = kiln_block_take_any(sizeof *g + (size_t)l->n * sizeof *g->segment, &home);
    if (!g) return KILN_NOMEM();
    g->home = home;
    g->segment = (kiln_segment *)(g + 1);
    *out = g;
    return KILN_OK;
}

/* Which group item k, the one that is looked at, goes to; it is checked in any case. */
static kiln_status place_item(listing *l, uint32_t k) {
    bool made = false;
    group *g;
    for (int i = 0; i < l->ngroups; i++) {
        if (!is_of(l, l->group[i])) continue;
        l->of[k] = (uint8_t)i;
        return add_segment(l, l->group[i], k);
    }
    l->of[k] = GROUPS;
    l->nalone++;
    if (l->made && l->ngroups == GROUPS) return KILN_OK; /* its call writes nothing that is there */
    KILN_TRY(new_group(l, &g));
    kiln_status st = try_group(l, g, &made);
    if (st != KILN_OK || !made || l->ngroups == GROUPS) {
        kiln_block_give(g, g->home);
        return st;
    }
    l->nalone--;
    l->of[k] = (uint8_t)l->ngroups;
    l->group[l->ngroups++] = g;
    return add_segment(l, g, k);
}

/* -- memory that items share ------------------------------------------------------------------------------------------ */

typedef struct span {
    uintptr_t from, to;
    uint32_t item;
} span;

static span span_of(const kiln_tensor *t, uint32_t item) {
    int64_t lo = 0, hi = 0, size = kiln_elem_bytes[t->dtype];
    for (int d = 0; d < t->rank && t->nelem; d++) {
        int64_t reach = (t->sizes[d] - 1) * t->strides[d] * size;
        *(reach < 0 ? &lo : &hi) += reach;
    }
    uintptr_t at = (uintptr_t)t->data;
    return (span){at + (uintptr_t)lo, at + (uintptr_t)hi + (t->nelem ? (uintptr_t)size : 0), item};
}

static int by_address(const void *a, const void *b) {
    uintptr_t x = ((const span *)a)->from, y = ((const span *)b)->from;
    return x < y ? -1 : x > y;
}

/* Whether s meets one of the n written spans, which are in order and disjoint, of another item. */
static bool meets(const span *written, size_t n, span s) {
    size_t lo = 0, hi = n;
    while (lo < hi) {
        size_t mid = (lo + hi) / 2;
        if (written[mid].to <= s.from)
            lo = mid + 1;
        else
            hi = mid;
    }
    for (; lo < n && written[lo].from < s.to; lo++)
        if (written[lo].item != s.item) return true;
    return false;
}

/* Whether value i is written. */
static bool writes(const listing *l, int i) {
    const kiln_schema *s = l->item->schema;
    int a = l->args[i].name ? kiln_schema_arg(s, l->args[i].name) : i;
    for (int k = 0; k < l->item->nout; k++)
        if (kiln_op_out_arg(l->item, k) == a) return true;
    return false;
}

/* Whether a tensor that one item writes shares memory with a tensor of another; room: for a span of each tensor written.
 * Tensors of one list often lie in its order. */
static bool items_meet(listing *l, span *room) {
    size_t n = 0;
    bool sorted = true;
    for (int i = 0; i < l->nargs; i++) {
        bool written = l->walked[i] && !(l->items >> i & 1) && writes(l, i);
        for (uint32_t k = 0; written && k < l->n; k++) {
            const kiln_value *v = &l->walked[i][k];
            if (v->kind != KILN_TENSOR || !v->u.tensor->nelem) continue;
            room[n++] = span_of(v->u.tensor, k);
            sorted = sorted && (n < 2 || room[n - 2].from <= room[n - 1].from);
        }
    }
    if (!sorted) qsort(room, n, sizeof *room, by_address);
    for (size_t k = 1; k < n; k++)
        if (room[k].from < room[k - 1].to)
            return true; /* of one item, too: its own call says what that means */
    for (int i = 0; i < l->nargs; i++) {
        bool read = !(l->walked[i] && !(l->items >> i & 1) && writes(l, i));
        for (uint32_t k = 0; read && k < (l->walked[i] ? l->n : 1); k++) {
            const kiln_value *v = l->walked[i] ? &l->walked[i][k] : &l->args[i];
            if (v->kind != KILN_TENSOR || !v->u.tensor->nelem) continue;
            if (meets(room, n, span_of(v->u.tensor, l->walked[i] ? k : UINT32_MAX))) return true;
        }
    }
    return false;
}

static kiln_status find_shared(listing *l, bool *shared) {
    kiln_home home;
    *shared = false;
    if (l->made) return KILN_OK;
    span *room = kiln_block_take_any((size_t)l->n * (size_t)l->nargs * sizeof *room, &home);
    if (!room) return KILN_NOMEM();
    *shared = items_meet(l, room);
    kiln_block_give(room, home);
    return KILN_OK;
}

/* -- running ------------------------------------------------------------------------------------------------------------ */

static void count_group(const listing *l, const group *g) {
    kiln_thread *t = kiln_thread_of(&l->ctx->epochs);
    bool compiled = g->run.fn != NULL;
    KILN_COUNT_IN(t, calls);
    kiln_tier_here = compiled ? kiln_tier_compiled : "interp";
    kiln_entry_touch(&g->c->entry);
    if (compiled) return;
    KILN_COUNT_IN(t, interp_calls);
    if (l->ctx->mode == KILN_MODE_SYNC) KILN_COUNT_IN(t, fallbacks);
    for (size_t k = 0; k < g->nsegments; k++) kiln_class_heat(g->c, g->segment[k].n);
}

static kiln_status run_group(const listing *l, group *g) {
    kiln_axes x = {.ndim = 1,
                   .ngrid = 1,
                   .nbuffers = g->plan.axes.nbuffers,
                   .nwritten = g->plan.typed.nrets,
                   .pitch = 1,
                   .npoints = g->nelem,
                   .nelem = g->nelem,
                   .n = &g->nelem,
                   .stride = g->stride,
                   .bytes = g->plan.bytes};
    int32_t trap;
    KILN_TRY(kiln_segments_run(&x, &g->run, g->segment, g->nsegments, false, &trap));
    count_group(l, g);
    return trap ? KILN_BUG("%s: the kernel returned %d", l->item->name, (int)trap) : KILN_OK;
}

/* Item k by a call of its own. */
static kiln_status call_item(listing *l, uint32_t k) {
    kiln_tensor *outs[KILN_MAX_RETS];
    int nrets = l->item->schema->nrets;
    enter_item(l, k);
    KILN_TRY(kiln_call(l->ctx, l->item, l->args, (size_t)l->nargs, outs, (size_t)nrets));
    for (int i = l->made ? 1 : 0; i < nrets; i++) kiln_tensor_release(outs[i]);
    if (l->made) l->made[k] = kiln_v_tensor(outs[0]);
    return KILN_OK;
}

static kiln_status run_all(listing *l, bool shared) {
    for (int i = 0; i < l->ngroups && !shared; i++) KILN_TRY(run_group(l, l->group[i]));
    for (uint32_t k = 0; k < l->n && (shared || l->nalone); k++)
        if (shared || l->of[k] == GROUPS) KILN_TRY(call_item(l, k));
    return KILN_OK;
}

/* Whether it matters if items share memory: more than one thing is done at a time, or not in the order of the items. */
static bool may_disorder(const listing *l) {
    return l->ngroups > 1 || (l->ngroups && l->nalone) ||
           (l->ngroups && kiln_pool_most(&l->ctx->parallel) > 1);
}

static kiln_status go(listing *l) {
    bool shared = false;
    for (uint32_t k = 0; k < l->n; k++) {
        enter_item(l, k);
        KILN_TRY(place_item(l, k));
    }
    if (may_disorder(l)) KILN_TRY(find_shared(l, &shared));
    return run_all(l, shared);
}

/* -- the call ------------------------------------------------------------------------------------------------------------ */

static kiln_status begin(listing *l, const kiln_op *op, const kiln_value *args, size_t nargs) {
    const kiln_row *row = op->row;
    const kiln_way *way;
    kiln_call_env env;
    l->op = op;
    l->ngroups = 0;
    l->nalone = 0;
    KILN_TRY(kiln_bind(op, args, nargs, &l->call));
    KILN_TRY(kiln_checks_hold(&l->call, KILN_F32));
    kiln_call_env_init(&env, &l->call, KILN_F32);
    KILN_TRY(kiln_call_way(&env, &way));
    l->called = way->calls;
    l->n = 0;
    if (!l->called) return KILN_OK; /* nothing is to be done */
    KILN_TRY(kiln_called_op(row, l->called, op->form, &l->item));
    l->outs = op->form == KILN_FORM_OUT ? l->call.arg[row->schema->nargs].u.list : NULL;
    KILN_TRY(count_items(l));
    return set_values(l, &env);
}

static void end(listing *l, void *room) {
    for (int i = 0; i < l->ngroups; i++) kiln_block_give(l->group[i], l->group[i]->home);
    kiln_block_give(room, l->home);
}

/* Numbers of items, and which group each is of. */
static void *take_room(listing *l) {
    size_t npar = (size_t)l->n * PARS + (size_t)GROUPS * PARS;
    char *room = kiln_block_take_any(npar * sizeof *l->par + l->n, &l->home);
    l->par = l->par_end = (uint64_t *)room;
    l->of = room ? (uint8_t *)(l->par + npar) : NULL;
    return room;
}

kiln_status kiln_lists_call(kiln_ctx *ctx, const kiln_op *op, const kiln_value *args, size_t nargs,
                            kiln_value *out) {
    listing l;
    l.ctx = ctx;
    l.made = NULL;
    KILN_TRY(begin(&l, op, args, nargs));
    if (!l.n) return KILN_OK;
    void *room = take_room(&l);
    if (!room) return KILN_NOMEM();
    if (op->schema->nrets && !(l.made = kiln_calloc(l.n, sizeof *l.made))) {
        end(&l, room);
        return KILN_NOMEM();
    }
    kiln_status st = kiln_note(go(&l), "%s", op->name);
    kiln_value list = kiln_v_list(l.made, l.n);
    if (st == KILN_OK && l.made)
        *out = list;
    else if (l.made)
        kiln_values_release(&list, 1);
    end(&l, room);
    return st;
}
