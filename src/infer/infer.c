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
    kiln_call_env_init(&env, call, common);
    env.env.counted = count != NULL;
    env.env.count = count ? *count : 0;
    for (const kiln_check *c = row->checks, *end = c + row->nchecks; c != end; c++) {
        bool ok;
        if (c->each || c->counts != env.env.counted || c->spares >> common & 1) continue;
        if (c->arg_spares && c->arg_spares >> env.env.dtype(&env.env, c->arg) & 1) continue;
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
    for (int b = 0; b < row->nbranches; b++) {
        const kiln_branch *br = &row->branches[b];
        bool taken = true;
        KILN_TRY(promote(p, &br->typing, by));
        if (br->when) {
            kiln_call_env env;
            kiln_call_env_init(&env, p->call, p->typed.common);
            KILN_TRY(holds(&env, br->when, &taken));
        }
        if (!taken) continue;
        p->typed.branch = (uint8_t)b;
        p->branch = br;
        return KILN_OK;
    }
    return no_branch(p->call);
}

/* Which results the row gives to this call, and which of those have elements. */
static kiln_status find_absent(kiln_plan *p) {
    const kiln_row *row = p->call->op->row;
    const kiln_nameds *finish = &p->branch->reduce->finish;
    kiln_call_env env;
    p->typed.absent = p->typed.unstored = 0;
    for (int k = 0; k < finish->n; k++) p->typed.unstored |= (uint32_t)finish->at[k].empty << k;
    if (!row->gives.n) return KILN_OK;
    kiln_call_env_init(&env, p->call, p->typed.common);
    for (int k = 0; k < row->gives.n; k++) {
        bool given;
        KILN_TRY(holds(&env, row->gives.at[k].expr, &given));
        if (!given && p->call->nout)
            return KILN_FAIL(KILN_E_ARG, "%s: there is no result %d to be written", p->call->op->name, k);
        p->typed.absent |= (uint32_t)!given << k;
    }
    p->typed.unstored |= p->typed.absent;
    return KILN_OK;
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

/* -- what every family has alike --------------------------------------------------------------------------- */

/* Arguments that are written to stand beside the results. */
static kiln_buffer *set_written(kiln_plan *p, kiln_buffer *b) {
    const kiln_nameds *writes = &p->branch->reduce->writes;
    for (int k = 0; k < writes->n; k++) {
        int a = kiln_schema_arg(p->call->op->row->schema, writes->at[k].name);
        if (p->call->arg[a].kind != KILN_TENSOR) continue;
        b->kind = KILN_BUFFER_ARG;
        b->which = (uint8_t)a;
        b->tensor = p->call->arg[a].u.tensor;
        b->dtype = (kiln_dtype)b->tensor->dtype;
        p->bytes[b - p->buffer] = (uint8_t)kiln_elem_bytes[b->dtype];
        b++;
    }
    return b;
}

/* Results, then the tensors that bodies use. */
KILN_HOT static void set_buffers(kiln_plan *p) {
    uint64_t uses = p->branch->uses;
    kiln_buffer *b = p->buffer;
    for (int k = 0; k < p->typed.nrets; k++, b++) {
        b->kind = KILN_BUFFER_RESULT;
        b->which = (uint8_t)k;
        b->tensor = k < p->call->nout ? p->call->out[k] : NULL;
        b->dtype = b->tensor ? (kiln_dtype)b->tensor->dtype : p->typed.ret_dtype[k];
        p->bytes[k] = (uint8_t)kiln_elem_bytes[b->dtype];
    }
    if (p->call->op->row->written) b = set_written(p, b);
    p->axes.nwritten = (int)(b - p->buffer);
    for (int i = 0; i < p->typed.nin; i++) {
        if (!(uses >> p->typed.in_arg[i] & 1)) continue;
        b->kind = KILN_BUFFER_ARG;
        b->which = (uint8_t)p->typed.in_arg[i];
        b->tensor = p->in[i];
        b->dtype = (kiln_dtype)b->tensor->dtype;
        p->bytes[b - p->buffer] = (uint8_t)kiln_elem_bytes[b->dtype];
        b++;
    }
    p->nbuffers = p->axes.nbuffers = (int)(b - p->buffer);
    p->kind = KILN_CLASS_KERNEL;
    p->form = 0;
    p->parts = p->axes.triangle = false;
    p->nsteps = 0;
}

int kiln_plan_stand_in(kiln_plan *p, int b) {
    int own = p->nbuffers++;
    p->buffer[own] = p->buffer[b];
    p->bytes[own] = p->bytes[b];
    p->buffer[b].kind = KILN_BUFFER_TMP;
    p->buffer[b].tensor = NULL;
    return own;
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
    p->buffer[k].nbytes = next;
    p->step[p->nsteps++] = (kiln_step){
        .kind = KILN_STEP_COPY,
        .u.copy = {(uint8_t)k, (uint8_t)own, (uint8_t)ndim, p->n, p->stride[k], p->stride[own]}};
}

/* The kernel writes result k, which it sees in other sizes, row by row; a copy brings it to its place. */
static void copy_in_rows(kiln_plan *p, int k) {
    int own = kiln_plan_stand_in(p, k), shape = p->result[k].shape;
    const kiln_shape *s = &p->shape[shape];
    const kiln_tensor *to = p->call->out[k];
    const int64_t *strides = p->result[k].resized ? s->strides : to->strides;
    for (int d = 0; d < s->rank; d++) {
        p->result_n[shape][d] = s->sizes[s->rank - 1 - d];
        p->stride[own][d] = strides[s->rank - 1 - d] * p->bytes[k];
    }
    p->buffer[k].nbytes = s->nelem * p->bytes[k];
    p->step[p->nsteps++] = (kiln_step){
        .kind = KILN_STEP_COPY,
        .u.copy = {(uint8_t)k, (uint8_t)own, (uint8_t)s->rank, p->result_n[shape], NULL, p->stride[own]}};
}

/* A launch over the axes; results that must be computed aside get temporaries and are copied after it.  What launches
 * nothing has the steps its family gave it. */
KILN_HOT static void set_steps(kiln_plan *p) {
    kiln_axes *x = &p->axes;
    if (p->kind > KILN_CLASS_ROUTINE) return;
    x->n = p->n;
    x->stride = p->stride[0];
    x->pitch = KILN_MAX_DIMS;
    x->bytes = p->bytes;
    x->origin = NULL;
    kiln_step *s = &p->step[p->nsteps++];
    s->kind = KILN_STEP_LAUNCH;
    s->u.launch.axes = x;
    s->u.launch.first = s->u.launch.end = 0;
    for (int k = 0; k < p->typed.nrets && p->aside; k++) {
        if (p->typed.unstored >> k & 1) continue;
        if (p->call->op->row->nviews)
            copy_in_rows(p, k);
        else
            compute_aside(p, k);
    }
}

/* -- the call ------------------------------------------------------------------------------------------ */

/* What given tensors must be, then what the family makes of shapes and strides. */
static inline kiln_status infer_layout(kiln_plan *p, bool check_types) {
    const kiln_family_fns *family = kiln_families[kiln_plan_family(p)];
    p->aside = false;
    if (p->call->nout) KILN_TRY(kiln_overlap_check(p));
    if (p->call->op->row->written) KILN_TRY(kiln_writes_check(p));
    KILN_TRY(family->shape(p));
    if (check_types) KILN_TRY(kiln_types_check(p));
    set_buffers(p);
    KILN_TRY(family->axes(p));
    if (p->axes.nwritten > p->typed.nrets) KILN_TRY(kiln_written_fit(p));
    set_steps(p);
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
    if (op->row->family == KILN_FAMILY_FOLD) KILN_TRY(find_absent(out));
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
