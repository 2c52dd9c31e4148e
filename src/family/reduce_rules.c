/* reduce_rules.c - what rows of families that fold or scan may say alike: which dimensions are folded, states, steps, merges.
 *
 * Which of these clauses a family has, and which of them a row must have, is in the family's own rules. */
#include <stdio.h>
#include <string.h>

#include "family/reduce_rules.h"

/* -- what rows and branches keep ---------------------------------------------------------------------------- */

kiln_reduce *kiln_row_reduce(kiln_row *row) {
    kiln_branch *last = row->nbranches ? &row->branches[row->nbranches - 1] : NULL;
    return last && last->when ? last->reduce : row->reduce;
}

int kiln_row_nown(const kiln_row *row) {
    return row->rest ? row->branches[0].reduce->finish.n : row->schema->nrets;
}

static kiln_status begin(kiln_arena *arena, kiln_reduce **out) {
    kiln_reduce *r = kiln_arena_alloc(arena, sizeof *r);
    if (!r) return KILN_NOMEM();
    r->over_arg = r->keep_arg = -1;
    *out = r;
    return KILN_OK;
}

/* A branch with states of its own has none of the row's clauses that go with states. */
static void inherit(const kiln_reduce *row, kiln_reduce *r) {
    kiln_reduce own = *r;
    *r = *row;
    if (own.states.n) {
        r->states = own.states;
        r->step = r->block = r->merge = (kiln_nameds){.n = 0};
        r->from = own.from;
    }
    if (own.step.n) r->step = own.step;
    if (own.block.n) r->block = own.block;
    if (own.merge.n) r->merge = own.merge;
    if (own.finish.n) r->finish = own.finish;
    if (own.writes.n) r->writes = own.writes;
}

static const kiln_nameds *states_of(const kiln_reduce *r) { return &r->states; }

static bool has_fold_clauses(const kiln_reduce *r) {
    return r->step.n || r->block.n || r->merge.n || r->finish.n;
}

static kiln_status bodies(const kiln_row *row, const kiln_branch *b) {
    const kiln_reduce *r = b->reduce;
    bool folds = r->states.n || r->finish.n;
    if (r->from && r->states.n != 1) return KILN_ROW_FAIL(row, "a body with 'from' is the only state");
    if (!b->nbody && !folds) return KILN_ROW_FAIL(row, "no body computes the result");
    if (b->nbody && (folds || has_fold_clauses(r)))
        return KILN_ROW_FAIL(row, "both states and a body: 'finish' gives the results");
    return KILN_OK;
}

static kiln_status use(kiln_usage *u, const kiln_reduce *r) {
    const kiln_nameds *lists[] = {&r->states, &r->step, &r->block, &r->merge, &r->finish, &r->writes};
    for (size_t k = 0; k < sizeof lists / sizeof *lists; k++) KILN_TRY(kiln_row_use_all(u, lists[k]));
    return KILN_OK;
}

static bool same(const kiln_reduce *a, const kiln_reduce *b) {
    return kiln_row_same_list(&a->states, &b->states) && kiln_row_same_list(&a->step, &b->step) &&
           kiln_row_same_list(&a->block, &b->block) && kiln_row_same_list(&a->merge, &b->merge) &&
           kiln_row_same_list(&a->finish, &b->finish) && kiln_row_same_list(&a->writes, &b->writes);
}

const kiln_folding_rules kiln_reduce_folding = {
    .begin = begin, .inherit = inherit, .states = states_of, .bodies = bodies, .use = use, .same = same};

/* -- clauses ------------------------------------------------------------------------------------------------ */

static kiln_status clause_state(kiln_lex *lx, kiln_row *row) {
    return kiln_row_nameds(lx, &kiln_row_reduce(row)->states, KILN_TYPED_STATES, "=");
}
static kiln_status clause_step(kiln_lex *lx, kiln_row *row) {
    return kiln_row_nameds(lx, &kiln_row_reduce(row)->step, KILN_UNTYPED, "=");
}
static kiln_status clause_block(kiln_lex *lx, kiln_row *row) {
    return kiln_row_nameds(lx, &kiln_row_reduce(row)->block, KILN_UNTYPED, "=");
}
static kiln_status clause_merge(kiln_lex *lx, kiln_row *row) {
    return kiln_row_nameds(lx, &kiln_row_reduce(row)->merge, KILN_UNTYPED, "=");
}

/* Primitives for which merging two accumulators is the step itself. */
static bool merges(kiln_prim p) { return kiln_prim_trait(p) == KILN_TRAIT_JOINS; }

/* `prim(acc, E) from INIT`: one state, and how two of them merge. */
kiln_status kiln_reduce_accumulate(kiln_lex *lx, kiln_row *row, const kiln_expr *body) {
    kiln_reduce *r = kiln_row_reduce(row);
    bool form = body->kind == KILN_X_PRIM && body->nargs == 2 && body->args[0]->kind == KILN_X_NAME &&
                strcmp(body->args[0]->name, "acc") == 0;
    if (!form)
        return kiln_expr_fail(lx->source, body, KILN_E_PARSE, "expected prim(acc, value) before 'from'");
    if (!merges(body->prim))
        return kiln_expr_fail(lx->source, body, KILN_E_PARSE,
                              "two accumulators do not merge by '%s'; write a fold in full",
                              kiln_prim_name(body->prim));
    if (r->states.n) return kiln_expr_fail(lx->source, body, KILN_E_PARSE, "the row has states already");
    KILN_TRY(kiln_expr_parse(lx, &r->from));
    kiln_named *both = kiln_arena_alloc(lx->arena, 2 * sizeof *both);
    if (!both) return KILN_NOMEM();
    both[0] = both[1] = (kiln_named){
        .name = "acc", .dtype = KILN_DTYPE_COUNT, .line = body->line, .col = body->col};
    both[0].expr = r->from;
    both[1].expr = body;
    r->states = (kiln_nameds){&both[0], 1};
    r->step = (kiln_nameds){&both[1], 1};
    return KILN_OK;
}

kiln_status kiln_finish_clause(kiln_lex *lx, kiln_row *row, bool may_be_empty) {
    kiln_nameds *f = &kiln_row_reduce(row)->finish;
    bool more = true;
    while (more) {
        if (f->n == row->schema->nrets) return kiln_lex_fail(lx, "as many results as the schema has");
        kiln_named *v = NULL;
        KILN_TRY(kiln_row_named(lx, f, "at most 16 results", &v));
        KILN_TRY(kiln_lex_accept(lx, "each", &v->each));
        if (!v->each && may_be_empty) KILN_TRY(kiln_lex_accept(lx, "empty", &v->empty));
        if (!v->empty) KILN_TRY(kiln_expr_parse(lx, &v->expr));
        KILN_TRY(kiln_lex_accept(lx, ",", &more));
    }
    return KILN_OK;
}

static kiln_status clause_finish(kiln_lex *lx, kiln_row *row) { return kiln_finish_clause(lx, row, false); }

/* dims(EXPR, ...): dimensions by their numbers. */
static kiln_status parse_dims(kiln_lex *lx, kiln_nameds *out) {
    KILN_TRY(kiln_lex_expect(lx, "("));
    KILN_TRY(kiln_row_exprs(lx, out, "at most 16 dimensions"));
    return kiln_lex_expect(lx, ")");
}

/* over [only | but] ARG [keep [ARG]]   or   over last(COUNT) [keep [ARG]]   or   over first(COUNT)   or   over dims(EXPR, ...)
 * [flat | triangle]   or   over diagonal   or   over alike */
static kiln_status clause_over(kiln_lex *lx, kiln_row *row) {
    bool did;
    KILN_TRY(kiln_lex_accept(lx, "diagonal", &row->reduce->over_diagonal));
    KILN_TRY(kiln_lex_accept(lx, "alike", &row->reduce->over_alike));
    if (row->reduce->over_diagonal || row->reduce->over_alike) return KILN_OK;
    KILN_TRY(kiln_lex_accept(lx, "dims", &did));
    if (did) KILN_TRY(parse_dims(lx, &row->reduce->over_dims));
    if (did) KILN_TRY(kiln_lex_accept(lx, "flat", &row->reduce->flat));
    if (did) return row->reduce->flat ? KILN_OK : kiln_lex_accept(lx, "triangle", &row->reduce->triangle);
    KILN_TRY(kiln_lex_accept(lx, "first", &row->reduce->over_first));
    KILN_TRY(row->reduce->over_first ? KILN_OK : kiln_lex_accept(lx, "last", &did));
    if (did || row->reduce->over_first) {
        KILN_TRY(kiln_lex_expect(lx, "("));
        KILN_TRY(kiln_expr_parse(lx, &row->reduce->over_last));
        KILN_TRY(kiln_lex_expect(lx, ")"));
    } else {
        KILN_TRY(kiln_lex_accept(lx, "but", &row->reduce->over_but));
        KILN_TRY(kiln_lex_accept(lx, "only", &row->reduce->over_only));
        KILN_TRY(kiln_row_arg(lx, row, &row->reduce->over_arg));
    }
    KILN_TRY(kiln_lex_accept(lx, "keep", &did));
    row->reduce->keep = did && (lx->first_on_line || lx->tok == KILN_TOK_END);
    return did && !row->reduce->keep ? kiln_row_arg(lx, row, &row->reduce->keep_arg) : KILN_OK;
}

const kiln_clause kiln_clause_over = {.word = "over", .parse = clause_over};
const kiln_clause kiln_clause_state = {.word = "state", .parse = clause_state, .each = true};
const kiln_clause kiln_clause_step = {.word = "step", .parse = clause_step, .each = true};
const kiln_clause kiln_clause_block = {.word = "block", .parse = clause_block, .each = true};
const kiln_clause kiln_clause_merge = {.word = "merge", .parse = clause_merge, .each = true};
const kiln_clause kiln_clause_finish = {.word = "finish", .parse = clause_finish, .each = true};

kiln_status kiln_over_rules(const kiln_row *row) {
    const kiln_reduce *r = row->reduce;
    KILN_TRY(kiln_row_expect_kind(row, r->over_arg, KILN_T_INT, true,
                                  "a dimension or a list of them: see 'over'"));
    KILN_TRY(kiln_row_expect_kind(row, r->keep_arg, KILN_T_BOOL, false, "a bool: see 'keep'"));
    if (r->over_diagonal && kiln_row_ntensors(row) != 1)
        return KILN_ROW_FAIL(row, "a diagonal is that of one tensor: see 'over'");
    return KILN_OK;
}

uint64_t kiln_over_names(const kiln_row *row, bool shapes) {
    (void)shapes;
    return kiln_arg_bit(row->reduce->over_arg) | kiln_arg_bit(row->reduce->keep_arg);
}

kiln_status kiln_over_visit(const kiln_row *row, kiln_visit_fn visit, void *user) {
    KILN_TRY(kiln_visit_all(&row->reduce->over_dims, KILN_USE_SHAPE, visit, user));
    return row->reduce->over_last ? visit(user, row->reduce->over_last, KILN_USE_SHAPE) : KILN_OK;
}

bool kiln_gives_each(const kiln_row *row) {
    for (int b = 0; b < row->nbranches; b++)
        for (int k = 0; k < row->branches[b].reduce->finish.n; k++)
            if (row->branches[b].reduce->finish.at[k].each) return true;
    return false;
}

kiln_status kiln_triangle_rules(const kiln_row *row) {
    if (!row->reduce->triangle || (row->nviews && !kiln_gives_each(row) && !row->written)) return KILN_OK;
    return KILN_ROW_FAIL(row,
                         "a triangle is of rows that views set beside each other, and its results have one "
                         "element for each two: no 'each', no 'writes'");
}

/* -- names ----------------------------------------------------------------------------------------------------- */

static bool find_state(const kiln_row_env *re, const char *name, bool rhs, kiln_sym *out) {
    const kiln_nameds *states = &re->branch->reduce->states;
    const kiln_named *v = kiln_named_of(states, name);
    if (v) {
        out->kind = rhs ? KILN_SYM_RHS : KILN_SYM_STATE;
        out->id = (int)(v - states->at);
        out->dtype = kiln_state_dtype(v, re->common);
        return true;
    }
    if (strcmp(name, "n") != 0) return false;
    out->kind = KILN_SYM_COUNT;
    out->id = rhs;
    out->dtype = KILN_I64;
    return true;
}

bool kiln_reduce_find(const kiln_row_env *re, const char *name, bool rhs, kiln_sym *out) {
    if (!(rhs ? re->merge : re->states)) return false;
    if (find_state(re, name, rhs, out)) return true;
    if (rhs || strcmp(name, "i") != 0) return false;
    out->kind = KILN_SYM_POS;
    out->dtype = KILN_I64;
    out->id = -1;
    return true;
}

/* -- types ----------------------------------------------------------------------------------------------------- */

static const kiln_expr *finish_or_state(const kiln_reduce *r, int k) {
    return k < r->finish.n ? r->finish.at[k].expr : NULL;
}

static const kiln_named *state(const kiln_row_env *re, const char *name) {
    return kiln_named_of(&re->branch->reduce->states, name);
}

static kiln_status check_states(kiln_row_env *re, const kiln_nameds *list, const char *clause,
                                unsigned refused) {
    const kiln_nameds *states = &re->branch->reduce->states;
    for (int k = 0; k < list->n; k++) {
        const kiln_named *v = &list->at[k];
        const kiln_named *s = state(re, v->name);
        if (!s)
            return KILN_FAIL_LINE(KILN_E_PARSE, re->env.source, v->line, v->col, "'%s' in %s is not a state",
                                  v->name, clause);
        char why[64];
        snprintf(why, sizeof why, "a %s cannot see this", clause);
        KILN_TRY(kiln_row_check_expr(re, v->expr, kiln_state_dtype(s, re->common),
                                     (kiln_refused){refused, why, 0}));
    }
    if (list->n && list->n != states->n)
        return KILN_FAIL_LINE(KILN_E_PARSE, re->env.source, list->at[0].line, list->at[0].col,
                              "%s gives %d of %d states", clause, list->n, states->n);
    return KILN_OK;
}

/* A block gives every state, and sees the names it has defined so far; `sum` is allowed there. */
static kiln_status check_block(kiln_row_env *re) {
    const kiln_nameds *block = &re->branch->reduce->block;
    kiln_nameds sofar = {.n = 0};
    int given = 0;
    re->env.in_block = true;
    re->scope = &sofar;
    for (int k = 0; k < block->n; k++) {
        const kiln_named *s = state(re, block->at[k].name);
        given += s != NULL;
        KILN_TRY(kiln_row_check_expr(
            re, block->at[k].expr, s ? kiln_state_dtype(s, re->common) : re->env.compute, (kiln_refused){0}));
        sofar = (kiln_nameds){block->at, k + 1};
    }
    if (block->n && given != re->branch->reduce->states.n)
        return KILN_FAIL_LINE(KILN_E_PARSE, re->env.source, block->at[0].line, block->at[0].col,
                              "block gives %d of %d states", given, re->branch->reduce->states.n);
    re->scope = NULL;
    re->env.in_block = false;
    return KILN_OK;
}

/* state, step or block, merge: each in its own scope. */
static kiln_status check_folding(kiln_row_env *re, const kiln_reduce_kind *kind) {
    const kiln_reduce *r = re->branch->reduce;
    KILN_TRY(check_states(re, &r->states, "state", KILN_ELEMENTS | KILN_STATES | KILN_PLACES));
    re->states = true;
    KILN_TRY(check_states(re, &r->step, "step", 0));
    KILN_TRY(check_block(re));
    KILN_TRY(kind->complete(re->row, r));
    re->merge = true;
    KILN_TRY(check_states(re, &r->merge, "merge", KILN_ELEMENTS | KILN_PLACES));
    re->merge = false;
    return KILN_OK;
}

static kiln_status check_finish(kiln_row_env *re, const kiln_reduce_kind *kind) {
    const kiln_reduce *r = re->branch->reduce;
    for (int k = 0; k < kiln_row_nown(re->row); k++) {
        const kiln_expr *e = finish_or_state(r, k);
        if (k < r->finish.n && r->finish.at[k].empty) continue;
        if (!e && (!r->from || k)) return KILN_ROW_FAIL(re->row, "result %d has no finish", k);
        if (!e) continue;
        bool sees = kind->each || r->finish.at[k].each;
        const kiln_refused refused = {sees ? 0 : KILN_ELEMENTS, "a finish sees elements only with 'each'",
                                      re->row->kept};
        KILN_TRY(kiln_row_check_expr(re, e, kiln_row_ret_dtype(re, k), refused));
    }
    return KILN_OK;
}

static kiln_status check_writes(kiln_row_env *re) {
    const kiln_nameds *writes = &re->branch->reduce->writes;
    for (int k = 0; k < writes->n; k++) {
        const kiln_named *w = &writes->at[k];
        int arg = kiln_schema_arg(re->row->schema, w->name);
        if (re->absent >> arg & 1) continue; /* an argument that is absent is not written */
        re->present |= UINT64_C(1) << arg;
        const kiln_refused refused = {KILN_ELEMENTS, "what is written sees elements of kept arguments only",
                                      re->row->kept};
        KILN_TRY(kiln_row_check_expr(re, w->expr, kiln_row_arg_dtype(re, arg), refused));
    }
    return KILN_OK;
}

kiln_status kiln_reduce_types(kiln_row_env *re, const kiln_reduce_kind *kind) {
    const kiln_reduce *r = re->branch->reduce;
    if (!r->states.n && !r->finish.n) return KILN_OK;
    if (r->states.n) KILN_TRY(check_folding(re, kind));
    re->states = true;
    KILN_TRY(check_finish(re, kind));
    return check_writes(re);
}
