/* choose_fold.c - the form of folds on the CPU: kept and folded dimensions -> axes, copies, and which kernel it is.
 *
 * Kept dimensions are the grid.  Folded dimensions merge into at most two reduced axes; if they do not, arguments are copied
 * first, with the folded dimensions side by side.  If memory is nearest along a folded dimension, the fold is the vector loop
 * (along).  Otherwise, or if many folds have few elements each, the grid is the vector loop and each lane folds for itself
 * (across).  An input that would then be turned again for each of many rows is turned once, in a copy.  Must not know levels,
 * caches or threads. */
#include <stdlib.h>

#include "family/fold.h"
#include "family/kept_folded.h"
#include "infer/infer_parts.h"
#include "target/cpu/choose.h"
#include "target/cpu/tuning.h"

/* -- axes --------------------------------------------------------------------------------------------------- */

/* The dimension with the smallest of the strides of a buffer; -1: the buffer has the same element at all positions. */
static int nearest_of(const kiln_plan *p, const int64_t *strides) {
    int near = -1;
    for (int d = p->shape->rank - 1; d >= 0; d--) {
        if (p->shape->sizes[d] < 2 || strides[d] == 0) continue;
        if (near < 0 || llabs(strides[d]) < llabs(strides[near])) near = d;
    }
    return near;
}

/* Strides of the first input; of the first result, where a branch reads no tensor. */
static const int64_t *first_input(const kiln_plan *p, const kiln_dim_strides *w) {
    return w->of[p->axes.nbuffers > p->axes.nwritten ? p->axes.nwritten : 0];
}

/* The dimension with the smallest stride in the first input.  If that input has no folded dimension, in the first input that is
 * not broadcast; of a branch with a result for each element, in that result. */
static int nearest_dim(const kiln_plan *p, const kiln_dim_strides *w) {
    int near = nearest_of(p, first_input(p, w));
    if (!p->call->op->row->lacking) return near;
    if (kiln_is_each(p, 0)) return nearest_of(p, w->of[0]);
    for (int b = p->axes.nwritten + 1; b < p->axes.nbuffers && near < 0; b++) near = nearest_of(p, w->of[b]);
    return near;
}

static void swap(int64_t *two) {
    int64_t t = two[0];
    two[0] = two[1];
    two[1] = t;
}

/* Gives the n axes from `first` on the role of reduced axes, of which the slowest comes first. */
static void turn_reduced(kiln_plan *p, int first, int n) {
    for (int k = 0; k < n; k++) p->role[first + k] = KILN_ROLE_REDUCED;
    if (n < 2) return;
    swap(&p->n[first]);
    for (int b = 0; b < p->axes.nbuffers; b++) swap(&p->stride[b][first]);
}

static bool gives_each(const kiln_plan *p) {
    for (int k = 0; k < p->typed.nrets; k++)
        if (kiln_is_each(p, k)) return true;
    return false;
}

/* Counts the buffers that are broadcast along no dimension. */
static int whole_buffers(const kiln_plan *p, const kiln_dim_strides *w) {
    int n = 0;
    for (int b = 0; b < p->axes.nbuffers; b++) {
        bool whole = true;
        for (int d = 0; d < p->shape->rank; d++)
            whole = whole && (w->of[b][d] != 0 || p->shape->sizes[d] < 2);
        n += whole;
    }
    return n;
}

static int64_t elements_of_a_fold(const kiln_plan *p) {
    int64_t n = 1;
    for (int d = 0; d < p->shape->rank; d++)
        if (kiln_is_over(p, d)) n *= p->shape->sizes[d];
    return n;
}

/* The kept and the folded dimensions in the order of axes: the smallest stride first.  The columns of a triangle stay before its
 * rows.  Folded dimensions keep their order where the operator asks for places. */
static int kept_dims(const kiln_plan *p, const int64_t *by, uint8_t *out) {
    return kiln_dims_collect(p, false, by, !p->call->op->row->reduce->triangle, out);
}

static int folded_dims(const kiln_plan *p, const kiln_dim_strides *w, uint8_t *out) {
    return kiln_dims_collect(p, true, first_input(p, w), !p->branch->reduce->places, out);
}

/* The kept dimension that is the vector loop if each lane folds for itself; -1: every kept dimension has one position. */
static int lanes_dim(const kiln_plan *p, const kiln_dim_strides *w) {
    uint8_t kept[KILN_MAX_RANK];
    int n = kept_dims(p, first_input(p, w), kept);
    for (int k = 0; k < n; k++)
        if (p->shape->sizes[kept[k]] > 1) return kept[k];
    return -1;
}

/* Finds the one input that must be turned before lanes can fold for themselves, and that many rows of the grid read again.  That
 * input is turned once for all rows, in a copy.  -1: there is no such input or more than one, or the call is too small for a copy. */
static int read_again(const kiln_plan *p, const kiln_dim_strides *w) {
    int64_t worth = p->call->op->row->reduce->triangle
                        ? 1
                        : KILN_CPU_FOLD_WORTH_COPYING; /* rows of a triangle are not turned */
    if (p->shape->nelem < worth || p->work.nsteps || p->branch->accessed || gives_each(p)) return -1;
    int lanes = lanes_dim(p, w), found = -1;
    if (lanes < 0 || p->shape->sizes[lanes] < KILN_CPU_FOLD_SHORT_ROW || w->of[0][lanes] != 1) return -1;
    for (int b = p->axes.nwritten; b < p->axes.nbuffers; b++) {
        int64_t again = 1;
        if (w->of[b][lanes] == 0 || w->of[b][lanes] == 1) continue;
        for (int d = 0; d < p->shape->rank; d++)
            if (!kiln_is_over(p, d) && w->of[b][d] == 0) again *= p->shape->sizes[d];
        if (again < KILN_CPU_FOLD_AGAIN || found >= 0) return -1;
        found = b;
    }
    return found;
}

/* Whether each lane of a vector folds for itself.  near: the dimension of nearest_dim.  again: the input of read_again, or -1. */
static bool is_across(const kiln_plan *p, const kiln_dim_strides *w, int near, int again) {
    int64_t folds = p->shape[1].nelem;
    if (!kiln_is_over(p, near)) return p->shape->sizes[near] >= KILN_CPU_FOLD_SHORT_ROW;
    if (folds < (gives_each(p) ? KILN_CPU_FOLD_MANY_EACH : KILN_CPU_FOLD_MANY) || p->branch->reduce->spots)
        return false;
    int64_t few = whole_buffers(p, w) >= KILN_CPU_FOLD_MUCH_TO_TURN ? KILN_CPU_FOLD_SHORTER
                                                                    : KILN_CPU_FOLD_SHORT;
    if (again >= 0 && p->shape->sizes[lanes_dim(p, w)] >= KILN_CPU_FOLD_LANES_AGAIN)
        few = KILN_CPU_FOLD_SHORT_AGAIN;
    return elements_of_a_fold(p) < few;
}

/* Adds the kept dimensions as the grid.  Columns and rows of a triangle are not merged; the last row of a triangle has no places. */
static void add_grid(kiln_plan *p, const kiln_dim_strides *w, const int64_t *by) {
    uint8_t kept[KILN_MAX_RANK];
    bool triangle = p->call->op->row->reduce->triangle;
    int n = kept_dims(p, by, kept);
    p->axes.ndim = 0;
    int groups = kiln_plan_append(p, w->of, kept, triangle ? 1 : n);
    if (triangle) (void)kiln_plan_append(p, w->of, kept + 1, 1);
    if (groups == 0) kiln_axes_add_one(p, KILN_ROLE_GRID);
    p->axes.ngrid = p->axes.ndim;
    p->axes.triangle = triangle && p->shape[1].nelem > 0;
    if (p->axes.triangle) p->n[1]--;
}

/* Makes the axes: the grid, reduced axes, parts.  Returns how many groups the folded dimensions merge into.  More than
 * KILN_FOLD_AXES: there are no axes yet, and an argument must be copied first. */
static int lay_out(kiln_plan *p, const kiln_dim_strides *w, int again) {
    uint8_t folded[KILN_MAX_RANK];
    int near = nearest_dim(p, w);
    bool across = near >= 0 && is_across(p, w, near, again);
    const int64_t *in = first_input(p, w), *out = w->of[0];
    int nfolded = folded_dims(p, w, folded);
    p->form = across ? KILN_FOLD_ACROSS : 0;
    add_grid(p, w, across ? in : out);
    int groups = kiln_plan_append(p, w->of, folded, nfolded);
    int accessed = __builtin_popcountll(p->branch->accessed);
    if (groups > KILN_FOLD_AXES || p->axes.ndim + accessed + 2 > KILN_MAX_DIMS) return KILN_FOLD_AXES + 1;
    if (groups == 0) kiln_axes_add_one(p, KILN_ROLE_REDUCED);
    turn_reduced(p, p->axes.ngrid, groups);
    if (groups == 2) p->form |= KILN_FOLD_TWO;
    for (int b = p->axes.nwritten; b < p->axes.nbuffers; b++)
        if (kiln_is_accessed(p, b)) kiln_axes_add_accessed(p, w, b);
    kiln_axes_add_one(p, KILN_ROLE_PARTS);
    return groups;
}

/* A branch may fold nothing, as a norm by given statistics.  Then all folded dimensions but the nearest become part of the grid,
 * which is walked in the order of memory: images before channels.  Short rows stay folded, because what is the same for all
 * elements of a fold would be computed for each row. */
static void loosen(kiln_plan *p, const kiln_dim_strides *w) {
    int near = nearest_dim(p, w);
    if (!p->branch->reduce->loose || p->branch->accessed || near < 0 || !kiln_is_over(p, near)) return;
    if (p->shape->sizes[near] < KILN_CPU_FOLD_SHORT) return;
    for (int d = 0; d < p->shape->rank; d++) {
        if (d == near || !kiln_is_over(p, d)) continue;
        p->reduced &= ~(UINT64_C(1) << d);
        p->shape[1].nelem *= p->shape->sizes[d];
    }
}

/* Bit b: buffer b does not move along the vector axis, or is not stored. */
static uint64_t still_buffers(const kiln_plan *p) {
    /* If false, only results for each element move along the vector axis. */
    bool across = p->form & KILN_FOLD_ACROSS;
    uint64_t still = p->typed.unstored;
    for (int k = 0; k < p->axes.nwritten && !across; k++)
        if (k >= p->typed.nrets || !kiln_is_each(p, k)) still |= UINT64_C(1) << k;
    for (int b = p->axes.nwritten; b < p->axes.nbuffers; b++)
        if (kiln_is_accessed(p, b) || (kiln_is_lacking(p, b) && !across)) still |= UINT64_C(1) << b;
    return still;
}

/* Bit b: the driver turns buffer b (src/run/turned.c), because b is contiguous along the folded dimension and each lane folds for
 * itself.  0: no buffer is turned, because there are too few folds, or too little room. */
static uint32_t turned_buffers(const kiln_plan *p, uint64_t still) {
    const kiln_axes_counts *x = &p->axes;
    uint32_t turned = 0;
    int64_t each = 0; /* bytes of the tiles for each place of a row */
    if (!(p->form & KILN_FOLD_ACROSS) || x->ndim != x->ngrid + 2 || x->triangle) return 0;
    int64_t worth = gives_each(p) ? KILN_CPU_FOLD_WORTH_TURNING_EACH : KILN_CPU_FOLD_WORTH_TURNING;
    if (p->n[0] < KILN_CPU_TURN_FOLDS || x->nelem < worth) return 0;
    for (int b = 0; b < x->nbuffers; b++) {
        int64_t size = p->bytes[b];
        if (still >> b & 1 || p->stride[b][0] == size || p->stride[b][0] == 0) continue;
        if (p->stride[b][x->ngrid] != size || size > KILN_CPU_TURN_ELEMENT) return 0;
        turned |= 1u << b;
        each += KILN_CPU_TURN_FOLDS * size + KILN_CPU_TURN_GAP;
    }
    return p->n[x->ngrid] * each <= KILN_CPU_TURN_BYTES ? turned : 0;
}

/* Whether one nest fills many short rows together and another one then sets an element of each row.  A loop for each row would
 * take longer. */
static bool is_spotted(const kiln_plan *p) {
    int64_t folds = p->shape[1].nelem;
    for (int b = p->axes.nwritten; b < p->axes.nbuffers; b++)
        if (!kiln_is_lacking(p, b) && !kiln_is_accessed(p, b)) return false;
    return p->branch->reduce->spots && p->form == 0 && p->stride[0][p->axes.ngrid] == p->bytes[0] &&
           folds >= KILN_CPU_FOLD_MANY_EACH && p->shape->nelem / folds < KILN_CPU_FOLD_SHORT;
}

/* Sets what strides add to the class, and the last bits of the form. */
static void classify(kiln_plan *p) {
    int last = p->axes.ngrid + (p->form & KILN_FOLD_TWO ? 1 : 0); /* the last reduced axis */
    uint64_t still = still_buffers(p);
    if (is_spotted(p)) {
        p->form |= KILN_FOLD_SPOTS;
        for (int b = p->axes.nwritten; b < p->axes.nbuffers; b++)
            if (!kiln_is_accessed(p, b)) still &= ~(UINT64_C(1) << b);
        kiln_plan_classify(p, 0, still | 1, 0);
        if (!p->axes.strided) p->buffer[0].stride = KILN_STRIDE_CONTIG;
        return;
    }
    if (p->form == KILN_FOLD_ACROSS && p->n[last] <= 2) p->form |= KILN_FOLD_PAIR;
    kiln_plan_classify(p, p->form & KILN_FOLD_ACROSS ? 0 : last, still, turned_buffers(p, still));
}

/* The folded dimensions merge into too many groups: copies arguments so that the folded dimensions are one group. */
static kiln_status copy_first(kiln_plan *p, kiln_dim_strides *w) {
    if (p->call->op->row->nviews)
        return KILN_FAIL(KILN_E_UNSUP, "%s: a view of more groups of dimensions", p->call->op->name);
    bool accessed = false;
    for (int b = p->axes.nwritten; b < p->axes.nbuffers; b++) {
        bool one = kiln_is_accessed(p, b);
        if (kiln_is_lacking(p, b) || kiln_is_table(p, b) || (one && accessed)) continue;
        accessed = accessed || one;
        kiln_dim_strides_copy_first(p, w, b);
    }
    if (lay_out(p, w, -1) <= KILN_FOLD_AXES) return KILN_OK;
    return KILN_FAIL(
        KILN_E_UNSUP,
        "%s: a fold over more than %d groups of dimensions, with a result for each element or computed places",
        p->call->op->name, KILN_FOLD_AXES);
}

/* Makes the axes, for the arguments as they are or for copies of some. */
static kiln_status lay_out_or_copy(kiln_plan *p, kiln_dim_strides *w) {
    int again = read_again(p, w);
    if (lay_out(p, w, again) > KILN_FOLD_AXES) return copy_first(p, w);
    if (again < 0 || !(p->form & KILN_FOLD_ACROSS)) return KILN_OK;
    uint8_t order[KILN_MAX_RANK];
    int ndims = 0, n = kept_dims(p, first_input(p, w), order);
    n += folded_dims(p, w, order + n);
    for (int k = 0; k < n; k++) /* leave out the dimensions along which the input is broadcast */
        if (w->of[again][order[k]] != 0) order[ndims++] = order[k];
    kiln_dim_strides_copy(p, w, again, order, ndims);
    /* There are no more groups than before: the dimensions of a group stay side by side in the copy. */
    (void)lay_out(p, w, again);
    return KILN_OK;
}

kiln_status kiln_cpu_choose_fold(kiln_plan *p, kiln_dim_strides *w) {
    loosen(p, w);
    KILN_TRY(lay_out_or_copy(p, w));
    p->axes.npoints = p->shape[1].nelem;
    int64_t nelem = p->axes.triangle ? p->axes.npoints * elements_of_a_fold(p) : p->shape->nelem;
    p->axes.nelem = nelem > p->axes.npoints ? nelem : p->axes.npoints;
    classify(p);
    return KILN_OK;
}

kiln_form_trees kiln_cpu_fold_trees(uint8_t form) {
    kiln_form_trees along = {KILN_CPU_TREE_ALONG_LANES, KILN_CPU_TREE_ALONG_BLOCK, KILN_CPU_BLOCK_ALONG};
    kiln_form_trees across = {KILN_CPU_TREE_ACROSS, KILN_CPU_TREE_ACROSS, KILN_CPU_BLOCK_ACROSS};
    if (form & KILN_FOLD_PAIR) across.lanes = across.block = KILN_CPU_TREE_PAIR;
    return form & KILN_FOLD_ACROSS ? across : along;
}
