/* torch_names.c - whether a name is that of an operator of PyTorch's.
 *
 * Asks the list of PyTorch's schemas that ships with the library, so that what is not served can be told from what
 * does not exist.  Knows no rows. */
#include <string.h>

#include "op/op.h"

bool kiln_torch_has(const char *full, bool overloads) {
    kiln_schema_line line;
    size_t first, n = strlen(full);
    return overloads ? kiln_schema_list_overloads(&kiln_torch_schemas, full, n, &first) > 0
                     : kiln_schema_list_find(&kiln_torch_schemas, full, n, &line);
}

kiln_status kiln_without_row(const char *full) {
    return KILN_FAIL(KILN_E_UNSUP, "%s is a PyTorch operator that Kiln does not serve", full);
}

kiln_status kiln_unserved(const char *full, kiln_family family) {
    if (kiln_torch_has(full, false)) return kiln_without_row(full);
    return KILN_FAIL(KILN_E_UNSUP, "%s: rows of the family '%s' are not served", full,
                     kiln_family_name(family));
}
