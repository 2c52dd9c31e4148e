/* choose.c - an operator's short name and the arguments of a call -> the overload they mean.
 *
 * "add" beside a number means add.Scalar, beside a tensor add.Tensor: the first overload that the arguments
 * bind to, the default one before others.  Names that leave nothing open are found as ever.  Looks at the kinds
 * of values; must not know what an overload computes. */
#include <stdio.h>
#include <string.h>

#include "infer/infer.h"

enum { NAME_MAX_LEN = 256 };

typedef struct search {
    const kiln_op *fits, *first; /* the overload that takes the arguments; the first there is */
    size_t n;                    /* overloads that can be called */
    kiln_sb schemas;             /* theirs, for the message */
} search;

static kiln_status look_through(const kiln_registry *r, const char *full, const kiln_value *args,
                                size_t nargs, search *s) {
    kiln_bound bound;
    size_t first, n = kiln_registry_overloads(r, full, &first);
    for (size_t k = first; k < first + n && !s->fits; k++) {
        const kiln_op *op;
        KILN_TRY(kiln_registry_get(r, k, &op));
        if (!kiln_family_served(op->row->family)) continue;
        if (s->n++ == 0) s->first = op;
        if (kiln_bind(op, args, nargs, &bound) == KILN_OK) s->fits = op;
        kiln_sb_printf(&s->schemas, "%s%s", s->n > 1 ? "; " : "", op->schema_text);
    }
    return KILN_OK;
}

/* The full name of all overloads that `name` may mean; false if it can mean one only. */
static bool is_open(const kiln_registry *r, const char *name, char full[NAME_MAX_LEN]) {
    const kiln_op *op;
    bool space = strstr(name, "::") != NULL;
    if (strchr(name, '.') || strlen(name) + 7 > NAME_MAX_LEN) return false;
    snprintf(full, NAME_MAX_LEN, "%s%s", space ? "" : "aten::", name);
    return !space || kiln_registry_find(r, name, &op) != KILN_OK || strcmp(op->name, name) != 0;
}

kiln_status kiln_registry_choose(const kiln_registry *r, const char *name, const kiln_value *args,
                                 size_t nargs, const kiln_op **out) {
    char full[NAME_MAX_LEN];
    search s = {0};
    kiln_status st = KILN_OK;
    kiln_sb_init(&s.schemas);
    if (is_open(r, name, full)) st = look_through(r, full, args, nargs, &s);
    if (s.fits) kiln_clear_error(); /* what the others lacked is no failure */
    /* An only overload's own complaint says more, and so does the default one's. */
    if (!s.fits && s.n && (s.n == 1 || strcmp(s.first->name, full) == 0)) s.fits = s.first;
    if (st == KILN_OK && s.fits)
        *out = s.fits;
    else if (st == KILN_OK && s.n)
        st = KILN_FAIL(KILN_E_TYPE, "%s: no overload takes these arguments; there are %s", full,
                       s.schemas.p ? s.schemas.p : "several");
    else if (st == KILN_OK)
        st = kiln_registry_find(r, name, out);
    kiln_sb_fini(&s.schemas);
    return st;
}
