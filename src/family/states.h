/* states.h - private to src/family: what folds and scans carry from element to element. */
#ifndef KILN_STATES_H
#define KILN_STATES_H
#include "family/lower.h"
#include "family/reduce_rules.h"

typedef struct kiln_states {
    const kiln_reduce *reduce;            /* of the row */
    kiln_dtype dtype[KILN_ROW_MAX_NAMED]; /* of each state */
    int at[KILN_ROW_MAX_NAMED];           /* its first IR state: a complex one has two */
    int n, ncells;                        /* states of the row; IR states */
} kiln_states;

/* more: IR states that the family adds, which come last. */
kiln_status kiln_states_begin(const kiln_lowering *lw, int more, kiln_states *out) KILN_MUST_CHECK;

/* Types the expressions of a clause: one per state, each cast to its state's type.  Nothing, if the row lacks it. */
kiln_status kiln_states_type(kiln_lowering *lw, const kiln_states *s, const kiln_nameds *clause,
                             const kiln_texpr **out) KILN_MUST_CHECK;
/* How two sets of states merge, as the row says or, in its short form, as it steps.  Nothing, if the row does not say. */
kiln_status kiln_states_type_merge(kiln_lowering *lw, const kiln_states *s, const kiln_texpr *const *step,
                                   const kiln_texpr **out) KILN_MUST_CHECK;
/* Those of the results: a row without `finish` gives its state. */
kiln_status kiln_states_type_finish(kiln_lowering *lw, const kiln_states *s,
                                    const kiln_texpr **out) KILN_MUST_CHECK;

/* Lowers each state's expression to its IR states. */
void kiln_states_lower(kiln_lowering *lw, const kiln_states *s, const kiln_texpr *const *of, kiln_ref *out);
kiln_dtype kiln_states_cell_dtype(const kiln_states *s, int cell); /* of an IR state that is the row's */
#endif
