/* fold_lower.h - private to the lowering of folds: what fold_lower.c, fold_block.c, fold_leaves.c and
 * fold_types.c work on.
 *
 * A folding is one fold row of one plan on its way to IR.  fold_types.c types its expressions, fold_leaves.c lowers what
 * these end in (states, counts, places, reads), fold_block.c folds over blocks, fold_lower.c makes the nests. */
#ifndef KILN_FOLD_LOWER_H
#define KILN_FOLD_LOWER_H
#include "family/fold.h"
#include "family/states.h"
#include "family/lower.h"

typedef enum kiln_fold_scope { IN_BEGINNING, IN_STEP, IN_BLOCK, IN_MERGE, IN_FINISH } kiln_fold_scope;

/* A fold over a block, and what it came to. */
typedef struct kiln_fold_made {
    const kiln_expr *of;
    kiln_pair v;
    const struct kiln_fold_made *next;
} kiln_fold_made;

typedef struct kiln_folding {
    kiln_lowering base; /* first: callbacks get it */
    const kiln_reduce *reduce;
    const kiln_texpr *init[KILN_ROW_MAX_NAMED], *step[KILN_ROW_MAX_NAMED], *block[KILN_ROW_MAX_NAMED],
        *merge[KILN_ROW_MAX_NAMED], *finish[KILN_MAX_RETS];
    kiln_states states;
    int count;                                          /* the IR state that counts, or -1 */
    int grid, reduced[KILN_FOLD_AXES], nreduced, parts; /* axes */
    bool across;
    uint32_t each; /* bit k: result k has an element for each that is folded */
    int part[KILN_IR_MAX_STATES],
        parts_of[KILN_IR_MAX_STATES]; /* buffers: of one part's states, of all parts' */
    kiln_fold_scope now;
    kiln_ref folded;                     /* IN_FINISH: the fold, */
    kiln_ref in_one[KILN_IR_MAX_STATES]; /* or its states, if all elements were one block */
    bool one;
    const kiln_texpr *kept; /* what is found in the result for each element before it is finished */
    uint32_t
        places; /* bit k: state k is a place, within a block kept as the distance from its first element */
    kiln_ref first; /* that element's index along the last axis; KILN_NOREF: not within a block of places */
    const kiln_fold_made *folds;    /* IN_BLOCK: those over the block made so far, the newest first */
    int axis_of[KILN_MAX_OPERANDS]; /* of a buffer that is read at computed places */
    uint64_t ahead;                 /* bit a: argument a is loaded before the loop over what is folded */
    struct {
        const kiln_expr *of;
        kiln_pair v;
    } read[KILN_ROW_MAX_NAMED]; /* IN_FINISH: what was read at computed places before that loop */
    int nread;
} kiln_folding;

/* fold_leaves.c: lets expressions end in what a fold has. */
void kiln_fold_leaves(kiln_folding *f);
/* Cell k of the states: of the step, of either side of a merge, or of the finished fold. */
kiln_ref kiln_fold_cell(kiln_folding *f, int k, bool right);
kiln_ref kiln_fold_binary(kiln_ir *ir, kiln_prim prim, kiln_ref a, kiln_ref b);
/* How many elements: of the block, of either side of a merge, or of the whole fold. */
kiln_ref kiln_fold_count(kiln_folding *f, bool right);
kiln_ref kiln_fold_distance(kiln_folding *f); /* of the element from its block's first one */
kiln_ref kiln_fold_place(kiln_folding *f);    /* of the element among all that are folded */
/* Whether input b has one element for all that is folded, as the row says.  One that is broadcast along it may have none. */
bool kiln_fold_stands(const kiln_folding *f, int b);
/* Whether e is the same for all that is folded: it has no element of it, and does not ask for its place. */
bool kiln_fold_is_still(const kiln_folding *f, const kiln_texpr *e);
/* Reads what e has of memory that is the same for all that is folded: once, not for each. */
void kiln_fold_read_ahead(kiln_folding *f, const kiln_texpr *e);
/* Forgets what was loaded, but for what was read ahead. */
void kiln_fold_forget_moving(kiln_folding *f);

/* fold_block.c: how elements of a fold, or of a block of one, meet. */
kiln_ir_tree kiln_fold_tree(const kiln_folding *f);
/* e, which is folded over the block. */
kiln_pair kiln_fold_block(kiln_lowering *lw, const kiln_texpr *e);
/* The result for each element, if there is one alone; else -1. */
int kiln_fold_each_result(const kiln_folding *f);
/* Loops over all that is folded. */
void kiln_fold_open_each(const kiln_folding *f);
void kiln_fold_close_each(const kiln_folding *f);

/* fold_types.c: types all expressions of the row, refuses what no fold can do, and finds the states that are places. */
kiln_status kiln_fold_type(kiln_folding *f) KILN_MUST_CHECK;
#endif
