/* lower_expr.c - typed expressions of a row -> IR values.
 *
 * Arguments are loaded, rounded to the common dtype as PyTorch does, and widened to the compute type; numbers become
 * the kernel's scalars; functions become primitives.  States, positions and sums are the family's to answer for.
 * Owns nothing: all nodes come from the caller's arena.  Must not know C, vector widths or sizes. */
#include <stdio.h>
#include <string.h>

#include "family/lower.h"

/* -- scalars --------------------------------------------------------------------------------------------- */

/* What an argument is rounded to before it is used: the common dtype, unless the body says compute(x) or
 * the argument is a plain int, float or bool. */
static kiln_dtype scalar_via(const kiln_lowering *lw, const kiln_texpr *e) {
    bool optional;
    if (e->id >= KILN_HOST_ID) return e->dtype;
    const kiln_type *type = kiln_type_strip(lw->row->schema->args[e->id].type, &optional);
    bool rounded = type->kind == KILN_T_SCALAR && !e->exact &&
                   e->dtype == kiln_dtype_compute(lw->plan->typed.common);
    return rounded ? lw->plan->typed.common : e->dtype;
}

/* The kernel's scalar for an argument, or a part of it, as a type: each once. */
static kiln_ref scalar_part(kiln_lowering *lw, const kiln_texpr *e, kiln_ir_part part) {
    static const char *const ends[] = {"", ".re", ".im"}; /* ORDER: kiln_ir_part */
    kiln_lowered *low = lw->out;
    kiln_dtype via = kiln_dtype_real(scalar_via(lw, e)), t = kiln_dtype_real(e->dtype);
    kiln_scalar_source want = {(int16_t)e->id, (int16_t)e->index, via, t,
                               (int)part | (e->minus ? KILN_MINUS : 0)};
    int k = 0;
    while (k < low->nscalars && memcmp(&low->scalars[k], &want, sizeof want) != 0) k++;
    if (k == KILN_MAX_SCALARS) {
        lw->ir->failed = true;
        lw->ir->why = "more than 64 scalars";
        return 0;
    }
    if (k == low->nscalars) {
        char name[160];
        const char *label = e->id >= KILN_HOST_ID ? lw->row->hosts.at[e->id - KILN_HOST_ID].name
                                                  : lw->row->schema->args[e->id].name;
        int n = snprintf(name, sizeof name, "%.100s%s%s", label, e->minus ? ".minus" : "", ends[part]);
        for (int other = 0; other < low->nscalars;
             other++) /* another item, type or rounding of the same argument */
            if (low->scalars[other].arg == want.arg && low->scalars[other].part == want.part) {
                snprintf(name + n, sizeof name - (size_t)n, ".%d", k);
                break;
            }
        low->scalars[low->nscalars++] = want;
        kiln_ir_par_add(lw->ir, name, t);
    }
    return kiln_ir_par_read(lw->ir, k);
}

static kiln_pair scalar(kiln_lowering *lw, const kiln_texpr *e) {
    if (!kiln_dtype_is_complex(e->dtype)) return (kiln_pair){scalar_part(lw, e, KILN_PART_WHOLE), KILN_NOREF};
    kiln_ref re = scalar_part(lw, e, KILN_PART_RE);
    return (kiln_pair){re, scalar_part(lw, e, KILN_PART_IM)};
}

/* -- expressions ----------------------------------------------------------------------------------------- */

void kiln_lower_forget(kiln_lowering *lw) {
    for (int a = 0; a < KILN_MAX_ARGS; a++)
        if (!(lw->kept >> a & 1)) lw->loaded[a][0].re = lw->loaded[a][1].re = KILN_NOREF;
}

kiln_pair kiln_lower_loaded(const kiln_lowering *lw, int arg, kiln_pair v, bool exact) {
    bool promoted = lw->branch->typing.args >> arg & 1;
    kiln_dtype t = promoted ? lw->plan->typed.common : lw->plan->dtypes[arg];
    if (!exact) v = kiln_pair_cast(lw->ir, t, v);
    return kiln_pair_cast(lw->ir, kiln_dtype_compute(t), v);
}

static kiln_pair element(kiln_lowering *lw, const kiln_texpr *e) {
    int arg = e->id;
    bool exact = e->exact && lw->plan->typed.exact >> arg & 1;
    if (lw->loaded[arg][exact].re != KILN_NOREF) return lw->loaded[arg][exact];
    kiln_pair v = kiln_lower_loaded(lw, arg, kiln_pair_load(lw->ir, lw->buf_of_arg[arg]), exact);
    lw->loaded[arg][exact] = v;
    return v;
}

void kiln_lower_keep(kiln_lowering *lw, int arg) {
    for (int exact = 0; exact < 2; exact++) {
        lw->loaded[arg][exact].re = KILN_NOREF;
        (void)element(lw, &(kiln_texpr){.kind = KILN_TE_ELEM, .id = arg, .exact = exact});
    }
    lw->kept |= UINT64_C(1) << arg;
}

/* Arguments, then lets, then the body that sees both. */
static kiln_pair lower_rule(kiln_lowering *lw, const kiln_texpr *e) {
    const kiln_pair *outer = lw->locals;
    kiln_pair local[KILN_RULE_MAX_LOCALS];
    for (int k = 0; k < e->nargs; k++) local[k] = kiln_lower_expr(lw, e->args[k]);
    lw->locals = local;
    for (int k = 0; k < e->rule->nlets; k++) local[e->nargs + k] = kiln_lower_expr(lw, e->rule->let[k]);
    kiln_pair v = kiln_lower_expr(lw, e->rule->body);
    lw->locals = outer;
    return v;
}

/* Whether a state meets an element in the larger or smaller of both.  These ask of their first operand whether it is NaN: if
 * that is the element, the next step need not wait for the answer. */
static bool is_better_turned(const kiln_texpr *e) {
    return (e->prim == KILN_P_MAX || e->prim == KILN_P_MIN) && e->args[0]->kind == KILN_TE_STATE &&
           e->args[1]->kind != KILN_TE_STATE && e->args[1]->kind != KILN_TE_RHS;
}

static kiln_pair lower_prim(kiln_lowering *lw, const kiln_texpr *e) {
    kiln_ref args[3] = {KILN_NOREF, KILN_NOREF, KILN_NOREF};
    bool turned = is_better_turned(e);
    for (int k = 0; k < e->nargs && k < 3; k++) args[turned ? 1 - k : k] = kiln_lower_expr(lw, e->args[k]).re;
    return (kiln_pair){kiln_ir_prim(lw->ir, e->prim, args, e->nargs), KILN_NOREF};
}

void kiln_lower_made(kiln_lowering *lw, const kiln_texpr *e, kiln_pair v) {
    if (lw->nmade == KILN_LOWER_MAX_MADE) return;
    lw->made[lw->nmade].of = e;
    lw->made[lw->nmade++].v = v;
}

kiln_pair kiln_lower_expr(kiln_lowering *lw, const kiln_texpr *e) {
    kiln_pair v;
    for (int k = 0; k < lw->nmade; k++)
        if (lw->made[k].of == e) return lw->made[k].v;
    switch (e->kind) {
    case KILN_TE_CONST: return kiln_pair_const(lw->ir, e->dtype, e->i, e->f);
    case KILN_TE_ELEM: return element(lw, e);
    case KILN_TE_SCALAR: return scalar(lw, e);
    case KILN_TE_PRIM: return lower_prim(lw, e);
    case KILN_TE_CAST: return kiln_pair_cast(lw->ir, e->dtype, kiln_lower_expr(lw, e->args[0]));
    case KILN_TE_ROUND:
        v = kiln_pair_cast(lw->ir, (kiln_dtype)e->id, kiln_lower_expr(lw, e->args[0]));
        return kiln_pair_cast(lw->ir, e->dtype, v);
    case KILN_TE_RULE: return lower_rule(lw, e);
    case KILN_TE_LOCAL: return lw->locals[e->id];
    case KILN_TE_PART:
        v = kiln_lower_expr(lw, e->args[0]);
        return (kiln_pair){e->id ? v.im : v.re, KILN_NOREF};
    case KILN_TE_COMPLEX:
        v.re = kiln_lower_expr(lw, e->args[0]).re;
        v.im = kiln_lower_expr(lw, e->args[1]).re;
        return v;
    case KILN_TE_STATE:
    case KILN_TE_RHS:
        if (lw->state) return lw->state(lw, e);
        break;
    case KILN_TE_POS:
    case KILN_TE_COUNT:
        if (lw->position) return lw->position(lw, e);
        break;
    case KILN_TE_BLOCK:
        if (lw->block) return lw->block(lw, e);
        break;
    case KILN_TE_ACCESS:
        if (lw->access) return lw->access(lw, e);
        break;
    case KILN_TE_EXTENT: break;
    }
    lw->ir->failed = true; /* row_check.c refuses rows that get here */
    lw->ir->why = "an expression with a part that this family does not have";
    return (kiln_pair){0, KILN_NOREF};
}

void kiln_lower_results(kiln_lowering *lw, const kiln_texpr *const *of, uint32_t set) {
    const kiln_plan *p = lw->plan;
    kiln_pair
        value[KILN_MAX_RETS]; /* all are computed before the first is stored: an output may be an input */
    set &= ~p->typed.unstored;
    for (int k = 0; k < p->axes.nwritten; k++) {
        if (!(set >> k & 1)) continue;
        value[k] = kiln_lower_expr(lw, of[k]);
        if (k < p->typed.nrets) value[k] = kiln_pair_cast(lw->ir, p->typed.ret_dtype[k], value[k]);
        value[k] = kiln_pair_cast(lw->ir, p->buffer[k].dtype, value[k]);
    }
    for (int k = 0; k < p->axes.nwritten; k++)
        if (set >> k & 1)
            kiln_ir_store_parts(lw->ir, (kiln_ir_place){.buf = k}, value[k].re, value[k].im, KILN_NOREF);
}

/* -- divisions ------------------------------------------------------------------------------------------- */

static bool divides(const kiln_texpr *e) {
    return e->kind == KILN_TE_PRIM && kiln_prim_trait(e->prim) == KILN_TRAIT_DIVIDES &&
           kiln_dtype_is_int(e->dtype);
}

bool kiln_lower_divides(const kiln_texpr *e) {
    if (!e) return false; /* of an access, not all operands are there */
    if (divides(e)) return true;
    for (int k = 0; k < e->nargs; k++)
        if (kiln_lower_divides(e->args[k])) return true;
    return false;
}

void kiln_lower_traps(kiln_lowering *lw, const kiln_texpr *e) {
    if (!e) return;
    for (int k = 0; k < e->nargs; k++) kiln_lower_traps(lw, e->args[k]);
    if (!divides(e)) return;
    kiln_ref pair[2] = {kiln_lower_expr(lw, e->args[1]).re, kiln_ir_const_i(lw->ir, e->dtype, 0)};
    kiln_ir_trap_if(lw->ir, kiln_ir_prim(lw->ir, KILN_P_EQ, pair, 2), KILN_E_DIVZERO, "ZeroDivisionError");
}

/* -- checks of elements ---------------------------------------------------------------------------------- */

static kiln_status type_musts(kiln_lowering *lw) {
    const kiln_row *row = lw->row;
    for (int c = 0; c < row->nchecks; c++)
        if (row->checks[c].each)
            KILN_TRY(kiln_expr_type(&lw->env.env, row->checks[c].cond, KILN_BOOL, &lw->must[c]));
    return KILN_OK;
}

bool kiln_lower_has_musts(const kiln_lowering *lw) {
    for (int c = 0; c < lw->row->nchecks; c++)
        if (lw->must[c]) return true;
    return false;
}

void kiln_lower_musts(kiln_lowering *lw) {
    for (int c = 0; c < lw->row->nchecks; c++) {
        if (!lw->must[c]) continue;
        kiln_ref holds = kiln_lower_expr(lw, lw->must[c]).re;
        kiln_ref pair[2] = {holds, kiln_ir_const_i(lw->ir, KILN_BOOL, 0)};
        kiln_ir_trap_if(lw->ir, kiln_ir_prim(lw->ir, KILN_P_EQ, pair, 2), lw->row->checks[c].status,
                        lw->row->checks[c].text);
    }
}

/* -- kernels --------------------------------------------------------------------------------------------- */

kiln_status kiln_lowering_begin(kiln_lowering *lw, kiln_arena *arena, const kiln_plan *plan,
                                kiln_lowered *out) {
    const kiln_row *row = plan->call->op->row;
    *lw = (kiln_lowering){.arena = arena, .plan = plan, .row = row, .out = out};
    lw->branch = plan->branch;
    memset(out, 0, sizeof *out);
    out->ir = lw->ir = kiln_ir_new(arena, plan->call->op->name);
    kiln_lower_forget(lw);
    kiln_row_env_init(&lw->env, row, lw->branch, plan->typed.common, plan->dtypes, arena);
    for (int a = 0; a < row->schema->nargs; a++) {
        if (plan->call->arg[a].kind != KILN_NONE)
            lw->env.present |= 1ull << a;
        else if (kiln_row_optional(row, a))
            lw->env.absent |= 1ull << a;
    }
    return lw->ir ? type_musts(lw) : KILN_NOMEM();
}

void kiln_lower_buffers(kiln_lowering *lw, uint32_t written_axes, uint32_t read_axes) {
    const kiln_plan *p = lw->plan;
    for (int a = 0; a < KILN_MAX_ARGS; a++) lw->buf_of_arg[a] = -1;
    for (int b = 0; b < p->axes.nbuffers; b++) {
        const kiln_buffer *o = &p->buffer[b];
        bool written = b < p->axes.nwritten;
        char name[24];
        snprintf(name, sizeof name, b < p->typed.nrets ? "out.%d" : "new.%d",
                 o->which); /* no argument's name has a point in it */
        int buf = kiln_ir_buf_add(lw->ir, written ? name : lw->row->schema->args[o->which].name,
                                  written ? KILN_BUF_OUT : KILN_BUF_IN, o->dtype,
                                  written ? written_axes : read_axes, (kiln_stride)o->stride);
        if (!written) lw->buf_of_arg[o->which] = buf;
    }
}
