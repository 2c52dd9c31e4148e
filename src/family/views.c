/* views.c - tensors in other sizes: the row's `view` clauses -> sizes, strides, and what is copied first.
 *
 * A row says in which sizes it sees an argument, so that channels and groups are dimensions of their own.  Strides do it
 * where the tensor's dimensions, cut and merged, allow that; else the argument is copied first, row by row.  Results for
 * each element have the sizes of an argument as it is, and are seen as that is: `strides format`.  Knows no family but
 * folds, and no operator. */
#include "family/views.h"

#include "infer/infer_parts.h"

static int view_index(const kiln_plan *p, int arg) {
    const kiln_row *row = p->call->op->row;
    const kiln_view *v = kiln_row_view(row, arg);
    return v ? (int)(v - row->views) : -1;
}

/* Strides by which memory of some sizes is seen in others of as many elements.  False: there are none. */
static bool restride(int rank, const int64_t *sizes, const int64_t *strides, int to_rank, const int64_t *to,
                     int64_t *out) {
    int d = rank - 1;
    int64_t
        run = 1,
        step =
            0; /* elements of the tensor's dimensions that follow each other, not yet handed out; their stride */
    for (int k = to_rank - 1; k >= 0; k--) {
        int64_t want = to[k];
        if (want == 1) {
            out[k] = 0;
            continue;
        }
        if (run == 1) { /* the next dimension of more than one element */
            while (d >= 0 && sizes[d] == 1) d--;
            if (d < 0) return false;
            run = sizes[d];
            step = strides[d--];
        }
        while (run % want != 0 || run < want) { /* more of the tensor's dimensions, if they follow */
            while (d >= 0 && sizes[d] == 1) d--;
            if (d < 0 || strides[d] != step * run) return false;
            run *= sizes[d--];
        }
        out[k] = step;
        step *= want;
        run /= want;
    }
    return run == 1;
}

/* -- sizes ------------------------------------------------------------------------------------------------------ */

/* Appends t's sizes from `first` up to `end` to those of view v.  False: they are too many, or it has no such dimensions. */
static bool add_sizes(kiln_plan *p, int v, const kiln_tensor *t, int64_t first, int64_t end) {
    if (first < 0 || end > t->rank || end - first > KILN_MAX_RANK - p->view[v].rank) return false;
    for (int64_t d = first; d < end; d++) p->view[v].sizes[p->view[v].rank++] = t->sizes[d];
    return true;
}

/* Appends what one number among the sizes of a view comes to. */
static bool add_size(kiln_plan *p, int v, const kiln_tensor *t, kiln_span span, int64_t n) {
    if (span != KILN_SPAN_SIZE && n < 0) n += t->rank;
    if (span == KILN_SPAN_BEFORE) return n >= 0 && add_sizes(p, v, t, 0, n);
    if (span == KILN_SPAN_FROM) return n <= t->rank && add_sizes(p, v, t, n, t->rank);
    if (n < 0 || p->view[v].rank == KILN_MAX_RANK) return false;
    p->view[v].sizes[p->view[v].rank++] = n;
    return true;
}

static kiln_status find_sizes(kiln_plan *p, int v, const kiln_tensor *t) {
    const kiln_view *view = &p->call->op->row->views[v];
    const char *name = p->call->op->name;
    kiln_call_env env;
    kiln_hval value = {.kind = KILN_H_BOOL, .i = 1};
    int64_t all = 1;
    bool fits = true;
    kiln_call_env_init(&env, p->call, p->typed.common);
    p->view[v].rank = 0;
    if (view->when) KILN_TRY(kiln_note(kiln_expr_eval(&env.env, view->when, &value), "%s", name));
    if (!value.i) fits = add_sizes(p, v, t, 0, t->rank);
    for (int k = 0; k < view->sizes.n && value.i; k++) {
        kiln_hval n;
        KILN_TRY(kiln_note(kiln_expr_eval(&env.env, view->sizes.at[k].expr, &n), "%s", name));
        fits = fits && n.kind == KILN_H_INT && add_size(p, v, t, view->sizes.at[k].span, n.i);
    }
    for (int d = 0; d < p->view[v].rank && fits; d++)
        fits = !__builtin_mul_overflow(all, p->view[v].sizes[d], &all);
    if (fits && all == t->nelem) return KILN_OK;
    return KILN_FAIL(KILN_E_ARG,
                     "%s: argument '%s' has %lld elements, which do not fit the sizes it must have", name,
                     kiln_arg_name(p->call, view->arg), (long long)t->nelem);
}

/* Results for each element have the sizes of argument `arg`: so must the call, seen as the row sees that. */
static kiln_status take_sizes_of(kiln_plan *p, int arg) {
    const kiln_tensor *like = p->call->arg[arg].u.tensor;
    kiln_shape *s = &p->shape[KILN_SHAPE_OWN];
    int v = view_index(p, arg);
    kiln_plan_shape(p, s, like->rank);
    s->nelem = like->nelem;
    for (int d = 0; d < s->rank; d++) s->sizes[d] = like->sizes[d];
    if (p->shape->rank == p->view[v].rank &&
        kiln_same_sizes((size_t)p->shape->rank, p->shape->sizes, p->view[v].sizes))
        return KILN_OK;
    return KILN_FAIL(KILN_E_ARG, "%s: the other arguments do not broadcast to the sizes of '%s'",
                     p->call->op->name, kiln_arg_name(p->call, arg));
}

kiln_status kiln_views_find(kiln_plan *p) {
    kiln_tensor seen[KILN_ROW_MAX_VIEWS];
    const kiln_tensor *own[KILN_MAX_OPERANDS];
    int n = 0;
    for (int i = 0; i < p->typed.nin; i++) {
        int v = view_index(p, p->typed.in_arg[i]);
        own[i] = p->in[i];
        if (v < 0) continue;
        uint64_t shaping = p->branch->uses | ~p->call->op->row->kept; /* others may have any sizes */
        bool counts = shaping >> p->typed.in_arg[i] & 1;
        p->view[v].rank = 0;
        if (counts) KILN_TRY(find_sizes(p, v, p->in[i]));
        seen[n] = (kiln_tensor){
            .rank = (uint8_t)p->view[v].rank, .nelem = counts ? own[i]->nelem : 1, .sizes = p->view[v].sizes};
        p->in[i] = &seen[n++];
    }
    kiln_status st = kiln_broadcast(p);
    for (int i = 0; i < p->typed.nin; i++) p->in[i] = own[i];
    p->uniform = false;
    int like = kiln_typing_sizes_of(&p->branch->typing);
    return st == KILN_OK && like >= 0 ? take_sizes_of(p, like) : st;
}

/* -- results ------------------------------------------------------------------------------------------------------ */

/* Whether strides are in the order of channels last, as PyTorch tells: channels nearest, then the other dimensions from the
 * last, the first one farthest.  Where rows would do as well, they are rows. */
static bool channels_last(const kiln_tensor *t) {
    int64_t least = 0;
    if ((t->rank != 4 && t->rank != 5) || t->strides[1] == 0) return false;
    for (int k = 0; k < t->rank; k++) {
        int d = k == 0 ? 1 : k == t->rank - 1 ? 0 : t->rank - k;
        if (t->sizes[d] == 0 || t->strides[d] < least) return false;
        if (d == 0 && least == t->strides[1]) return false;
        least = t->strides[d] * (t->sizes[d] > 1 ? t->sizes[d] : 1);
    }
    return true;
}

/* Row-major where PyTorch resizes a given result before it looks at strides. */
static void own_strides(const kiln_plan *p, const kiln_tensor *like, kiln_shape *s) {
    bool resized = p->branch->typing.strides != KILN_STRIDES_FORMAT;
    for (int k = 0; k < p->call->nout; k++) resized = resized || p->result[k].resized;
    if (resized || !channels_last(like))
        kiln_row_major(s->rank, s->sizes, s->strides);
    else
        kiln_channels_last(s->rank, s->sizes, s->strides);
}

/* New results of t's rank lie in its order; a given one that PyTorch copies to is resized without a look at that. */
static void order_like(kiln_plan *p, const kiln_tensor *t) {
    bool copied = p->call->nout && kiln_plan_out_rule(p) == KILN_OUT_COPIED;
    if (p->shape[1].rank == t->rank && !copied) kiln_layout_part(t, &p->shape[1]);
}

kiln_status kiln_views_of_results(kiln_plan *p) {
    const kiln_typing *ty = &p->branch->typing;
    int64_t ignored[KILN_MAX_RANK];
    int like = kiln_typing_sizes_of(ty);
    if (ty->strides == KILN_STRIDES_LIKE) order_like(p, p->call->arg[ty->like].u.tensor);
    if (like < 0) return KILN_OK;
    own_strides(p, p->call->arg[like].u.tensor, &p->shape[KILN_SHAPE_OWN]);
    for (int k = 0; k < p->call->nout; k++) {
        const kiln_tensor *t = p->call->out[k];
        int v = view_index(p, like);
        if (p->result[k].shape == KILN_SHAPE_OWN && !p->result[k].resized && t->nelem > 0)
            p->aside |= !restride(t->rank, t->sizes, t->strides, p->view[v].rank, p->view[v].sizes, ignored);
    }
    return KILN_OK;
}

void kiln_view_of_result(const kiln_plan *p, int k, kiln_access *out) {
    const kiln_shape *own = &p->shape[KILN_SHAPE_OWN];
    const kiln_tensor *t = kiln_plan_tensor(p, k);
    const int64_t *strides = t && !p->result[k].resized ? t->strides : own->strides;
    int v = view_index(p, kiln_typing_sizes_of(&p->branch->typing));
    bool rows = p->aside || own->nelem == 0 ||
                !restride(own->rank, own->sizes, strides, p->view[v].rank, p->view[v].sizes, out->room);
    if (rows) kiln_row_major(p->view[v].rank, p->view[v].sizes, out->room);
    kiln_access_begin(out, p->view[v].rank, p->view[v].sizes, out->room);
}

/* -- arguments ---------------------------------------------------------------------------------------------------- */

bool kiln_view_of_input(const kiln_plan *p, int b, kiln_access *out) {
    int v = view_index(p, p->buffer[b].which);
    const kiln_tensor *t = kiln_plan_tensor(p, b);
    if (v < 0) return false;
    if (!t || !restride(t->rank, t->sizes, t->strides, p->view[v].rank, p->view[v].sizes, out->room))
        kiln_row_major(p->view[v].rank, p->view[v].sizes, out->room); /* of its copy */
    kiln_access_begin(out, p->view[v].rank, p->view[v].sizes, out->room);
    return true;
}

kiln_status kiln_views_copy(kiln_plan *p) {
    int64_t ignored[KILN_MAX_RANK];
    int ncopied = 0;
    if (p->shape->nelem == 0) return KILN_OK;
    for (int b = p->axes.nwritten; b < p->axes.nbuffers; b++) {
        const kiln_tensor *t = kiln_plan_tensor(p, b);
        int v = view_index(p, p->buffer[b].which);
        if (v < 0 || restride(t->rank, t->sizes, t->strides, p->view[v].rank, p->view[v].sizes, ignored))
            continue;
        if (ncopied == KILN_PLAN_MAX_COPIED)
            return KILN_FAIL(KILN_E_UNSUP,
                             "%s: more than %d arguments whose memory the row's views do not fit",
                             p->call->op->name, ncopied);
        kiln_plan_copy_in_rows(p, b);
        ncopied++;
    }
    return KILN_OK;
}
