/* family.c - the table in which a call finds what the family of its row does.
 *
 * A family without an entry is valid to describe and to check, not yet to call (family.def says which). */
#include "family/family.h"

const kiln_family_fns *const kiln_families[KILN_FAMILY_COUNT] = {
#define F(NAME, name, served) KILN_IF_SERVED_##served([KILN_FAMILY_##NAME] = &kiln_family_##name, )
#include "op/family.def"
#undef F
};
