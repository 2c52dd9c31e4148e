/* infer_overlap.c - tensors to be written, and all that the call reads -> refused, or what is computed aside.
 *
 * PyTorch's rules say what is refused: a result with an expanded dimension, and a result beside an argument, both dense,
 * that has some of its memory but not all of it in the same order (unless the row says `out copied`).  Two results in one
 * memory are refused too.  Any other overlap gives what reading all arguments before anything is written would give.
 * Elements are computed in no certain order, so a result that shares memory with more of an argument than its own
 * element is computed aside first (`aside`).  Without storages to compare, addresses decide. */
#include "infer/infer_parts.h"

typedef enum overlap { OVERLAP_NO, OVERLAP_ALIGNED, OVERLAP_PARTIAL, OVERLAP_OTHER } overlap;

/* PARTIAL: what PyTorch calls so.  OTHER: any that it does not look into. */
static overlap overlap_of(const kiln_tensor *a, const kiln_tensor *b) {
    if (a->nelem == 0 || b->nelem == 0) return OVERLAP_NO;
    if (a == b) return OVERLAP_ALIGNED;
    if (a->flags & b->flags & KILN_TF_DENSE) {
        kiln_extent ea = kiln_tensor_extent(a), eb = kiln_tensor_extent(b);
        if (kiln_extents_apart(ea, eb)) return OVERLAP_NO;
        bool all = ea.low == eb.low && ea.nbytes == eb.nbytes;
        if (!all || a->rank != b->rank || !kiln_same_sizes(a->rank, a->strides, b->strides))
            return OVERLAP_PARTIAL;
    }
    if (kiln_tensors_aligned(a, b)) return OVERLAP_ALIGNED;
    return kiln_tensors_may_share(a, b) ? OVERLAP_OTHER : OVERLAP_NO;
}

static kiln_status refuse(const kiln_bound *call, int k, const char *why) {
    const kiln_op *op = call->op;
    return KILN_FAIL(KILN_E_ARG, "%s: argument '%s': %s", op->name,
                     op->schema->args[kiln_op_out_arg(op, k)].name, why);
}

/* Whether result k may be written while an argument that lies on it, element by element, is still to be read for another. */
static bool is_early(const kiln_plan *p, int k) { return p->branch->early >> k & 1; }

kiln_status kiln_overlap_check(kiln_plan *p) {
    const kiln_bound *call = p->call;
    bool copied = kiln_plan_out_rule(p) == KILN_OUT_COPIED;
    for (int k = 0; k < call->nout; k++) {
        const kiln_tensor *out = call->out[k];
        if (out->flags & KILN_TF_READONLY)
            return refuse(call, k, "the tensor is read-only and cannot be written");
        if (out->flags & KILN_TF_OVERLAPS)
            return refuse(call, k,
                          "unsupported operation: more than one element of the written-to tensor refers to a "
                          "single memory location");
        p->aside |= kiln_tensor_may_overlap(out); /* of elements in one place the last is to stay */
        for (int i = 0; i < p->typed.nin; i++) {
            overlap o = overlap_of(out, p->in[i]);
            if (o == OVERLAP_PARTIAL && !copied)
                return refuse(call, k,
                              "unsupported operation: some elements of the input tensor and the written-to "
                              "tensor refer to a single memory location");
            if (o >= OVERLAP_PARTIAL || (o == OVERLAP_ALIGNED && is_early(p, k))) p->aside = true;
        }
        for (int j = 0; j < k; j++) /* two results in one place: one of them would be lost */
            if (overlap_of(out, call->out[j]) != OVERLAP_NO)
                return refuse(call, k, "unsupported operation: two outputs share memory");
    }
    return KILN_OK;
}

kiln_status kiln_writes_check(const kiln_plan *p) {
    const kiln_bound *call = p->call;
    for (int k = 0; k < p->branch->nwrites; k++) {
        int arg = p->branch->writes[k];
        const kiln_tensor *t = call->arg[arg].u.tensor;
        bool shares = false;
        if (call->arg[arg].kind != KILN_TENSOR) continue;
        if (t->flags & KILN_TF_READONLY)
            return KILN_FAIL(KILN_E_ARG, "%s: argument '%s': the tensor is read-only and cannot be written",
                             call->op->name, kiln_arg_name(call, arg));
        for (int i = 0; i < p->typed.nin; i++)
            shares = shares || (p->typed.in_arg[i] != arg && overlap_of(t, p->in[i]) != OVERLAP_NO);
        for (int i = 0; i < call->nout; i++) shares = shares || overlap_of(t, call->out[i]) != OVERLAP_NO;
        if (shares || (t->flags & KILN_TF_OVERLAPS) || kiln_tensor_may_overlap(t))
            return KILN_FAIL(
                KILN_E_ARG,
                "%s: argument '%s' is written to, and shares memory with another tensor or itself",
                call->op->name, kiln_arg_name(call, arg));
    }
    return KILN_OK;
}

kiln_status kiln_written_fit(const kiln_plan *p) {
    for (int b = p->typed.nrets; b < p->axes.nwritten; b++) {
        const kiln_buffer *buf = &p->buffer[b];
        bool fits = kiln_plan_tensor(p, b)->nelem == p->axes.npoints;
        for (int d = 0; d < p->axes.ngrid; d++) fits = fits && (p->n[d] == 1 || p->stride[b][d] != 0);
        if (!fits)
            return KILN_FAIL(KILN_E_ARG,
                             "%s: argument '%s' is written to and has %lld elements that are not one for "
                             "each of %lld results",
                             p->call->op->name, kiln_arg_name(p->call, buf->which),
                             (long long)kiln_plan_tensor(p, b)->nelem, (long long)p->axes.npoints);
    }
    return KILN_OK;
}
