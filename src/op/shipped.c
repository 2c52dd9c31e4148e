/* shipped.c - an operator of the library's own rows, parsed when it is first asked for.
 *
 * Readers look at one atomic pointer.  Whoever finds it empty parses under the lock and publishes; what is
 * parsed lives in one arena until the process ends, so an operator is good for every context.  The rows were
 * checked when Kiln was built: only memory can be wanting here.  Must not know users' rows. */
#include <pthread.h>
#include <string.h>

#include "base/text_entry.h"
#include "op/forms.h"
#include "op/row.h"
#include "op/shipped.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards the arena and all parsing */
static kiln_arena arena;

void kiln_shipped_lock(bool on) {
    if (on)
        pthread_mutex_lock(&lock);
    else
        pthread_mutex_unlock(&lock);
}

const char *kiln_shipped_name(size_t k) { return kiln_shipped.names + kiln_shipped.ops[k].name; }

static const char *rule_name(size_t k) { return kiln_shipped.names + kiln_shipped.rules[k].name; }

/* Where `name` stands among the n sorted names that `at` tells, or would stand. */
static size_t search(const char *(*at)(size_t k), size_t n, const char *name, bool *found) {
    size_t lo = 0, hi = n;
    while (lo < hi) {
        size_t mid = (lo + hi) / 2;
        if (strcmp(at(mid), name) < 0)
            lo = mid + 1;
        else
            hi = mid;
    }
    *found = lo < n && strcmp(at(lo), name) == 0;
    return lo;
}

size_t kiln_shipped_search(const char *name, bool *found) {
    return search(kiln_shipped_name, kiln_shipped.nops, name, found);
}

/* -- parsing, under the lock ------------------------------------------------------------------------------ */

static const char *text_of(const kiln_shipped_text *t) { return kiln_text_ops[t->file].text + t->start; }

/* "logic.ops" for messages. */
static kiln_status file_name(const kiln_shipped_text *t, const char **out) {
    kiln_sb name;
    kiln_sb_init(&name);
    kiln_sb_printf(&name, "%s.ops", kiln_text_ops[t->file].name);
    *out = name.failed ? NULL : kiln_arena_strndup(&arena, name.p, name.len);
    kiln_sb_fini(&name);
    return *out ? KILN_OK : KILN_NOMEM();
}

static kiln_status parse_row(size_t k, const kiln_row **out);

/* What a short row names stands before it, and is parsed first. */
static kiln_status find_named(const char *name, const kiln_row **out) {
    bool found;
    size_t k = kiln_shipped_search(name, &found);
    if (!found) return KILN_BUG("a row that names %s ships without it", name);
    return parse_row(kiln_shipped.ops[k].row, out);
}

/* *w: a row that may be short, or like another; becomes the whole row. */
static kiln_status make_whole(kiln_written *w) {
    kiln_source within = {w->source, w->text, w->text + w->n, w->line - 1};
    const kiln_row *other;
    if (kiln_row_is_short(w->text, w->n)) {
        kiln_row_short s;
        KILN_TRY(kiln_row_short_parse(&arena, &within, &s));
        KILN_TRY(find_named(s.other, &other));
        KILN_TRY(kiln_row_short_text(&arena, &within, &s, &kiln_torch_schemas, other, &w->text));
        w->n = strlen(w->text);
        w->made = true;
    } else if (kiln_row_may_be_like(w->text, w->n)) {
        kiln_row_like s;
        KILN_TRY(kiln_row_like_parse(&arena, &within, &s));
        if (!s.other) return KILN_OK;
        KILN_TRY(find_named(s.other, &other));
        KILN_TRY(kiln_row_like_text(&arena, &within, &s, other, w));
        w->made = true;
    }
    return KILN_OK;
}

static kiln_status parse_row(size_t k, const kiln_row **out) {
    static const kiln_crules rules = {.more = kiln_shipped_find_rule};
    *out = atomic_load_explicit(&kiln_shipped.row[k], memory_order_relaxed);
    if (*out) return KILN_OK;
    const kiln_shipped_text *t = &kiln_shipped.rows[k];
    kiln_written w = {.text = text_of(t), .n = t->n, .line = t->line};
    kiln_row *row;
    KILN_TRY(file_name(t, &w.source));
    KILN_TRY(make_whole(&w));
    KILN_TRY(kiln_row_parse(&arena, &w, &row));
    kiln_row_set_rules(row, &rules, kiln_shipped.rules_digest);
    row->shipped = true;
    atomic_store_explicit(&kiln_shipped.row[k], row, memory_order_relaxed);
    *out = row;
    return KILN_OK;
}

static kiln_status make_op(size_t k, const kiln_op **out) {
    const kiln_shipped_op *o = &kiln_shipped.ops[k];
    const kiln_row *row;
    kiln_schema *schema;
    KILN_TRY(parse_row(o->row, &row));
    const char *line = kiln_text_schemas + o->schema;
    if (o->form == KILN_FORM_FUNCTIONAL)
        return kiln_op_make(&arena, row->declared, row, KILN_FORM_FUNCTIONAL, out);
    KILN_TRY(kiln_schema_parse(&arena, line, strcspn(line, "\n"), &schema));
    return kiln_op_make(&arena, schema, row, (kiln_form)o->form, out);
}

static kiln_status parse_rule(const kiln_shipped_text *t, const kiln_crule **out) {
    const char *source;
    kiln_crule *rule;
    KILN_TRY(file_name(t, &source));
    KILN_TRY(kiln_crule_parse(&arena, source, text_of(t), t->n, t->line, &rule));
    rule->shipped = true;
    *out = rule;
    return KILN_OK;
}

/* -- for everybody ------------------------------------------------------------------------------------------ */

kiln_status kiln_shipped_get(size_t k, const kiln_op **out) {
    *out = atomic_load_explicit(&kiln_shipped.op[k], memory_order_acquire);
    if (*out) return KILN_OK;
    pthread_mutex_lock(&lock);
    *out = atomic_load_explicit(&kiln_shipped.op[k], memory_order_relaxed);
    kiln_status st = *out ? KILN_OK : make_op(k, out);
    if (st == KILN_OK) atomic_store_explicit(&kiln_shipped.op[k], *out, memory_order_release);
    pthread_mutex_unlock(&lock);
    return st;
}

kiln_status kiln_shipped_entry(size_t k, kiln_op_entry *out) {
    const kiln_shipped_op *o = &kiln_shipped.ops[k];
    const kiln_op *op = atomic_load_explicit(&kiln_shipped.op[k], memory_order_acquire);
    if (!op && o->schema) {
        const char *line = kiln_text_schemas + o->schema;
        *out = (kiln_op_entry){.name = kiln_shipped_name(k),
                               .schema = line,
                               .nschema = strcspn(line, "\n"),
                               .served = kiln_family_served((kiln_family)o->family)};
        return KILN_OK;
    }
    KILN_TRY(kiln_shipped_get(k, &op));
    *out = kiln_op_entry_of(op);
    return KILN_OK;
}

kiln_status kiln_shipped_find_rule(const char *name, const kiln_crule **out) {
    bool found;
    size_t k = search(rule_name, kiln_shipped.nrules, name, &found);
    *out = found ? atomic_load_explicit(&kiln_shipped.rule[k], memory_order_acquire) : NULL;
    if (*out || !found) return KILN_OK;
    pthread_mutex_lock(&lock);
    *out = atomic_load_explicit(&kiln_shipped.rule[k], memory_order_relaxed);
    kiln_status st = *out ? KILN_OK : parse_rule(&kiln_shipped.rules[k].text, out);
    if (st == KILN_OK) atomic_store_explicit(&kiln_shipped.rule[k], *out, memory_order_release);
    pthread_mutex_unlock(&lock);
    return st;
}
