/* fold.c - reductions: the elements along some dimensions become one element of each result, or one for each of them.
 *
 * Tensors are broadcast; which dimensions are folded, an argument or the row says; results are row-major.  Kept
 * dimensions are the grid, folded ones at most two reduced axes: where they do not merge into so few, arguments are
 * copied first, folded dimensions last.  If memory is nearest along a folded dimension the fold itself is the vector
 * loop (along), else, and where many folds have few elements each, the grid is and each lane folds for itself (across).
 * What would be turned for that again and again, beside many rows, is turned once, in a copy.  fold_lower.c makes the IR. */
#include <stdlib.h>

#include "family/walks.h"
#include "family/fold.h"
#include "family/views.h"
#include "infer/infer_parts.h"

/* -- axes --------------------------------------------------------------------------------------------------- */

enum {
    SHORT_ROW = 8, /* elements of a kept dimension that are not worth being the vector loop */
    FEW = 64,      /* elements of a fold that are not, where others can be folded beside it, */
    MANY = 64,     /* so many, */
    FEWER = 24,    /* and of one that is not where so many buffers have to be turned for that */
    MUCH_TO_TURN = 3,
    WORTH_TURNING = 2048, /* elements of a call: a smaller one is as quick row by row */
    /* The same where results have an element for each that is folded: a row is then gone through several times. */
    MANY_EACH = 16,
    WORTH_TURNING_EACH = 512,
    /* The same where a buffer can be turned once for so many rows that it is read beside. */
    AGAIN = 8,
    FEW_AGAIN = 128, /* if there are so many lanes */
    LANES_AGAIN = 32,
    WORTH_COPYING = 1 << 14
};

/* The dimension along which buffer b's memory is nearest; -1: it has none of more than one position. */
static int nearest_of(const kiln_plan *p, const int64_t *strides) {
    int near = -1;
    for (int d = p->shape->rank - 1; d >= 0; d--) {
        if (p->shape->sizes[d] < 2 || strides[d] == 0) continue;
        if (near < 0 || llabs(strides[d]) < llabs(strides[near])) near = d;
    }
    return near;
}

/* Strides of the first input; of the first result, where a branch reads no tensor. */
static const int64_t *first_input(const kiln_plan *p, const kiln_walks *w) {
    return w->of[p->axes.nbuffers > p->axes.nwritten ? p->axes.nwritten : 0];
}

/* The same of the first input; where none is folded, of the first that moves, or of a result for each element. */
static int nearest_dim(const kiln_plan *p, const kiln_walks *w) {
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

/* Reduced axes are declared slowest first. */
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

/* Buffers that have an element for each that is folded, of every fold. */
static int whole_buffers(const kiln_plan *p, const kiln_walks *w) {
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

/* Dimensions that are kept, and those that are folded, in the order of axes: the nearest first, but for columns of a triangle and
 * places that are asked for. */
static int kept_dims(const kiln_plan *p, const int64_t *by, uint8_t *out) {
    return kiln_dims_collect(p, false, by, !p->call->op->row->reduce.triangle, out);
}

static int folded_dims(const kiln_plan *p, const kiln_walks *w, uint8_t *out) {
    return kiln_dims_collect(p, true, first_input(p, w), !p->branch->reduce->places, out);
}

/* The kept dimension along which vectors go where each lane folds for itself; -1: none has several positions. */
static int lanes_dim(const kiln_plan *p, const kiln_walks *w) {
    uint8_t kept[KILN_MAX_RANK];
    int n = kept_dims(p, first_input(p, w), kept);
    for (int k = 0; k < n; k++)
        if (p->shape->sizes[kept[k]] > 1) return kept[k];
    return -1;
}

/* The one input that would have to be turned for lanes to fold for themselves, if it is read again for many rows of the grid: turned
 * in a copy it is so for all of them.  -1: there is none, or the call is not worth a copy. */
static int read_again(const kiln_plan *p, const kiln_walks *w) {
    int64_t worth = p->call->op->row->reduce.triangle ? 1 : WORTH_COPYING; /* its rows are not turned */
    if (p->shape->nelem < worth || p->nsteps || p->branch->accessed || gives_each(p)) return -1;
    int lanes = lanes_dim(p, w), found = -1;
    if (lanes < 0 || p->shape->sizes[lanes] < SHORT_ROW || w->of[0][lanes] != 1) return -1;
    for (int b = p->axes.nwritten; b < p->axes.nbuffers; b++) {
        int64_t again = 1;
        if (w->of[b][lanes] == 0 || w->of[b][lanes] == 1) continue;
        for (int d = 0; d < p->shape->rank; d++)
            if (!kiln_is_over(p, d) && w->of[b][d] == 0) again *= p->shape->sizes[d];
        if (again < AGAIN || found >= 0) return -1;
        found = b;
    }
    return found;
}

/* Whether each lane of a vector folds for itself; `near` is where memory is nearest, `again` what is read again. */
static bool is_across(const kiln_plan *p, const kiln_walks *w, int near, int again) {
    int64_t folds = p->shape[1].nelem;
    if (!kiln_is_over(p, near)) return p->shape->sizes[near] >= SHORT_ROW;
    if (folds < (gives_each(p) ? MANY_EACH : MANY) || p->branch->reduce->spots) return false;
    int64_t few = whole_buffers(p, w) >= MUCH_TO_TURN ? FEWER : FEW;
    if (again >= 0 && p->shape->sizes[lanes_dim(p, w)] >= LANES_AGAIN) few = FEW_AGAIN;
    return elements_of_a_fold(p) < few;
}

/* Dimensions that are kept.  The columns of a triangle and its rows, of which the last has no places, stay two. */
static void add_grid(kiln_plan *p, const kiln_walks *w, const int64_t *by) {
    uint8_t kept[KILN_MAX_RANK];
    bool triangle = p->call->op->row->reduce.triangle;
    int n = kept_dims(p, by, kept);
    p->axes.ndim = 0;
    int groups = kiln_plan_append(p, w->of, kept, triangle ? 1 : n);
    if (triangle) (void)kiln_plan_append(p, w->of, kept + 1, 1);
    if (groups == 0) kiln_axes_add_one(p, KILN_ROLE_GRID);
    p->axes.ngrid = p->axes.ndim;
    p->axes.triangle = triangle && p->shape[1].nelem > 0;
    if (p->axes.triangle) p->n[1]--;
}

/* Grid, reduced axes, parts; how many groups of folded dimensions there are, which may be too many for that. */
static int lay_out(kiln_plan *p, const kiln_walks *w, int again) {
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

/* Where nothing is folded, dimensions that would be are like any other.  All but the nearest become part of the grid, which is walked in
 * the order of memory: images before channels, of a norm of each channel by given statistics.  Not so if rows are short, since what all
 * folded together have in common would be computed for each. */
static void loosen(kiln_plan *p, const kiln_walks *w) {
    int near = nearest_dim(p, w);
    if (!p->branch->reduce->loose || p->branch->accessed || near < 0 || !kiln_is_over(p, near)) return;
    if (p->shape->sizes[near] < FEW) return;
    for (int d = 0; d < p->shape->rank; d++) {
        if (d == near || !kiln_is_over(p, d)) continue;
        p->reduced &= ~(UINT64_C(1) << d);
        p->shape[1].nelem *= p->shape->sizes[d];
    }
}

/* Arguments that the row keeps, or writes to, must not go along folded dimensions. */
static kiln_status check_kept(const kiln_plan *p, const kiln_walks *w) {
    for (int b = p->typed.nrets; b < p->axes.nbuffers; b++) {
        if (!(p->call->op->row->kept >> p->buffer[b].which & 1)) continue;
        for (int d = 0; d < p->shape->rank; d++)
            if (kiln_is_over(p, d) && w->of[b][d] != 0 && p->shape->sizes[d] > 1)
                return KILN_FAIL(
                    KILN_E_ARG,
                    "%s: argument '%s' has %lld elements along a dimension that is folded: expected 1",
                    p->call->op->name, kiln_arg_name(p->call, p->buffer[b].which),
                    (long long)p->shape->sizes[d]);
    }
    return KILN_OK;
}

/* Buffers that do not go along the vector axis, or are not stored. */
static uint64_t still_buffers(const kiln_plan *p) {
    bool across = p->form & KILN_FOLD_ACROSS; /* else most results do not go along the vector axis */
    uint64_t still = p->typed.unstored;
    for (int k = 0; k < p->axes.nwritten && !across; k++)
        if (k >= p->typed.nrets || !kiln_is_each(p, k)) still |= UINT64_C(1) << k;
    for (int b = p->axes.nwritten; b < p->axes.nbuffers; b++)
        if (kiln_is_accessed(p, b) || (kiln_is_lacking(p, b) && !across)) still |= UINT64_C(1) << b;
    return still;
}

/* Buffers that lie along the one dimension that is folded, where each lane folds for itself and there is room to turn them, so
 * that the kernel is the one for rows of lanes. */
static uint32_t turned_buffers(const kiln_plan *p, uint64_t still) {
    const kiln_axes *x = &p->axes;
    uint32_t turned = 0;
    int64_t each = 0; /* bytes of the tiles for each place of a row */
    if (!(p->form & KILN_FOLD_ACROSS) || x->ndim != x->ngrid + 2 || x->triangle) return 0;
    int64_t worth = gives_each(p) ? WORTH_TURNING_EACH : WORTH_TURNING;
    if (p->n[0] < KILN_TURN_FOLDS || x->nelem < worth) return 0;
    for (int b = 0; b < x->nbuffers; b++) {
        int64_t size = p->bytes[b];
        if (still >> b & 1 || p->stride[b][0] == size || p->stride[b][0] == 0) continue;
        if (p->stride[b][x->ngrid] != size || size > KILN_TURN_ELEMENT) return 0;
        turned |= 1u << b;
        each += KILN_TURN_FOLDS * size + KILN_TURN_GAP;
    }
    return p->n[x->ngrid] * each <= KILN_TURN_BYTES ? turned : 0;
}

/* Whether many short rows are filled all together, and an element of each is set after that: a loop for each row would take longer. */
static bool is_spotted(const kiln_plan *p) {
    int64_t folds = p->shape[1].nelem;
    for (int b = p->axes.nwritten; b < p->axes.nbuffers; b++)
        if (!kiln_is_lacking(p, b) && !kiln_is_accessed(p, b)) return false;
    return p->branch->reduce->spots && p->form == 0 && p->stride[0][p->axes.ngrid] == p->bytes[0] &&
           folds >= MANY_EACH && p->shape->nelem / folds < FEW;
}

/* What strides add to the class.  Where rows are lanes while their elements are set, the result still lies along them. */
static void classify(kiln_plan *p) {
    int last = p->axes.ngrid + (p->form & KILN_FOLD_TWO ? 1 : 0); /* reduced */
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

/* Folded dimensions lie in too many groups: arguments are copied so that they lie in one. */
static kiln_status copy_first(kiln_plan *p, kiln_walks *w) {
    if (p->call->op->row->nviews)
        return KILN_FAIL(KILN_E_UNSUP, "%s: a view of more groups of dimensions", p->call->op->name);
    bool accessed = false;
    for (int b = p->axes.nwritten; b < p->axes.nbuffers; b++) {
        bool one = kiln_is_accessed(p, b);
        if (kiln_is_lacking(p, b) || kiln_is_table(p, b) || (one && accessed)) continue;
        accessed = accessed || one;
        kiln_walks_copy_first(p, w, b);
    }
    if (lay_out(p, w, -1) <= KILN_FOLD_AXES) return KILN_OK;
    return KILN_FAIL(
        KILN_E_UNSUP,
        "%s: a fold over more than %d groups of dimensions, with a result for each element or computed places",
        p->call->op->name, KILN_FOLD_AXES);
}

/* Axes for arguments as they are, or as copies lie. */
static kiln_status lay_out_or_copy(kiln_plan *p, kiln_walks *w) {
    int again = read_again(p, w);
    if (lay_out(p, w, again) > KILN_FOLD_AXES) return copy_first(p, w);
    if (again < 0 || !(p->form & KILN_FOLD_ACROSS)) return KILN_OK;
    uint8_t order[KILN_MAX_RANK];
    int n = kept_dims(p, first_input(p, w), order);
    n += folded_dims(p, w, order + n);
    kiln_walks_copy_turned(p, w, again, order, n);
    (void)lay_out(p, w, again); /* no more groups: in this order what was one is one in the copy */
    return KILN_OK;
}

static kiln_status axes(kiln_plan *p) {
    kiln_walks w;
    const kiln_row *row = p->call->op->row;
    if (row->rest) kiln_rest_call(p);
    if (row->nviews) KILN_TRY(kiln_views_copy(p));
    kiln_walks_find(p, &w);
    if (row->kept) KILN_TRY(check_kept(p, &w));
    loosen(p, &w);
    KILN_TRY(lay_out_or_copy(p, &w));
    p->axes.npoints = p->shape[1].nelem;
    int64_t nelem = p->axes.triangle ? p->axes.npoints * elements_of_a_fold(p) : p->shape->nelem;
    p->axes.nelem = nelem > p->axes.npoints ? nelem : p->axes.npoints;
    classify(p);
    bool all_absent = p->typed.unstored == (UINT32_C(1) << p->typed.nrets) - 1;
    if (all_absent && p->axes.nwritten == p->typed.nrets) { /* nothing is computed */
        p->kind = row->rest && p->rest ? KILN_CLASS_COMPOSITION : KILN_CLASS_VIEW;
        p->nsteps = p->kind == KILN_CLASS_COMPOSITION;
    }
    return KILN_OK;
}

const kiln_family_fns kiln_family_fold = {kiln_kept_shape, axes, kiln_fold_lower};
