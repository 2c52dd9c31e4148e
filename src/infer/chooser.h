/* chooser.h - what families leave to a target: the form of a call.
 *
 * A family finds shapes, and strides of every buffer along the dimensions.  The chooser of the target then decides how the
 * dimensions become axes: which of them is the vector loop, what is copied first, and which kernel of the family it is.  That is
 * the form (kiln_plan.form), which is part of the class.  The trees of folds follow from the form, so a form follows from dtypes,
 * sizes and strides alone, never from levels, caches or threads. */
#ifndef KILN_CHOOSER_H
#define KILN_CHOOSER_H
#include "infer/plan.h"

struct kiln_dim_strides; /* family/kept_folded.h */

/* Trees of the folds of one form (docs/IR.md 6). */
typedef struct kiln_form_trees {
    uint32_t lanes, block; /* of a fold that goes through its elements once */
    uint32_t by_block;     /* elements of a block that is gone through more than once */
} kiln_form_trees;

typedef struct kiln_chooser {
    /* Folds: from the strides w to axes, copies, the form and the class of each buffer's stride. */
    kiln_status (*fold)(kiln_plan *p, struct kiln_dim_strides *w);
    kiln_form_trees (*fold_trees)(uint8_t form);
    /* Scans: decides what `fold` decides for folds.  scan_block: elements of a block, if rows are scanned by blocks. */
    kiln_status (*scan)(kiln_plan *p, struct kiln_dim_strides *w);
    uint32_t scan_block;
    /* Element-wise calls: whether buffer b, which is broadcast along dimension 0, has one element for each of many short rows that
     * kernels take together. */
    bool (*is_column)(const kiln_plan *p, int b);
} kiln_chooser;

/* The chooser of each device, from the rows of target.def.  The table is in src/target/choosers.c. */
extern const kiln_chooser *const kiln_choosers[KILN_DEVICE_COUNT]; /* NULL: no such device */

/* KILN_DEVICE_* of the call's tensors.  All tensors are in host memory. */
static inline int kiln_plan_device(const kiln_plan *p) {
    (void)p;
    return KILN_DEVICE_CPU;
}

static inline const kiln_chooser *kiln_plan_chooser(const kiln_plan *p) {
    return kiln_choosers[kiln_plan_device(p)];
}
#endif
