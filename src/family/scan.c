/* scan.c - running results along one dimension: each element of a result comes from those before it and its own.
 *
 * Tensors are broadcast; an argument says which dimension is scanned; results have the shape of the call and are
 * row-major.  The other dimensions are the grid and its innermost is the vector loop, in which each lane scans for
 * itself; of a few rows only, one is scanned after the other.  The order of elements is the same in any case, so bits
 * depend on the elements alone; threads share the grid.  scan_lower.c makes the IR. */
#include "family/scan.h"

#include <stdlib.h>

#include "family/dims.h"
#include "infer/infer_parts.h"

static kiln_status shape(kiln_plan *p) {
    KILN_TRY(kiln_broadcast(p));
    KILN_TRY(kiln_over_find(p));
    kiln_row_major(p->shape->rank, p->shape->sizes, p->shape->strides);
    int64_t n = p->shape->nelem
                    ? 1
                    : 0; /* elements along the dimension, of which there may be none in other ones */
    for (int d = 0; d < p->shape->rank; d++)
        if (kiln_is_over(p, d)) n *= p->shape->sizes[d];
    for (int k = 0; k < p->typed.nrets; k++) p->result[k] = (kiln_result){.shape = 0};
    KILN_TRY(kiln_count_check(p, n));
    return p->call->nout ? kiln_results_check(p) : KILN_OK;
}

/* -- axes --------------------------------------------------------------------------------------------------- */

enum {
    SHORT_ROW = 8,  /* positions of a dimension that leave most lanes of the vector loop without an element */
    FEW_ROWS = 4,   /* rows that take less time one after the other than in lanes */
    MIN_BLOCKS = 8, /* whole blocks of a row that goes by blocks: as many lanes have an element */
    MAX_ELEMENT = 8 /* bytes of an element that kernels turn from rows to lanes */
};

/* Strides of every buffer along the dimensions of the call's shape, in elements. */
typedef struct walks {
    int64_t room[KILN_MAX_OPERANDS][KILN_MAX_RANK];
    const int64_t *of[KILN_MAX_OPERANDS];
} walks;

static void find_walks(const kiln_plan *p, walks *w) {
    for (int b = 0; b < p->axes.nbuffers; b++) {
        const kiln_tensor *t = p->buffer[b].tensor;
        bool own = b >= p->axes.nwritten || (t && !p->result[b].resized);
        w->of[b] = own ? w->room[b] : p->shape->strides;
        if (own) kiln_strides_stretch(p->shape, t->rank, t->sizes, t->strides, w->room[b]);
    }
}

/* The dimensions that are not scanned, nearest in the first result's memory first; how many. */
static int sort_grid(const kiln_plan *p, const int64_t *by, uint8_t *out) {
    int n = 0;
    for (int d = p->shape->rank - 1; d >= 0; d--) {
        if (kiln_is_over(p, d)) continue;
        int at = n++;
        for (; at > 0 && llabs(by[out[at - 1]]) > llabs(by[d]); at--) out[at] = out[at - 1];
        out[at] = (uint8_t)d;
    }
    return n;
}

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
    if (p->n[0] < SHORT_ROW && longest > 0) swap_axes(p, 0, longest);
}

/* Whether few rows go by blocks: they are long, the row of the operator says how blocks merge, and lanes that lie apart can
 * be read by whole vectors.  Complex numbers stay in their order, since which of its many values a logarithm has depends on it. */
static bool goes_by_blocks(const kiln_plan *p) {
    if (p->n[p->axes.ngrid] < (int64_t)MIN_BLOCKS * KILN_SCAN_BLOCK || !p->branch->reduce->cuts) return false;
    for (int b = 0; b < p->axes.nbuffers; b++)
        if (p->bytes[b] > MAX_ELEMENT) return false;
    return !kiln_dtype_is_complex(p->typed.common);
}

static kiln_status axes(kiln_plan *p) {
    uint8_t grid[KILN_MAX_RANK], scanned[KILN_MAX_RANK];
    int nscanned = 0;
    walks w;
    find_walks(p, &w);
    for (int d = 0; d < p->shape->rank; d++)
        if (kiln_is_over(p, d)) scanned[nscanned++] = (uint8_t)d;
    p->axes.ndim = 0;
    if (kiln_plan_append(p, w.of, grid, sort_grid(p, w.of[0], grid)) == 0)
        kiln_axes_add_one(p, KILN_ROLE_GRID);
    p->axes.ngrid = p->axes.ndim;
    lengthen_rows(p);
    if (kiln_plan_append(p, w.of, scanned, nscanned) == 0) kiln_axes_add_one(p, KILN_ROLE_SCANNED);
    p->role[p->axes.ngrid] = KILN_ROLE_SCANNED;
    p->axes.nelem = p->shape->nelem;
    p->axes.npoints = p->shape->nelem ? p->shape->nelem / p->n[p->axes.ngrid] : 0;
    bool few = p->axes.npoints < FEW_ROWS;
    p->form = !few ? 0 : goes_by_blocks(p) ? KILN_SCAN_BLOCKS : KILN_SCAN_ALONE;
    if (p->form & KILN_SCAN_BLOCKS) kiln_axes_add_one(p, KILN_ROLE_PARTS);
    kiln_plan_classify(p, 0, p->form ? ~UINT64_C(0) : 0, 0); /* rows alone may lie anyhow */
    return KILN_OK;
}

const kiln_family_fns kiln_family_scan = {shape, axes, kiln_scan_lower};
