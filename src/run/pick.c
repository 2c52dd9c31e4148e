/* pick.c - a launch of rows and a function that picks -> of each row an element, and its place.
 *
 * Keys of each row are brought side by side into the launch's memory; by them the function says which element it is, and
 * that is copied as it lies.  Of a row without elements it is what PyTorch gives, at place -1. */
#include <math.h>
#include <string.h>

#include "run/keys.h"
#include "tensor/tensor.h"

typedef struct picking {
    kiln_dtype dtype;
    int nresults;
    kiln_find_fn find;
    const uint64_t *par;
    int64_t n, stride; /* of a row */
    char *work;
} picking;

/* A NaN.  As an integer it is what x86 makes of it: the least, of short ones the low bits of that. */
static void store_none(kiln_dtype t, char *to) {
    kiln_value none = kiln_v_float(NAN);
    if (t == KILN_I32) none = kiln_v_int(INT32_MIN);
    if (t == KILN_I64) none = kiln_v_int(INT64_MIN);
    if (kiln_elem_bytes[t] < 4 && !kiln_dtype_is_float(t)) none = kiln_v_int(0);
    (void)kiln_element_set(t, &none, to);
}

/* False: there is no such element in rows of this length. */
static bool pick_row(const picking *p, char *element, char *place, const char *row) {
    int bytes = kiln_elem_bytes[p->dtype];
    int64_t at = -1;
    if (p->n == 0) {
        store_none(p->dtype, element);
        if (place) memcpy(place, &at, sizeof at);
        return true;
    }
    kiln_keys keys = {.at = p->work, .room = p->work + p->n * bytes, .n = p->n, .bytes = bytes};
    keys.nnan = kiln_keys_load[p->dtype](p->work, row, p->stride, p->n);
    at = p->find(&keys, p->par);
    if (at < 0) return false;
    memcpy(element, row + at * p->stride, (size_t)bytes);
    if (place) memcpy(place, &at, sizeof at);
    return true;
}

int32_t kiln_pick_rows(const kiln_launch *l, kiln_dtype dtype, int nresults, kiln_find_fn find) {
    const int64_t *element = l->stride, *place = l->stride + l->ndim, *row = element + nresults * l->ndim;
    picking p = {dtype, nresults, find, l->par, l->n[2], row[2], l->work};
    for (int64_t j = 0; j < l->n[1]; j++)
        for (int64_t i = 0; i < l->n[0]; i++)
            if (!pick_row(&p, l->ptr[0] + i * element[0] + j * element[1],
                          nresults > 1 ? l->ptr[1] + i * place[0] + j * place[1] : NULL,
                          l->ptr[nresults] + i * row[0] + j * row[1]))
                return KILN_TRAP_BASE;
    return 0;
}
