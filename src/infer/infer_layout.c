/* infer_layout.c - strides of the arguments -> strides of new results, and the order of iteration.
 *
 * New results get the strides PyTorch's TensorIterator would give them: those of the inputs where all
 * agree, else dense in the order that sorting the dimensions by stride yields.  PyTorch converts an
 * argument of another dtype first, which makes a view with gaps dense; that copy's strides then count.
 * The kernel walks dimensions in the order of the results' memory, innermost first, with neighbours
 * merged where every operand allows it. */
#include <stdlib.h>
#include <string.h>

#include "infer/infer_parts.h"

enum { STEP_ANY, STEP_CONTIG, STEP_BCAST }; /* ORDER STRIDE */

/* Strides of one tensor, as far as its layout counts. */
typedef struct layout {
    int rank;
    uint16_t flags;
    const int64_t *sizes, *strides;
} layout;

/* The tensors whose strides decide: given outputs that keep their shape, then the inputs. */
typedef struct deciders {
    layout at[KILN_MAX_OPERANDS + KILN_MAX_RETS];
    int n;
    bool all_same; /* every tensor has the broadcast shape */
    bool copied;   /* some strides are those of a converted copy */
    int64_t copies[KILN_MAX_OPERANDS][KILN_MAX_RANK];
} deciders;

static layout layout_of(const kiln_tensor *t) { return (layout){t->rank, t->flags, t->sizes, t->strides}; }

/* -- all tensors in one dense layout: one flat loop ---------------------------------------------------- */

static void channels_last_strides(const int64_t *sizes, int64_t *strides) {
    strides[1] = 1;
    strides[3] = sizes[1];
    strides[2] = strides[3] * sizes[3];
    strides[0] = strides[2] * sizes[2];
}

/* True if every tensor walks memory the same way; ret_strides then says how. */
static bool one_layout(kiln_plan *p, const deciders *f) {
    if (!f->all_same) return false;
    uint16_t flags = KILN_TF_CONTIGUOUS | KILN_TF_DENSE | KILN_TF_CHANNELS_LAST;
    for (int i = 0; i < f->n; i++) flags &= f->at[i].flags;
    if (flags & KILN_TF_CONTIGUOUS) {
        kiln_row_major(p->rank, p->sizes, p->ret_strides);
        return true;
    }
    if (flags & KILN_TF_CHANNELS_LAST) {
        channels_last_strides(p->sizes, p->ret_strides);
        return true;
    }
    if (!(flags & KILN_TF_DENSE) || f->n == 0) return false;
    size_t n = (size_t)p->rank * sizeof(int64_t);
    for (int i = 1; i < f->n; i++)
        if (memcmp(f->at[i].strides, f->at[0].strides, n) != 0) return false;
    memcpy(p->ret_strides, f->at[0].strides, n);
    return true;
}

static void flat_loop(kiln_plan *p) {
    p->ndim = 1;
    p->n[0] = p->nelem;
    for (int o = 0; o < p->noperands; o++) p->stride[o][0] = (int64_t)kiln_dtype_size(p->operand[o].dtype);
}

/* -- sorting dimensions -------------------------------------------------------------------------------- */

/* Elements per step of dimension d of a shape that t is broadcast to; zero where t is stretched. */
static int64_t step_of(const layout *t, int rank, const int64_t *sizes, int d) {
    int own = d - (rank - t->rank);
    return own < 0 || (t->sizes[own] == 1 && sizes[d] != 1) ? 0 : t->strides[own];
}

/* Above zero if dimension a should come after b, below if before, zero if no tensor can tell.  The first
 * tensor that walks both decides; at equal strides the longer dimension comes later.  Direction does not
 * matter, so negative strides count by their size. */
static int order(const layout *t, int nt, int rank, const int64_t *sizes, int a, int b) {
    for (int i = 0; i < nt; i++) {
        int64_t sa = llabs(step_of(&t[i], rank, sizes, a)), sb = llabs(step_of(&t[i], rank, sizes, b));
        if (sa == 0 || sb == 0) continue;
        if (sa != sb) return sa < sb ? -1 : 1;
        if (sizes[a] > sizes[b]) return 1;
    }
    return 0;
}

/* perm[k]: the dimension that moves k-th fastest.  An insertion sort that steps over ties, exactly as
 * PyTorch's: with ambiguous comparisons another sort would give another order. */
static void sort_dims(const layout *t, int nt, int rank, const int64_t *sizes, int *perm) {
    for (int k = 0; k < rank; k++) perm[k] = rank - 1 - k;
    for (int k = 1; k < rank; k++) {
        int at = k;
        for (int before = k - 1; before >= 0; before--) {
            int c = order(t, nt, rank, sizes, perm[before], perm[at]);
            if (c < 0) break;
            if (c == 0) continue;
            int swap = perm[before];
            perm[before] = perm[at];
            perm[at] = swap;
            at = before;
        }
    }
}

/* The layout that a converted copy of a view with gaps gets: its own order, made dense. */
static layout copy_layout(const layout *t, int64_t *strides) {
    int perm[KILN_MAX_RANK];
    int64_t next = 1, nelem = 1;
    sort_dims(t, 1, t->rank, t->sizes, perm);
    for (int k = 0; k < t->rank; k++) {
        strides[perm[k]] = next;
        if (t->sizes[perm[k]] > 1) next *= t->sizes[perm[k]];
        nelem *= t->sizes[k];
    }
    return (layout){t->rank, kiln_layout_flags(t->rank, t->sizes, strides, nelem), t->sizes, strides};
}

static void collect(const kiln_plan *p, const kiln_iter *it, deciders *f) {
    uint64_t promoted = kiln_plan_branch(p)->typing.args;
    f->n = 0;
    f->copied = false;
    f->all_same = !it->number || p->rank == 0;
    for (int k = 0; k < p->call->nout && !p->copy_out; k++)
        if (!p->resize_out[k]) f->at[f->n++] = layout_of(p->call->out[k]);
    for (int i = 0; i < it->nin; i++) {
        const kiln_tensor *t = it->in[i];
        layout l = layout_of(t);
        if ((promoted >> it->arg[i] & 1) && t->dtype != p->common && !(t->flags & KILN_TF_DENSE)) {
            l = copy_layout(&l, f->copies[i]);
            f->copied = true;
        }
        f->at[f->n++] = l;
        f->all_same = f->all_same && t->rank == p->rank &&
                      (t->rank == 0 || memcmp(t->sizes, p->sizes, t->rank * sizeof *t->sizes) == 0);
    }
}

/* Dense strides in the sorted order.  In row-major order sizes of zero count as one, else as zero: so does
 * PyTorch, which takes another path for each. */
static void strides_in_order(kiln_plan *p, const int *perm) {
    bool row_major = true;
    for (int k = 0; k < p->rank; k++) row_major = row_major && perm[k] == p->rank - 1 - k;
    if (row_major) {
        kiln_row_major(p->rank, p->sizes, p->ret_strides);
        return;
    }
    int64_t next = 1;
    for (int k = 0; k < p->rank; k++) {
        p->ret_strides[perm[k]] = next;
        next *= p->sizes[perm[k]];
    }
}

/* -- merging dimensions -------------------------------------------------------------------------------- */

/* Every operand as it is in memory, results still to be made included. */
static void operand_layouts(const kiln_plan *p, layout *out) {
    for (int o = 0; o < p->noperands; o++) {
        const kiln_operand *op = &p->operand[o];
        bool fresh = !op->tensor || (op->arg < 0 && p->resize_out[-1 - op->arg]);
        out[o] = fresh ? (layout){p->rank, 0, p->sizes, p->ret_strides} : layout_of(op->tensor);
    }
}

static bool merges(const kiln_plan *p, const int64_t *step) {
    int last = p->ndim - 1;
    if (last < 0) return false;
    for (int o = 0; o < p->noperands; o++)
        if (p->n[last] * p->stride[o][last] != step[o]) return false;
    return true;
}

static void merge_dims(kiln_plan *p, const layout *of, const int *perm) {
    int64_t step[KILN_MAX_OPERANDS];
    p->ndim = 0;
    for (int k = 0; k < p->rank; k++) {
        int d = perm[k];
        if (p->sizes[d] == 1) continue;
        for (int o = 0; o < p->noperands; o++)
            step[o] = step_of(&of[o], p->rank, p->sizes, d) * (int64_t)kiln_dtype_size(p->operand[o].dtype);
        if (merges(p, step)) {
            p->n[p->ndim - 1] *= p->sizes[d];
            continue;
        }
        for (int o = 0; o < p->noperands; o++) p->stride[o][p->ndim] = step[o];
        p->n[p->ndim++] = p->sizes[d];
    }
    if (p->ndim == 0) flat_loop(p); /* one element */
}

/* -- classes ------------------------------------------------------------------------------------------- */

static void classify(kiln_plan *p) {
    p->strided = false;
    for (int o = 0; o < p->noperands; o++) {
        kiln_operand *op = &p->operand[o];
        if (p->stride[o][0] == (int64_t)kiln_dtype_size(op->dtype))
            op->step = STEP_CONTIG;
        else if (p->stride[o][0] == 0 && op->arg >= 0)
            op->step = STEP_BCAST;
        else
            p->strided = true;
    }
    for (int o = 0; p->strided && o < p->noperands; o++) p->operand[o].step = STEP_ANY;
}

void kiln_layout_infer(kiln_plan *p, const kiln_iter *it) {
    deciders f;
    layout operands[KILN_MAX_OPERANDS];
    int perm[KILN_MAX_RANK];
    collect(p, it, &f);
    bool flat = one_layout(p, &f);
    if (!flat) {
        sort_dims(f.at, f.n, p->rank, p->sizes, perm);
        strides_in_order(p, perm);
    }
    if ((flat && !f.copied) || p->nelem == 0) {
        flat_loop(p);
    } else {
        operand_layouts(p, operands);
        if (f.copied) sort_dims(operands, p->noperands, p->rank, p->sizes, perm);
        merge_dims(p, operands, perm);
    }
    classify(p);
}
