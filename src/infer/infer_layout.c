/* infer_layout.c - strides of the arguments -> strides of new results, and the order of iteration.
 *
 * New results get the strides PyTorch's TensorIterator would give them: those of the inputs where all
 * agree, else dense in the order that sorting the dimensions by stride yields.  PyTorch converts an
 * argument of another dtype first, which makes a view with gaps dense; that copy's strides then count.
 * The kernel walks dimensions in the order of the results' memory, innermost first, with neighbours
 * merged where every operand allows it. */
#include <stdlib.h>
#include <string.h>

#include "infer/chooser.h"
#include "infer/infer_parts.h"

/* Strides of one tensor, as far as its layout counts. */
typedef struct layout {
    int rank;
    uint16_t flags;
    const int64_t *sizes, *strides;
} layout;

/* Elements per step of each dimension of the call; zero where a tensor is stretched. */
typedef const int64_t *strides;

typedef struct deciders {
    strides at[KILN_MAX_OPERANDS + KILN_MAX_RETS]; /* given outputs that keep their shape, then the inputs */
    strides in[KILN_MAX_OPERANDS];                 /* the inputs as they are in memory */
    int n;
    uint16_t flags; /* KILN_TF_: what is true of all of them */
    bool uniform;   /* all have the shape they meet in */
    bool copied;    /* some strides are those of a copy, which PyTorch makes and Kiln does not */
    int64_t stretched[KILN_MAX_OPERANDS][KILN_MAX_RANK], copies[KILN_MAX_OPERANDS][KILN_MAX_RANK];
} deciders;

static layout layout_of(const kiln_tensor *t) { return (layout){t->rank, t->flags, t->sizes, t->strides}; }

/* Steps of t in the shape s: its strides, or, if it is broadcast, what they come to, in room. */
static strides strides_of(const kiln_shape *s, bool uniform, const layout *t, int64_t *room) {
    if (uniform) return t->strides;
    int lead = s->rank - t->rank, d = 0; /* below 0: s lacks the first dimensions of t */
    for (; d < lead; d++) room[d] = 0;
    for (; d < s->rank; d++) room[d] = t->sizes[d - lead] == s->sizes[d] ? t->strides[d - lead] : 0;
    return room;
}

/* -- all tensors in one dense layout: one flat loop ---------------------------------------------------- */

void kiln_channels_last(int rank, const int64_t *sizes, int64_t *strides) {
    int64_t next = sizes[1];
    strides[1] = 1;
    for (int d = rank - 1; d >= 2; d--) {
        strides[d] = next;
        next *= sizes[d];
    }
    strides[0] = next;
}

/* Whether a number counts as a tensor of rank 0. */
static bool counts_number(const kiln_plan *p) {
    return kiln_args_wrapped(p) && p->branch->typing.strides != KILN_STRIDES_WITHOUT;
}

/* True if every tensor walks memory the same way; the shape's strides then say how. */
static bool one_layout(kiln_shape *s, const deciders *f) {
    if (!f->uniform) return false;
    bool rows = f->flags & KILN_TF_CONTIGUOUS, channels_last = f->flags & KILN_TF_CHANNELS_LAST;
    if (rows)
        kiln_row_major(s->rank, s->sizes, s->strides);
    else if (channels_last)
        kiln_channels_last(s->rank, s->sizes, s->strides);
    if (rows || channels_last) return true;
    if (!(f->flags & KILN_TF_DENSE) || f->n == 0) return false;
    for (int i = 1; i < f->n; i++)
        for (int d = 0; d < s->rank; d++)
            if (f->at[i][d] != f->at[0][d]) return false;
    for (int d = 0; d < s->rank; d++) s->strides[d] = f->at[0][d];
    return true;
}

static void flat_loop(kiln_plan *p) {
    p->axes.ndim = 1;
    p->n[0] = p->shape->nelem;
    for (int b = 0; b < p->axes.nbuffers; b++) p->stride[b][0] = p->bytes[b];
}

/* -- sorting dimensions -------------------------------------------------------------------------------- */

/* Above zero if dimension a should come after b, below if before, zero if no tensor can tell.  The first
 * tensor that walks both decides; at equal strides the longer dimension comes later.  Direction does not
 * matter, so negative strides count by their size. */
static int order(const strides *t, int nt, const int64_t *sizes, int a, int b) {
    for (int i = 0; i < nt; i++) {
        /* The analyzer does not know that there are as many tensors as buffers. */
        int64_t sa = llabs(t[i][a]), sb = llabs(t[i][b]); /* NOLINT(clang-analyzer-core.NullDereference) */
        if (sa == 0 || sb == 0) continue;
        if (sa != sb) return sa < sb ? -1 : 1;
        if (sizes[a] > sizes[b]) return 1;
    }
    return 0;
}

/* perm[k]: the dimension that moves k-th fastest.  An insertion sort that passes over ties, exactly as
 * PyTorch's: with ambiguous comparisons another sort would give another order. */
static void sort_dims(const strides *t, int nt, int rank, const int64_t *sizes, uint8_t *perm) {
    for (int k = 0; k < rank; k++) perm[k] = (uint8_t)(rank - 1 - k);
    for (int k = 1; k < rank; k++) {
        int at = k;
        for (int before = k - 1; before >= 0; before--) {
            int c = order(t, nt, sizes, perm[before], perm[at]);
            if (c < 0) break;
            if (c == 0) continue;
            uint8_t swap = perm[before];
            perm[before] = perm[at];
            perm[at] = swap;
            at = before;
        }
    }
}

/* The layout that a converted copy of a view with gaps gets: its own order, made dense. */
static layout copy_layout(const layout *t, int64_t *strides) {
    uint8_t perm[KILN_MAX_RANK];
    int64_t next = 1, nelem = 1;
    sort_dims(&t->strides, 1, t->rank, t->sizes, perm);
    for (int k = 0; k < t->rank; k++) {
        strides[perm[k]] = next;
        if (t->sizes[perm[k]] > 1) next *= t->sizes[perm[k]];
        nelem *= t->sizes[k];
    }
    return (layout){t->rank, kiln_layout_flags(t->rank, t->sizes, strides, nelem), t->sizes, strides};
}

/* The layout that counts for input i of the call, if that is another than its own. */
static bool copied_layout(const kiln_plan *p, int i, layout *l, int64_t *room) {
    const kiln_typing *ty = &p->branch->typing;
    const kiln_tensor *t = p->in[i];
    bool converted = (ty->args >> p->typed.in_arg[i] & 1) && t->dtype != p->typed.common;
    if ((t->flags & KILN_TF_DENSE) || !converted) return false;
    *l = copy_layout(l, room);
    return true;
}

static void collect(const kiln_plan *p, deciders *f) {
    f->n = 0;
    f->flags = KILN_TF_CONTIGUOUS | KILN_TF_DENSE | KILN_TF_CHANNELS_LAST | KILN_TF_CANONICAL;
    f->copied = false;
    f->uniform = p->uniform && (p->shape->rank == 0 || !counts_number(p));
    for (int k = 0; k < p->call->nout; k++) {
        if (p->result[k].resized) continue;
        f->at[f->n++] = p->call->out[k]->strides;
        f->flags &= p->call->out[k]->flags;
    }
    for (int i = 0; i < p->typed.nin; i++, f->n++) {
        const kiln_tensor *t = p->in[i];
        layout l = layout_of(t);
        f->at[f->n] = f->in[i] = strides_of(p->shape, p->uniform, &l, f->stretched[i]);
        if (copied_layout(p, i, &l,
                          f->copies[i] + (p->shape->rank - t->rank))) { /* where strides_of leaves them */
            f->at[f->n] = strides_of(p->shape, p->uniform, &l, f->copies[i]);
            f->copied = true;
        }
        f->flags &= l.flags;
    }
}

/* Strides of a result of shape s: those that all tensors have, which is true, or dense in the order `perm` of its
 * dimensions, fastest first.  Tensors whose every stride is row-major leave that as it is: between two dimensions that
 * one of them walks the outer stride is the larger, or equal over dimensions of one.  In row-major order sizes of zero
 * count as one, else as zero: so does PyTorch, which takes another path for each. */
static bool find_strides(kiln_shape *s, const deciders *f, uint8_t *perm) {
    const int rank = s->rank;
    bool row_major = true;
    int64_t next = 1;
    if (one_layout(s, f)) return true;
    if (f->flags & KILN_TF_CANONICAL) {
        for (int k = 0; k < rank; k++) perm[k] = (uint8_t)(rank - 1 - k);
    } else {
        sort_dims(f->at, f->n, rank, s->sizes, perm);
        for (int k = 0; k < rank; k++) row_major = row_major && perm[k] == rank - 1 - k;
    }
    if (row_major) kiln_row_major(rank, s->sizes, s->strides);
    for (int k = 0; k < rank && !row_major; k++) {
        s->strides[perm[k]] = next;
        next *= s->sizes[perm[k]];
    }
    return false;
}

/* -- strides that the row asks for ----------------------------------------------------------------------- */

/* As a copy of t: its own strides if they are dense, else its own order.  Not where t is stretched. */
static void strides_like(kiln_plan *p, const kiln_tensor *t) {
    layout own = layout_of(t);
    if (!kiln_has_shape(t, p->shape->rank, p->shape->sizes)) return;
    if (own.flags & KILN_TF_DENSE)
        memcpy(p->shape->strides, own.strides, (size_t)p->shape->rank * sizeof *own.strides);
    else
        copy_layout(&own, p->shape->strides);
}

/* -- strides that several iterators make, one after the other --------------------------------------------- */

/* The layout of an argument, or of what PyTorch makes on the way. */
typedef struct made {
    layout l;        /* of the sizes and strides below */
    kiln_dtype own;  /* its dtype */
    kiln_dtype to;   /* what it is converted to; KILN_DTYPE_COUNT: the dtype of those it meets */
    bool has_common; /* has the call's common dtype, as what met a number has */
    int64_t sizes[KILN_MAX_RANK], strides[KILN_MAX_RANK];
} made;

static void set_made(made *m, int rank, const int64_t *sizes, const int64_t *strides) {
    int64_t nelem = 1;
    for (int d = 0; d < rank; d++) {
        m->sizes[d] = sizes[d];
        m->strides[d] = strides[d];
        nelem *= sizes[d];
    }
    m->l = (layout){rank, kiln_layout_flags(rank, m->sizes, m->strides, nelem), m->sizes, m->strides};
    m->own = m->to = KILN_BOOL; /* equal: not converted */
}

static void take_argument(const kiln_plan *p, kiln_link link, made *out) {
    const kiln_tensor *t = p->call->arg[link.n].u.tensor;
    bool rows = link.kind == KILN_LINK_ROWS, promoted = p->branch->typing.args >> link.n & 1;
    int64_t strides[KILN_MAX_RANK];
    for (int d = 0; d < t->rank; d++) strides[d] = t->strides[d] * (link.kind == KILN_LINK_PART ? 2 : 1);
    if (rows) kiln_row_major(t->rank, t->sizes, strides);
    set_made(out, t->rank, t->sizes, strides);
    out->has_common = rows;
    out->own = out->to = (kiln_dtype)t->dtype;
    if (link.kind == KILN_LINK_TO) out->to = (kiln_dtype)link.dtype;
    if (link.kind == KILN_LINK_OWN && promoted) out->to = KILN_DTYPE_COUNT;
}

/* Copies those of another dtype than the iterator's, as PyTorch does first. */
static void convert(const kiln_plan *p, made *in, int n) {
    bool has_common = false;
    for (int i = 0; i < n; i++) has_common = has_common || in[i].has_common;
    for (int i = 0; i < n; i++) {
        made *m = &in[i];
        kiln_dtype to = m->to < KILN_DTYPE_COUNT ? m->to : has_common ? p->typed.common : p->typed.promoted;
        if (m->own != to && !(m->l.flags & KILN_TF_DENSE)) m->l = copy_layout(&m->l, m->strides);
    }
    in[0].has_common = has_common;
}

/* The n layouts at `in` meet in one iterator: in[0] becomes that of its result.  f: room to work it out in. */
static void meet(made *in, int n, deciders *f) {
    uint8_t perm[KILN_MAX_RANK];
    int64_t sizes[KILN_MAX_RANK], strides[KILN_MAX_RANK];
    kiln_shape s = {.rank = 0, .sizes = sizes, .strides = strides};
    for (int i = 0; i < n; i++) s.rank = in[i].l.rank > s.rank ? in[i].l.rank : s.rank;
    f->uniform = true; /* a number among them has no dimensions */
    for (int i = 0; i < n; i++) f->uniform = f->uniform && in[i].l.rank == s.rank;
    for (int d = 0; d < s.rank; d++) {
        s.sizes[d] = 1;
        for (int i = 0, at; i < n; i++)
            if ((at = d - s.rank + in[i].l.rank) >= 0 && in[i].sizes[at] != 1) s.sizes[d] = in[i].sizes[at];
        for (int i = 0; i < n && f->uniform; i++) f->uniform = in[i].sizes[d] == s.sizes[d];
    }
    f->flags = KILN_TF_CONTIGUOUS | KILN_TF_DENSE | KILN_TF_CHANNELS_LAST | KILN_TF_CANONICAL;
    for (f->n = 0; f->n < n; f->n++) {
        f->at[f->n] = strides_of(&s, f->uniform, &in[f->n].l, f->stretched[f->n]);
        f->flags &= in[f->n].l.flags;
    }
    (void)find_strides(&s, f, perm);
    set_made(in, s.rank, s.sizes, s.strides);
}

/* Works the links out on a stack.  Where arguments that they do not name stretch the result, it has the usual strides. */
static void strides_of_chain(kiln_plan *p) {
    const kiln_typing *ty = &p->branch->typing;
    size_t nbytes = (size_t)p->shape->rank * sizeof *p->shape->sizes;
    made stack[KILN_MAX_LINKED];
    deciders f;
    int n = 0;
    for (int k = 0; k < ty->nchain; k++, n++) {
        kiln_link link = ty->chain[k];
        if (link.kind == KILN_LINK_MEET) {
            n -= link.n;
            convert(p, &stack[n], link.n);
            meet(&stack[n], link.n, &f);
        } else if (link.kind == KILN_LINK_NUMBER) {
            set_made(&stack[n], 0, NULL, NULL);
            stack[n].has_common = true;
        } else {
            take_argument(p, link, &stack[n]);
        }
    }
    if (stack[0].l.rank == p->shape->rank && memcmp(stack[0].sizes, p->shape->sizes, nbytes) == 0)
        memcpy(p->shape->strides, stack[0].strides, nbytes);
}

void kiln_layout_part(const kiln_tensor *t, kiln_shape *s) {
    made part;
    deciders f;
    set_made(&part, s->rank, s->sizes, t->strides);
    meet(&part, 1, &f);
    memcpy(s->strides, part.strides, (size_t)s->rank * sizeof *s->strides);
}

/* Where PyTorch copies a result into out=, it resizes that without a look at the result's strides. */
static bool resized_for_copy(const kiln_plan *p) {
    bool resized = false;
    for (int k = 0; k < p->call->nout; k++) resized = resized || p->result[k].resized;
    return resized && kiln_plan_out_rule(p) == KILN_OUT_COPIED;
}

/* Whether the out= tensor decides the strides: PyTorch would make a row-major tensor first, and the out= tensor takes that tensor's place. */
static bool made_before(const kiln_plan *p) {
    const kiln_typing *ty = &p->branch->typing;
    return p->call->nout && ty->strides == KILN_STRIDES_CHAIN && ty->nchain == 2 &&
           ty->chain[0].kind == KILN_LINK_ROWS;
}

/* Gives the results the strides that the row itself states, if it states any.  True: they differ from those in p->shape before. */
static bool own_strides(kiln_plan *p) {
    const kiln_typing *ty = &p->branch->typing;
    int64_t before[KILN_MAX_RANK];
    size_t n = (size_t)p->shape->rank * sizeof *before;
    bool rows = ty->strides == KILN_STRIDES_ROWS || resized_for_copy(p);
    if (!rows && (ty->strides < KILN_STRIDES_ROWS || made_before(p))) return false;
    memcpy(before, p->shape->strides, n);
    if (rows)
        kiln_row_major(p->shape->rank, p->shape->sizes, p->shape->strides);
    else if (ty->strides == KILN_STRIDES_LIKE)
        strides_like(p, p->call->arg[ty->like].u.tensor);
    else if (ty->strides == KILN_STRIDES_CHAIN)
        strides_of_chain(p);
    else
        kiln_channels_last(p->shape->rank, p->shape->sizes, p->shape->strides);
    return memcmp(before, p->shape->strides, n) != 0;
}

/* -- merging dimensions -------------------------------------------------------------------------------- */

/* Every buffer as it is in memory, results still to be made included. */
static void buffer_strides(const kiln_plan *p, const deciders *f, strides *out) {
    uint64_t uses = p->branch->uses;
    for (int k = 0; k < p->typed.nrets; k++, out++) {
        const kiln_tensor *given = k < p->call->nout ? p->call->out[k] : NULL;
        *out = !given || p->result[k].resized ? p->shape->strides : given->strides;
    }
    for (int i = 0; i < p->typed.nin; i++)
        if (uses >> p->typed.in_arg[i] & 1) *out++ = f->in[i];
}

/* Whether dimension d goes on where the last one of the axes ends, for every buffer. */
static bool merges(const kiln_plan *p, const strides *of, int d) {
    int last = p->axes.ndim - 1;
    const int64_t n = p->n[last];
    for (int b = 0; b < p->axes.nbuffers; b++)
        if (n * p->stride[b][last] != of[b][d] * p->bytes[b]) return false;
    return true;
}

int kiln_plan_append(kiln_plan *p, const int64_t *const *of, const uint8_t *dims, int n) {
    const int first = p->axes.ndim, nbuffers = p->axes.nbuffers;
    for (int k = 0; k < n; k++) {
        int d = dims[k], at = p->axes.ndim;
        if (p->shape->sizes[d] == 1) continue;
        if (at > first && merges(p, of, d)) {
            p->n[at - 1] *= p->shape->sizes[d];
            continue;
        }
        /* The analyzer does not know that `of` has as many entries as there are buffers. */
        for (int b = 0; b < nbuffers; b++)
            p->stride[b][at] = of[b][d] * p->bytes[b]; /* NOLINT(clang-analyzer-core.NullDereference) */
        p->n[p->axes.ndim++] = p->shape->sizes[d];
    }
    return p->axes.ndim - first;
}

/* Whether all tensors, which have one shape, are row-major, as new results then are: most calls.  A number beside them has no
 * strides to ask for. */
static bool all_row_major(const kiln_plan *p) {
    enum { ROW_MAJOR = KILN_TF_CONTIGUOUS | KILN_TF_CANONICAL };
    unsigned flags = ROW_MAJOR;
    if (!p->uniform || p->branch->typing.strides >= KILN_STRIDES_ROWS) return false;
    for (int k = 0; k < p->call->nout; k++) flags &= p->result[k].resized ? 0 : p->call->out[k]->flags;
    for (int i = 0; i < p->typed.nin; i++) flags &= p->in[i]->flags;
    return flags == ROW_MAJOR;
}

KILN_HOT void kiln_layout_infer(kiln_plan *p) {
    deciders f;
    strides buffers[KILN_MAX_OPERANDS];
    uint8_t perm[KILN_MAX_RANK];
    if (all_row_major(p)) {
        kiln_row_major(p->shape->rank, p->shape->sizes, p->shape->strides);
        flat_loop(p);
        return;
    }
    collect(p, &f);
    bool flat = find_strides(p->shape, &f, perm);
    bool unlike = own_strides(p) || f.copied; /* buffers are walked in another order than the iterator's */
    if ((flat && !unlike) || p->shape->nelem == 0) {
        flat_loop(p);
        return;
    }
    buffer_strides(p, &f, buffers);
    if (unlike) sort_dims(buffers, p->axes.nbuffers, p->shape->rank, p->shape->sizes, perm);
    p->axes.ndim = 0;
    if (kiln_plan_append(p, buffers, perm, p->shape->rank) == 0) flat_loop(p); /* one element */
}

/* -- classes ------------------------------------------------------------------------------------------- */

/* Inlined, so that it asks nothing of `still` and `turned` where they are 0, as they are for maps. */
static inline __attribute__((always_inline)) void classify(kiln_plan *p, int vec, uint64_t still,
                                                           uint32_t turned) {
    const int n = p->axes.nbuffers, nwritten = p->axes.nwritten;
    uint64_t bits = 0;
    bool strided = false;
    p->axes.columns = 0;
    for (int b = 0; b < n; b++) {
        kiln_stride is = KILN_STRIDE_ANY;
        int64_t stride = p->stride[b][vec];
        bool asked = !(still >> b & 1);
        if ((stride == p->bytes[b] || (turned && turned >> b & 1)) && asked)
            is = KILN_STRIDE_CONTIG;
        else if (stride == 0 && b >= nwritten && asked) {
            is = KILN_STRIDE_BCAST;
            if (vec == 0 && kiln_plan_chooser(p)->is_column(p, b)) p->axes.columns |= 1u << b;
        } else
            strided |= asked;
        p->buffer[b].stride = (uint8_t)is;
        if (asked) bits = bits << 2 | is;
    }
    if (strided) {
        bits = 0;
        for (int b = 0; b < n; b++) p->buffer[b].stride = KILN_STRIDE_ANY;
    }
    p->axes.vector = vec;
    p->axes.strided = strided;
    if (strided) p->axes.columns = 0;
    p->axes.turned = strided ? 0 : turned;
    p->stride_bits = bits | (uint64_t)p->form << (2 * KILN_MAX_OPERANDS);
}

KILN_HOT void kiln_plan_classify(kiln_plan *p, int vec, uint64_t still, uint32_t turned) {
    if (still || turned)
        classify(p, vec, still, turned);
    else
        classify(p, vec, 0, 0);
}
