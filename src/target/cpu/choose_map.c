/* choose_map.c - the form of element-wise calls on the CPU, and the table of all that the CPU chooses.
 *
 * Kernels join short rows beside a column by themselves (emit_columns.c).  Must not know levels, caches or
 * threads. */
#include "target/cpu/choose.h"
#include "target/cpu/tuning.h"

/* Whether the input `column` has one element for each of many short rows, all results lie in short rows that follow each other, and
 * every other input lies in rows, or has one element for each row. */
static bool is_column(const kiln_plan *p, int column) {
    const kiln_axes_counts *x = &p->axes;
    if (x->ngrid < 2 || p->n[1] < KILN_CPU_MANY_ROWS || p->stride[column][1] == 0) return false;
    if (x->ngrid != x->ndim || p->n[0] < 2 || p->n[0] > KILN_CPU_SHORTER_ROW) return false;
    for (int b = 0; b < x->nbuffers; b++) {
        bool row = p->stride[b][0] == p->bytes[b];
        if (b < x->nwritten ? !row || p->stride[b][1] != p->n[0] * p->bytes[b] : !row && p->stride[b][0])
            return false;
    }
    return true;
}

const kiln_chooser kiln_chooser_cpu = {.fold = kiln_cpu_choose_fold,
                                       .fold_trees = kiln_cpu_fold_trees,
                                       .scan = kiln_cpu_choose_scan,
                                       .scan_block = KILN_CPU_SCAN_BLOCK,
                                       .is_column = is_column};
