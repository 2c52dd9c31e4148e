/* listed.h - rows with a call for each item of lists: which operator is called for an item, and what it is given. */
#ifndef KILN_LISTED_H
#define KILN_LISTED_H
#include "infer/infer.h"

typedef struct kiln_listed {
    const kiln_op *item;     /* NULL: nothing is to be done */
    uint64_t each;           /* bit a: argument a is a list that is walked in step with the others */
    const kiln_nameds *args; /* what the item's call is given; name "" for positional */
    uint64_t unused;         /* bit a: the item's call does not use list a, which may be empty */
} kiln_listed;

/* The call of an item, in the form of the whole call, by the way of the row that the call takes. */
kiln_status kiln_listed_find(const kiln_call_env *env, kiln_listed *out) KILN_MUST_CHECK;
#endif
