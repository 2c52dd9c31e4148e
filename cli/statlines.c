/* statlines.c - a context's counters and classes -> the table that KILN_STATS=1 asks for.
 *
 * One line adds up the calls, one the kernels, and a table has a row for each operator.  Calls that a kernel answers are not counted by
 * operator, since the library does not count them so.  Must not know who prints the table, or when. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "statlines.h"

typedef struct row {
    char *op;
    unsigned long long nclasses, ncompiled, ninterpreted, build_ns;
} row;

typedef struct table {
    row *at;
    size_t n, room;
} table;

bool statlines_asked(const char **wrong) {
    const char *text = getenv("KILN_STATS");
    *wrong = NULL;
    if (!text || !text[0] || strcmp(text, "0") == 0) return false;
    if (strcmp(text, "1") != 0) *wrong = text;
    return !*wrong;
}

static row *row_of(table *t, const char *op) {
    for (size_t k = 0; k < t->n; k++)
        if (strcmp(t->at[k].op, op) == 0) return &t->at[k];
    if (t->n == t->room) {
        size_t room = t->room ? 2 * t->room : 64;
        row *more = realloc(t->at, room * sizeof *more);
        if (!more) return NULL;
        t->at = more;
        t->room = room;
    }
    char *copy = strdup(op);
    if (!copy) return NULL;
    t->at[t->n] = (row){.op = copy};
    return &t->at[t->n++];
}

static kiln_status add_class(void *user, const kiln_class_info *info) {
    row *r = row_of(user, info->op);
    if (!r) return KILN_E_NOMEM;
    r->nclasses++;
    r->ncompiled += strcmp(info->tier, "compiled") == 0;
    r->ninterpreted += info->interp_calls;
    r->build_ns += info->build_ns;
    return KILN_OK;
}

static int by_build_time(const void *a, const void *b) {
    const row *x = a, *y = b;
    if (x->build_ns != y->build_ns) return x->build_ns < y->build_ns ? 1 : -1;
    return strcmp(x->op, y->op);
}

static void print_sums(FILE *f, const kiln_stats *s, unsigned long long build_ns) {
    fprintf(f, "kiln: calls: %llu; interpreted: %llu\n", (unsigned long long)s->calls,
            (unsigned long long)s->interp_calls);
    fprintf(
        f,
        "kiln: kernels: %llu built in %.1f ms, %llu from packs, %llu from disk, %llu from a server, %llu shared; builds that failed: %llu\n",
        (unsigned long long)s->compiles, (double)build_ns / 1e6, (unsigned long long)s->pack_hits,
        (unsigned long long)s->disk_hits, (unsigned long long)s->remote_hits,
        (unsigned long long)s->memory_hits, (unsigned long long)s->compile_failures);
}

static void print_rows(FILE *f, const table *t) {
    if (!t->n) return;
    fprintf(f, "kiln: %-36s %8s %9s %18s %9s\n", "operator", "classes", "compiled", "interpreted calls",
            "build ms");
    for (size_t k = 0; k < t->n; k++) {
        const row *r = &t->at[k];
        fprintf(f, "kiln: %-36s %8llu %9llu %18llu %9.1f\n", r->op, r->nclasses, r->ncompiled,
                r->ninterpreted, (double)r->build_ns / 1e6);
    }
}

char *statlines_text(kiln_ctx *ctx) {
    table t = {0};
    kiln_stats s;
    char *text = NULL;
    size_t n;
    unsigned long long build_ns = 0;
    FILE *f = open_memstream(&text, &n);
    if (!f) return NULL;
    kiln_stats_get(ctx, &s, sizeof s);
    kiln_status st = kiln_classes_list(ctx, add_class, &t);
    if (t.n) qsort(t.at, t.n, sizeof *t.at, by_build_time);
    for (size_t k = 0; k < t.n; k++) build_ns += t.at[k].build_ns;
    print_sums(f, &s, build_ns);
    print_rows(f, &t);
    for (size_t k = 0; k < t.n; k++) free(t.at[k].op);
    free(t.at);
    if (fclose(f) == 0 && st == KILN_OK) return text;
    free(text);
    return NULL;
}
