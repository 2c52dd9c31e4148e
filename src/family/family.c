/* family.c - the table that finds a row's family.
 *
 * A family without an entry is valid to describe and to check, not yet to call (family.def says which). */
#include "family/family.h"

const kiln_family_fns *const kiln_families[KILN_FAMILY_COUNT] = {
    [KILN_FAMILY_MAP] = &kiln_family_map,       [KILN_FAMILY_FOLD] = &kiln_family_fold,
    [KILN_FAMILY_SCAN] = &kiln_family_scan,     [KILN_FAMILY_COMPOSE] = &kiln_family_compose,
    [KILN_FAMILY_EXTERN] = &kiln_family_extern,
};
