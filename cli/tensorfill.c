/* tensorfill.c - (dtype, sizes, strides, fill rule) -> a tensor with data.
 *
 * The random numbers come from a small generator of our own with a seed per tensor, so that a call's text
 * alone decides its input.  Must not know the call's syntax: errors carry no column. */
#include "tensorfill.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "element.h"

bool tensor_error(char *err, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(err, TENSOR_ERROR_MAX, fmt, ap);
    va_end(ap);
    return false;
}

/* -- layout -------------------------------------------------------------------------------------- */

/* Product of the sizes other than zero: row-major strides are made of it even when the tensor is empty. */
static bool spec_nelem(const tensor_spec *spec, int64_t *nelem, char *err) {
    int64_t product = 1;
    bool empty = false;
    for (int d = 0; d < spec->rank; d++) {
        int64_t size = spec->sizes[d];
        if (size < 0) return tensor_error(err, "size %lld is negative", (long long)size);
        if (size == 0)
            empty = true;
        else if (__builtin_mul_overflow(product, size, &product))
            return tensor_error(err, "the tensor has too many elements");
    }
    *nelem = empty ? 0 : product;
    return true;
}

static bool spec_extent(const tensor_spec *spec, int64_t nelem, int64_t *extent, char *err) {
    *extent = nelem;
    if (!spec->has_strides) return true;
    int64_t last = 0;
    for (int d = 0; d < spec->rank; d++) {
        int64_t stride = spec->strides[d], reach;
        if (stride < 0)
            return tensor_error(err, "stride %lld is negative; only zero and positive strides can be made",
                                (long long)stride);
        if (nelem > 0 && (__builtin_mul_overflow(spec->sizes[d] - 1, stride, &reach) ||
                          __builtin_add_overflow(last, reach, &last)))
            return tensor_error(err, "the strides reach too far");
    }
    if (nelem > 0 && __builtin_add_overflow(last, 1, extent))
        return tensor_error(err, "the strides reach too far");
    return true;
}

bool tensor_spec_bytes(const tensor_spec *spec, uint64_t max_bytes, uint64_t *nbytes, char *err) {
    int64_t nelem, extent;
    if (!spec_nelem(spec, &nelem, err) || !spec_extent(spec, nelem, &extent, err)) return false;
    uint64_t most = max_bytes / kiln_dtype_size(spec->dtype);
    if ((uint64_t)nelem > most || (uint64_t)extent > most)
        return tensor_error(err, "the tensor is larger than the %llu bytes allowed",
                            (unsigned long long)max_bytes);
    *nbytes = (uint64_t)extent * kiln_dtype_size(spec->dtype);
    return true;
}

/* -- fills ------------------------------------------------------------------------------------ */

static uint64_t splitmix64(uint64_t *state) {
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

/* Box-Muller; the uniform under the logarithm is never zero. */
static double normal(uint64_t *state) {
    const double two_pi = 6.283185307179586;
    double u = ((double)(splitmix64(state) >> 11) + 1) * 0x1p-53;
    double v = (double)(splitmix64(state) >> 11) * 0x1p-53;
    return sqrt(-2 * log(u)) * cos(two_pi * v);
}

static void store_random(kiln_dtype dtype, uint64_t *state, void *p) {
    kiln_dtype part = element_part(dtype);
    if (part != dtype) {
        element_store_real(part, normal(state), p);
        p = (char *)p + kiln_dtype_size(part);
    }
    if (element_is_float(part)) {
        element_store_real(part, normal(state), p);
        return;
    }
    uint64_t r = splitmix64(state);
    if (dtype == KILN_BOOL)
        element_store_int(dtype, (int64_t)(r >> 63), p);
    else if (dtype == KILN_U8 || dtype == KILN_U16 || dtype == KILN_U32 || dtype == KILN_U64)
        element_store_int(dtype, (int64_t)(r % 11), p);
    else
        element_store_int(dtype, (int64_t)(r % 21) - 10, p);
}

bool tensor_spec_check_fill(const tensor_spec *spec, char *err) {
    char scratch[16];
    int64_t nelem;
    if (spec->fill == FILL_VALUE && !element_store_value(spec->dtype, &spec->value, scratch))
        return tensor_error(err, "the fill value does not fit %s", kiln_dtype_name(spec->dtype));
    if (spec->fill != FILL_ARANGE) return true;
    if (!spec_nelem(spec, &nelem, err)) return false;
    if (nelem > 0 && !element_store_int(spec->dtype, nelem - 1, scratch))
        return tensor_error(err, "arange reaches %lld, which does not fit %s", (long long)(nelem - 1),
                            kiln_dtype_name(spec->dtype));
    return true;
}

static void fill(const tensor_spec *spec, kiln_tensor *t) {
    uint64_t state = spec->seed;
    int64_t count = 0;
    char one[16] = {0};
    if (spec->fill == FILL_VALUE) element_store_value(spec->dtype, &spec->value, one);
    for (walk w = walk_start(t); w.left > 0; walk_next(&w)) {
        if (spec->fill == FILL_RANDN)
            store_random(spec->dtype, &state, w.p);
        else if (spec->fill == FILL_ARANGE)
            element_store_int(spec->dtype, count++, w.p);
        else
            memcpy(w.p, one, kiln_dtype_size(spec->dtype));
    }
}

bool tensor_spec_make(const tensor_spec *spec, uint64_t max_bytes, kiln_tensor **out, char *err) {
    uint64_t nbytes;
    if (!tensor_spec_bytes(spec, max_bytes, &nbytes, err) || !tensor_spec_check_fill(spec, err)) return false;
    kiln_tensor *t;
    const int64_t *strides = spec->has_strides ? spec->strides : NULL;
    if (kiln_tensor_new(spec->dtype, spec->rank, spec->sizes, strides, &t) != KILN_OK)
        return tensor_error(err, "%s", kiln_last_error());
    if (spec->fill != FILL_NOTHING) {
        if (spec->has_strides && nbytes > 0) memset(kiln_tensor_data(t), 0, nbytes);
        fill(spec, t);
    }
    *out = t;
    return true;
}
