/* extern_rules.h - the routine that computes the results of a row, and what the row gives to it. */
#ifndef KILN_EXTERN_RULES_H
#define KILN_EXTERN_RULES_H
#include "op/op.h"

typedef struct kiln_handed {
    kiln_routine_id id;
    kiln_nameds args; /* names of arguments and host numbers: a tensor, then numbers */
} kiln_handed;

static inline const kiln_handed *kiln_row_handed(const kiln_row *row) { return row->own; }
#endif
