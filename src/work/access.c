/* access.c - entries of an access -> the dimensions of a call that memory steps along, and strides along these.
 *
 * PyTorch aligns shapes from the last dimension: so does every access but that of a diagonal, whose entries its family sets.
 * Knows sizes and strides, and nothing of what they belong to. */
#include "work/access.h"

static bool is_one_element(const kiln_access *a) {
    for (int k = 0; k < a->rank; k++)
        if (a->sizes[k] != 1) return false;
    return true;
}

bool kiln_access_align(kiln_access *a, const kiln_access_dims *call) {
    int d = call->rank - 1, k = a->rank - 1;
    uint64_t lacks = call->lacks;
    for (; k >= 0; k--) {
        int64_t size = a->sizes[k];
        a->along[k] = KILN_ACCESS_AT;
        if (k == call->at) continue;
        while (lacks >> (d & 63) & 1 && d >= 0) d--;
        if (d < 0 ? !is_one_element(a) : size != 1 && size != call->sizes[d]) break;
        a->along[k] = (int8_t)(d < 0 ? KILN_ACCESS_NONE : d); /* one element is one, whatever its rank */
        d -= d >= 0;
    }
    for (int rest = k; rest >= 0; rest--) a->along[rest] = KILN_ACCESS_NONE;
    return k < 0;
}

/* Entries that are dimensions of the call never decrease, so one walk from the last on meets them in order. */
void kiln_access_steps(const kiln_access *a, int rank, int64_t *out) {
    int k = a->rank - 1;
    for (int d = rank - 1; d >= 0; d--) {
        int64_t step = 0;
        for (; k >= 0 && (a->along[k] == d || a->along[k] < 0); k--)
            if (a->along[k] == d && a->sizes[k] != 1) step += a->strides[k];
        out[d] = step;
    }
}
