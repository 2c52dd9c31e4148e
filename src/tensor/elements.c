/* elements.c - elements of one place in memory -> the same elements in another.
 *
 * Walks any strides, row by row; rows that lie side by side are moved whole.  Must not know dtypes or tensors. */
#include <string.h>

#include "tensor/tensor.h"

/* Bytes is a constant in each caller below: the copy of an element is a move. */
static inline __attribute__((always_inline)) void copy_row(char *to, int64_t to_stride, const char *from,
                                                           int64_t from_stride, int64_t n, size_t bytes) {
    for (; n > 0; n--, to += to_stride, from += from_stride) memcpy(to, from, bytes);
}

static void copy_any_row(char *to, int64_t to_stride, const char *from, int64_t from_stride, int64_t n,
                         size_t bytes) {
    if (to_stride == (int64_t)bytes && from_stride == (int64_t)bytes)
        memcpy(to, from, (size_t)n * bytes);
    else if (bytes == 1)
        copy_row(to, to_stride, from, from_stride, n, 1);
    else if (bytes == 2)
        copy_row(to, to_stride, from, from_stride, n, 2);
    else if (bytes == 4)
        copy_row(to, to_stride, from, from_stride, n, 4);
    else if (bytes == 8)
        copy_row(to, to_stride, from, from_stride, n, 8);
    else
        copy_row(to, to_stride, from, from_stride, n, 16);
}

int kiln_innermost_first(int rank, const int64_t *sizes, const int64_t *strides, size_t bytes, int64_t *n,
                         int64_t *stride) {
    n[0] = 1;
    stride[0] = 0;
    for (int d = 0; d < rank; d++) {
        n[d] = sizes[rank - 1 - d];
        stride[d] = strides[rank - 1 - d] * (int64_t)bytes;
    }
    return rank ? rank : 1;
}

void kiln_elements_copy(kiln_places to, kiln_places from, int ndim, const int64_t *n, size_t bytes) {
    int64_t at[KILN_MAX_RANK] = {0}, dense[KILN_MAX_RANK], next = (int64_t)bytes;
    int d;
    for (d = 0; d < ndim; next *= n[d++]) dense[d] = next;
    if (next == 0) return;
    if (!to.stride) to.stride = dense;
    if (!from.stride) from.stride = dense;
    do {
        copy_any_row(to.at, to.stride[0], from.at, from.stride[0], n[0], bytes);
        for (d = 1; d < ndim; d++) {
            to.at += to.stride[d];
            from.at += from.stride[d];
            if (++at[d] < n[d]) break;
            to.at -= to.stride[d] * n[d];
            from.at -= from.stride[d] * n[d];
            at[d] = 0;
        }
    } while (d < ndim);
}
