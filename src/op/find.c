/* find.c - an operator's name, whole or shortened -> the operator.
 *
 * "aten::add.Tensor", "add.Tensor", or "add" for the default overload or the only one; "relu.default" is how
 * PyTorch prints the default one.  What PyTorch has and Kiln does not serve is told from what nobody has, which is
 * answered with the names that come nearest. */
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

static bool is_served(const kiln_op *op) { return kiln_row_served(op->row); }

/* The operator that `full` names: the one of just this name or, if the overload is `open`, the only one that makes
 * a result; *hits: how many there are, *others: which. */
static kiln_status look_up(const kiln_registry *r, const char *full, bool open, bool served,
                           const kiln_op **out, size_t *hits, kiln_sb *others) {
    size_t first, n = kiln_registry_overloads(r, full, &first);
    const kiln_op *only = NULL;
    *out = NULL;
    *hits = 0;
    if (n && strcmp(kiln_registry_name(r, first), full) == 0) return kiln_registry_get(r, first, out);
    for (size_t k = first; open && k < first + n; k++) {
        const kiln_op *op;
        KILN_TRY(kiln_registry_get(r, k, &op));
        if (op->form == KILN_FORM_OUT || (served && !is_served(op))) continue;
        kiln_sb_printf(others, "%s%s", *hits ? ", " : "", op->name);
        ++*hits;
        only = op;
    }
    if (*hits == 1) *out = only;
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

/* Why there is no operator `name`, which is `full` in full; dot: where its overload begins, or NULL; several: those it
 * may mean. */
static kiln_status not_found(const kiln_registry *r, const char *name, const char *full, char *dot,
                             const char *several) {
    kiln_sb near;
    if (several) return KILN_FAIL(KILN_E_NOTFOUND, "'%s' has several overloads, name one: %s", name, several);
    if (kiln_torch_has(full, !dot)) {
        if (dot) *dot = '.'; /* as asked for: the default overload */
        return kiln_unserved(full, KILN_FAMILY_COUNT);
    }
    kiln_sb_init_message(&near);
    if (!near.failed) nearest(r, full, &near);
    kiln_status st = KILN_FAIL(KILN_E_NOTFOUND, "no operator '%s'%s%s", name,
                               near.len ? "; did you mean " : "", near.p ? near.p : "");
    kiln_sb_fini(&near);
    return st;
}

/* served: an operator that cannot be called is as good as none. */
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
    size_t hits;
    kiln_sb several;
    kiln_sb_init_message(&several);
    kiln_status st = look_up(r, full, !dot, served, &op, &hits, &several);
    if (st == KILN_OK && op && served && !is_served(op))
        st = kiln_unserved(full, op->row->family);
    else if (st == KILN_OK && op)
        *out = op;
    else if (st == KILN_OK)
        st = not_found(r, name, full, dot,
                       hits == 0   ? NULL
                       : several.p ? several.p
                                   : "there is no memory to list them");
    kiln_sb_fini(&several);
    return st;
}

kiln_status kiln_registry_find(const kiln_registry *r, const char *name, const kiln_op **out) {
    return find(r, name, true, out);
}

kiln_status kiln_registry_find_row(const kiln_registry *r, const char *name, const kiln_op **out) {
    return find(r, name, false, out);
}
