/* statlines.h - KILN_STATS=1 of the environment -> a table of what a context's calls and builds came to, for the end of a process.
 *
 * The command and the Python module share this; the library itself never prints. */
#ifndef KILN_CLI_STATLINES_H
#define KILN_CLI_STATLINES_H
#include <stdbool.h>

#include "kiln/kiln.h"

/* Whether KILN_STATS is 1.  *wrong: its text, where that is neither 0 nor 1; else NULL. */
bool statlines_asked(const char **wrong);
/* The table, to be freed; NULL without memory. */
char *statlines_text(kiln_ctx *ctx);
#endif
