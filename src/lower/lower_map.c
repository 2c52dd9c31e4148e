/* lower_map.c - element-wise rows: (map row, inferred call) -> one nest over all points.
 *
 * Each argument is loaded, rounded to the common dtype as PyTorch does, and widened to the compute type;
 * bodies become primitives; each result is rounded to its dtype and stored.  Integer division gets a
 * nest of its own before, which traps on a zero divisor while nothing has been written.  Owns nothing:
 * all nodes come from the caller's arena.  Must not know C, vector widths or sizes. */
#include <stdio.h>
#include <string.h>

#include "lower/lower.h"

typedef struct mapper {
    kiln_arena *arena;
    const kiln_plan *plan;
    const kiln_row *row;
    const kiln_branch *branch;
    kiln_lowered *out;
    kiln_ir *ir;
    int buf_of_arg[KILN_MAX_ARGS];      /* buffer of a tensor argument, or -1 */
    kiln_pair loaded[KILN_MAX_ARGS][2]; /* its value in this nest, in the compute type: rounded, exact */
    const kiln_pair *locals;            /* of the rule being lowered */
    const kiln_texpr *body[KILN_MAX_RETS];
} mapper;

/* -- declarations ------------------------------------------------------------------------------------------ */

static kiln_status declare_buffers(mapper *m) {
    for (int a = 0; a < KILN_MAX_ARGS; a++) m->buf_of_arg[a] = -1;
    for (int k = 0; k < m->plan->noperands; k++) {
        const kiln_operand *o = &m->plan->operand[k];
        char name[24];
        snprintf(name, sizeof name, "out.%d", -1 - o->arg); /* no argument's name has a point in it */
        const char *label = o->arg < 0 ? kiln_arena_strndup(m->arena, name, strlen(name))
                                       : m->row->schema->args[o->arg].name;
        if (!label) return KILN_NOMEM();
        int buf = kiln_ir_buf_add(m->ir, label, o->arg < 0 ? KILN_BUF_OUT : KILN_BUF_IN, o->dtype, 1,
                                  (kiln_stride)o->stride);
        if (o->arg >= 0) m->buf_of_arg[o->arg] = buf;
    }
    return KILN_OK;
}

/* What an argument is rounded to before it is used: the common dtype, unless the body says compute(x) or
 * the argument is a plain int, float or bool. */
static kiln_dtype scalar_via(const mapper *m, const kiln_texpr *e) {
    bool optional;
    if (e->id >= KILN_HOST_ID) return e->dtype;
    const kiln_type *type = kiln_type_strip(m->row->schema->args[e->id].type, &optional);
    bool rounded = type->kind == KILN_T_SCALAR && !e->exact &&
                   e->dtype == kiln_dtype_compute(m->plan->common);
    return rounded ? m->plan->common : e->dtype;
}

/* The kernel's scalar for an argument, or a part of it, as a type: each once. */
static kiln_ref scalar_part(mapper *m, const kiln_texpr *e, kiln_ir_part part) {
    static const char *const ends[] = {"", ".re", ".im"}; /* ORDER: kiln_ir_part */
    kiln_lowered *low = m->out;
    kiln_dtype via = kiln_dtype_real(scalar_via(m, e)), t = kiln_dtype_real(e->dtype);
    kiln_scalar_source want = {(int16_t)e->id, (int16_t)e->index, via, t,
                               (int)part | (e->minus ? KILN_MINUS : 0)};
    int k = 0;
    while (k < low->nscalars && memcmp(&low->scalars[k], &want, sizeof want) != 0) k++;
    if (k == KILN_MAX_SCALARS) {
        m->ir->failed = true;
        m->ir->why = "more than 64 scalars";
        return 0;
    }
    if (k == low->nscalars) {
        char name[160];
        const char *label = e->id >= KILN_HOST_ID ? m->row->hosts.at[e->id - KILN_HOST_ID].name
                                                  : m->row->schema->args[e->id].name;
        int n = snprintf(name, sizeof name, "%.100s%s%s", label, e->minus ? ".minus" : "", ends[part]);
        for (int other = 0; other < low->nscalars;
             other++) /* another item, type or rounding of the same argument */
            if (low->scalars[other].arg == want.arg && low->scalars[other].part == want.part) {
                snprintf(name + n, sizeof name - (size_t)n, ".%d", k);
                break;
            }
        low->scalars[low->nscalars++] = want;
        kiln_ir_par_add(m->ir, name, t);
    }
    return kiln_ir_par_read(m->ir, k);
}

static kiln_pair scalar(mapper *m, const kiln_texpr *e) {
    if (!kiln_dtype_is_complex(e->dtype)) return (kiln_pair){scalar_part(m, e, KILN_PART_WHOLE), KILN_NOREF};
    kiln_ref re = scalar_part(m, e, KILN_PART_RE);
    return (kiln_pair){re, scalar_part(m, e, KILN_PART_IM)};
}

/* -- expressions ----------------------------------------------------------------------------------------- */

static kiln_pair load(mapper *m, int arg, bool as_number) {
    bool exact = as_number && m->plan->exact >> arg & 1;
    if (m->loaded[arg][exact].re != KILN_NOREF) return m->loaded[arg][exact];
    kiln_pair v = kiln_pair_load(m->ir, m->buf_of_arg[arg]);
    bool promoted = m->branch->typing.args >> arg & 1;
    kiln_dtype t = promoted ? m->plan->common : m->plan->dtypes[arg];
    if (!exact) v = kiln_pair_cast(m->ir, t, v);
    v = kiln_pair_cast(m->ir, kiln_dtype_compute(t), v);
    m->loaded[arg][exact] = v;
    return v;
}

static kiln_pair lower_expr(mapper *m, const kiln_texpr *e);

/* Arguments, then lets, then the body that sees both. */
static kiln_pair lower_rule(mapper *m, const kiln_texpr *e) {
    const kiln_pair *outer = m->locals;
    kiln_pair local[KILN_RULE_MAX_LOCALS];
    for (int k = 0; k < e->nargs; k++) local[k] = lower_expr(m, e->args[k]);
    m->locals = local;
    for (int k = 0; k < e->rule->nlets; k++) local[e->nargs + k] = lower_expr(m, e->rule->let[k]);
    kiln_pair v = lower_expr(m, e->rule->body);
    m->locals = outer;
    return v;
}

static kiln_pair lower_prim(mapper *m, const kiln_texpr *e) {
    kiln_ref args[3] = {KILN_NOREF, KILN_NOREF, KILN_NOREF};
    for (int k = 0; k < e->nargs && k < 3; k++) args[k] = lower_expr(m, e->args[k]).re;
    return (kiln_pair){kiln_ir_prim(m->ir, e->prim, args, e->nargs), KILN_NOREF};
}

static kiln_pair lower_expr(mapper *m, const kiln_texpr *e) {
    kiln_pair v;
    switch (e->kind) {
    case KILN_TE_CONST: return kiln_pair_const(m->ir, e->dtype, e->i, e->f);
    case KILN_TE_ELEM: return load(m, e->id, e->exact);
    case KILN_TE_SCALAR: return scalar(m, e);
    case KILN_TE_PRIM: return lower_prim(m, e);
    case KILN_TE_CAST: return kiln_pair_cast(m->ir, e->dtype, lower_expr(m, e->args[0]));
    case KILN_TE_ROUND:
        v = kiln_pair_cast(m->ir, (kiln_dtype)e->id, lower_expr(m, e->args[0]));
        return kiln_pair_cast(m->ir, e->dtype, v);
    case KILN_TE_RULE: return lower_rule(m, e);
    case KILN_TE_LOCAL: return m->locals[e->id];
    case KILN_TE_PART: v = lower_expr(m, e->args[0]); return (kiln_pair){e->id ? v.im : v.re, KILN_NOREF};
    case KILN_TE_COMPLEX:
        v.re = lower_expr(m, e->args[0]).re;
        v.im = lower_expr(m, e->args[1]).re;
        return v;
    case KILN_TE_STATE:
    case KILN_TE_RHS:
    case KILN_TE_POS:
    case KILN_TE_COUNT:
    case KILN_TE_SUM:
    case KILN_TE_EXTENT:
    case KILN_TE_ACCESS: break; /* row_check.c refuses them in a map */
    }
    m->ir->failed = true;
    m->ir->why = "a map body with a part only other families have";
    return (kiln_pair){0, KILN_NOREF};
}

/* -- nests ------------------------------------------------------------------------------------------------- */

static void begin_nest(mapper *m) {
    for (int a = 0; a < KILN_MAX_ARGS; a++) m->loaded[a][0].re = m->loaded[a][1].re = KILN_NOREF;
    kiln_ir_for(m->ir, 0, true);
}

static bool divides(const kiln_texpr *e) {
    return e->kind == KILN_TE_PRIM && kiln_prim_trait(e->prim) == KILN_TRAIT_DIVIDES &&
           kiln_dtype_is_int(e->dtype);
}

static bool any_division(const kiln_texpr *e) {
    if (divides(e)) return true;
    for (int k = 0; k < e->nargs; k++)
        if (any_division(e->args[k])) return true;
    return false;
}

static void trap_divisions(mapper *m, const kiln_texpr *e) {
    for (int k = 0; k < e->nargs; k++) trap_divisions(m, e->args[k]);
    if (!divides(e)) return;
    kiln_ref pair[2] = {lower_expr(m, e->args[1]).re, kiln_ir_const_i(m->ir, e->dtype, 0)};
    kiln_ir_trap_if(m->ir, kiln_ir_prim(m->ir, KILN_P_EQ, pair, 2), KILN_E_DIVZERO, "ZeroDivisionError");
}

static void guard_nest(mapper *m) {
    bool any = false;
    for (int k = 0; k < m->plan->nrets; k++) any = any || any_division(m->body[k]);
    if (!any) return;
    begin_nest(m);
    for (int k = 0; k < m->plan->nrets; k++) trap_divisions(m, m->body[k]);
    kiln_ir_end(m->ir);
}

/* All values are computed before the first is stored: an output may be an input. */
static void compute_nest(mapper *m) {
    kiln_pair value[KILN_MAX_RETS];
    begin_nest(m);
    for (int k = 0; k < m->plan->nrets; k++) {
        value[k] = kiln_pair_cast(m->ir, m->plan->ret_dtype[k], lower_expr(m, m->body[k]));
        value[k] = kiln_pair_cast(m->ir, m->plan->operand[k].dtype, value[k]);
    }
    for (int k = 0; k < m->plan->nrets; k++) kiln_pair_store(m->ir, k, value[k]);
    kiln_ir_end(m->ir);
}

static kiln_status type_bodies(mapper *m) {
    kiln_row_env re;
    kiln_row_env_init(&re, m->row, m->branch, m->plan->common, m->plan->dtypes, m->arena);
    for (int a = 0; a < m->row->schema->nargs; a++) {
        bool given = m->plan->call->arg[a].kind != KILN_NONE;
        if (given)
            re.present |= 1ull << a;
        else if (kiln_row_optional(m->row, a))
            re.absent |= 1ull << a;
    }
    for (int k = 0; k < m->plan->nrets; k++)
        KILN_TRY(kiln_row_type_body(&re, k, m->plan->ret_dtype[k], &m->body[k]));
    return KILN_OK;
}

kiln_status kiln_lower_map(kiln_arena *arena, const kiln_plan *plan, kiln_lowered *out) {
    const kiln_row *row = plan->call->op->row;
    mapper m = {.arena = arena, .plan = plan, .row = row, .branch = &row->branches[plan->branch], .out = out};
    memset(out, 0, sizeof *out);
    m.ir = kiln_ir_new(arena, plan->call->op->name);
    if (!m.ir) return KILN_NOMEM();
    out->ir = m.ir;
    KILN_TRY(type_bodies(&m));
    kiln_ir_axis_add(m.ir, "p", true);
    KILN_TRY(declare_buffers(&m));
    guard_nest(&m);
    compute_nest(&m);
    return KILN_OK;
}
