/* rules.c - the table in which src/op finds what rows of a family may say.
 *
 * A line of family.def names the rules: kiln_rules_NAME, in NAME_rules.c. */
#include "op/row_family.h"

#define F(NAME, name, served) extern const kiln_family_rules kiln_rules_##name;
#include "op/family.def"
#undef F

const kiln_family_rules *const kiln_rules_of[KILN_FAMILY_COUNT] = {
#define F(NAME, name, served) [KILN_FAMILY_##NAME] = &kiln_rules_##name,
#include "op/family.def"
#undef F
};
