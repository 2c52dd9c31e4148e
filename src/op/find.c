/* find.c - an operator's name, whole or shortened -> the operator.
 *
 * "aten::add.Tensor", "add.Tensor", or "add" for the default overload or the only one; "relu.default" is how
 * PyTorch prints the default one.  What is not found is answered with the names that come nearest. */
#include <string.h>

#include "op/op.h"

enum { NAME_MAX_LEN = 256, NEAR = 3 };

size_t kiln_registry_overloads(const kiln_registry *r, const char *base, size_t *first) {
    size_t k = *first = kiln_registry_search(r, base), n = strlen(base), all = kiln_registry_count(r);
    for (; k < all; k++) {
        const char *name = kiln_registry_name(r, k);
        if (strncmp(name, base, n) != 0 || (name[n] && name[n] != '.')) break;
    }
    return k - *first;
}

/* The operator that `full` names: the one of just this name or, if the overload is `open`, the only one that makes
 * a result; if there are more, *others lists them. */
static kiln_status look_up(const kiln_registry *r, const char *full, bool open, const kiln_op **out,
                           kiln_sb *others) {
    size_t first, n = kiln_registry_overloads(r, full, &first), hits = 0;
    const kiln_op *only = NULL;
    *out = NULL;
    if (n && strcmp(kiln_registry_name(r, first), full) == 0) return kiln_registry_get(r, first, out);
    for (size_t k = first; open && k < first + n; k++) {
        const kiln_op *op;
        KILN_TRY(kiln_registry_get(r, k, &op));
        if (op->form == KILN_FORM_OUT) continue;
        kiln_sb_printf(others, "%s%s", hits++ ? ", " : "", op->name);
        only = op;
    }
    if (hits == 1) *out = only;
    return KILN_OK;
}

static const char *bare(const char *name) { return strncmp(name, "aten::", 6) == 0 ? name + 6 : name; }

static void nearest(const kiln_registry *r, const char *full, kiln_sb *out) {
    int shown = 0, far = (int)strlen(bare(full)); /* a name with no letter in common is not near */
    for (int distance = 0; distance <= NEAR && distance < far && shown < NEAR; distance++) {
        for (size_t k = 0; k < kiln_registry_count(r) && shown < NEAR; k++) {
            const char *name = kiln_registry_name(r, k);
            char base[NAME_MAX_LEN];
            size_t n = strcspn(bare(name), ".");
            if (n >= sizeof base) continue;
            memcpy(base, bare(name), n);
            base[n] = 0;
            int d = kiln_edit_distance(bare(full), bare(name), NEAR),
                e = kiln_edit_distance(bare(full), base, NEAR);
            if ((d < e ? d : e) == distance) kiln_sb_printf(out, "%s%s", shown++ ? ", " : "", name);
        }
    }
}

kiln_status kiln_registry_find(const kiln_registry *r, const char *name, const kiln_op **out) {
    char full[NAME_MAX_LEN];
    size_t n = strlen(name);
    if (n + 7 > sizeof full)
        return KILN_FAIL(KILN_E_NOTFOUND, "no operator '%.40s...': the name is too long", name);
    memcpy(full, "aten::", 7);
    strcpy(strstr(name, "::") ? full : full + 6, name);
    char *dot = strchr(full, '.');
    if (dot && strcmp(dot, ".default") == 0) *dot = 0;
    const kiln_op *op;
    kiln_sb near;
    kiln_sb_init(&near);
    kiln_status st = look_up(r, full, !dot, &op, &near);
    if (st != KILN_OK) {
        kiln_sb_fini(&near);
        return st;
    }
    if (op) {
        *out = op;
    } else if (near.len) {
        (void)KILN_FAIL(KILN_E_NOTFOUND, "'%s' has several overloads, name one: %s", name, near.p);
    } else {
        nearest(r, full, &near);
        (void)KILN_FAIL(KILN_E_NOTFOUND, "no operator '%s'%s%s", name, near.len ? "; did you mean " : "",
                        near.p ? near.p : "");
    }
    kiln_sb_fini(&near);
    return op ? KILN_OK : KILN_E_NOTFOUND;
}
