/* element.c - one tensor element <-> C numbers and text, checked.
 *
 * Numbers become elements as PyTorch makes them (kiln_element_set), and what is printed reads back to the same
 * bits.  Owns nothing and must not know about calls or commands. */
#include "element.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* -- dtypes ------------------------------------------------------------------------------------ */

bool element_is_float(kiln_dtype dtype) {
    enum { BOOL, INT, FLOAT, COMPLEX };
    switch (dtype) {
#define D(NAME, value, name, bytes, kind, torch) \
    case KILN_##NAME:                            \
        return kind == FLOAT;
#include "kiln/dtype.def"
#undef D
    case KILN_DTYPE_COUNT: break;
    }
    return false;
}

kiln_dtype element_part(kiln_dtype dtype) {
    return dtype == KILN_C64 ? KILN_F32 : dtype == KILN_C128 ? KILN_F64 : dtype;
}

/* -- storing --------------------------------------------------------------------------------- */

static bool int_range(kiln_dtype dtype, int64_t *low, int64_t *high) {
    switch (dtype) {
    case KILN_BOOL: *low = 0, *high = 1; return true;
    case KILN_U8: *low = 0, *high = UINT8_MAX; return true;
    case KILN_I8: *low = INT8_MIN, *high = INT8_MAX; return true;
    case KILN_I16: *low = INT16_MIN, *high = INT16_MAX; return true;
    case KILN_I32: *low = INT32_MIN, *high = INT32_MAX; return true;
    case KILN_I64: *low = INT64_MIN, *high = INT64_MAX; return true;
    case KILN_U16: *low = 0, *high = UINT16_MAX; return true;
    case KILN_U32: *low = 0, *high = UINT32_MAX; return true;
    case KILN_U64: *low = 0, *high = INT64_MAX; return true; /* of those an int64_t can ask for */
    case KILN_F16:
    case KILN_BF16:
    case KILN_F32:
    case KILN_F64:
    case KILN_C64:
    case KILN_C128:
    case KILN_DTYPE_COUNT: break;
    }
    return false;
}

/* A finite number must stay finite, and of a complex one both parts, or nothing is stored. */
static bool store_complex(kiln_dtype dtype, double re, double im, void *out) {
    kiln_value v = kiln_v_complex(re, im), back;
    char copy[16];
    if (!kiln_element_set(dtype, &v, copy)) return false;
    back = kiln_element_get(dtype, copy);
    bool real = back.kind == KILN_FLOAT_V;
    if (!isinf(re) && isinf(real ? back.u.f : back.u.c.re)) return false;
    if (!real && !isinf(im) && isinf(back.u.c.im)) return false;
    memcpy(out, copy, kiln_dtype_size(dtype));
    return true;
}

static bool store_float(kiln_dtype dtype, double value, void *out) {
    return store_complex(dtype, value, 0, out);
}

bool element_store_int(kiln_dtype dtype, int64_t value, void *out) {
    int64_t low, high;
    if (!int_range(dtype, &low, &high)) return store_float(dtype, (double)value, out);
    if (value < low || value > high) return false;
    memcpy(out, &value,
           kiln_dtype_size(dtype)); /* the low bytes: every machine Kiln runs on is little endian */
    return true;
}

bool element_store_real(kiln_dtype dtype, double value, void *out) {
    if (element_is_float(dtype) || element_part(dtype) != dtype) return store_float(dtype, value, out);
    if (dtype == KILN_U64 && value >= 0x1p63 && value < 0x1p64) {
        uint64_t whole = (uint64_t)value;
        memcpy(out, &whole, sizeof whole);
        return true;
    }
    if (!(value >= -0x1p63 && value < 0x1p63) || value != trunc(value)) return false;
    return element_store_int(dtype, (int64_t)value, out);
}

bool element_store_value(kiln_dtype dtype, const kiln_value *value, void *out) {
    if (value->kind == KILN_COMPLEX_V && element_part(dtype) != dtype)
        return store_complex(dtype, value->u.c.re, value->u.c.im, out);
    if (value->kind == KILN_FLOAT_V) return element_store_real(dtype, value->u.f, out);
    if (value->kind == KILN_INT_V || value->kind == KILN_BOOL_V)
        return element_store_int(dtype, value->u.i, out);
    return false;
}

/* -- reading --------------------------------------------------------------------------------- */

int64_t element_int(kiln_dtype dtype, const void *p) { return kiln_element_get(dtype, p).u.i; }

double element_real(kiln_dtype dtype, const void *p) { return kiln_element_get(dtype, p).u.f; }

bool element_same(kiln_dtype dtype, const void *a, const void *b) {
    kiln_dtype part = element_part(dtype);
    size_t n = kiln_dtype_size(part);
    if (memcmp(a, b, kiln_dtype_size(dtype)) == 0) return true;
    if (part != dtype)
        return element_same(part, a, b) && element_same(part, (const char *)a + n, (const char *)b + n);
    return element_is_float(dtype) && isnan(element_real(dtype, a)) && isnan(element_real(dtype, b));
}

/* -- text ------------------------------------------------------------------------------------ */

/* Decimal digits that any number of the dtype keeps (first to try) and the smallest normal number. */
static int sure_digits(kiln_dtype dtype, double *smallest_normal) {
    switch (dtype) {
    case KILN_F16: *smallest_normal = 0x1p-14; return 3;
    case KILN_BF16: *smallest_normal = 0x1p-126; return 2;
    case KILN_F32: *smallest_normal = (double)FLT_MIN; return FLT_DIG;
    default: *smallest_normal = DBL_MIN; return DBL_DIG;
    }
}

enum { REAL_TEXT_MAX = ELEMENT_TEXT_MAX / 2 - 2 };

static bool reads_back(kiln_dtype dtype, const char *text, const void *p) {
    char copy[8];
    return store_float(dtype, strtod(text, NULL), copy) && memcmp(copy, p, kiln_dtype_size(dtype)) == 0;
}

static void real_text(kiln_dtype dtype, const void *p, char text[REAL_TEXT_MAX]) {
    double v = element_real(dtype, p), smallest;
    if (isnan(v) || isinf(v)) {
        snprintf(text, REAL_TEXT_MAX, "%s", isnan(v) ? "nan" : v > 0 ? "inf" : "-inf");
        return;
    }
    if (v == trunc(v) && fabs(v) < 1e15) {
        snprintf(text, REAL_TEXT_MAX, "%.1f", v); /* whole numbers in full: 65504.0, not 6.55e+04 */
        return;
    }
    int digits = sure_digits(dtype, &smallest);
    /* %g drops trailing zeros, so the sure digits already give the shortest text of a normal number;
     * subnormal ones have fewer and are tried from one digit. */
    if (fabs(v) < smallest) digits = 1;
    for (; digits <= DBL_DECIMAL_DIG; digits++) {
        snprintf(text, REAL_TEXT_MAX, "%.*g", digits, v);
        if (reads_back(dtype, text, p)) break;
    }
    if (!strpbrk(text, ".e")) strcat(text, ".0"); /* a JSON real, not an integer */
}

static void complex_text(kiln_dtype dtype, const void *p, char text[ELEMENT_TEXT_MAX]) {
    kiln_dtype part = element_part(dtype);
    const char *im = (const char *)p + kiln_dtype_size(part);
    real_text(part, p, text);
    size_t n = strlen(text);
    if (!signbit(element_real(part, im)) || isnan(element_real(part, im))) text[n++] = '+';
    real_text(part, im, text + n);
    strcat(text, "j");
}

void element_text(kiln_dtype dtype, const void *p, char text[ELEMENT_TEXT_MAX]) {
    if (element_part(dtype) != dtype)
        complex_text(dtype, p, text);
    else if (element_is_float(dtype))
        real_text(dtype, p, text);
    else if (dtype == KILN_BOOL)
        snprintf(text, ELEMENT_TEXT_MAX, "%s", element_int(dtype, p) ? "true" : "false");
    else if (dtype == KILN_U64)
        snprintf(text, ELEMENT_TEXT_MAX, "%llu", (unsigned long long)element_int(dtype, p));
    else
        snprintf(text, ELEMENT_TEXT_MAX, "%lld", (long long)element_int(dtype, p));
}

/* -- walking --------------------------------------------------------------------------------- */

walk walk_start(const kiln_tensor *t) {
    walk w = {t, kiln_tensor_data(t), kiln_tensor_nelem(t), {0}};
    return w;
}

void walk_next(walk *w) {
    if (--w->left <= 0) return;
    const int64_t *sizes = kiln_tensor_sizes(w->tensor), *strides = kiln_tensor_strides(w->tensor);
    int64_t item = (int64_t)kiln_dtype_size(kiln_tensor_dtype(w->tensor));
    for (int d = kiln_tensor_rank(w->tensor) - 1; d >= 0; d--) {
        if (++w->index[d] < sizes[d]) {
            w->p += strides[d] * item;
            return;
        }
        w->p -= (sizes[d] - 1) * strides[d] * item;
        w->index[d] = 0;
    }
}
