/* choose_scan.c - the form of scans on the CPU: dimensions -> axes, and whether rows are scanned by lanes, alone or by blocks.
 *
 * The innermost dimension of the grid is the vector loop, in which each lane scans for itself.  Few rows are scanned one after
 * the other.  If they are long, they are scanned by blocks, one block to a lane.  Must not know levels, caches or threads. */
#include "family/kept_folded.h"
#include "family/scan.h"
#include "infer/infer_parts.h"
#include "target/cpu/choose.h"
#include "target/cpu/tuning.h"

static void swap_axes(kiln_plan *p, int a, int b) {
    int64_t n = p->n[a];
    p->n[a] = p->n[b];
    p->n[b] = n;
    for (int k = 0; k < p->axes.nbuffers; k++) {
        int64_t stride = p->stride[k][a];
        p->stride[k][a] = p->stride[k][b];
        p->stride[k][b] = stride;
    }
}

/* Where the innermost axis of the grid is short, the longest takes its place: lanes scan at the same time. */
static void lengthen_rows(kiln_plan *p) {
    int longest = 0;
    for (int d = 1; d < p->axes.ngrid; d++)
        if (p->n[d] > p->n[longest]) longest = d;
    if (p->n[0] < KILN_CPU_SCAN_SHORT_ROW && longest > 0) swap_axes(p, 0, longest);
}

/* Whether few rows go by blocks: they are long, the row of the operator says how blocks merge, and lanes that lie apart can
 * be read by whole vectors.  Complex rows do not go by blocks: the branch of a complex logarithm depends on the order. */
static bool goes_by_blocks(const kiln_plan *p) {
    if (p->n[p->axes.ngrid] < (int64_t)KILN_CPU_SCAN_MIN_BLOCKS * KILN_CPU_SCAN_BLOCK ||
        !p->branch->reduce->cuts)
        return false;
    for (int b = 0; b < p->axes.nbuffers; b++)
        if (p->bytes[b] > KILN_CPU_SCAN_MAX_ELEMENT) return false;
    return !kiln_dtype_is_complex(p->typed.common);
}

kiln_status kiln_cpu_choose_scan(kiln_plan *p, kiln_dim_strides *w) {
    uint8_t grid[KILN_MAX_RANK], scanned[KILN_MAX_RANK];
    /* The grid is in the order in which the first result lies in memory. */
    int ngrid = kiln_dims_collect(p, false, w->of[0], true, grid);
    int nscanned = kiln_dims_collect(p, true, NULL, false, scanned);
    p->axes.ndim = 0;
    if (kiln_plan_append(p, w->of, grid, ngrid) == 0) kiln_axes_add_one(p, KILN_ROLE_GRID);
    p->axes.ngrid = p->axes.ndim;
    lengthen_rows(p);
    if (kiln_plan_append(p, w->of, scanned, nscanned) == 0) kiln_axes_add_one(p, KILN_ROLE_SCANNED);
    p->role[p->axes.ngrid] = KILN_ROLE_SCANNED;
    p->axes.nelem = p->shape->nelem;
    p->axes.npoints = p->shape->nelem ? p->shape->nelem / p->n[p->axes.ngrid] : 0;
    bool few = p->axes.npoints < KILN_CPU_SCAN_FEW_ROWS;
    p->form = !few ? 0 : goes_by_blocks(p) ? KILN_SCAN_BLOCKS : KILN_SCAN_ALONE;
    if (p->form & KILN_SCAN_BLOCKS) kiln_axes_add_one(p, KILN_ROLE_PARTS);
    /* If there are few rows, the class does not depend on strides along the grid. */
    kiln_plan_classify(p, 0, p->form ? ~UINT64_C(0) : 0, 0);
    return KILN_OK;
}
