/* infer_overlap.c - refuses outputs whose memory must not be written.
 *
 * PyTorch's rules: no element of an output may share its place with another, and an input may cover an
 * output exactly or not at all.  Views that are not dense are too hard to decide and pass.  Where a row
 * says `out copied` nothing is refused, and whatever could overlap is written last.  Without storages to
 * compare, addresses decide. */
#include <string.h>

#include "infer/infer_parts.h"

bool kiln_tensor_same(const kiln_tensor *a, const kiln_tensor *b) {
    if (a == b) return true;
    size_t n = (size_t)a->rank * sizeof(int64_t);
    return a->data == b->data && a->dtype == b->dtype && a->rank == b->rank &&
           (n == 0 || (memcmp(a->sizes, b->sizes, n) == 0 && memcmp(a->strides, b->strides, n) == 0));
}

typedef enum overlap { OVERLAP_NO, OVERLAP_FULL, OVERLAP_PARTIAL, OVERLAP_TOO_HARD } overlap;

static overlap overlap_of(const kiln_tensor *a, const kiln_tensor *b) {
    if (a == b) return OVERLAP_FULL;
    if (a->nelem == 0 || b->nelem == 0) return OVERLAP_NO;
    if (!(a->flags & b->flags & KILN_TF_DENSE)) return OVERLAP_TOO_HARD;
    uintptr_t a0 = (uintptr_t)a->data, b0 = (uintptr_t)b->data;
    uintptr_t a1 = a0 + (uintptr_t)a->nelem * kiln_dtype_size((kiln_dtype)a->dtype);
    uintptr_t b1 = b0 + (uintptr_t)b->nelem * kiln_dtype_size((kiln_dtype)b->dtype);
    if (a0 == b0 && a1 == b1) {
        size_t n = a->rank * sizeof(int64_t);
        bool same = a->rank == b->rank &&
                    kiln_dtype_size((kiln_dtype)a->dtype) == kiln_dtype_size((kiln_dtype)b->dtype) &&
                    (n == 0 ||
                     (memcmp(a->strides, b->strides, n) == 0 && memcmp(a->sizes, b->sizes, n) == 0));
        return same ? OVERLAP_FULL : OVERLAP_PARTIAL;
    }
    return a0 < b1 && b0 < a1 ? OVERLAP_PARTIAL : OVERLAP_NO;
}

static kiln_status refuse(const kiln_bound *call, int k, const char *why) {
    const kiln_op *op = call->op;
    return KILN_FAIL(KILN_E_ARG, "%s: argument '%s': %s", op->name,
                     op->schema->args[kiln_op_out_arg(op, k)].name, why);
}

kiln_status kiln_overlap_check(kiln_plan *p) {
    const kiln_bound *call = p->call;
    p->copy_out = false;
    if (call->nout == 0) return KILN_OK;
    bool copied = kiln_plan_out_rule(p) == KILN_OUT_COPIED;
    for (int k = 0; k < call->nout; k++) {
        const kiln_tensor *out = call->out[k];
        if (out->flags & KILN_TF_READONLY)
            return refuse(call, k, "the tensor is read-only and cannot be written");
        if (out->flags & KILN_TF_OVERLAPS)
            return refuse(call, k,
                          "unsupported operation: more than one element of the written-to tensor refers to a "
                          "single memory location");
        for (int i = 0; i < p->nin; i++) {
            overlap o = overlap_of(out, p->in[i]);
            if (copied)
                p->copy_out = p->copy_out || o == OVERLAP_PARTIAL || o == OVERLAP_TOO_HARD;
            else if (o == OVERLAP_PARTIAL)
                return refuse(call, k,
                              "unsupported operation: some elements of the input tensor and the written-to "
                              "tensor refer to a single memory location");
        }
        for (int j = 0; j < k; j++) { /* two results in one place: one of them would be lost */
            overlap o = overlap_of(out, call->out[j]);
            if (o == OVERLAP_PARTIAL || (o == OVERLAP_FULL && out->nelem > 0))
                return refuse(call, k, "unsupported operation: two outputs share memory");
        }
    }
    return KILN_OK;
}
