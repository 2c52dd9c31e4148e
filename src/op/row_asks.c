/* row_asks.c - which arguments' values the conditions of a row depend on, and which dtypes answer its checks.
 *
 * A call like the last one may skip `when` and `check` if what they ask is the same.  present(x), is_int(x) and
 * the like ask the kind or dtype of an argument, and rank(x) == 0 whether it has dimensions, which dispatch compares
 * anyway; single(x) asks a bit of a tensor's signature; everything else asks its value (of a tensor: its sizes).  Errs on the side of asking. */
#include "op/row_family.h"

typedef struct walk {
    const kiln_row *row;
    uint64_t set, single;
    bool asks_given;   /* contiguous(given) was met */
    int height, nodes; /* as in an evaluation: names may expand without end */
} walk;

static const kiln_expr *named(const kiln_row *row, const char *name) {
    const kiln_named *let = kiln_named_of(&row->lets, name);
    return let ? let->expr : kiln_row_host(row, name);
}

/* Questions about an argument, not its value.  Notes which are asked whether they are single. */
static bool asks_kind_only(walk *w, const kiln_expr *e) {
    static const char *const questions[] = {"present", "absent",   "dtype",      "is_bool",
                                            "is_int",  "is_float", "is_complex", "is_unsigned"};
    if (e->nargs != 1 || e->args[0]->kind != KILN_X_NAME || named(w->row, e->args[0]->name)) return false;
    int arg = kiln_schema_arg(w->row->schema, e->args[0]->name);
    if (arg >= 0 && kiln_str_eq(e->name, "single")) {
        w->single |= UINT64_C(1) << arg;
        return true;
    }
    for (size_t k = 0; k < sizeof questions / sizeof *questions; k++)
        if (kiln_str_eq(e->name, questions[k])) return true;
    return false;
}

/* rank(x) == 0, and other comparisons with it: whether tensor x has dimensions is in its signature. */
static bool asks_dimensions_only(const walk *w, const kiln_expr *e) {
    if (e->kind != KILN_X_PRIM || (e->prim != KILN_P_EQ && e->prim != KILN_P_NE && e->prim != KILN_P_GT))
        return false;
    const kiln_expr *rank = e->args[0], *zero = e->args[1];
    if (zero->kind != KILN_X_NUM || zero->is_float || zero->i != 0) return false;
    if (rank->kind != KILN_X_CALL || !kiln_str_eq(rank->name, "rank") || rank->nargs != 1) return false;
    const kiln_expr *x = rank->args[0];
    return x->kind == KILN_X_NAME && !named(w->row, x->name) && kiln_schema_arg(w->row->schema, x->name) >= 0;
}

static void visit(walk *w, const kiln_expr *e) {
    if (!e) return;
    if (w->height == KILN_EXPR_MAX_HEIGHT || w->nodes++ == KILN_EXPR_MAX_NODES) w->set = ~UINT64_C(0);
    if (w->set == ~UINT64_C(0)) return;
    w->height++;
    bool lies = e->word == KILN_WORD_contiguous || e->word == KILN_WORD_channels_last;
    if (lies && e->nargs && e->args[0]->word == KILN_WORD_given) w->asks_given = true;
    if (e->kind == KILN_X_NAME || e->kind == KILN_X_ACCESS) {
        int arg = kiln_schema_arg(w->row->schema, e->name);
        if (arg >= 0)
            w->set |= UINT64_C(1) << arg;
        else
            visit(w, named(w->row, e->name));
    }
    if (!asks_dimensions_only(w, e) && (e->kind != KILN_X_CALL || !asks_kind_only(w, e)))
        for (int k = 0; k < e->nargs; k++) visit(w, e->args[k]);
    for (int k = 0; k < e->ncoord; k++) {
        visit(w, e->coord[k].dim);
        visit(w, e->coord[k].at);
    }
    visit(w, e->other);
    w->height--;
}

/* Where check c holds by a part of it that asks for a dtype. */
static void note_spared(kiln_check *c, const kiln_expr *part) {
    bool negated = part->kind == KILN_X_LOGIC && part->prim == KILN_P_NOT;
    if (negated) part = part->args[0];
    const kiln_expr *of = part->asks ? part->args[0] : NULL;
    if (!of || of->kind != KILN_X_NAME || of->means) return;
    kiln_dtypes all = (UINT32_C(1) << KILN_DTYPE_COUNT) - 1, holds = negated ? all & ~part->asks : part->asks;
    if (of->arg < 0) {
        if (of->word == KILN_WORD_common) c->spares |= holds;
        return;
    }
    c->arg_spares = c->arg == of->arg ? c->arg_spares | holds : holds;
    c->arg = (int8_t)of->arg;
}

/* Most checks are `a or b or c` and hold by the dtypes that one part asks for. */
static void find_spared(kiln_check *c) {
    c->spares = c->arg_spares = 0;
    c->arg = 0;
    const kiln_expr *e = c->cond;
    for (; e->kind == KILN_X_LOGIC && e->prim == KILN_P_OR; e = e->args[0]) note_spared(c, e->args[1]);
    note_spared(c, e);
}

static kiln_status visit_condition(void *w, const kiln_expr *e, kiln_expr_use use) {
    if (use == KILN_USE_CONDITION) visit(w, e);
    return KILN_OK;
}

kiln_status kiln_row_find_asked(kiln_row *row) {
    walk w = {.row = row, .set = row->statics | row->items};
    for (int c = 0; c < row->nchecks; c++)
        if (!row->checks[c].each) {
            visit(&w, row->checks[c].cond);
            find_spared(&row->checks[c]);
        }
    KILN_TRY(kiln_visit_clauses(row, visit_condition, &w));
    for (int b = 0; b < row->nbranches; b++) visit(&w, row->branches[b].when);
    row->asked = w.set;
    row->sized = row->asks_given = w.asks_given;
    for (int a = 0; a < row->schema->nargs; a++)
        if (kiln_row_is_tensor(row, a) && (row->asked | row->hosted) >> a & 1) row->sized = true;
    row->asked_single = w.single;
    return KILN_OK;
}
