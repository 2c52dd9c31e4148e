/* infer.c - a bound call -> its plan: branch and dtypes here, shapes and axes by the family.
 *
 * Walks the steps of infer_parts.h in order and evaluates the row's conditions.  Nothing is written to
 * any tensor: a call that fails here has changed nothing. */
#include <stdlib.h>

#include "infer/infer_parts.h"

/* -- conditions ---------------------------------------------------------------------------------------- */

/* The dtypes that `ty` gives, into the plan, unless those it has are *by a typing that gives the same. */
static kiln_status promote(kiln_plan *p, const kiln_typing *ty, const kiln_typing **by) {
    const kiln_typing *was = *by;
    if (was && was->promo == ty->promo && was->args == ty->args && was->dtype_arg == ty->dtype_arg)
        return KILN_OK;
    *by = ty;
    return kiln_typing_common(p->call, ty, &p->typed.promoted, &p->typed.common);
}

/* Whether e holds for the call. */
static inline kiln_status holds(const kiln_call_env *env, const kiln_expr *e, bool *out) {
    kiln_status st = kiln_expr_holds(&env->env, e, out);
    return st == KILN_OK ? st : kiln_note(st, "%s", env->call->op->name);
}

/* Checks come before branches: their texts explain better than "no branch" does.  count: elements folded, where these are
 * known and what is asked; else NULL. */
static kiln_status hold_checks(const kiln_bound *call, kiln_dtype common, const int64_t *count) {
    const kiln_row *row = call->op->row;
    kiln_call_env env;
    bool counted = count != NULL, ready = false; /* ready: env; the usual call meets no check that asks it */
    for (const kiln_check *c = row->checks, *end = c + row->nchecks; c != end; c++) {
        bool ok;
        if (c->each || c->counts != counted || c->spares >> common & 1) continue;
        if (c->torch && !call->op->for_torch) continue;
        if (c->arg_spares && c->arg_spares >> kiln_arg_dtype(call, c->arg) & 1) continue;
        if (!ready) kiln_call_env_init(&env, call, common);
        ready = true;
        env.env.counted = counted;
        env.env.count = count ? *count : 0;
        KILN_TRY(holds(&env, c->cond, &ok));
        if (!ok) return KILN_FAIL(c->status, "%s: %s", call->op->name, c->text);
    }
    return KILN_OK;
}

kiln_status kiln_checks_hold(const kiln_bound *call, kiln_dtype common) {
    return call->op->row->nchecks ? hold_checks(call, common, NULL) : KILN_OK;
}

kiln_status kiln_count_check(const kiln_plan *p, int64_t n) {
    const kiln_row *row = p->call->op->row;
    kiln_dtype promoted, common;
    if (!row->nchecks) return KILN_OK;
    KILN_TRY(kiln_typing_common(p->call, &row->typing, &promoted, &common));
    return hold_checks(p->call, common, &n);
}

/* -- branches ------------------------------------------------------------------------------------------ */

typedef struct search {
    const kiln_bound *call;
    int arg;
} search;

static kiln_status first_argument(void *user, const kiln_expr *e) {
    search *s = user;
    if (s->arg < 0 && e->name) s->arg = kiln_schema_arg(s->call->op->row->schema, e->name);
    return KILN_OK;
}

static kiln_status no_branch(const kiln_bound *call) {
    const kiln_row *row = call->op->row;
    kiln_dtype promoted, common;
    KILN_TRY(kiln_typing_common(call, &row->typing, &promoted, &common));
    KILN_TRY(
        kiln_takes_check(call, promoted)); /* a dtype that is not taken says more than a missing branch */
    search s = {call, -1};
    for (int b = 0; b < row->nbranches; b++)
        if (kiln_expr_names(row->branches[b].when, first_argument, &s) != KILN_OK) s.arg = -1;
    kiln_sb text;
    kiln_sb_init_message(&text);
    kiln_sb_printf(&text, "%s: ", call->op->name);
    if (s.arg < 0)
        kiln_sb_puts(&text, "the arguments fit no case of this operator");
    else if (call->arg[s.arg].kind == KILN_STR_V)
        kiln_sb_printf(&text, "argument '%s': unexpected \"%s\"", kiln_arg_name(call, s.arg),
                       call->arg[s.arg].u.s);
    else
        kiln_sb_printf(&text, "argument '%s': unexpected value (%s)", kiln_arg_name(call, s.arg),
                       kiln_value_kind_name(&call->arg[s.arg]));
    for (int b = 0; b < row->nbranches; b++) {
        kiln_sb_puts(&text, b > 0 ? "; " : "; expected one of: ");
        kiln_expr_print(&text, row->branches[b].when);
    }
    return KILN_FAIL_TEXT(KILN_E_ARG, &text);
}

/* The branch that is taken, and the dtypes it gives. */
static kiln_status pick_branch(kiln_plan *p, const kiln_typing **by) {
    const kiln_row *row = p->call->op->row;
    kiln_call_env env;
    bool ready = false; /* env, but for the common dtype of this branch */
    for (int b = 0; b < row->nbranches; b++) {
        const kiln_branch *br = &row->branches[b];
        bool taken = true;
        KILN_TRY(promote(p, &br->typing, by));
        if (br->when) {
            if (!ready) kiln_call_env_init(&env, p->call, p->typed.common);
            ready = true;
            env.env.common = p->typed.common;
            if (!p->call->nout) env.env.given = p->typed.common;
            KILN_TRY(holds(&env, br->when, &taken));
        }
        if (!taken) continue;
        p->typed.branch = (uint8_t)b;
        p->branch = br;
        return KILN_OK;
    }
    return no_branch(p->call);
}

/* -- operands ------------------------------------------------------------------------------------------ */

static void add_input(kiln_plan *p, int a) {
    const kiln_value *v = &p->call->arg[a];
    if (v->kind != KILN_TENSOR) return;
    p->dtypes[a] = (kiln_dtype)v->u.tensor->dtype;
    if (p->call->op->row->ignored >> a & 1) return;
    p->in[p->typed.nin] = v->u.tensor; /* there is room: no row with more tensors is loaded */
    p->typed.in_arg[p->typed.nin++] = (int8_t)a;
}

/* Those that the branch puts first, then the others in their order; last those that have no part in the call's shape. */
static void gather(kiln_plan *p) {
    const kiln_typing *ty = &p->branch->typing;
    const kiln_row *row = p->call->op->row;
    uint64_t apart = p->branch->accessed | row->lacking, met = apart;
    p->typed.nin = 0;
    for (int k = 0; k < ty->norder; k++) {
        if (!(met >> ty->order[k] & 1)) add_input(p, ty->order[k]);
        met |= (uint64_t)1 << ty->order[k];
    }
    for (int a = 0; a < row->schema->nargs; a++)
        if (!(met >> a & 1)) add_input(p, a);
    p->typed.nshaped = p->typed.nin;
    for (int a = 0; apart; a++, apart >>= 1)
        if (apart & 1) add_input(p, a);
}

/* -- the work ------------------------------------------------------------------------------------------- */

void kiln_plan_begin(kiln_plan *p, unsigned nrets) {
    enum { WORDS = sizeof(kiln_result) / sizeof(int64_t) };
    kiln_work *w = &p->work;
    p->aside = w->parts = false;
    w->nresults = (uint8_t)nrets;
    w->nbuffers = w->nsteps = w->ncalls = 0;
    w->result = KILN_WORK_HEAD;
    w->nwords = KILN_WORK_HEAD + nrets * WORDS;
    w->axes.ndim = 0;
    p->result = (kiln_result *)(void *)(p->words + KILN_WORK_HEAD);
}

static inline void end_work(kiln_plan *p) {
    kiln_result *r = p->result;
    int n = p->work.nresults;
    p->work.aside = p->aside;
    p->work.absent = (uint16_t)p->typed.absent;
    for (int k = 0; k < n; k++, r++) {
        const kiln_shape *s = &p->shape[r->shape];
        r->dtype = (uint8_t)p->typed.ret_dtype[k];
        r->rank = (uint8_t)s->rank;
        r->sizes = s->at[0]; /* of no meaning if the result is absent */
        r->strides = s->at[1];
        r->nelem = s->nelem;
    }
}

void kiln_plan_end(kiln_plan *p) { end_work(p); }

/* -- what every family has alike --------------------------------------------------------------------------- */

/* Sets buffer b of the kernel, which is an argument or a result. */
static inline void set_buffer(kiln_plan *p, int b, kiln_buffer_kind kind, int which, kiln_dtype dtype) {
    p->buffer[b].kind = (uint8_t)kind;
    p->buffer[b].which = (uint8_t)which;
    p->buffer[b].dtype = (uint8_t)dtype;
    p->buffer[b].strides = 0;
    p->bytes[b] = (uint8_t)kiln_elem_bytes[dtype];
}

/* Arguments that are written to stand beside the results, from buffer b on.  Returns the buffer after them. */
static __attribute__((noinline)) int set_written(kiln_plan *p, int b) {
    for (int k = 0; k < p->branch->nwrites; k++) {
        int a = p->branch->writes[k];
        const kiln_value *v = &p->call->arg[a];
        if (v->kind == KILN_TENSOR) set_buffer(p, b++, KILN_BUFFER_ARG, a, (kiln_dtype)v->u.tensor->dtype);
    }
    return b;
}

/* The most dimensions that a buffer can have: those of the call, one more for each that is read at computed places, and
 * three that no dimension of the call gives (kiln_axes_add_one). */
static int most_dims(const kiln_plan *p) {
    enum { ADDED = 3 };
    int dims = p->shape->rank + ADDED;
    return p->branch->accessed ? dims + __builtin_popcountll(p->branch->accessed) : dims;
}

/* Takes room for the tables of up to n buffers of a kernel.  A buffer of a kernel may be a temporary for another one, which is
 * copied by a step; before the launch there may be a call. */
static inline kiln_status take_tables(kiln_plan *p, unsigned n) {
    enum { LISTS = 2 + KILN_PLAN_MAX_COPIED + KILN_MAX_SHAPES }; /* of extents: of the axes and of copies */
    enum { FEW = KILN_PLAN_WORDS / 8 }; /* of these tables: then there is room for all the others */
    enum { ARGS = KILN_MAX_ARGS * sizeof(kiln_call_arg) / sizeof(int64_t) };
    kiln_work *w = &p->work;
    unsigned pitch = (unsigned)most_dims(p), row = pitch > KILN_MAX_RANK ? pitch : KILN_MAX_RANK,
             at = w->nwords;
    w->buffer = (uint16_t)at;
    w->step = (uint16_t)(at += kiln_work_words_of(2 * n, sizeof(kiln_buffer)));
    w->n = (uint16_t)(at += n + 2);
    w->stride = (uint16_t)(at += pitch);
    w->nwords = at + n * pitch;
    if (w->nwords > FEW && at + ARGS + (2 * n + LISTS) * row > KILN_PLAN_WORDS)
        return KILN_FAIL(KILN_E_LIMIT, "%s: too many tensors of too many dimensions", p->call->op->name);
    p->buffer = (kiln_buffer *)(void *)(p->words + w->buffer);
    p->step = (kiln_step *)(void *)(p->words + w->step);
    p->n = p->words + w->n;
    p->axes.pitch = (int)pitch;
    return KILN_OK;
}

/* Results, then the tensors that bodies use. */
KILN_HOT static inline kiln_status set_buffers(kiln_plan *p, bool written) {
    uint64_t uses = p->branch->uses;
    unsigned most = (unsigned)(p->typed.nrets + p->typed.nin);
    KILN_TRY(take_tables(p, written ? most + (unsigned)p->branch->nwrites : most));
    const int nrets = p->typed.nrets, nin = p->typed.nin;
    int b = 0;
    for (; b < nrets; b++)
        set_buffer(p, b, KILN_BUFFER_RESULT, b,
                   b < p->call->nout ? (kiln_dtype)p->call->out[b]->dtype : p->typed.ret_dtype[b]);
    if (written) b = set_written(p, b);
    p->axes.nwritten = b;
    for (int i = 0; i < nin; i++)
        if (uses >> p->typed.in_arg[i] & 1)
            set_buffer(p, b++, KILN_BUFFER_ARG, p->typed.in_arg[i], (kiln_dtype)p->in[i]->dtype);
    p->work.nbuffers = (uint8_t)b;
    p->axes.nbuffers = b;
    const long pitch = p->axes.pitch;
    int64_t *stride = p->words + p->work.stride;
    for (int k = 0; k < b; k++, stride += pitch) p->stride[k] = stride;
    p->kind = KILN_CLASS_KERNEL;
    p->form = 0;
    p->axes.triangle = false;
    p->axes.nindexed = 0;
    p->copy_n = NULL;
    return KILN_OK;
}

int kiln_plan_stand_in(kiln_plan *p, int b) {
    int own = p->work.nbuffers++;
    int rank = b < p->typed.nrets ? p->shape[p->result[b].shape].rank : kiln_plan_tensor(p, b)->rank;
    p->buffer[own] = p->buffer[b];
    p->bytes[own] = p->bytes[b];
    p->stride[own] = kiln_work_take(&p->work, (unsigned)(rank > p->axes.pitch ? rank : p->axes.pitch),
                                    &p->buffer[own].strides);
    p->buffer[b].kind = KILN_BUFFER_TMP;
    return own;
}

void kiln_plan_copy(kiln_plan *p, int tmp, int own, int ndim, const int64_t *n, bool side_by_side) {
    bool back = p->buffer[own].kind == KILN_BUFFER_RESULT;
    kiln_step *s = kiln_plan_step(p, KILN_STEP_COPY);
    s->u.copy.from = (uint8_t)(back ? tmp : own);
    s->u.copy.to = (uint8_t)(back ? own : tmp);
    s->u.copy.ndim = (uint8_t)ndim;
    s->u.copy.n = (uint16_t)(n - p->words);
    s->u.copy.dense = !side_by_side ? KILN_DENSE_NONE : back ? KILN_DENSE_FROM : KILN_DENSE_TO;
    p->buffer[tmp].nbytes = p->bytes[tmp];
    for (int d = 0; d < ndim; d++) p->buffer[tmp].nbytes *= n[d];
}

/* How many axes result k has: the grid's, and those scanned, or folded where it has an element for each. */
static int written_axes(const kiln_plan *p, int k) {
    int ndim = p->axes.ngrid;
    bool each = p->result[k].shape != 1;
    while (ndim < p->axes.ndim &&
           (p->role[ndim] == KILN_ROLE_SCANNED || (p->role[ndim] == KILN_ROLE_REDUCED && each)))
        ndim++;
    return ndim;
}

/* The kernel writes result k side by side, along axes that are as near as in the given tensor, since that decided the
 * class; a copy brings it to its place. */
static void compute_aside(kiln_plan *p, int k) {
    int own = kiln_plan_stand_in(p, k), ndim = written_axes(p, k);
    uint8_t order[KILN_MAX_DIMS];
    int64_t next = p->bytes[k];
    for (int d = 0; d < ndim; d++) {
        int at = d;
        bool folded = d >= p->axes.ngrid; /* the grid's are in their order */
        for (; folded && at > 0 && llabs(p->stride[k][order[at - 1]]) > llabs(p->stride[k][d]); at--)
            order[at] = order[at - 1];
        order[at] = (uint8_t)d;
        p->stride[own][d] = p->stride[k][d];
    }
    for (int i = 0; i < ndim; i++) {
        p->stride[k][order[i]] = next;
        next *= p->n[order[i]];
    }
    kiln_plan_copy(p, k, own, ndim, p->n, false);
}

void kiln_plan_copy_in_rows(kiln_plan *p, int b) {
    const kiln_tensor *t = kiln_plan_tensor(p, b);
    const kiln_shape *s = b < p->typed.nrets ? &p->shape[p->result[b].shape] : NULL;
    int rank = s ? s->rank : t->rank, own = kiln_plan_stand_in(p, b);
    const int64_t *sizes = s ? s->sizes : t->sizes;
    const int64_t *strides = s && p->result[b].resized ? s->strides : t->strides;
    int64_t *n = kiln_plan_extents(p, rank);
    int ndim = kiln_innermost_first(rank, sizes, strides, p->bytes[b], n, p->stride[own]);
    kiln_plan_copy(p, b, own, ndim, n, true);
}

static __attribute__((noinline)) void copy_results(kiln_plan *p) {
    for (int k = 0; k < p->typed.nrets; k++) {
        if (p->typed.unstored >> k & 1) continue;
        if (p->call->op->row->nviews)
            kiln_plan_copy_in_rows(p, k);
        else
            compute_aside(p, k);
    }
}

/* A launch over the axes; results that must be computed aside get temporaries and are copied after it.  What launches
 * nothing has the steps its family gave it. */
KILN_HOT static void set_steps(kiln_plan *p) {
    if (p->kind > KILN_CLASS_ROUTINE) {
        p->work.nbuffers = 0;
        p->axes.ndim = 0;
        return;
    }
    kiln_step *s = kiln_plan_step(p, KILN_STEP_LAUNCH);
    s->u.launch.first = s->u.launch.end = 0;
    if (p->aside) copy_results(p);
}

/* -- the call ------------------------------------------------------------------------------------------ */

/* What given tensors must be, then what the family makes of shapes and strides. */
static inline kiln_status infer_layout(kiln_plan *p, bool check_types) {
    const kiln_family_fns *family = kiln_families[kiln_plan_family(p)];
    kiln_plan_begin(p, p->typed.nrets);
    if (p->call->nout) KILN_TRY(kiln_overlap_check(p));
    const bool written = p->call->op->row->written;
    if (written) KILN_TRY(kiln_writes_check(p));
    KILN_TRY(family->shape(p));
    if (check_types) KILN_TRY(kiln_types_check(p));
    KILN_TRY(set_buffers(p, written));
    KILN_TRY(family->axes(p));
    if (written) KILN_TRY(kiln_written_fit(p));
    set_steps(p);
    end_work(p);
    return KILN_OK;
}

kiln_status kiln_infer(const kiln_bound *call, kiln_plan *out) {
    const kiln_op *op = call->op;
    const kiln_family_fns *family = kiln_families[op->row->family]; /* the branch's may be another */
    const kiln_typing *by = NULL;
    if (!family || !kiln_row_served(op->row)) return kiln_unserved(op->name, op->row->family);
    out->call = call;
    out->branch = NULL;
    out->typed.absent = out->typed.unstored = 0;
    if (!family->axes) return family->shape(out);
    if (op->row->nchecks) {
        KILN_TRY(promote(out, &op->row->typing, &by));
        KILN_TRY(hold_checks(call, out->typed.common, NULL));
    }
    KILN_TRY(pick_branch(out, &by));
    KILN_TRY(kiln_types_infer(out));
    if (family->results) KILN_TRY(family->results(out));
    if (kiln_plan_out_rule(out) == KILN_OUT_COPIED) KILN_TRY(kiln_takes_check(call, out->typed.promoted));
    gather(out);
    return infer_layout(out, true);
}

KILN_HOT kiln_status kiln_infer_again(const kiln_bound *call, const kiln_typed *typed, kiln_plan *out) {
    out->call = call;
    out->typed = *typed;
    out->branch = &call->op->row->branches[typed->branch];
    for (int i = 0; i < typed->nin; i++) {
        int a = typed->in_arg[i];
        out->in[i] = call->arg[a].u.tensor;
        out->dtypes[a] = (kiln_dtype)out->in[i]->dtype;
    }
    return infer_layout(out, false);
}

/* -- calls within a call --------------------------------------------------------------------------------- */

static _Thread_local kiln_infer_watch watching;

kiln_infer_watch kiln_infer_show(kiln_infer_watch watch) {
    kiln_infer_watch before = watching;
    watching = watch;
    return before;
}

kiln_status kiln_infer_inner(const kiln_bound *call, kiln_plan *out) {
    const kiln_infer_watch watch = watching;
    if (!watch.fn) return kiln_infer(call, out);
    if (!watch.deep) watching.fn = NULL;
    kiln_status st = kiln_infer(call, out);
    watching.fn = NULL; /* what fn runs, such as a host's log, may infer calls of its own */
    if (st == KILN_OK) st = watch.fn(watch.user, out);
    watching = watch;
    return st;
}
