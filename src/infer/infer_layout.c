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
    bool copied;   /* some strides are those of a copy, which PyTorch makes and Kiln does not */
    int64_t copies[KILN_MAX_OPERANDS][KILN_MAX_RANK];
} deciders;

static bool same_shape(const kiln_plan *p, const kiln_tensor *t) {
    return t->rank == p->rank &&
           (t->rank == 0 || memcmp(t->sizes, p->sizes, t->rank * sizeof *t->sizes) == 0);
}

static layout layout_of(const kiln_tensor *t) { return (layout){t->rank, t->flags, t->sizes, t->strides}; }

/* -- all tensors in one dense layout: one flat loop ---------------------------------------------------- */

/* Channels are innermost, then the rest from the last dimension on. */
static void channels_last_strides(int rank, const int64_t *sizes, int64_t *strides) {
    int64_t next = sizes[1];
    strides[1] = 1;
    for (int d = rank - 1; d >= 2; d--) {
        strides[d] = next;
        next *= sizes[d];
    }
    strides[0] = next;
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
        channels_last_strides(p->rank, p->sizes, p->ret_strides);
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
    const kiln_typing *ty = &kiln_plan_branch(p)->typing;
    uint64_t promoted = ty->args;
    bool number = ty->strides == KILN_STRIDES_WITH || (it->number && ty->strides != KILN_STRIDES_WITHOUT);
    f->n = 0;
    f->copied = false;
    f->all_same = !number || p->rank == 0;
    for (int k = 0; k < p->call->nout && !p->copy_out; k++)
        if (!p->resize_out[k]) f->at[f->n++] = layout_of(p->call->out[k]);
    for (int i = 0; i < it->nin; i++) {
        const kiln_tensor *t = it->in[i];
        layout l = layout_of(t);
        if ((promoted >> it->arg[i] & 1) && t->dtype != p->common && !(t->flags & KILN_TF_DENSE)) {
            l = copy_layout(&l, f->copies[i]);
            f->copied = true;
        }
        if (ty->strides == KILN_STRIDES_ROWS_OF && it->arg[i] == ty->like) {
            kiln_row_major(t->rank, t->sizes, f->copies[i]);
            l.strides = f->copies[i];
            l.flags = kiln_layout_flags(t->rank, t->sizes, l.strides, t->nelem);
            f->copied = true;
        }
        f->at[f->n++] = l;
        f->all_same = f->all_same && same_shape(p, t);
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

/* -- strides that the row asks for ----------------------------------------------------------------------- */

/* As a copy of t: its own strides if they are dense, else its own order.  Not where t is stretched. */
static void strides_like(kiln_plan *p, const kiln_tensor *t) {
    layout own = layout_of(t);
    if (!same_shape(p, t)) return;
    if (own.flags & KILN_TF_DENSE)
        memcpy(p->ret_strides, own.strides, (size_t)p->rank * sizeof *own.strides);
    else
        copy_layout(&own, p->ret_strides);
}

/* Whether the row's own strides are others than those that ret_strides had. */
static bool own_strides(kiln_plan *p) {
    const kiln_typing *ty = &kiln_plan_branch(p)->typing;
    int64_t before[KILN_MAX_RANK];
    size_t n = (size_t)p->rank * sizeof *before;
    if (ty->strides < KILN_STRIDES_ROWS) return false;
    memcpy(before, p->ret_strides, n);
    switch (ty->strides) {
    case KILN_STRIDES_USUAL:
    case KILN_STRIDES_WITH:
    case KILN_STRIDES_WITHOUT:
    case KILN_STRIDES_ROWS_OF: break;
    case KILN_STRIDES_ROWS: kiln_row_major(p->rank, p->sizes, p->ret_strides); break;
    case KILN_STRIDES_LIKE: strides_like(p, p->call->slot[ty->like].u.tensor); break;
    case KILN_STRIDES_CHANNELS_LAST:
    case KILN_STRIDES_CHANNELS_LAST_3D: channels_last_strides(p->rank, p->sizes, p->ret_strides); break;
    }
    return memcmp(before, p->ret_strides, n) != 0;
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
    bool unlike = own_strides(p) || f.copied; /* the operands are not walked as the iterator's strides say */
    if ((flat && !unlike) || p->nelem == 0) {
        flat_loop(p);
    } else {
        operand_layouts(p, operands);
        if (unlike) sort_dims(operands, p->noperands, p->rank, p->sizes, perm);
        merge_dims(p, operands, perm);
    }
    classify(p);
}
