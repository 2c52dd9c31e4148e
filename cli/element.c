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

static bool stays_finite(double asked, double got) { return isinf(asked) || !isinf(got); }

/* Whether `got`, which an element gives back, is the number that was asked for: whole ones to the last bit. */
static bool holds(const kiln_value *asked, const kiln_value *got) {
    double f = asked->kind == KILN_FLOAT_V ? asked->u.f : asked->kind == KILN_COMPLEX_V ? asked->u.c.re : 0;
    if (got->kind == KILN_FLOAT_V) return stays_finite(f, got->u.f);
    if (got->kind == KILN_COMPLEX_V)
        return stays_finite(f, got->u.c.re) &&
               stays_finite(asked->kind == KILN_COMPLEX_V ? asked->u.c.im : 0, got->u.c.im);
    bool is_uint = got->kind == KILN_UINT_V;
    if (asked->kind == KILN_FLOAT_V) return f == (is_uint ? (double)(uint64_t)got->u.i : (double)got->u.i);
    return asked->kind != KILN_COMPLEX_V && is_uint == (asked->kind == KILN_UINT_V) && asked->u.i == got->u.i;
}

bool element_store_value(kiln_dtype dtype, const kiln_value *value, void *out) {
    char copy[16];
    if (value->kind == KILN_COMPLEX_V && element_part(dtype) == dtype) return false;
    if (!kiln_element_set(dtype, value, copy)) return false;
    kiln_value back = kiln_element_get(dtype, copy);
    if (!holds(value, &back)) return false;
    memcpy(out, copy, kiln_dtype_size(dtype));
    return true;
}

bool element_store_int(kiln_dtype dtype, int64_t value, void *out) {
    kiln_value v = kiln_v_int(value);
    return element_store_value(dtype, &v, out);
}

bool element_store_real(kiln_dtype dtype, double value, void *out) {
    kiln_value v = kiln_v_float(value);
    return element_store_value(dtype, &v, out);
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
    return element_store_real(dtype, strtod(text, NULL), copy) &&
           memcmp(copy, p, kiln_dtype_size(dtype)) == 0;
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
