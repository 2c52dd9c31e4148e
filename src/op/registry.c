/* registry.c - rows of a user's, beside the ones that ship -> one frozen list of operators in order of name.
 *
 * A registry has the operators of all rows loaded so far, in a tree that shares its nodes with the older registry it was made
 * from: a load costs its own rows, however many there are already.  Operators that ship are found in their own index and
 * merged in by position.  New rows are split off their text, compared with PyTorch's schemas and typed; a row
 * that is there already to the letter is passed over.  Owns one arena, with the rows and nodes that are new; nothing changes
 * once it is made, so any thread may read without a lock. */
#include <string.h>

#include "op/forms.h"
#include "op/op_tree.h"
#include "op/row.h"
#include "op/shipped.h"

struct kiln_registry {
    kiln_arena arena;
    const kiln_op_tree *users; /* operators that users' rows define; shares nodes with older registries */
    kiln_row **rows;           /* rows new in this registry, in the order in which they were loaded */
    size_t nrows;
    const kiln_crules
        *rules; /* what functions do to complex numbers; own_rules, or an older registry's; NULL: shipped */
    kiln_crules *own_rules; /* NULL: this registry adds none */
    bool shipped;           /* the rows that ship are part of it */
    void *owner;            /* of kiln_registry_set_owner */
};

const kiln_registry *kiln_registry_shipped(void) {
    static const kiln_registry none_but_shipped = {.shipped = true};
    return &none_but_shipped;
}

/* -- reading ------------------------------------------------------------------------------------------------ */

size_t kiln_registry_count(const kiln_registry *r) {
    return kiln_op_tree_count(r->users) + (r->shipped ? kiln_shipped.nops : 0);
}

kiln_digest kiln_registry_rules_digest(const kiln_registry *r) {
    return r->rules ? r->rules->digest : (kiln_digest){0, 0};
}

void kiln_registry_set_owner(kiln_registry *r, void *owner) { r->owner = owner; }
void *kiln_registry_owner(const kiln_registry *r) { return r->owner; }

const char *kiln_registry_name(const kiln_registry *r, size_t k) {
    size_t before;
    const kiln_op *op = kiln_op_tree_at(r->users, k, &before);
    return op ? op->name : kiln_shipped_name(k - before);
}

kiln_status kiln_registry_get(const kiln_registry *r, size_t k, const kiln_op **out) {
    size_t before;
    *out = kiln_op_tree_at(r->users, k, &before);
    return *out ? KILN_OK : kiln_shipped_get(k - before, out);
}

kiln_op_entry kiln_op_entry_of(const kiln_op *op) {
    return (kiln_op_entry){.name = op->name,
                           .schema = op->schema_text,
                           .nschema = strlen(op->schema_text),
                           .served = kiln_row_served(op->row),
                           .op = op};
}

kiln_status kiln_registry_entry(const kiln_registry *r, size_t k, kiln_op_entry *out) {
    size_t before;
    const kiln_op *op = kiln_op_tree_at(r->users, k, &before);
    if (!op) return kiln_shipped_entry(k - before, out);
    *out = kiln_op_entry_of(op);
    return KILN_OK;
}

size_t kiln_registry_search(const kiln_registry *r, const char *name) {
    size_t users;
    bool found;
    (void)kiln_op_tree_find(r->users, name, &users);
    return users + (r->shipped ? kiln_shipped_search(name, &found) : 0);
}

/* The operator of exactly this name, or NULL. */
static kiln_status find_exact(const kiln_registry *r, const char *name, const kiln_op **out) {
    size_t k = kiln_registry_search(r, name);
    *out = NULL;
    if (k == kiln_registry_count(r) || strcmp(kiln_registry_name(r, k), name) != 0) return KILN_OK;
    return kiln_registry_get(r, k, out);
}

/* -- loading ------------------------------------------------------------------------------------------------ */

/* What one load works with. */
typedef struct load {
    kiln_registry *r;
    const kiln_registry *base; /* or NULL */
    const kiln_schema_list *list;
    bool replace;          /* rows of users' give way to new ones of their name */
    bool served;           /* rows of families that are not served are refused */
    bool changed;          /* something new was found */
    size_t copied;         /* bytes that short rows lack of the rows that they stand for */
    size_t nbytes;         /* of all texts */
    const kiln_op **named; /* the operator of each row of the texts, in their order, new or not */
    size_t nnamed;
    const kiln_op_tree *above; /* the same by name, as these texts have them, for rows that name others */
    const kiln_op **made;      /* the operators of new rows, with their forms */
    size_t nmade;
} load;

static kiln_status push_op(void *user, const kiln_op *op) {
    load *l = user;
    const kiln_op **grown = kiln_arena_grow(&l->r->arena, l->made, l->nmade, sizeof *grown);
    if (!grown) return KILN_NOMEM();
    l->made = grown;
    l->made[l->nmade++] = op;
    return KILN_OK;
}

/* The way out depends on whose the old row is: Kiln's own rows are never replaced. */
static kiln_status defined_already(const kiln_row *row, const char *name, const kiln_row *old) {
    bool own = false;
    (void)kiln_shipped_search(name, &own);
    return KILN_FAIL_LINE(KILN_E_ARG, row->source, row->line, row->col,
                          "%s is defined already, at " KILN_WHERE "; %s", name, old->source, old->line,
                          old->col,
                          own ? "rows of Kiln's own are not replaced: use a namespace of your own"
                              : "replace=True in Python, and kiln_ops_replace in C, replace it");
}

/* A row of aten:: must carry PyTorch's schema to the letter. */
static kiln_status check_against_list(const load *l, const kiln_op *op) {
    kiln_schema_line line;
    const kiln_row *row = op->row;
    if (!l->list || strncmp(op->name, "aten::", 6) != 0) return KILN_OK;
    if (!kiln_schema_list_find(l->list, op->name, strlen(op->name), &line))
        return KILN_FAIL_LINE(KILN_E_NOTFOUND, row->source, row->line, row->col,
                              "PyTorch has no operator %s; use a namespace of your own", op->name);
    if (strlen(op->schema_text) == line.n && memcmp(op->schema_text, line.text, line.n) == 0) return KILN_OK;
    return KILN_FAIL_LINE(KILN_E_PARSE, row->source, row->line, row->col,
                          "the schema of %s is not PyTorch's, which is: %.*s", op->name, (int)line.n,
                          line.text);
}

/* *same: the base's functional operator whose row has the digest of `row`, or NULL.  Fails if the base has the
 * name with another row that must not be replaced. */
static kiln_status look_in_base(const load *l, const kiln_row *row, const kiln_op **same) {
    const kiln_op *old = NULL;
    kiln_digest was;
    *same = NULL;
    if (l->base) KILN_TRY(find_exact(l->base, row->name, &old));
    if (!old) return KILN_OK;
    KILN_TRY(kiln_row_digest(old->row->text, strlen(old->row->text), &was));
    bool functional = old->form == KILN_FORM_FUNCTIONAL;
    if (functional && memcmp(&was, &row->digest, sizeof was) == 0) return *same = old, KILN_OK;
    bool gives_way = l->replace && !old->row->shipped && functional;
    return gives_way ? KILN_OK : defined_already(row, row->name, old->row);
}

/* op: the operator that the row names, which may be an older one; here: that of the row in this load's text. */
static kiln_status add_named(load *l, const kiln_op *op, const kiln_op *here) {
    const kiln_op **grown = kiln_arena_grow(&l->r->arena, l->named, l->nnamed, sizeof *grown);
    if (!grown) return KILN_NOMEM();
    l->named = grown;
    l->named[l->nnamed++] = op;
    if (kiln_op_tree_find(l->above, here->name, NULL)) return KILN_OK;
    return kiln_op_tree_put(&l->r->arena, &l->above, here, 0);
}

/* The registry's own rules, which may be added to: at first those that it was made with. */
static kiln_status own_rules(kiln_registry *r, kiln_crules **out) {
    if (!r->own_rules) {
        r->own_rules = kiln_arena_alloc(&r->arena, sizeof *r->own_rules);
        if (!r->own_rules) return KILN_NOMEM();
        if (r->rules) *r->own_rules = *r->rules;
    }
    r->rules = *out = r->own_rules;
    return KILN_OK;
}

static kiln_status add_rule(load *l, const char *source, const char *text, size_t n, int line) {
    kiln_registry *r = l->r;
    const kiln_crule *old;
    kiln_crule *rule;
    kiln_crules *rules;
    KILN_TRY(own_rules(r, &rules));
    KILN_TRY(kiln_crule_parse(&r->arena, source, text, n, line, &rule));
    KILN_TRY(kiln_row_digest(text, n, &rule->digest));
    KILN_TRY(kiln_crules_find(rules, rule->name, &old));
    bool here = old && old->owner == r; /* twice in one text is a mistake */
    if (old && !here && memcmp(&old->digest, &rule->digest, sizeof old->digest) == 0) return KILN_OK;
    if (old && (here || !l->replace || old->shipped))
        return KILN_FAIL_LINE(KILN_E_ARG, source, rule->line, rule->col,
                              "the rule for %s is defined already, at " KILN_WHERE, rule->name, old->source,
                              old->line, old->col);
    rule->owner = r;
    l->changed = true;
    return kiln_crules_put(rules, rule);
}

/* The functional operator of this name, of a row that stands before in this load's texts or was loaded before; or NULL. */
static kiln_status find_above(const load *l, const char *name, const kiln_op **out) {
    *out = kiln_op_tree_find(l->above, name, NULL);
    if (!*out && l->base) KILN_TRY(find_exact(l->base, name, out));
    if (*out && (*out)->form != KILN_FORM_FUNCTIONAL) *out = NULL;
    return KILN_OK;
}

/* The whole rows of a load together are longer than its texts by no more than the texts have, and MADE_BYTES, so that a short text does
 * not become a long one. */
static kiln_status count_copied(load *l, const kiln_source *within, const char *at, size_t nwhole,
                                const char *what) {
    enum { MADE_BYTES = 8192 };
    size_t n = (size_t)(within->end - within->start);
    l->copied += nwhole > n ? nwhole - n : 0;
    if (l->copied <= l->nbytes + MADE_BYTES) return KILN_OK;
    return KILN_FAIL_AT(within, at, KILN_E_LIMIT, "the %s of a text repeat more than %zu bytes", what,
                        l->nbytes + MADE_BYTES);
}

static kiln_status whole_of_short(load *l, const kiln_source *within, kiln_written *w) {
    kiln_row_short s;
    const kiln_op *other;
    KILN_TRY(kiln_row_short_parse(&l->r->arena, within, &s));
    KILN_TRY(find_above(l, s.other, &other));
    if (!other)
        return KILN_FAIL_AT(within, s.at, KILN_E_NOTFOUND,
                            "no row of the name %s stands above; %s a row that was loaded before", s.other,
                            s.foreach ? "a foreach row calls" : "an alias names");
    KILN_TRY(kiln_row_short_text(&l->r->arena, within, &s, l->list, other->row, &w->text));
    w->n = strlen(w->text);
    w->made = true;
    return count_copied(l, within, s.at, w->n, s.foreach ? "foreach rows" : "aliases");
}

/* OTHER stands in the same text, so that messages about what is taken over from it name a place that the reader has at hand. */
static kiln_status whole_of_like(load *l, const kiln_source *within, kiln_written *w) {
    kiln_row_like s;
    KILN_TRY(kiln_row_like_parse(&l->r->arena, within, &s));
    if (!s.other) return KILN_OK;
    const kiln_op *other = kiln_op_tree_find(l->above, s.other, NULL);
    if (!other || other->row->source != w->source)
        return KILN_FAIL_AT(within, s.at, KILN_E_NOTFOUND, "no row of the name %s stands above in this text",
                            s.other);
    KILN_TRY(kiln_row_like_text(&l->r->arena, within, &s, other->row, w));
    w->made = true;
    return count_copied(l, within, s.at, w->n, "rows that are like others");
}

/* *w: a row that may be short, or like another; becomes the whole row. */
static kiln_status make_whole(load *l, kiln_written *w) {
    kiln_source within = {w->source, w->text, w->text + w->n, w->line - 1};
    if (kiln_row_is_short(w->text, w->n)) return whole_of_short(l, &within, w);
    return kiln_row_may_be_like(w->text, w->n) ? whole_of_like(l, &within, w) : KILN_OK;
}

static kiln_status add_row(load *l, const char *source, const char *text, size_t n, int line) {
    static const char rule[] = "complex ";
    kiln_registry *r = l->r;
    kiln_row *row;
    const kiln_op *op, *same;
    if (n >= sizeof rule && memcmp(text, rule, sizeof rule - 1) == 0)
        return add_rule(l, source, text, n, line);
    kiln_written w = {.source = source, .text = text, .n = n, .line = line};
    KILN_TRY(make_whole(l, &w));
    KILN_TRY(kiln_row_parse(&r->arena, &w, &row));
    if (l->served && !kiln_family_served(row->family))
        return KILN_FAIL_LINE(KILN_E_UNSUP, source, row->line, row->col,
                              "%s: rows of the family '%s' are not served yet", row->name,
                              kiln_family_name(row->family));
    KILN_TRY(look_in_base(l, row, &same));
    KILN_TRY(kiln_op_make(&r->arena, row->declared, row, KILN_FORM_FUNCTIONAL, &op));
    if (same) return add_named(l, same, op);
    KILN_TRY(check_against_list(l, op));
    kiln_row **grown = kiln_arena_grow(&r->arena, r->rows, r->nrows, sizeof *grown);
    if (!grown) return KILN_NOMEM();
    r->rows = grown;
    r->rows[r->nrows++] = row;
    l->changed = true;
    KILN_TRY(add_named(l, op, op));
    return push_op(l, op);
}

static bool starts_row(const char *line, const char *end) {
    return line < end && *line != ' ' && *line != '\t' && *line != '\r' && *line != '\n' && *line != '#';
}

static bool blank_line(const char *p, const char *end) {
    while (p < end && (*p == ' ' || *p == '\t' || *p == '\r')) p++;
    return p == end || *p == '\n' || *p == '#';
}

/* A row starts at a line that begins in column 1.  The indented lines after that line belong to the row; blank lines and comments
 * behind the last of them do not. */
kiln_status kiln_rows_split(const kiln_row_text *t, kiln_row_fn take, void *user) {
    kiln_source within = {t->source, t->text, t->text + t->n, 0};
    const char *end = t->text + t->n, *row = NULL, *row_end = NULL,
               *nul = t->n ? memchr(t->text, 0, t->n) : NULL;
    int line = 1, row_line = 0;
    if (nul) return KILN_FAIL_AT(&within, nul, KILN_E_PARSE, "a NUL byte in the rows");
    for (const char *p = t->text; p < end; line++) {
        const char *nl = memchr(p, '\n', (size_t)(end - p));
        if (starts_row(p, end)) {
            if (row) KILN_TRY(take(user, t->source, row, (size_t)(row_end - row), row_line));
            row = p;
            row_line = line;
        } else if (!row && !blank_line(p, end)) {
            return KILN_FAIL_AT(&within, p, KILN_E_PARSE, "an indented line before any row");
        }
        bool blank = blank_line(p, end);
        p = nl ? nl + 1 : end;
        if (!blank) row_end = p;
    }
    return row ? take(user, t->source, row, (size_t)(row_end - row), row_line) : KILN_OK;
}

static kiln_status take_row(void *user, const char *source, const char *text, size_t n, int line) {
    return add_row(user, source, text, n, line);
}

static kiln_status add_text(load *l, const kiln_row_text *t) {
    kiln_row_text kept = *t;
    kept.source = kiln_arena_strndup(&l->r->arena, t->source, strlen(t->source));
    l->served = t->served;
    return kept.source ? kiln_rows_split(&kept, take_row, l) : KILN_NOMEM();
}

/* -- freezing ------------------------------------------------------------------------------------------------ */

/* Takes the operators of the row out of the registry: all its forms, which only a row of aten:: has. */
static kiln_status drop_row(kiln_registry *r, const kiln_row *row) {
    if (strncmp(row->name, "aten::", 6) != 0) return kiln_op_tree_drop(&r->arena, &r->users, row->name);
    for (size_t k = 0; k < kiln_op_tree_count(r->users);) {
        const kiln_op *op = kiln_op_tree_nth(r->users, k);
        if (op->row == row)
            KILN_TRY(kiln_op_tree_drop(&r->arena, &r->users, op->name));
        else
            k++;
    }
    return KILN_OK;
}

/* Takes the user's row of this name out; *found: there was one. */
static kiln_status drop_named(kiln_registry *r, const char *name, bool *found) {
    const kiln_op *old = kiln_op_tree_find(r->users, name, NULL);
    *found = old && strcmp(old->row->name, name) == 0;
    return *found ? drop_row(r, old->row) : KILN_OK;
}

/* Where a row stands among the new ones; 0: it is older. */
static size_t age(const kiln_registry *r, const kiln_row *row) {
    for (size_t k = 0; k < r->nrows; k++)
        if (r->rows[k] == row) return k + 1;
    return 0;
}

/* No two operators have one name. */
static kiln_status put_op(kiln_registry *r, const kiln_op *op) {
    const kiln_op *other = kiln_op_tree_find(r->users, op->name, NULL);
    bool found = false;
    size_t before = r->shipped ? kiln_shipped_search(op->name, &found) : 0;
    if (found) KILN_TRY(kiln_shipped_get(before, &other));
    if (other && age(r, op->row) < age(r, other->row)) return defined_already(other->row, op->name, op->row);
    if (other) return defined_already(op->row, op->name, other->row);
    return kiln_op_tree_put(&r->arena, &r->users, op, before);
}

static kiln_status freeze(load *l, kiln_budget budget) {
    kiln_registry *r = l->r;
    bool found;
    for (size_t k = 0; l->list && k < r->nrows; k++)
        KILN_TRY(kiln_forms_of(&r->arena, l->list, r->rows[k], push_op, l));
    for (size_t k = 0; l->replace && k < r->nrows; k++) KILN_TRY(drop_named(r, r->rows[k]->name, &found));
    for (size_t k = 0; k < l->nmade; k++) KILN_TRY(put_op(r, l->made[k]));
    for (size_t k = 0; k < r->nrows; k++) kiln_row_set_rules(r->rows[k], r->rules, r->rules->digest);
    for (size_t k = 0; k < r->nrows; k++) r->rows[k]->home = r;
    for (size_t k = 0; k < r->nrows; k++) {
        int ntyped;
        KILN_TRY(kiln_row_check(r, r->rows[k], &budget, &ntyped));
    }
    return KILN_OK;
}

/* The rules that rows are read with: the base's, or those that ship. */
static kiln_status start_rules(load *l) {
    kiln_registry *r = l->r;
    kiln_crules *first;
    if (l->base) r->rules = l->base->rules;
    if (r->rules) return KILN_OK;
    KILN_TRY(own_rules(r, &first));
    if (r->shipped)
        *first = (kiln_crules){.digest = kiln_shipped.rules_digest, .more = kiln_shipped_find_rule};
    return KILN_OK;
}

static kiln_status fill(load *l, const kiln_row_text *texts, int ntexts) {
    kiln_registry *r = l->r;
    r->users = l->base ? l->base->users : NULL;
    r->shipped = l->base && l->base->shipped;
    KILN_TRY(start_rules(l));
    for (int k = 0; k < ntexts; k++) l->nbytes += texts[k].n;
    for (int k = 0; k < ntexts; k++) KILN_TRY(add_text(l, &texts[k]));
    return freeze(l, kiln_budget_for(l->nbytes));
}

kiln_status kiln_registry_new(const kiln_registry *base, const kiln_row_text *texts, int ntexts,
                              const kiln_schema_list *list, bool replace, kiln_registry **out) {
    load l = {.base = base, .list = list, .replace = replace, .r = kiln_calloc(1, sizeof *l.r)};
    if (!l.r) return KILN_NOMEM();
    kiln_arena_init(&l.r->arena);
    kiln_status st = fill(&l, texts, ntexts);
    bool keep = st == KILN_OK && (l.changed || !base);
    if (st == KILN_OK) *out = keep ? l.r : NULL;
    if (!keep) kiln_registry_free(l.r);
    return st;
}

/* Gives the operator its serial number. */
static void number_for_life(const kiln_op *op) {
    static _Atomic uint64_t last;
    ((kiln_op *)op)->serial = 1 + atomic_fetch_add(&last, 1);
}

kiln_status kiln_registry_alone(const kiln_registry *base, const kiln_row_text *text, const kiln_op **op,
                                const kiln_op **form, kiln_registry **out) {
    load l = {.base = base, .r = kiln_calloc(1, sizeof *l.r)};
    if (!l.r) return KILN_NOMEM();
    kiln_arena_init(&l.r->arena);
    kiln_status st = fill(&l, text, 1);
    if (st == KILN_OK && l.r->nrows != 1)
        st = KILN_FAIL(KILN_E_ARG, "%s: found %zu new rows but expected 1", text->source, l.r->nrows);
    if (st == KILN_OK && form) st = kiln_form_out(&l.r->arena, l.r->rows[0], form);
    if (st == KILN_OK) {
        number_for_life(*op = l.made[0]);
        if (form) number_for_life(*form);
        *out = l.r;
    } else {
        kiln_registry_free(l.r);
    }
    return st;
}

kiln_status kiln_registry_draft(const kiln_registry *base, const kiln_row_text *text,
                                const kiln_schema_list *list, kiln_draft_fn visit, void *user) {
    load l = {.base = base, .list = list, .replace = true, .r = kiln_calloc(1, sizeof *l.r)};
    if (!l.r) return KILN_NOMEM();
    kiln_arena_init(&l.r->arena);
    kiln_status st = fill(&l, text, 1);
    for (size_t k = 0; st == KILN_OK && k < l.nnamed; k++) st = visit(user, l.named[k]);
    kiln_registry_free(l.r);
    return st;
}

kiln_status kiln_registry_without(const kiln_registry *base, const char *const *names, size_t n,
                                  kiln_registry **out) {
    kiln_registry *r = kiln_calloc(1, sizeof *r);
    bool changed = false, found;
    kiln_status st = KILN_OK;
    if (!r) return KILN_NOMEM();
    kiln_arena_init(&r->arena);
    r->users = base->users;
    r->rules = base->rules;
    r->shipped = base->shipped;
    for (size_t k = 0; st == KILN_OK && k < n; k++) {
        st = drop_named(r, names[k], &found);
        changed = changed || found;
    }
    bool keep = st == KILN_OK && changed;
    if (st == KILN_OK) *out = keep ? r : NULL;
    if (!keep) kiln_registry_free(r);
    return st;
}

void kiln_registry_free(kiln_registry *r) {
    if (!r) return;
    kiln_arena_free(&r->arena);
    kiln_free(r);
}
