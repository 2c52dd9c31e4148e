/* compose_rules.c - reads and checks a row that is made of calls, and finds the operators that it calls.
 *
 * A row has one way or several (`when`), each of calls in order; a call may name its results, for those after it.  The
 * operators that are called are looked for when a row of a user's is loaded, and when a shipped one is first called.
 * Must not know tensors: what a call gets is infer's business. */
#include <string.h>

#include "family/compose_rules.h"

/* -- reading ------------------------------------------------------------------------------------------------ */

const kiln_compose *kiln_compose_of(const kiln_row *row) {
    static const kiln_compose none;
    return row->own ? row->own : &none;
}

kiln_status kiln_compose_keep(kiln_lex *lx, kiln_row *row, kiln_compose **out) {
    if (!row->own) row->own = kiln_arena_alloc(lx->arena, sizeof **out);
    *out = row->own;
    return *out ? KILN_OK : KILN_NOMEM();
}

static kiln_status new_way(kiln_lex *lx, kiln_row *row, kiln_way **out) {
    kiln_compose *c;
    KILN_TRY(kiln_compose_keep(lx, row, &c));
    if (c->nways == KILN_ROW_MAX_BRANCHES) return kiln_lex_fail(lx, "at most 16 branches");
    kiln_way *grown = kiln_arena_grow(lx->arena, c->ways, (size_t)c->nways, sizeof *grown);
    if (!grown) return KILN_NOMEM();
    c->ways = grown;
    *out = &c->ways[c->nways++];
    memset(*out, 0, sizeof **out);
    row->makes_calls = true;
    return KILN_OK;
}

/* The way that clauses which stand here belong to. */
kiln_status kiln_compose_this_way(kiln_lex *lx, kiln_row *row, kiln_way **out) {
    kiln_compose *c;
    KILN_TRY(kiln_compose_keep(lx, row, &c));
    if (!c->nways) return new_way(lx, row, out);
    *out = &c->ways[c->nways - 1];
    return KILN_OK;
}

/* when COND: the calls after it are its own; those before the first one are every way's. */
static kiln_status clause_when(kiln_lex *lx, kiln_row *row) {
    kiln_compose *c;
    kiln_way *w = NULL;
    KILN_TRY(kiln_compose_keep(lx, row, &c));
    if (c->nways == 1 && !c->ways[0].when) {
        c->before = c->ways[0];
        c->nways = 0;
    }
    KILN_TRY(new_way(lx, row, &w));
    KILN_TRY(kiln_expr_parse(lx, &w->when));
    for (int k = 0; k < c->before.ncalls; k++) {
        kiln_called *grown = kiln_arena_grow(lx->arena, w->calls, (size_t)w->ncalls, sizeof *grown);
        if (!grown) return KILN_NOMEM();
        w->calls = grown;
        memcpy(&w->calls[w->ncalls++], &c->before.calls[k], sizeof *grown);
    }
    return KILN_OK;
}

static kiln_status parse_callee(kiln_lex *lx, kiln_called *c) {
    c->line = lx->tok_line;
    c->col = lx->tok_col;
    return kiln_row_operator(lx, &c->callee);
}

static bool is_plain_name(const char *s) { return *s && !strpbrk(s, ".:"); }

/* NAME, ... =: what was read as an operator may be the first name of its results. */
static kiln_status parse_names(kiln_lex *lx, kiln_called *c) {
    bool more = true;
    while (more) {
        kiln_named *v = NULL;
        if (c->callee && !is_plain_name(c->callee)) return kiln_lex_fail(lx, "a name for a result");
        KILN_TRY(kiln_row_named(lx, &c->names, "at most 16 names in a clause", &v));
        v->name = c->callee;
        if (!v->name) KILN_TRY(kiln_lex_name(lx, &v->name));
        c->callee = NULL;
        KILN_TRY(kiln_lex_accept(lx, ",", &more));
    }
    KILN_TRY(kiln_lex_expect(lx, "="));
    return parse_callee(lx, c);
}

/* (arg, name=arg, ...) */
static kiln_status parse_args(kiln_lex *lx, kiln_called *c) {
    bool more, did;
    KILN_TRY(kiln_lex_expect(lx, "("));
    for (more = !kiln_lex_is(lx, ")"); more;) {
        kiln_named *v = NULL;
        KILN_TRY(kiln_row_named(lx, &c->args, "at most 16 arguments", &v));
        KILN_TRY(kiln_expr_parse(lx, &v->expr));
        KILN_TRY(kiln_lex_accept(lx, "=", &did));
        if (did) {
            v->name = v->expr->kind == KILN_X_NAME ? v->expr->name : "?";
            KILN_TRY(kiln_expr_parse(lx, &v->expr));
        }
        KILN_TRY(kiln_lex_accept(lx, ",", &more));
    }
    return kiln_lex_expect(lx, ")");
}

/* call [NAME, ... =] OP(arg, name=arg, ...)   or   call for ARG, ... : OP(...) */
static kiln_status clause_call(kiln_lex *lx, kiln_row *row) {
    kiln_way *w = NULL;
    bool did;
    KILN_TRY(kiln_compose_this_way(lx, row, &w));
    if (w->ncalls == KILN_MAX_CALLS) return kiln_lex_fail(lx, "at most 16 calls");
    kiln_called *c = kiln_arena_grow(lx->arena, w->calls, (size_t)w->ncalls, sizeof *c);
    if (!c) return KILN_NOMEM();
    w->calls = c;
    c += w->ncalls++;
    memset(c, 0, sizeof *c);
    KILN_TRY(kiln_lex_accept(lx, "for", &did));
    if (did) {
        KILN_TRY(kiln_row_args(lx, row, &c->each));
        KILN_TRY(kiln_lex_expect(lx, ":"));
        row->listed = true;
    }
    KILN_TRY(parse_callee(lx, c));
    if (kiln_lex_is(lx, "=") || kiln_lex_is(lx, ",")) KILN_TRY(parse_names(lx, c));
    return parse_args(lx, c);
}

/* finish NAME, ... */
static kiln_status clause_finish(kiln_lex *lx, kiln_row *row) {
    kiln_way *w = NULL;
    bool more = true;
    KILN_TRY(kiln_compose_this_way(lx, row, &w));
    while (more) {
        kiln_named *v = NULL;
        KILN_TRY(kiln_row_named(lx, &w->finish, "at most 16 results", &v));
        KILN_TRY(kiln_lex_name(lx, &v->name));
        KILN_TRY(kiln_lex_accept(lx, ",", &more));
    }
    return KILN_OK;
}

/* -- rules and types ------------------------------------------------------------------------------------------ */

bool kiln_way_result(const kiln_way *w, int before, const char *name, int *call, int *result) {
    for (int c = before; c-- > 0;) {
        const kiln_named *v = kiln_named_of(&w->calls[c].names, name);
        if (!v) continue;
        *call = c;
        *result = (int)(v - w->calls[c].names.at);
        return true;
    }
    return false;
}

#define CALL_FAIL(row, c, ...) KILN_FAIL_LINE(KILN_E_PARSE, (row)->source, (c)->line, (c)->col, __VA_ARGS__)

/* Names mean one thing each. */
static kiln_status check_names(const kiln_row *row, const kiln_way *w, int k) {
    const kiln_called *c = &w->calls[k];
    int call, result;
    for (int i = 0; i < c->names.n; i++) {
        const char *name = c->names.at[i].name;
        kiln_nameds before = {c->names.at, i};
        if (kiln_schema_arg(row->schema, name) >= 0 || kiln_named_of(&row->lets, name) ||
            kiln_named_of(&before, name) || kiln_way_result(w, k, name, &call, &result))
            return CALL_FAIL(row, c, "'%s' has a meaning already", name);
    }
    return KILN_OK;
}

static bool is_list(const kiln_row *row, int arg) {
    return kiln_type_strip(row->schema->args[arg].type, NULL)->kind == KILN_T_LIST;
}

static kiln_status check_walked(const kiln_row *row, const kiln_called *c) {
    for (int a = 0; a < row->schema->nargs; a++)
        if ((c->each >> a & 1) && !is_list(row, a))
            return KILN_FAIL_LINE(KILN_E_TYPE, row->source, c->line, c->col, "'%s' is not a list",
                                  row->schema->args[a].name);
    return KILN_OK;
}

static kiln_status check_way(const kiln_row *row, const kiln_way *w) {
    int call, result;
    if (w->updates)
        return w->ncalls || w->finish.n || row->schema->nrets
                   ? KILN_FAIL_LINE(KILN_E_PARSE, row->source, row->line, row->col,
                                    "a row that updates has neither calls nor results")
                   : KILN_OK;
    if (!w->ncalls)
        return KILN_FAIL_LINE(KILN_E_PARSE, row->source, row->line, row->col,
                              "a compose row needs a call clause");
    for (int k = 0; k < w->ncalls; k++) {
        const kiln_called *c = &w->calls[k];
        KILN_TRY(check_names(row, w, k));
        KILN_TRY(check_walked(row, c));
        if (row->listed && (w->ncalls > 1 || !c->each))
            return CALL_FAIL(row, c, "a row that calls for each item has one call");
    }
    for (int k = 0; k < w->finish.n; k++)
        if (!kiln_way_result(w, w->ncalls, w->finish.at[k].name, &call, &result))
            return KILN_FAIL_LINE(KILN_E_PARSE, row->source, w->finish.at[k].line, w->finish.at[k].col,
                                  "no call gives '%s'", w->finish.at[k].name);
    if (w->finish.n && w->finish.n != row->schema->nrets)
        return KILN_FAIL_LINE(KILN_E_PARSE, row->source, w->finish.at[0].line, w->finish.at[0].col,
                              "%d results but %d names", row->schema->nrets, w->finish.n);
    return KILN_OK;
}

static kiln_status rules(const kiln_row *row) {
    const kiln_schema *s = row->schema;
    if (row->nbranches) return KILN_ROW_FAIL(row, "a compose row has a call clause and no body");
    if (!kiln_compose_of(row)->nways)
        return KILN_FAIL_LINE(KILN_E_PARSE, row->source, row->line, row->col,
                              "a compose row needs a call clause");
    for (int w = 0; w < kiln_compose_of(row)->nways; w++)
        KILN_TRY(check_way(row, &kiln_compose_of(row)->ways[w]));
    KILN_TRY(check_walked(
        row, &(kiln_called){.each = kiln_compose_of(row)->each, .line = row->line, .col = row->col}));
    for (int k = 0; k < s->nrets; k++) {
        bool list = s->rets[k].type->kind == KILN_T_LIST;
        if (list ? !row->listed || s->nrets > 1 : row->listed || s->rets[k].type->kind != KILN_T_TENSOR)
            return KILN_FAIL_LINE(KILN_E_PARSE, row->source, row->line, row->col,
                                  "result %d is not what the calls of this row give", k);
    }
    return KILN_OK;
}

/* -- the operators that are called ------------------------------------------------------------------------------ */

/* The form of an operator's row that is written in another way. */
static kiln_status find_form(const kiln_registry *r, const kiln_op *op, kiln_form form, const kiln_op **out) {
    char base[256];
    const kiln_schema *s = op->row->schema;
    size_t first, n, len = strlen(s->ns) + strlen(s->name) + 4;
    *out = NULL;
    if (len > sizeof base || strcmp(s->ns, "aten") != 0) return KILN_OK;
    stpcpy(stpcpy(stpcpy(base, "aten::"), s->name), form == KILN_FORM_INPLACE ? "_" : "");
    n = kiln_registry_overloads(r, base, &first);
    for (size_t k = 0; k < n && !*out; k++) {
        const kiln_op *other;
        KILN_TRY(kiln_registry_get(r, first + k, &other));
        if (other->row == op->row && other->form == form) *out = other;
    }
    return KILN_OK;
}

static kiln_status find_op(const kiln_registry *r, const kiln_row *row, const kiln_called *c, kiln_form form,
                           const kiln_op **out) {
    const kiln_op *op;
    KILN_TRY(kiln_note(kiln_registry_find(r, c->callee, &op), KILN_WHERE, row->source, c->line, c->col));
    if (form != KILN_FORM_FUNCTIONAL) KILN_TRY(find_form(r, op, form, &op));
    if (!op) return KILN_FAIL(KILN_E_UNSUP, "%s calls %s, which has no such form", row->name, c->callee);
    atomic_store_explicit((_Atomic(const kiln_op *) *)&c->op[form], op, memory_order_release);
    *out = op;
    return KILN_OK;
}

kiln_status kiln_called_op(const kiln_row *row, const kiln_called *c, kiln_form form, const kiln_op **out) {
    *out = atomic_load_explicit((_Atomic(const kiln_op *) *)&c->op[form], memory_order_acquire);
    return *out ? KILN_OK : find_op(kiln_registry_shipped(), row, c, form, out);
}

/* -- what they are given ------------------------------------------------------------------------------------------ */

static bool is_whole(kiln_tkind k) { return k == KILN_T_INT || k == KILN_T_SYMINT; }

bool kiln_compose_fits(const kiln_type *have, const kiln_type *want) {
    bool may_be_none, takes_none;
    const kiln_type *h = kiln_type_strip(have, &may_be_none), *w = kiln_type_strip(want, &takes_none);
    if (may_be_none && !takes_none) return false;
    if (h->kind == KILN_T_LIST && w->kind == KILN_T_LIST) return kiln_compose_fits(h->elem, w->elem);
    if (is_whole(h->kind) && is_whole(w->kind)) return true;
    if (w->kind == KILN_T_SCALAR && (is_whole(h->kind) || h->kind == KILN_T_FLOAT)) return true;
    return kiln_type_eq(h, w);
}

/* What an expression has as its type; *type NULL: a number that is computed when the call is made. */
static kiln_status type_of(const kiln_row *row, const kiln_way *w, int k, const kiln_expr *e,
                           const kiln_type **type) {
    const kiln_called *c = &w->calls[k];
    int from = e->kind == KILN_X_NAME ? kiln_schema_arg(row->schema, e->name) : -1, call, result;
    *type = NULL;
    if (from >= 0) {
        *type = row->schema->args[from].type;
        if (c->each >> from & 1) *type = kiln_type_strip(*type, NULL)->elem;
    } else if (e->kind == KILN_X_NAME && kiln_way_result(w, k, e->name, &call, &result)) {
        const kiln_op *of;
        KILN_TRY(kiln_called_op(row, &w->calls[call], KILN_FORM_FUNCTIONAL, &of));
        *type = of->schema->rets[result].type;
    } else if (e->kind == KILN_X_NAME && !kiln_named_of(&row->lets, e->name) &&
               strcmp(e->name, "true") != 0 && strcmp(e->name, "false") != 0) {
        return kiln_expr_fail(row->source, e, KILN_E_TYPE,
                              "'%s' is no argument and no result of a call before", e->name);
    }
    return KILN_OK;
}

static kiln_status check_arg(const kiln_row *row, const kiln_way *w, int k, const kiln_op *callee, int i,
                             uint64_t *given) {
    const kiln_named *v = &w->calls[k].args.at[i];
    int to = v->name[0] ? kiln_schema_arg(callee->schema, v->name) : i;
    if (to < 0 || to >= callee->schema->nargs)
        return kiln_expr_fail(row->source, v->expr, KILN_E_TYPE, "%s has no such argument", callee->name);
    if (*given >> to & 1)
        return kiln_expr_fail(row->source, v->expr, KILN_E_TYPE, "%s gets '%s' twice", callee->name,
                              callee->schema->args[to].name);
    *given |= 1ull << to;
    const kiln_type *have, *want = callee->schema->args[to].type;
    KILN_TRY(type_of(row, w, k, v->expr, &have));
    if (have && !kiln_compose_fits(have, want))
        return kiln_expr_fail(row->source, v->expr, KILN_E_TYPE,
                              "'%s' does not have the type that %s takes for '%s'", v->expr->name,
                              callee->name, callee->schema->args[to].name);
    return KILN_OK;
}

static kiln_status check_call(const kiln_registry *r, const kiln_row *row, const kiln_way *w, int k) {
    const kiln_called *c = &w->calls[k];
    const kiln_op *callee;
    uint64_t given = 0;
    KILN_TRY(find_op(r, row, c, KILN_FORM_FUNCTIONAL, &callee));
    for (int i = 0; i < c->args.n; i++) KILN_TRY(check_arg(row, w, k, callee, i, &given));
    for (int a = 0; a < callee->schema->nargs; a++)
        if (!(given >> a & 1) && callee->schema->args[a].def.kind == KILN_DEF_ABSENT)
            return KILN_FAIL_LINE(KILN_E_TYPE, row->source, c->line, c->col, "%s is called without '%s'",
                                  callee->name, callee->schema->args[a].name);
    if (c->names.n > callee->schema->nrets)
        return KILN_FAIL_LINE(KILN_E_TYPE, row->source, c->line, c->col, "%s has %d results", callee->name,
                              callee->schema->nrets);
    if (callee->row->family == KILN_FAMILY_COMPOSE)
        return KILN_FAIL_LINE(KILN_E_TYPE, row->source, c->line, c->col,
                              "%s is a compose row itself: call what it calls", callee->name);
    if (k == w->ncalls - 1 && !w->finish.n && !row->listed && callee->schema->nrets < row->schema->nrets)
        return KILN_FAIL_LINE(KILN_E_TYPE, row->source, c->line, c->col, "%s has %d results, the row %d",
                              callee->name, callee->schema->nrets, row->schema->nrets);
    return KILN_OK;
}

/* A plan has room for so many values that calls are given, and so many tensors that they make. */
static kiln_status check_room(const kiln_row *row, const kiln_way *w) {
    int nargs = 0, nmade = 0;
    for (int k = 0; k < w->ncalls; k++) {
        const kiln_op *op;
        KILN_TRY(kiln_called_op(row, &w->calls[k], KILN_FORM_FUNCTIONAL, &op));
        nargs += w->calls[k].args.n;
        nmade += op->schema->nrets;
    }
    if (nargs <= KILN_MAX_ARGS && nmade <= KILN_MAX_OPERANDS) return KILN_OK;
    return KILN_FAIL_LINE(KILN_E_LIMIT, row->source, row->line, row->col,
                          "calls with %d arguments and %d results: at most %d and %d", nargs, nmade,
                          KILN_MAX_ARGS, KILN_MAX_OPERANDS);
}

static kiln_status check_calls(const kiln_registry *r, const kiln_row *row) {
    for (int w = 0; w < kiln_compose_of(row)->nways; w++) {
        if (kiln_compose_of(row)->ways[w].updates) continue; /* its map is checked as a row */
        for (int k = 0; k < kiln_compose_of(row)->ways[w].ncalls; k++)
            KILN_TRY(check_call(r, row, &kiln_compose_of(row)->ways[w], k));
        KILN_TRY(check_room(row, &kiln_compose_of(row)->ways[w]));
    }
    return KILN_OK;
}

static kiln_status check(const kiln_registry *r, const kiln_row *row, kiln_budget *budget, int *ntyped) {
    KILN_TRY(check_calls(r, row));
    for (int w = 0; w < kiln_compose_of(row)->nways; w++) {
        const kiln_way *way = &kiln_compose_of(row)->ways[w];
        KILN_TRY(kiln_row_check_cond(row, budget, way->when));
        if (way->map) KILN_TRY(kiln_row_check(r, way->map, budget, ntyped));
    }
    *ntyped = 1;
    return kiln_row_check_checks(row, budget);
}

/* What calls are given, and when, and what becomes of items. */
static kiln_status visit(const kiln_row *row, kiln_visit_fn each, void *user) {
    for (int w = 0; w < kiln_compose_of(row)->nways; w++) {
        const kiln_way *way = &kiln_compose_of(row)->ways[w];
        if (way->when) KILN_TRY(each(user, way->when, KILN_USE_ONCE));
        KILN_TRY(kiln_visit_all(&way->update, KILN_USE_BODY, each, user));
        for (int k = 0; k < way->ncalls; k++)
            KILN_TRY(kiln_visit_all(&way->calls[k].args, KILN_USE_ONCE, each, user));
    }
    return KILN_OK;
}

static uint64_t names(const kiln_row *row, bool shapes) {
    uint64_t walked = kiln_compose_of(row)->each;
    for (int w = 0; w < kiln_compose_of(row)->nways; w++)
        for (int k = 0; k < kiln_compose_of(row)->ways[w].ncalls; k++)
            walked |= kiln_compose_of(row)->ways[w].calls[k].each;
    return shapes ? 0 : walked;
}

static void set_rules(kiln_row *row, const kiln_crules *rules, kiln_digest digest) {
    const kiln_compose *c = kiln_compose_of(row);
    for (int w = 0; w < c->nways; w++)
        if (c->ways[w].map) kiln_row_set_rules(c->ways[w].map, rules, digest);
}

static const kiln_clause when = {.word = "when", .parse = clause_when, .again = true, .opens = true};
static const kiln_clause call = {.word = "call", .parse = clause_call, .again = true};
static const kiln_clause finish = {.word = "finish", .parse = clause_finish, .each = true};
static const kiln_clause *const clauses[] = {&when, &call, &finish, &kiln_clause_for, &kiln_clause_update,
                                             NULL};

const kiln_family_rules kiln_rules_compose = {
    .clauses = clauses,
    .composes = true,
    .foreach_text = kiln_foreach_text,
    .complete = kiln_update_make,
    .set_rules = set_rules,
    .rules = rules,
    .visit = visit,
    .names = names,
    .check = check,
};
