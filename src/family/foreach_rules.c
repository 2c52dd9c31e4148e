/* foreach_rules.c - `foreach NAME = OTHER` -> the text of a compose row that calls OTHER for each item of the lists of NAME.
 *
 * The schema of NAME stands on the line or in PyTorch's list.  The call follows from it and the schema of OTHER: an argument of
 * NAME goes to the argument of OTHER that has its name, or where OTHER has none to the one in its place; it is walked if it is a
 * list where OTHER takes an item.  Whatever does not fit is refused here, at OTHER, because the line of the call is not in the
 * user's text.  The first line has the columns of the user's, since "foreach" is as long as "compose". */
#include <string.h>

#include "family/compose_rules.h"

enum { MOST_ARGS = KILN_ROW_MAX_NAMED }; /* of a call */

typedef struct foreach_line {
    const kiln_source *within;
    const kiln_row_short *line;
    kiln_arena scratch; /* for what is not needed after the text has been written */
    const char *tail;   /* the schema of NAME after NAME */
    size_t ntail;
    const kiln_schema *own, *called;
    const char *called_name; /* "aten::add.Tensor" */
    int to[MOST_ARGS];       /* argument a of NAME goes to this one of OTHER */
    uint64_t walked;         /* bit a: argument a of NAME is a list of which each call gets an item */
    const char *clauses_end;
} foreach_line;

#define REFUSE(f, status, ...) KILN_FAIL_AT((f)->within, (f)->line->at, status, __VA_ARGS__)

/* -- the schema of NAME ---------------------------------------------------------------------------------------- */

static kiln_status find_listed(foreach_line *f, const kiln_schema_list *list) {
    const char *name = f->line->name;
    kiln_schema_line line;
    kiln_sb full;
    kiln_sb_init(&full);
    kiln_sb_printf(&full, "%s%s", strstr(name, "::") ? "" : "aten::", name);
    bool failed = full.failed, torch = !failed && strncmp(full.p, "aten::", 6) == 0;
    bool listed = torch && list && kiln_schema_list_find(list, full.p, full.len, &line);
    kiln_sb_fini(&full);
    if (failed) return KILN_NOMEM();
    if (listed) {
        f->tail = line.text + line.name;
        f->ntail = line.n - line.name;
        return KILN_OK;
    }
    if (torch && list)
        return KILN_FAIL_AT(f->within, f->line->head, KILN_E_NOTFOUND,
                            "PyTorch has no operator %s%s; use a namespace of your own",
                            strstr(name, "::") ? "" : "aten::", name);
    return KILN_FAIL_AT(f->within, f->line->head, KILN_E_PARSE,
                        "%s is not in PyTorch's list of schemas; state its schema, as in 'foreach "
                        "my::scale(Tensor[] x, Scalar k) -> Tensor[] = mul.Scalar'",
                        name);
}

static kiln_status find_schema(foreach_line *f, const kiln_schema_list *list) {
    const kiln_row_short *line = f->line;
    kiln_schema *own = NULL;
    kiln_sb text;
    size_t nname = strlen(line->name);
    if (line->stated) {
        f->tail = line->head + nname;
        f->ntail = (size_t)(line->head_end - f->tail);
    } else {
        KILN_TRY(find_listed(f, list));
    }
    kiln_sb_init(&text);
    kiln_sb_puts(&text, line->name);
    kiln_sb_putn(&text, f->tail, f->ntail);
    kiln_status st = text.failed ? KILN_NOMEM() : kiln_schema_parse(&f->scratch, text.p, text.len, &own);
    kiln_sb_fini(&text);
    if (st == KILN_OK && !own->ns[0]) own->ns = "aten";
    f->own = own;
    return st;
}

/* -- which argument goes where ------------------------------------------------------------------------------------ */

static bool is_list(const kiln_type *t) { return kiln_type_strip(t, NULL)->kind == KILN_T_LIST; }

static kiln_status place_argument(foreach_line *f, int a, uint64_t *given) {
    const kiln_param *arg = &f->own->args[a];
    int named = kiln_schema_arg(f->called, arg->name), to = named < 0 ? a : named;
    if (to >= f->called->nargs)
        return REFUSE(f, KILN_E_TYPE, "%s has no argument for '%s'", f->called_name, arg->name);
    const kiln_param *target = &f->called->args[to];
    if (*given >> to & 1)
        return REFUSE(f, KILN_E_TYPE, "%s would get both '%s' and another argument as '%s'", f->called_name,
                      arg->name, target->name);
    *given |= 1ull << to;
    f->to[a] = to;
    const kiln_type *have = arg->type;
    if (is_list(have) && !is_list(target->type)) {
        f->walked |= 1ull << a;
        have = kiln_type_strip(have, NULL)->elem;
    }
    if (kiln_compose_fits(have, target->type)) return KILN_OK;
    return REFUSE(f, KILN_E_TYPE, "'%s' does not have the type that %s takes for '%s'", arg->name,
                  f->called_name, target->name);
}

static kiln_status place_arguments(foreach_line *f) {
    uint64_t given = 0;
    if (f->own->nargs > MOST_ARGS)
        return REFUSE(f, KILN_E_LIMIT, "%s has %d arguments, but a call has at most %d", f->line->name,
                      f->own->nargs, MOST_ARGS);
    for (int a = 0; a < f->own->nargs; a++) KILN_TRY(place_argument(f, a, &given));
    for (int a = 0; a < f->called->nargs; a++)
        if (!(given >> a & 1) && f->called->args[a].def.kind == KILN_DEF_ABSENT)
            return REFUSE(f, KILN_E_TYPE, "%s is called without '%s'", f->called_name,
                          f->called->args[a].name);
    if (f->walked) return KILN_OK;
    return REFUSE(f, KILN_E_TYPE, "no argument of %s is a list of which %s takes an item", f->line->name,
                  f->called_name);
}

/* -- clauses -------------------------------------------------------------------------------------------------------- */

/* Finds where the last clause ends, so that comments after it do not stand between it and the call. */
static kiln_status find_clauses(foreach_line *f, int line) {
    static const char *const ways[] = {"when", "call", "finish", "for", "update"};
    const char *start = f->line->clauses;
    kiln_lex lx;
    kiln_lex_init(&lx, &f->scratch, f->within->name, start, (size_t)(f->within->end - start), line);
    f->clauses_end = start;
    KILN_TRY(kiln_lex_next(&lx));
    while (lx.tok != KILN_TOK_END) {
        for (size_t k = 0; lx.first_on_line && k < sizeof ways / sizeof *ways; k++)
            if (kiln_lex_is(&lx, ways[k]))
                return KILN_FAIL_LINE(KILN_E_PARSE, lx.source, lx.tok_line, lx.tok_col,
                                      "a foreach row has no '%s' clause, since its call follows from the "
                                      "schemas; write a compose row instead",
                                      ways[k]);
        f->clauses_end = lx.p;
        KILN_TRY(kiln_lex_next(&lx));
    }
    return KILN_OK;
}

/* Parses the clauses alone, since the parser of the whole row would take the call for the rest of a clause that breaks off. */
static kiln_status try_clauses(foreach_line *f) {
    const char *start = f->line->clauses;
    int line = f->within->lines_before + 1;
    for (const char *p = f->within->start; p < start; p++) line += *p == '\n';
    KILN_TRY(find_clauses(f, line));
    kiln_row *row = kiln_arena_alloc(&f->scratch, sizeof *row);
    if (!row) return KILN_NOMEM();
    row->source = f->within->name;
    row->family = KILN_FAMILY_COMPOSE;
    row->schema = f->own;
    kiln_lex lx;
    kiln_lex_init(&lx, &f->scratch, row->source, start, (size_t)(f->clauses_end - start), line);
    KILN_TRY(kiln_lex_next(&lx));
    while (lx.tok != KILN_TOK_END) KILN_TRY(kiln_row_clause(&lx, row));
    return KILN_OK;
}

/* -- the text --------------------------------------------------------------------------------------------------------- */

static void write_call(const foreach_line *f, kiln_sb *out) {
    const kiln_schema *s = f->own;
    const char *before = " ";
    kiln_sb_puts(out, "        call for");
    for (int a = 0; a < s->nargs; a++) {
        if (!(f->walked >> a & 1)) continue;
        kiln_sb_printf(out, "%s%s", before, s->args[a].name);
        before = ", ";
    }
    kiln_sb_puts(out, " : ");
    kiln_sb_putn(out, f->line->at, (size_t)(f->line->at_end - f->line->at));
    for (int a = 0; a < s->nargs; a++) {
        const kiln_param *target = &f->called->args[f->to[a]];
        kiln_sb_puts(out, a ? ", " : "(");
        if (f->to[a] != a || target->kwarg_only) kiln_sb_printf(out, "%s=", target->name);
        kiln_sb_puts(out, s->args[a].name);
    }
    kiln_sb_puts(out, ")\n");
}

static kiln_status write_row(const foreach_line *f, kiln_arena *arena, const char **out) {
    const char *start = f->within->start + strlen("foreach"), *clauses = f->line->clauses;
    size_t nclauses = (size_t)(f->clauses_end - clauses);
    kiln_sb text;
    kiln_sb_init(&text);
    kiln_sb_puts(&text, "compose");
    kiln_sb_putn(&text, start, (size_t)(f->line->head - start)); /* the blanks before NAME */
    kiln_sb_puts(&text, f->line->name);
    kiln_sb_putn(&text, f->tail, f->ntail);
    kiln_sb_putc(&text, '\n');
    kiln_sb_putn(&text, clauses, nclauses);
    if (nclauses) kiln_sb_putc(&text, '\n');
    write_call(f, &text);
    *out = text.failed ? NULL : kiln_arena_strndup(arena, text.p, text.len);
    kiln_sb_fini(&text);
    return *out ? KILN_OK : KILN_NOMEM();
}

static kiln_status make_text(foreach_line *f, kiln_arena *arena, const kiln_schema_list *list,
                             const char **out) {
    KILN_TRY(find_schema(f, list));
    KILN_TRY(place_arguments(f));
    KILN_TRY(try_clauses(f));
    return write_row(f, arena, out);
}

kiln_status kiln_foreach_text(kiln_arena *arena, const kiln_foreach *of, const char **out) {
    const kiln_row *other = of->other;
    foreach_line f = {
        .within = of->within, .line = of->line, .called = other->declared, .called_name = other->name};
    if (other->family == KILN_FAMILY_COMPOSE)
        return REFUSE(&f, KILN_E_TYPE, "%s is a compose row itself: call what it calls", other->name);
    if (!kiln_row_served(other))
        return REFUSE(&f, KILN_E_UNSUP, "%s cannot be called: rows of the family '%s' are not served yet",
                      other->name, kiln_family_name(other->family));
    kiln_arena_init(&f.scratch);
    kiln_status st = make_text(&f, arena, of->list, out);
    kiln_arena_free(&f.scratch);
    return st;
}
