/* asked.h - private to src/api: what slots and recipes ask of a value before they answer for it.
 *
 * All that bind, the row's conditions and promotion looked at in the call they were made from, and nothing else:
 * of a tensor some bits of its signature, of a number or dtype its payload where that was asked for, of a text
 * every letter. */
#ifndef KILN_ASKED_H
#define KILN_ASKED_H
#include <string.h>

#include "api/ctx.h"

/* The one text among the values of a call. */
typedef struct kiln_asked_text {
    bool given;
    char letters[15]; /* with their end */
} kiln_asked_text;

/* Sets mask and want: a value like v, of its kind, gives the same if its word (a tensor's signature, any other's
 * payload) is want under mask.  a: the argument of the row that v was bound to, or -1 if it only receives a
 * result; sig: bits of a signature that the caller asks.  False: no word can tell. */
bool kiln_asked_of(const kiln_plan *plan, const kiln_value *v, int a, uint64_t sig, kiln_asked_text *text,
                   uint64_t *mask, uint64_t *want);

static inline bool kiln_same_text(const char *a, const char *b) {
    return a == b || (a && b && strcmp(a, b) == 0);
}
#endif
