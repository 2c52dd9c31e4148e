/* find.c - an operator's name, whole or shortened -> the operator.
 *
 * "aten::add.Tensor", "add.Tensor", or "add" for the default overload or the only one; "relu.default" is how
 * PyTorch prints the default one.  What PyTorch has and Kiln does not serve is told from what nobody has, which is
 * answered with the names that come nearest. */
#include <stdio.h>
#include <string.h>

#include "op/op.h"

enum { NAME_MAX_LEN = 256, MAX_SHOWN = 3 };

size_t kiln_registry_overloads(const kiln_registry *r, const char *base, size_t *first) {
    size_t k = *first = kiln_registry_search(r, base), n = strlen(base), all = kiln_registry_count(r);
    for (; k < all; k++) {
        const char *name = kiln_registry_name(r, k);
        if (strncmp(name, base, n) != 0 || (name[n] && name[n] != '.')) break;
    }
    return k - *first;
}

static bool is_served(const kiln_op *op) { return kiln_row_served(op->row); }

typedef struct search {
    const char *full;
    bool open;     /* the name has no overload: that of the only operator that makes a result may be meant */
    bool served;   /* an operator that cannot be called is as good as none */
    size_t hits;   /* operators that an open name may mean, */
    kiln_sb names; /* and their names */
} search;

/* The operator of just the name or, if that is open, the only one that makes a result; *out NULL: there is none. */
static kiln_status look_up(const kiln_registry *r, search *s, const kiln_op **out) {
    size_t first, n = kiln_registry_overloads(r, s->full, &first);
    const kiln_op *only = NULL;
    *out = NULL;
    if (n && strcmp(kiln_registry_name(r, first), s->full) == 0) return kiln_registry_get(r, first, out);
    for (size_t k = first; s->open && k < first + n; k++) {
        const kiln_op *op;
        KILN_TRY(kiln_registry_get(r, k, &op));
        if (op->form == KILN_FORM_OUT || (s->served && !is_served(op))) continue;
        kiln_sb_printf(&s->names, "%s%s", s->hits ? ", " : "", op->name);
        s->hits++;
        only = op;
    }
    if (s->hits == 1) *out = only;
    return KILN_OK;
}

static const char *bare(const char *name) { return strncmp(name, "aten::", 6) == 0 ? name + 6 : name; }

/* A row of any namespace that has just this name, capitals aside. */
static const char *in_a_namespace(const kiln_registry *r, const char *name) {
    for (size_t k = 0; k < kiln_registry_count(r); k++) {
        const char *full = kiln_registry_name(r, k), *own = strstr(full, "::");
        if (own && kiln_misspelling(name, own + 2) == 0) return full;
    }
    return NULL;
}

/* Modules that users write before the name of an operator. */
static const char *without_module(const char *name) {
    static const char *const modules[] = {"torch.nn.functional.", "torch.", "np.", "numpy.", "F."};
    for (size_t k = 0; k < sizeof modules / sizeof *modules; k++)
        if (strncmp(name, modules[k], strlen(modules[k])) == 0) return name + strlen(modules[k]);
    return NULL;
}

/* The least of two distances of kiln_misspelling, of which either may be -1. */
static int nearer(int a, int b) { return a < 0 || (b >= 0 && b < a) ? b : a; }

typedef struct candidate {
    const char *name;
    int nshown;          /* bytes of the name that are shown: all, or those before the overload */
    int distance, start; /* how much differs, and how much is equal before that */
} candidate;

static bool is_better(const candidate *a, const candidate *b) {
    return !b->name || a->distance < b->distance || (a->distance == b->distance && a->start > b->start);
}

/* Puts c into its place among the best, which it may push the last out of. */
static void place(candidate *best, candidate c) {
    for (int k = 0; k < MAX_SHOWN; k++) {
        if (!is_better(&c, &best[k])) continue;
        candidate worse = best[k];
        best[k] = c;
        c = worse;
    }
}

static bool ends_in_place(const char *name) { return name[0] && name[strcspn(name, ".") - 1] == '_'; }

/* How well `full` may mean the operator `name`; distance -1: not at all. */
static candidate compare(const char *full, const char *name, bool overloads) {
    char base[NAME_MAX_LEN];
    int n = (int)strcspn(name, ".");
    candidate c = {name, overloads ? (int)strlen(name) : n, 0, 0};
    snprintf(base, sizeof base, "%.*s", n, name);
    c.distance = kiln_misspelling(bare(full), bare(base));
    if (overloads) c.distance = nearer(c.distance, kiln_misspelling(bare(full), bare(name)));
    while (full[c.start] && full[c.start] == name[c.start]) c.start++;
    return c;
}

/* Prints up to MAX_SHOWN operator names that differ least from `full`.  The names include overloads if the user wrote an overload. */
static void nearest(const kiln_registry *r, const char *full, bool overloads, kiln_sb *out) {
    candidate best[MAX_SHOWN] = {{0}}, last = {.name = ""};
    for (size_t k = 0; k < kiln_registry_count(r); k++) {
        candidate c = compare(full, kiln_registry_name(r, k), overloads);
        bool again = c.nshown == last.nshown && strncmp(c.name, last.name, (size_t)c.nshown) == 0;
        last = c;
        bool writes = ends_in_place(c.name) && !ends_in_place(full); /* nobody means add_ by ad */
        if (c.distance >= 0 && !again && !writes) place(best, c);
    }
    for (int k = 0; k < MAX_SHOWN && best[k].name && best[k].distance == best[0].distance; k++)
        kiln_sb_printf(out, "%s%.*s", k ? ", " : "", best[k].nshown, best[k].name);
}

/* PyTorch shows aten::add as torch.ops.aten.add: the name with '::' in the place of the first '.', if there is one. */
static bool dotted(const kiln_registry *r, const char *name, kiln_sb *out) {
    char other[NAME_MAX_LEN];
    size_t first, n;
    if (strncmp(name, "torch.ops.", 10) == 0) name += 10;
    n = strcspn(name, ".");
    if (!name[n] || strstr(name, "::") || strlen(name) + 2 > sizeof other) return false;
    snprintf(other, sizeof other, "%.*s::%s", (int)n, name, name + n + 1);
    if (!kiln_registry_overloads(r, other, &first)) return false;
    kiln_sb_puts(out, other);
    return true;
}

static void suggest(const kiln_registry *r, const char *name, const char *full, kiln_sb *out) {
    const char *plain = without_module(name),
               *exact = strstr(name, "::") ? NULL : in_a_namespace(r, plain ? plain : name);
    char other[NAME_MAX_LEN] = "aten::";
    size_t first;
    if (dotted(r, name, out)) return;
    if (exact) return kiln_sb_puts(out, exact);
    if (plain && strlen(plain) + 7 < NAME_MAX_LEN) full = strcat(other, plain);
    if (plain && kiln_registry_overloads(r, full, &first))
        kiln_sb_puts(out, plain);
    else
        nearest(r, full, strchr(plain ? plain : name, '.') != NULL, out);
}

/* Why there is no operator `name`, which is `full` in full; dot: where its overload begins, or NULL; several: those it
 * may mean. */
static kiln_status not_found(const kiln_registry *r, const char *name, const char *full, char *dot,
                             const char *several) {
    kiln_sb near;
    if (several) return KILN_FAIL(KILN_E_NOTFOUND, "'%s' has several overloads, name one: %s", name, several);
    if (kiln_torch_has(full, !dot)) {
        if (dot) *dot = '.'; /* as asked for: the default overload */
        return kiln_without_row(full);
    }
    kiln_sb_init_message(&near);
    if (!near.failed) suggest(r, name, full, &near);
    kiln_status st = KILN_FAIL(KILN_E_NOTFOUND, "no operator '%s'%s%s%s", name,
                               near.len ? "; did you mean " : "", near.p ? near.p : "", near.len ? "?" : "");
    kiln_sb_fini(&near);
    return st;
}

static kiln_status find(const kiln_registry *r, const char *name, bool served, const kiln_op **out) {
    char full[NAME_MAX_LEN];
    size_t n = strlen(name);
    if (n + 7 > sizeof full)
        return KILN_FAIL(KILN_E_NOTFOUND, "no operator '%.40s...': the name is too long", name);
    memcpy(full, "aten::", 7);
    strcpy(strstr(name, "::") ? full : full + 6, name);
    char *dot = strchr(full, '.');
    if (dot && strcmp(dot, ".default") == 0) *dot = 0;
    const kiln_op *op;
    search s = {.full = full, .open = !dot, .served = served};
    kiln_sb_init_message(&s.names);
    kiln_status st = look_up(r, &s, &op);
    if (st == KILN_OK && op && served && !is_served(op))
        st = kiln_unserved(full, op->row->family);
    else if (st == KILN_OK && op)
        *out = op;
    else if (st == KILN_OK)
        st = not_found(r, name, full, dot,
                       s.hits == 0 ? NULL
                       : s.names.p ? s.names.p
                                   : "there is no memory to list them");
    kiln_sb_fini(&s.names);
    return st;
}

kiln_status kiln_registry_find(const kiln_registry *r, const char *name, const kiln_op **out) {
    return find(r, name, true, out);
}

kiln_status kiln_registry_find_row(const kiln_registry *r, const char *name, const kiln_op **out) {
    return find(r, name, false, out);
}
