/* registry.c - rows of several texts -> one frozen, sorted list of operators.
 *
 * Splits texts into rows, checks each schema against PyTorch's list, and derives the in-place and out
 * forms by finding, in that list, the schemas with the row's signature.  Owns one arena; nothing
 * changes after kiln_registry_new returns, so any thread may read without a lock. */
#include <stdlib.h>
#include <string.h>

#include "op/row.h"

/* One line of PyTorch's schema list. */
typedef struct line_visit {
    const char *line;
    size_t n;
} line_visit;

struct kiln_registry {
    kiln_arena arena;
    const kiln_op **ops; /* sorted by name */
    size_t n, cap;
    kiln_row **rows; /* new in this registry, in source order */
    size_t nrows, rows_cap;
    kiln_crules rules;   /* what functions do to complex numbers */
    const char *schemas; /* PyTorch's list, or NULL */
    size_t schemas_len;
    line_visit *listed; /* its lines by operator name, open addressing; a NULL line is a free place */
    size_t listed_cap;
};

static kiln_status push(kiln_arena *arena, const void ***list, size_t *n, size_t *cap, const void *item) {
    if (*n == *cap) {
        size_t want = *cap ? *cap * 2 : 64;
        const void **grown = kiln_arena_alloc(arena, want * sizeof *grown);
        if (!grown) return KILN_NOMEM();
        if (*n) memcpy(grown, *list, *n * sizeof *grown);
        *list = grown;
        *cap = want;
    }
    (*list)[(*n)++] = item;
    return KILN_OK;
}

static kiln_status push_op(kiln_registry *r, const kiln_op *op) {
    return push(&r->arena, (const void ***)&r->ops, &r->n, &r->cap, op);
}

/* -- operators ------------------------------------------------------------------------------------------- */

static kiln_status new_op(kiln_registry *r, const kiln_schema *schema, const kiln_row *row, kiln_form form,
                          kiln_op **out) {
    kiln_op *op = kiln_arena_alloc(&r->arena, sizeof *op);
    kiln_sb text;
    kiln_sb_init(&text);
    kiln_schema_print(&text, schema);
    size_t name_len = text.p ? strcspn(text.p, "(") : 0;
    char *name = kiln_arena_strndup(&r->arena, text.p ? text.p : "", name_len);
    char *copy = kiln_arena_strndup(&r->arena, text.p ? text.p : "", text.len);
    bool failed = text.failed || !op || !name || !copy;
    kiln_sb_fini(&text);
    if (failed) return KILN_NOMEM();
    op->name = name;
    op->schema_text = copy;
    op->schema = schema;
    op->row = row;
    op->form = form;
    for (int a = 0; a < KILN_MAX_ARGS; a++) op->slot[a] = (int8_t)(a < row->schema->nargs ? a : -1);
    *out = op;
    return KILN_OK;
}

static bool same_arg(const kiln_param *a, const kiln_param *b) {
    return strcmp(a->name, b->name) == 0 && a->kwarg_only == b->kwarg_only && kiln_type_eq(a->type, b->type);
}

static bool writes(const kiln_param *p) { return p->type->alias && p->type->alias->writes; }

/* The same arguments as the row, the first one written to, and returned. */
static bool is_inplace(const kiln_schema *s, const kiln_schema *row) {
    if (s->nargs != row->nargs || row->nrets != 1 || s->nrets != 1 || !writes(&s->args[0])) return false;
    for (int a = 0; a < s->nargs; a++)
        if (!same_arg(&s->args[a], &row->args[a]) || (a && writes(&s->args[a]))) return false;
    return true;
}

/* The same arguments as the row, then one written keyword argument per result. */
static bool is_out(const kiln_schema *s, const kiln_schema *row) {
    if (row->nrets == 0 || s->nargs != row->nargs + row->nrets || s->nrets != row->nrets) return false;
    for (int a = 0; a < s->nargs; a++) {
        if (a >= row->nargs ? !s->args[a].kwarg_only || !writes(&s->args[a])
                            : !same_arg(&s->args[a], &row->args[a]))
            return false;
    }
    return true;
}

/* same_name: s has the row's name, so that it may be an out form; else the name of an in-place form. */
static kiln_status add_form(kiln_registry *r, const kiln_schema *s, const kiln_row *row, bool same_name) {
    const kiln_schema *base = row->declared;
    bool inplace = !same_name && is_inplace(s, base), out = same_name && is_out(s, base);
    if (!inplace && !out) return KILN_OK;
    kiln_op *op;
    KILN_TRY(new_op(r, s, row, inplace ? KILN_FORM_INPLACE : KILN_FORM_OUT, &op));
    op->nout = base->nrets;
    for (int k = 0; k < base->nrets; k++) op->out_arg[k] = (int8_t)(inplace ? 0 : base->nargs + k);
    return push_op(r, op);
}

/* -- PyTorch's list -------------------------------------------------------------------------------------- */

/* "aten::add_" of "aten::add_.Tensor(...": where a line's operator name ends. */
static size_t base_len(const char *line, size_t n) {
    size_t k = 0;
    while (k < n && line[k] != '.' && line[k] != '(') k++;
    return k;
}

static bool next_line(const kiln_registry *r, size_t *at, line_visit *v) {
    if (!r->schemas || *at >= r->schemas_len) return false;
    v->line = r->schemas + *at;
    const char *nl = memchr(v->line, '\n', r->schemas_len - *at);
    v->n = nl ? (size_t)(nl - v->line) : r->schemas_len - *at;
    *at += v->n + 1;
    return true;
}

/* Rows by base name, chained, so that one pass over the list finds all forms. */
enum { BUCKETS = 1024 };

typedef struct by_name {
    const kiln_row *row;
    struct by_name *next;
} by_name;

static kiln_status index_rows(kiln_registry *r, by_name **buckets) {
    for (size_t k = 0; k < r->nrows; k++) {
        by_name *b = kiln_arena_alloc(&r->arena, sizeof *b);
        if (!b) return KILN_NOMEM();
        const char *name = r->rows[k]->schema->name;
        by_name **at = &buckets[kiln_hash64(name, strlen(name)) % BUCKETS];
        b->row = r->rows[k];
        b->next = *at;
        *at = b;
    }
    return KILN_OK;
}

typedef enum naming { NAMED_OUT, NAMED_INPLACE, NAMED_OPERATOR, NAMINGS } naming;

/* The functional name that a form's name stands for: add of add, add of add_, __xor__ of __ixor__.  Returns its
 * length, 0 if the form is not named so. */
static size_t functional_name(const char *name, size_t n, naming how, char *out, size_t room) {
    if (n >= room || n < 2) return 0;
    if (how == NAMED_OUT) {
        memcpy(out, name, n);
        return n;
    }
    if (how == NAMED_INPLACE) {
        if (name[n - 1] != '_') return 0;
        memcpy(out, name, n - 1);
        return n - 1;
    }
    if (n < 6 || memcmp(name, "__i", 3) != 0 || memcmp(name + n - 2, "__", 2) != 0) return 0;
    memcpy(out, "__", 2);
    memcpy(out + 2, name + 3, n - 3);
    return n - 1;
}

static kiln_status match_line(kiln_registry *r, by_name *const *buckets, line_visit v) {
    static const char ns[] = "aten::";
    size_t skip = sizeof ns - 1, end = base_len(v.line, v.n);
    if (v.n < skip || memcmp(v.line, ns, skip) != 0 || end <= skip) return KILN_OK;
    const char *name = v.line + skip;
    size_t n = end - skip;
    kiln_schema *s = NULL;
    for (int how = 0; how < NAMINGS; how++) {
        char base[128];
        size_t len = functional_name(name, n, (naming)how, base, sizeof base);
        for (by_name *b = len ? buckets[kiln_hash64(base, len) % BUCKETS] : NULL; b; b = b->next) {
            const kiln_schema *row = b->row->schema;
            if (strlen(row->name) != len || memcmp(row->name, base, len) != 0 || strcmp(row->ns, "aten") != 0)
                continue;
            if (!s) KILN_TRY(kiln_schema_parse(&r->arena, v.line, v.n, &s));
            KILN_TRY(add_form(r, s, b->row, how == NAMED_OUT));
        }
    }
    return KILN_OK;
}

static kiln_status derive_forms(kiln_registry *r) {
    by_name *buckets[BUCKETS] = {0};
    KILN_TRY(index_rows(r, buckets));
    size_t at = 0;
    line_visit v;
    while (next_line(r, &at, &v)) KILN_TRY(match_line(r, buckets, v));
    return KILN_OK;
}

/* -- PyTorch's list by name, so that a row finds its schema without walking the list ---- */

static size_t name_len(line_visit v) {
    const char *bracket = memchr(v.line, '(', v.n);
    return bracket ? (size_t)(bracket - v.line) : v.n;
}

static kiln_status index_list(kiln_registry *r) {
    size_t at = 0, lines = 0, cap = 64;
    line_visit v;
    while (next_line(r, &at, &v)) lines++;
    while (cap < 2 * lines) cap *= 2;
    r->listed = kiln_arena_alloc(&r->arena, cap * sizeof *r->listed);
    if (!r->listed) return KILN_NOMEM();
    r->listed_cap = cap;
    for (at = 0; next_line(r, &at, &v);) {
        size_t k = kiln_hash64(v.line, name_len(v)) & (cap - 1);
        while (r->listed[k].line) k = (k + 1) & (cap - 1);
        r->listed[k] = v;
    }
    return KILN_OK;
}

/* A row of aten:: must carry PyTorch's schema to the letter. */
static kiln_status check_against_list(const kiln_registry *r, const kiln_op *op) {
    if (!r->schemas || strncmp(op->name, "aten::", 6) != 0) return KILN_OK;
    size_t n = strlen(op->name), k = kiln_hash64(op->name, n) & (r->listed_cap - 1);
    for (; r->listed[k].line; k = (k + 1) & (r->listed_cap - 1)) {
        line_visit v = r->listed[k];
        if (name_len(v) != n || memcmp(v.line, op->name, n) != 0) continue;
        if (strlen(op->schema_text) == v.n && memcmp(op->schema_text, v.line, v.n) == 0) return KILN_OK;
        return KILN_FAIL(KILN_E_PARSE, "%s:%d:%d: the schema of %s is not PyTorch's, which is: %.*s",
                         op->row->source, op->row->line, op->row->col, op->name, (int)v.n, v.line);
    }
    return KILN_FAIL(KILN_E_NOTFOUND, "%s:%d:%d: PyTorch has no operator %s; use a namespace of your own",
                     op->row->source, op->row->line, op->row->col, op->name);
}

/* -- rows --------------------------------------------------------------------------------------------------- */

static kiln_status add_row(kiln_registry *r, bool served, const char *source, const char *text, size_t n,
                           int line) {
    kiln_row *row;
    kiln_op *op;
    static const char rule[] = "complex ";
    if (n >= sizeof rule && memcmp(text, rule, sizeof rule - 1) == 0)
        return kiln_crules_add(&r->rules, &r->arena, source, text, n, line);
    KILN_TRY(kiln_row_parse(&r->arena, source, text, n, line, &row));
    if (served && !kiln_family_served(row->family))
        return KILN_FAIL(KILN_E_UNSUP, "%s:%d:%d: %s: rows of the family '%s' are not served yet", source,
                         row->line, row->col, row->name, kiln_family_name(row->family));
    row->rules = &r->rules;
    KILN_TRY(new_op(r, row->declared, row, KILN_FORM_FUNCTIONAL, &op));
    KILN_TRY(check_against_list(r, op));
    KILN_TRY(push(&r->arena, (const void ***)&r->rows, &r->nrows, &r->rows_cap, row));
    return push_op(r, op);
}

static bool starts_row(const char *line, const char *end) {
    return line < end && *line != ' ' && *line != '\t' && *line != '\r' && *line != '\n' && *line != '#';
}

static bool blank_line(const char *p, const char *end) {
    while (p < end && (*p == ' ' || *p == '\t' || *p == '\r')) p++;
    return p == end || *p == '\n' || *p == '#';
}

static kiln_status refuse_nul(const kiln_row_text *t) {
    const char *nul = memchr(t->text, 0, t->n), *start = t->text;
    int line = 1;
    if (!nul) return KILN_OK;
    for (const char *p = t->text; p < nul; p++) {
        if (*p != '\n') continue;
        line++;
        start = p + 1;
    }
    return KILN_FAIL(KILN_E_PARSE, "%s:%d:%d: a NUL byte in the rows", t->source, line,
                     (int)(nul - start) + 1);
}

/* A row starts at a line that begins in column 1; the indented lines after it belong to it. */
static kiln_status add_text(kiln_registry *r, const kiln_row_text *t) {
    if (!t->n) return KILN_OK;
    const char *end = t->text + t->n, *row = NULL;
    int line = 1, row_line = 0;
    KILN_TRY(refuse_nul(t));
    char *source = kiln_arena_strndup(&r->arena, t->source, strlen(t->source));
    if (!source) return KILN_NOMEM();
    for (const char *p = t->text; p < end; line++) {
        const char *nl = memchr(p, '\n', (size_t)(end - p));
        if (starts_row(p, end)) {
            if (row) KILN_TRY(add_row(r, t->served, source, row, (size_t)(p - row), row_line));
            row = p;
            row_line = line;
        } else if (!row && !blank_line(p, end)) {
            return KILN_FAIL(KILN_E_PARSE, "%s:%d:1: an indented line before any row", source, line);
        }
        p = nl ? nl + 1 : end;
    }
    return row ? add_row(r, t->served, source, row, (size_t)(end - row), row_line) : KILN_OK;
}

static int by_op_name(const void *a, const void *b) {
    return strcmp((*(const kiln_op *const *)a)->name, (*(const kiln_op *const *)b)->name);
}

/* Rows of the base have no place of their own here: they come first. */
static size_t place(const kiln_registry *r, const kiln_op *op) {
    for (size_t k = 0; k < r->nrows; k++)
        if (r->rows[k] == op->row) return k + 1;
    return 0;
}

static kiln_status defined_twice(const kiln_registry *r, const kiln_op *a, const kiln_op *b) {
    bool in_order = place(r, a) <= place(r, b);
    const kiln_row *first = (in_order ? a : b)->row, *second = (in_order ? b : a)->row;
    return KILN_FAIL(KILN_E_ARG, "%s:%d:%d: %s is defined already, at %s:%d:%d", second->source, second->line,
                     second->col, a->name, first->source, first->line, first->col);
}

/* What a row computes for complex numbers depends on the rules, so its digest does. */
static void add_rules_to_digest(const kiln_registry *r, kiln_row *row) {
    bool complex = row->takes & (KILN_DT(KILN_C64) | KILN_DT(KILN_C128));
    kiln_digest pair[2] = {row->digest, r->rules.digest};
    if (complex) row->digest = kiln_hash128(pair, sizeof pair);
}

static kiln_status freeze(kiln_registry *r, kiln_steps steps) {
    if (r->n) qsort(r->ops, r->n, sizeof *r->ops, by_op_name);
    for (size_t k = 1; k < r->n; k++)
        if (strcmp(r->ops[k - 1]->name, r->ops[k]->name) == 0)
            return defined_twice(r, r->ops[k - 1], r->ops[k]);
    for (size_t k = 0; k < r->nrows; k++) {
        int ntyped;
        add_rules_to_digest(r, r->rows[k]);
        KILN_TRY(kiln_row_check(r, r->rows[k], &steps, &ntyped));
    }
    return KILN_OK;
}

static kiln_status fill(kiln_registry *r, const kiln_registry *base, const kiln_row_text *texts, int ntexts) {
    if (base) r->rules = base->rules;
    if (r->schemas) KILN_TRY(index_list(r));
    for (size_t k = 0; base && k < base->n; k++) KILN_TRY(push_op(r, base->ops[k]));
    for (int k = 0; k < ntexts; k++) KILN_TRY(add_text(r, &texts[k]));
    KILN_TRY(derive_forms(r));
    size_t nbytes = 0;
    for (int k = 0; k < ntexts; k++) nbytes += texts[k].n;
    return freeze(r, kiln_steps_for(nbytes));
}

kiln_status kiln_registry_new(const kiln_registry *base, const kiln_row_text *texts, int ntexts,
                              const char *schemas, size_t schemas_len, kiln_registry **out) {
    kiln_registry *r = kiln_calloc(1, sizeof *r);
    if (!r) return KILN_NOMEM();
    kiln_arena_init(&r->arena);
    r->schemas = schemas;
    r->schemas_len = schemas_len;
    kiln_status st = fill(r, base, texts, ntexts);
    if (st == KILN_OK)
        *out = r;
    else
        kiln_registry_free(r);
    return st;
}

void kiln_registry_free(kiln_registry *r) {
    if (!r) return;
    kiln_arena_free(&r->arena);
    kiln_free(r);
}

size_t kiln_registry_count(const kiln_registry *r) { return r->n; }
const kiln_op *kiln_registry_at(const kiln_registry *r, size_t i) { return i < r->n ? r->ops[i] : NULL; }
