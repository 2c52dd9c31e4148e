/* find.c - an operator's name, whole or shortened -> the operator.
 *
 * "aten::add.Tensor", "add.Tensor", or "add" for the default overload or the only one; "relu.default" is how
 * PyTorch prints the default one.  What PyTorch has and Kiln does not serve is told from what nobody has, which is
 * answered with the names that come nearest. */
#include <string.h>

#include "op/op.h"

enum { NAME_MAX_LEN = 256, NEAR = 3 };

static const kiln_op *exact(const kiln_registry *r, const char *name) {
    size_t lo = 0, hi = kiln_registry_count(r);
    while (lo < hi) {
        size_t mid = (lo + hi) / 2;
        int order = strcmp(kiln_registry_at(r, mid)->name, name);
        if (order == 0) return kiln_registry_at(r, mid);
        if (order < 0)
            lo = mid + 1;
        else
            hi = mid;
    }
    return NULL;
}

static bool is_served(const kiln_op *op) { return kiln_family_served(op->row->family); }

/* Functional overloads of `full` (which has no overload part): the only one, or NULL and their names. */
static const kiln_op *only_overload(const kiln_registry *r, const char *full, bool served, kiln_sb *others) {
    const kiln_op *found = NULL;
    size_t n = strlen(full), hits = 0;
    for (size_t k = 0; k < kiln_registry_count(r); k++) {
        const kiln_op *op = kiln_registry_at(r, k);
        if (strncmp(op->name, full, n) != 0 || op->name[n] != '.' || op->form == KILN_FORM_OUT) continue;
        if (served && !is_served(op)) continue;
        kiln_sb_printf(others, "%s%s", hits++ ? ", " : "", op->name);
        found = op;
    }
    return hits == 1 ? found : NULL;
}

static const char *bare(const char *name) { return strncmp(name, "aten::", 6) == 0 ? name + 6 : name; }

static void nearest(const kiln_registry *r, const char *full, kiln_sb *out) {
    int shown = 0, far = (int)strlen(bare(full)); /* a name with no letter in common is not near */
    for (int distance = 0; distance <= NEAR && distance < far && shown < NEAR; distance++) {
        for (size_t k = 0; k < kiln_registry_count(r) && shown < NEAR; k++) {
            const char *name = kiln_registry_at(r, k)->name;
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
    const kiln_op *op = exact(r, full);
    if (op && served && !is_served(op)) return kiln_unserved(full, op->row->family);
    kiln_status st = KILN_OK;
    kiln_sb near;
    kiln_sb_init(&near);
    if (!op && !dot) op = only_overload(r, full, served, &near);
    if (op) {
        *out = op;
    } else if (near.len) {
        st = KILN_FAIL(KILN_E_NOTFOUND, "'%s' has several overloads, name one: %s", name, near.p);
    } else if (kiln_torch_has(full, !dot)) {
        if (dot) *dot = '.'; /* as asked for: the default overload */
        st = kiln_unserved(full, KILN_FAMILY_COUNT);
    } else {
        nearest(r, full, &near);
        st = KILN_FAIL(KILN_E_NOTFOUND, "no operator '%s'%s%s", name, near.len ? "; did you mean " : "",
                       near.p ? near.p : "");
    }
    kiln_sb_fini(&near);
    return st;
}

kiln_status kiln_registry_find(const kiln_registry *r, const char *name, const kiln_op **out) {
    return find(r, name, true, out);
}

kiln_status kiln_registry_find_row(const kiln_registry *r, const char *name, const kiln_op **out) {
    return find(r, name, false, out);
}
