/* whole.h - whether a run is whole: KILN_TEST_ALL unset, empty or 0 samples the sweeps; anything else takes every
 * case.  tests/whole.py says the same to the tests in Python. */
#ifndef KILN_TEST_WHOLE_H
#define KILN_TEST_WHOLE_H
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static inline bool whole_run(void) {
    const char *all = getenv("KILN_TEST_ALL");
    return all && strcmp(all, "") != 0 && strcmp(all, "0") != 0;
}
#endif
