/* infer.c - a bound call -> its plan: branch, dtypes, shape, operands, iteration.
 *
 * Walks the steps of infer_parts.h in order and evaluates the row's conditions.  Nothing is written to
 * any tensor: a call that fails here has changed nothing. */
#include "infer/infer_parts.h"

/* -- conditions ---------------------------------------------------------------------------------------- */

/* The dtypes that `ty` gives, into the plan, unless those it has are *by a typing that gives the same. */
static kiln_status promote(kiln_plan *p, const kiln_typing *ty, const kiln_typing **by) {
    const kiln_typing *was = *by;
    if (was && was->promo == ty->promo && was->args == ty->args && was->dtype_arg == ty->dtype_arg)
        return KILN_OK;
    *by = ty;
    return kiln_typing_common(p->call, ty, &p->promoted, &p->common);
}

/* Whether e holds for the call. */
static inline kiln_status holds(const kiln_call_env *env, const kiln_expr *e, bool *out) {
    kiln_status st = kiln_expr_holds(&env->env, e, out);
    return st == KILN_OK ? st : kiln_note(st, "%s", env->call->op->name);
}

/* Checks come before branches: their texts explain better than "no branch" does. */
static kiln_status run_checks(kiln_plan *p, const kiln_typing **by) {
    const kiln_row *row = p->call->op->row;
    kiln_call_env env;
    if (!row->nchecks) return KILN_OK;
    KILN_TRY(promote(p, &row->typing, by));
    kiln_call_env_init(&env, p->call, p->common);
    for (const kiln_check *c = row->checks, *end = c + row->nchecks; c != end; c++) {
        bool ok;
        KILN_TRY(holds(&env, c->cond, &ok));
        if (!ok) return KILN_FAIL(c->status, "%s: %s", p->call->op->name, c->text);
    }
    return KILN_OK;
}

static kiln_status is_taken(const kiln_plan *p, const kiln_branch *br, bool *out) {
    kiln_call_env env;
    *out = true;
    if (!br->when) return KILN_OK;
    kiln_call_env_init(&env, p->call, p->common);
    return holds(&env, br->when, out);
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
    kiln_sb want;
    kiln_sb_init(&want);
    for (int b = 0; b < row->nbranches; b++) {
        if (b > 0) kiln_sb_puts(&want, "; ");
        kiln_expr_print(&want, row->branches[b].when);
        kiln_status st = kiln_expr_names(row->branches[b].when, first_argument, &s);
        if (st != KILN_OK) s.arg = -1;
    }
    const char *text = want.p ? want.p : "another value";
    kiln_status st = KILN_E_ARG;
    if (s.arg < 0)
        st = KILN_FAIL(st, "%s: the arguments fit no case of this operator; expected one of: %s",
                       call->op->name, text);
    else if (call->arg[s.arg].kind == KILN_STR_V)
        st = KILN_FAIL(st, "%s: argument '%s': unexpected \"%s\"; expected one of: %s", call->op->name,
                       kiln_arg_name(call, s.arg), call->arg[s.arg].u.s, text);
    else
        st = KILN_FAIL(st, "%s: argument '%s': unexpected value (%s); expected one of: %s", call->op->name,
                       kiln_arg_name(call, s.arg), kiln_value_kind_name(&call->arg[s.arg]), text);
    kiln_sb_fini(&want);
    return st;
}

/* The branch that is taken, and the dtypes it gives. */
static kiln_status pick_branch(kiln_plan *p, const kiln_typing **by) {
    const kiln_row *row = p->call->op->row;
    for (int b = 0; b < row->nbranches; b++) {
        const kiln_branch *br = &row->branches[b];
        bool taken;
        KILN_TRY(promote(p, &br->typing, by));
        KILN_TRY(is_taken(p, br, &taken));
        if (!taken) continue;
        p->branch = b;
        return KILN_OK;
    }
    return no_branch(p->call);
}

/* -- operands ------------------------------------------------------------------------------------------ */

static void gather(kiln_plan *p) {
    const kiln_bound *call = p->call;
    const kiln_row *row = call->op->row;
    p->nin = 0;
    for (int a = 0; a < row->schema->nargs; a++) {
        if (call->arg[a].kind != KILN_TENSOR) continue;
        p->dtypes[a] = (kiln_dtype)call->arg[a].u.tensor->dtype;
        if (row->ignored >> a & 1) continue;
        p->in[p->nin] = call->arg[a].u.tensor; /* there is room: no row with more tensors is loaded */
        p->in_arg[p->nin++] = (int8_t)a;
    }
}

/* The argument goes before the others, which keep their order. */
static void put_first(kiln_plan *p, int arg) {
    int at = 0;
    while (at < p->nin && p->in_arg[at] != arg) at++;
    if (at == p->nin) return;
    const kiln_tensor *t = p->in[at];
    for (; at > 0; at--) {
        p->in[at] = p->in[at - 1];
        p->in_arg[at] = p->in_arg[at - 1];
    }
    p->in[0] = t;
    p->in_arg[0] = (int8_t)arg;
}

static bool any_wrapped(const kiln_plan *p) {
    for (int a = 0; a < p->call->op->row->schema->nargs; a++)
        if (kiln_arg_wrapped(p, a)) return true;
    return false;
}

static void set_operands(kiln_plan *p) {
    uint64_t uses = kiln_plan_branch(p)->uses;
    kiln_operand *o = p->operand;
    for (int k = 0; k < p->nrets; k++, o++) {
        o->tensor = k < p->call->nout ? p->call->out[k] : NULL;
        o->arg = -1 - k;
        o->alloc_dtype = p->ret_dtype[k];
        o->dtype = o->tensor ? (kiln_dtype)o->tensor->dtype : p->ret_dtype[k];
    }
    for (int i = 0; i < p->nin; i++) {
        if (!(uses >> p->in_arg[i] & 1)) continue;
        o->tensor = p->in[i];
        o->arg = p->in_arg[i];
        o->alloc_dtype = o->dtype = (kiln_dtype)p->in[i]->dtype;
        o++;
    }
    p->noperands = (int)(o - p->operand);
}

/* -- the call ------------------------------------------------------------------------------------------ */

kiln_status kiln_infer(const kiln_bound *call, kiln_plan *out) {
    const kiln_op *op = call->op;
    const kiln_typing *by = NULL;
    if (op->row->family != KILN_FAMILY_MAP) return kiln_unserved(op->name, op->row->family);
    out->call = call;
    gather(out);
    KILN_TRY(run_checks(out, &by));
    KILN_TRY(pick_branch(out, &by));
    KILN_TRY(kiln_types_infer(out));
    out->number = any_wrapped(out);
    if (kiln_plan_out_rule(out) == KILN_OUT_COPIED) KILN_TRY(kiln_takes_check(call, out->promoted));
    const kiln_typing *ty = &kiln_plan_branch(out)->typing;
    for (int k = ty->norder - 1; k >= 0; k--) put_first(out, ty->order[k]);
    out->copy_out = false;
    if (call->nout) KILN_TRY(kiln_overlap_check(out));
    KILN_TRY(kiln_shape_infer(out));
    KILN_TRY(kiln_types_check(out));
    set_operands(out);
    kiln_layout_infer(out);
    return KILN_OK;
}

void kiln_typed_of(const kiln_plan *plan, kiln_typed *out) {
    *out = (kiln_typed){.branch = (uint8_t)plan->branch,
                        .promoted = (uint8_t)plan->promoted,
                        .common = (uint8_t)plan->common,
                        .nrets = (uint8_t)plan->nrets,
                        .nin = (uint8_t)plan->nin,
                        .number = plan->number,
                        .exact = plan->exact};
    for (int k = 0; k < plan->nrets; k++) out->ret_dtype[k] = (uint8_t)plan->ret_dtype[k];
    for (int i = 0; i < plan->nin; i++) out->in_arg[i] = plan->in_arg[i];
}

kiln_status kiln_infer_again(const kiln_bound *call, const kiln_typed *typed, kiln_plan *out) {
    out->call = call;
    out->branch = typed->branch;
    out->promoted = (kiln_dtype)typed->promoted;
    out->common = (kiln_dtype)typed->common;
    out->exact = typed->exact;
    out->number = typed->number;
    out->nrets = typed->nrets;
    out->nin = typed->nin;
    for (int k = 0; k < out->nrets; k++) out->ret_dtype[k] = (kiln_dtype)typed->ret_dtype[k];
    for (int i = 0; i < out->nin; i++) {
        int a = out->in_arg[i] = typed->in_arg[i];
        out->in[i] = call->arg[a].u.tensor;
        out->dtypes[a] = (kiln_dtype)out->in[i]->dtype;
    }
    out->copy_out = false;
    if (call->nout) KILN_TRY(kiln_overlap_check(out));
    KILN_TRY(kiln_shape_infer(out));
    set_operands(out);
    kiln_layout_infer(out);
    return KILN_OK;
}
