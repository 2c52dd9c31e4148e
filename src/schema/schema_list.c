/* schema_list.c - the lines of a list of schemas, ordered and searched by operator name.
 *
 * The order is an array of offsets, so a list that is part of the library needs no relocation and no memory
 * until it is searched.  Must not parse schemas. */
#include <stdlib.h>
#include <string.h>

#include "schema/schema_list.h"

static kiln_schema_line line_at(const char *text, const char *end) {
    const char *nl = memchr(text, '\n', (size_t)(end - text));
    kiln_schema_line v = {.text = text, .n = (size_t)((nl ? nl : end) - text)};
    while (v.base < v.n && text[v.base] != '.' && text[v.base] != '(') v.base++;
    v.name = v.base;
    while (v.name < v.n && text[v.name] != '(') v.name++;
    return v;
}

kiln_schema_line kiln_schema_list_at(const kiln_schema_list *list, size_t k) {
    return line_at(list->text + list->starts[k], list->text + list->n);
}

static int order(const char *a, size_t na, const char *b, size_t nb) {
    int order = memcmp(a, b, na < nb ? na : nb);
    return order ? order : (na > nb) - (na < nb);
}

/* Line k's base name against `base`.  What ends a base name, '.' or '(', sorts before all that may stand in one. */
static int order_base(const kiln_schema_list *list, size_t k, const char *base, size_t n) {
    const char *text = list->text + list->starts[k];
    size_t left = list->n - list->starts[k];
    int order = memcmp(text, base, n < left ? n : left);
    if (order || left <= n) return order ? order : -1;
    return text[n] != '.' && text[n] != '(';
}

static size_t lower_bound(const kiln_schema_list *list, const char *base, size_t n) {
    size_t lo = 0, hi = list->nlines;
    while (lo < hi) {
        size_t mid = (lo + hi) / 2;
        if (order_base(list, mid, base, n) < 0)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

size_t kiln_schema_list_overloads(const kiln_schema_list *list, const char *base, size_t n, size_t *first) {
    size_t k = *first = lower_bound(list, base, n);
    while (k < list->nlines && order_base(list, k, base, n) == 0) k++;
    return k - *first;
}

bool kiln_schema_list_find(const kiln_schema_list *list, const char *name, size_t n, kiln_schema_line *out) {
    const char *dot = memchr(name, '.', n);
    size_t first, count = kiln_schema_list_overloads(list, name, dot ? (size_t)(dot - name) : n, &first);
    for (size_t k = first; k < first + count; k++) {
        *out = kiln_schema_list_at(list, k);
        if (order(out->text, out->name, name, n) == 0) return true;
    }
    return false;
}

/* -- making ----------------------------------------------------------------------------------------------- */

static int by_base(const void *a, const void *b) {
    const kiln_schema_line *x = a, *y = b;
    int o = order(x->text, x->base, y->text, y->base);
    return o ? o : (x->text > y->text) - (x->text < y->text);
}

static size_t read_lines(const char *text, size_t n, kiln_schema_line *out) {
    size_t found = 0;
    for (const char *at = text, *end = text + n; at < end;) {
        kiln_schema_line v = line_at(at, end);
        if (v.n && out) out[found] = v;
        found += v.n != 0;
        at += v.n + 1;
    }
    return found;
}

kiln_status kiln_schema_list_make(kiln_arena *arena, const char *text, size_t n, kiln_schema_list *out) {
    size_t count = read_lines(text, n, NULL);
    uint32_t *starts = kiln_arena_alloc(arena, count * sizeof *starts);
    kiln_schema_line *lines = kiln_alloc(count * sizeof *lines);
    if (!starts || !lines || n > UINT32_MAX) {
        kiln_free(lines);
        return KILN_NOMEM();
    }
    (void)read_lines(text, n, lines);
    if (count) qsort(lines, count, sizeof *lines, by_base);
    for (size_t k = 0; k < count; k++) starts[k] = (uint32_t)(lines[k].text - text);
    kiln_free(lines);
    *out = (kiln_schema_list){text, n, starts, count};
    return KILN_OK;
}
