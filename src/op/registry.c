/* registry.c - rows of a user's, beside the ones that ship -> one frozen list of operators in order of name.
 *
 * A registry holds the operators of all rows loaded so far; those that ship are found in their own index and
 * merged in by position.  New rows are split off their text, compared with PyTorch's schemas and typed; a row
 * that is there already to the letter is passed over.  Owns one arena; nothing changes once it is made, so any
 * thread may read without a lock. */
#include <stdlib.h>
#include <string.h>

#include "op/forms.h"
#include "op/row.h"
#include "op/shipped.h"

struct kiln_registry {
    kiln_arena arena;
    const kiln_op **ops; /* of users' rows, sorted by name; pointers into this and older registries */
    size_t *place;       /* where each of them stands among all operators */
    size_t n;
    kiln_row **rows; /* new in this registry, in the order of their texts */
    size_t nrows;
    kiln_crules rules; /* what functions do to complex numbers */
    bool shipped;      /* the rows that ship are part of it */
};

const kiln_registry *kiln_registry_shipped(void) {
    static const kiln_registry none_but_shipped = {.shipped = true};
    return &none_but_shipped;
}

/* -- reading ------------------------------------------------------------------------------------------------ */

size_t kiln_registry_count(const kiln_registry *r) { return r->n + (r->shipped ? kiln_shipped.nops : 0); }

kiln_digest kiln_registry_rules_digest(const kiln_registry *r) { return r->rules.digest; }

/* How many of the users' operators stand before place k. */
static size_t users_before(const kiln_registry *r, size_t k) {
    size_t lo = 0, hi = r->n;
    while (lo < hi) {
        size_t mid = (lo + hi) / 2;
        if (r->place[mid] < k)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

const char *kiln_registry_name(const kiln_registry *r, size_t k) {
    size_t u = users_before(r, k);
    return u < r->n && r->place[u] == k ? r->ops[u]->name : kiln_shipped_name(k - u);
}

kiln_status kiln_registry_get(const kiln_registry *r, size_t k, const kiln_op **out) {
    size_t u = users_before(r, k);
    if (u == r->n || r->place[u] != k) return kiln_shipped_get(k - u, out);
    *out = r->ops[u];
    return KILN_OK;
}

size_t kiln_registry_search(const kiln_registry *r, const char *name) {
    size_t lo = 0, hi = kiln_registry_count(r);
    while (lo < hi) {
        size_t mid = (lo + hi) / 2;
        if (strcmp(kiln_registry_name(r, mid), name) < 0)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
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
    bool replace; /* rows of users' give way to new ones of their name */
    bool served;  /* rows of families that are not served are refused */
    bool changed; /* something new was found */
} load;

static kiln_status push_op(void *user, const kiln_op *op) {
    kiln_registry *r = user;
    const kiln_op **grown = kiln_arena_grow(&r->arena, r->ops, r->n, sizeof *grown);
    if (!grown) return KILN_NOMEM();
    r->ops = grown;
    r->ops[r->n++] = op;
    return KILN_OK;
}

static kiln_status defined_already(const kiln_row *row, const char *name, const kiln_row *old) {
    return KILN_FAIL_LINE(KILN_E_ARG, row->source, row->line, row->col,
                          "%s is defined already, at " KILN_WHERE, name, old->source, old->line, old->col);
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

/* *same: the base has this very row. */
static kiln_status look_in_base(const load *l, const kiln_row *row, bool *same) {
    const kiln_op *old = NULL;
    kiln_digest was;
    *same = false;
    if (l->base) KILN_TRY(find_exact(l->base, row->name, &old));
    if (!old) return KILN_OK;
    KILN_TRY(kiln_row_digest(old->row->text, strlen(old->row->text), &was));
    *same = old->form == KILN_FORM_FUNCTIONAL && memcmp(&was, &row->digest, sizeof was) == 0;
    bool gives_way = l->replace && !old->row->shipped && old->form == KILN_FORM_FUNCTIONAL;
    return *same || gives_way ? KILN_OK : defined_already(row, row->name, old->row);
}

static kiln_status add_rule(load *l, const char *source, const char *text, size_t n, int line) {
    kiln_registry *r = l->r;
    const kiln_crule *old;
    kiln_crule *rule;
    KILN_TRY(kiln_crule_parse(&r->arena, source, text, n, line, &rule));
    KILN_TRY(kiln_row_digest(text, n, &rule->digest));
    KILN_TRY(kiln_crules_find(&r->rules, rule->name, &old));
    bool here = old && old->owner == r; /* twice in one text is a mistake */
    if (old && !here && memcmp(&old->digest, &rule->digest, sizeof old->digest) == 0) return KILN_OK;
    if (old && (here || !l->replace || old->shipped))
        return KILN_FAIL_LINE(KILN_E_ARG, source, rule->line, rule->col,
                              "the rule for %s is defined already, at " KILN_WHERE, rule->name, old->source,
                              old->line, old->col);
    rule->owner = r;
    l->changed = true;
    return kiln_crules_put(&r->rules, rule);
}

static kiln_status add_row(load *l, const char *source, const char *text, size_t n, int line) {
    static const char rule[] = "complex ";
    kiln_registry *r = l->r;
    kiln_row *row;
    const kiln_op *op;
    bool same;
    if (n >= sizeof rule && memcmp(text, rule, sizeof rule - 1) == 0)
        return add_rule(l, source, text, n, line);
    KILN_TRY(kiln_row_parse(&r->arena, source, text, n, line, &row));
    if (l->served && !kiln_family_served(row->family))
        return KILN_FAIL_LINE(KILN_E_UNSUP, source, row->line, row->col,
                              "%s: rows of the family '%s' are not served yet", row->name,
                              kiln_family_name(row->family));
    KILN_TRY(look_in_base(l, row, &same));
    if (same) return KILN_OK;
    KILN_TRY(kiln_op_make(&r->arena, row->declared, row, KILN_FORM_FUNCTIONAL, &op));
    KILN_TRY(check_against_list(l, op));
    kiln_row **grown = kiln_arena_grow(&r->arena, r->rows, r->nrows, sizeof *grown);
    if (!grown) return KILN_NOMEM();
    r->rows = grown;
    r->rows[r->nrows++] = row;
    l->changed = true;
    return push_op(r, op);
}

static bool starts_row(const char *line, const char *end) {
    return line < end && *line != ' ' && *line != '\t' && *line != '\r' && *line != '\n' && *line != '#';
}

static bool blank_line(const char *p, const char *end) {
    while (p < end && (*p == ' ' || *p == '\t' || *p == '\r')) p++;
    return p == end || *p == '\n' || *p == '#';
}

/* A row starts at a line that begins in column 1; the indented lines after it belong to it. */
kiln_status kiln_rows_split(const kiln_row_text *t, kiln_row_fn take, void *user) {
    kiln_source within = {t->source, t->text, t->text + t->n, 0};
    const char *end = t->text + t->n, *row = NULL, *nul = t->n ? memchr(t->text, 0, t->n) : NULL;
    int line = 1, row_line = 0;
    if (nul) return KILN_FAIL_AT(&within, nul, KILN_E_PARSE, "a NUL byte in the rows");
    for (const char *p = t->text; p < end; line++) {
        const char *nl = memchr(p, '\n', (size_t)(end - p));
        if (starts_row(p, end)) {
            if (row) KILN_TRY(take(user, t->source, row, (size_t)(p - row), row_line));
            row = p;
            row_line = line;
        } else if (!row && !blank_line(p, end)) {
            return KILN_FAIL_AT(&within, p, KILN_E_PARSE, "an indented line before any row");
        }
        p = nl ? nl + 1 : end;
    }
    return row ? take(user, t->source, row, (size_t)(end - row), row_line) : KILN_OK;
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

static int by_op_name(const void *a, const void *b) {
    return strcmp((*(const kiln_op *const *)a)->name, (*(const kiln_op *const *)b)->name);
}

/* Operators of the base that no new row replaces.  r->ops holds the new ones, sorted. */
static kiln_status keep_old(load *l) {
    size_t nnew = l->r->n;
    const kiln_op **new_ops = l->r->ops;
    for (size_t k = 0; l->base && k < l->base->n; k++) {
        const kiln_op *old = l->base->ops[k], *of_row = &(kiln_op){.name = old->row->name};
        bool replaced = nnew && bsearch(&of_row, new_ops, nnew, sizeof(kiln_op *), by_op_name);
        if (!replaced) KILN_TRY(push_op(l->r, old));
    }
    return KILN_OK;
}

/* Where a row stands among the new ones; 0: it is older. */
static size_t age(const kiln_registry *r, const kiln_row *row) {
    for (size_t k = 0; k < r->nrows; k++)
        if (r->rows[k] == row) return k + 1;
    return 0;
}

/* No two operators have one name; each finds its place among all. */
static kiln_status set_places(kiln_registry *r) {
    r->place = kiln_arena_alloc(&r->arena, r->n * sizeof *r->place);
    if (!r->place) return KILN_NOMEM();
    for (size_t k = 0; k < r->n; k++) {
        const kiln_op *op = r->ops[k], *other = NULL;
        bool found = false;
        size_t before = r->shipped ? kiln_shipped_search(op->name, &found) : 0;
        if (found) KILN_TRY(kiln_shipped_get(before, &other));
        if (!found && k && strcmp(r->ops[k - 1]->name, op->name) == 0) other = r->ops[k - 1];
        if (other && age(r, op->row) < age(r, other->row))
            return defined_already(other->row, op->name, op->row);
        if (other) return defined_already(op->row, op->name, other->row);
        r->place[k] = before + k;
    }
    return KILN_OK;
}

static void sort_ops(kiln_registry *r) {
    if (r->n) qsort(r->ops, r->n, sizeof(kiln_op *), by_op_name);
}

static kiln_status freeze(load *l, kiln_budget budget) {
    kiln_registry *r = l->r;
    for (size_t k = 0; l->list && k < r->nrows; k++)
        KILN_TRY(kiln_forms_of(&r->arena, l->list, r->rows[k], push_op, r));
    sort_ops(r);
    KILN_TRY(keep_old(l));
    sort_ops(r);
    KILN_TRY(set_places(r));
    for (size_t k = 0; k < r->nrows; k++) kiln_row_set_rules(r->rows[k], &r->rules, r->rules.digest);
    for (size_t k = 0; k < r->nrows; k++) r->rows[k]->home = r;
    for (size_t k = 0; k < r->nrows; k++) {
        int ntyped;
        KILN_TRY(kiln_row_check(r, r->rows[k], &budget, &ntyped));
    }
    return KILN_OK;
}

static kiln_status fill(load *l, const kiln_row_text *texts, int ntexts) {
    kiln_registry *r = l->r;
    if (l->base) r->rules = l->base->rules;
    r->shipped = l->base && l->base->shipped;
    if (r->shipped && !r->rules.more)
        r->rules = (kiln_crules){.digest = kiln_shipped.rules_digest, .more = kiln_shipped_find_rule};
    for (int k = 0; k < ntexts; k++) KILN_TRY(add_text(l, &texts[k]));
    size_t nbytes = 0;
    for (int k = 0; k < ntexts; k++) nbytes += texts[k].n;
    return freeze(l, kiln_budget_for(nbytes));
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

void kiln_registry_free(kiln_registry *r) {
    if (!r) return;
    kiln_arena_free(&r->arena);
    kiln_free(r);
}
