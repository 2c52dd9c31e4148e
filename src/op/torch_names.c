/* torch_names.c - whether a name is that of an operator of PyTorch's.
 *
 * Looks through the list of PyTorch's schemas that ships with the library, so that what is not served can be told from
 * what does not exist.  It is asked on the way to a failure, where walking the list costs nothing that matters.
 * Knows no rows. */
#include <string.h>

#include "base/text_entry.h"
#include "op/op.h"

bool kiln_torch_has(const char *full, bool overloads) {
    size_t n = strlen(full);
    const char *at = kiln_text_schemas, *end = at + kiln_text_schemas_len;
    while (at && (size_t)(end - at) > n) {
        if (memcmp(at, full, n) == 0 && (at[n] == '(' || (at[n] == '.' && overloads))) return true;
        at = memchr(at, '\n', (size_t)(end - at));
        if (at) at++;
    }
    return false;
}

kiln_status kiln_unserved(const char *full, kiln_family family) {
    if (family == KILN_FAMILY_COUNT || kiln_torch_has(full, false))
        return KILN_FAIL(KILN_E_UNSUP, "%s is a PyTorch operator that Kiln does not serve", full);
    return KILN_FAIL(KILN_E_UNSUP, "%s: rows of the family '%s' are not served", full,
                     kiln_family_name(family));
}
