/* accuracy.c - data of known kinds, folds and scans of it in long double, and the errors of what others make of it.
 *
 * Long double has eleven bits more than f64.  Sums are taken of short runs, and their totals are added with what each
 * addition loses (two-sum), so that a reference of a hundred million elements is as good as one of a few. */
#include "accuracy.h"

#include <math.h>
#include <string.h>

typedef long double wide;

enum { RUN = 512 };

static const struct type {
    kiln_dtype dtype;
    double epsilon, least, normal; /* least: the smallest number; normal: the smallest normal one */
} types[] = {{KILN_F32, 0x1p-23, 0x1p-149, 0x1p-126}, {KILN_F64, 0x1p-52, 0x1p-1074, 0x1p-1022}};

static const struct type *type_of(kiln_dtype dtype) { return &types[dtype == KILN_F64]; }

static double get(kiln_dtype dtype, const void *data, int64_t at) {
    return dtype == KILN_F64 ? ((const double *)data)[at] : (double)((const float *)data)[at];
}

static void put(kiln_dtype dtype, void *data, int64_t at, wide x) {
    if (dtype == KILN_F64)
        ((double *)data)[at] = (double)x;
    else
        ((float *)data)[at] = (float)x;
}

/* -- data -------------------------------------------------------------------------------------------------- */

enum data { UNIFORM, CANCELLING, DENORMAL };
static const char *const data_names[] = {"uniform", "cancelling", "denormal"};

int accuracy_data(const char *name) {
    for (int k = 0; k < (int)(sizeof data_names / sizeof *data_names); k++)
        if (strcmp(data_names[k], name) == 0) return k;
    return -1;
}

/* More bits than either dtype has: were all elements on one grid, rounding them to another would be biased. */
static wide next_unit(uint64_t *seed) {
    uint64_t z = *seed += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return (wide)(z ^ (z >> 31)) * 0x1p-64L;
}

/* Of the next n numbers, which stay the next ones. */
static wide mean_of_next(uint64_t seed, int64_t n) {
    wide sum = 0;
    for (int64_t i = 0; i < n; i++) sum += next_unit(&seed);
    return sum / (wide)n;
}

/* Of cancelling data each slice's mean is taken before it is rounded, so that its sum is near zero. */
void accuracy_fill(int data, kiln_dtype dtype, const accuracy_shape *shape, uint64_t seed, void *to) {
    wide scale = data == DENORMAL ? 2 * type_of(dtype)->normal : data == CANCELLING ? 2 : 1;
    for (int64_t k = 0; k < shape->slices; k++) {
        wide from = data == DENORMAL ? 0.5L : data == CANCELLING ? mean_of_next(seed, shape->n) : 0;
        for (int64_t i = 0; i < shape->n; i++)
            put(dtype, to, k * shape->slice_step + i * shape->step, scale * (next_unit(&seed) - from));
    }
}

/* -- exact folds -------------------------------------------------------------------------------------------- */

typedef struct slice {
    kiln_dtype dtype;
    const void *data;
    int64_t first, n, step;
} slice;

static wide term_itself(wide x, wide c) { return (void)c, x; }
static wide term_absolute(wide x, wide c) { return (void)c, fabsl(x); }
static wide term_square(wide x, wide c) { return (x - c) * (x - c); }
static wide term_exp(wide x, wide c) { return expl(x - c); }

/* Adds with what additions lost so far in *lost. */
static void add(wide *sum, wide *lost, wide x) {
    wide total = *sum + x, of_x = total - *sum;
    *lost += (*sum - (total - of_x)) + (x - of_x);
    *sum = total;
}

/* The sum of the terms of all elements.  Inlined with the term, so that it is no call. */
static inline __attribute__((always_inline)) wide sum_of(const slice *s, wide (*term)(wide, wide), wide c) {
    wide sum = 0, lost = 0;
    for (int64_t i = 0; i < s->n; i += RUN) {
        wide run = 0;
        for (int64_t k = i; k < s->n && k < i + RUN; k++)
            run += term(get(s->dtype, s->data, s->first + k * s->step), c);
        add(&sum, &lost, run);
    }
    return sum + lost;
}

typedef struct exact {
    wide value, size; /* errors are counted in epsilons of size */
} exact;

static exact ref_sum(const slice *s) {
    return (exact){sum_of(s, term_itself, 0), sum_of(s, term_absolute, 0)};
}

static exact ref_mean(const slice *s) {
    exact sum = ref_sum(s);
    return (exact){sum.value / (wide)s->n, sum.size / (wide)s->n};
}

static exact ref_var(const slice *s) {
    wide v = sum_of(s, term_square, sum_of(s, term_itself, 0) / (wide)s->n) / (wide)(s->n - 1);
    return (exact){v, v};
}

static exact ref_std(const slice *s) {
    wide v = sqrtl(ref_var(s).value);
    return (exact){v, v};
}

static exact ref_norm2(const slice *s) {
    wide v = sqrtl(sum_of(s, term_square, 0));
    return (exact){v, v};
}

static exact ref_norm1(const slice *s) {
    wide v = sum_of(s, term_absolute, 0);
    return (exact){v, v};
}

/* Elements are at most 1 in size, so nothing needs to be taken out of the exponents. */
static exact ref_logsumexp(const slice *s) {
    wide v = logl(sum_of(s, term_exp, 0));
    return (exact){v, v};
}

/* -- errors ------------------------------------------------------------------------------------------------- */

static const struct reference {
    const char *name;
    exact (*fold)(const slice *); /* NULL: cumsum, whose results are as many as the elements */
} references[] = {{"sum", ref_sum},
                  {"mean", ref_mean},
                  {"var", ref_var},
                  {"std", ref_std},
                  {"logsumexp", ref_logsumexp},
                  {"norm2", ref_norm2},
                  {"norm1", ref_norm1},
                  {"cumsum", NULL}};

int accuracy_reference(const char *name) {
    for (int k = 0; k < (int)(sizeof references / sizeof *references); k++)
        if (strcmp(references[k].name, name) == 0) return k;
    return -1;
}

static double squared_error(const struct type *t, exact want, double got) {
    wide unit = fmaxl(want.size * t->epsilon, t->least), error = (got - want.value) / unit;
    return isfinite(got) ? (double)(error * error) : INFINITY;
}

/* Adds the squared errors of a scan of one slice. */
static void scan_errors(const slice *s, const void *const *results, int nresults, double *out) {
    wide sum = 0, lost = 0;
    exact want = {0, 0};
    for (int64_t i = 0; i < s->n; i++) {
        int64_t at = s->first + i * s->step;
        double x = get(s->dtype, s->data, at);
        add(&sum, &lost, x);
        want = (exact){sum + lost, want.size + fabsl(x)};
        for (int k = 0; k < nresults; k++)
            out[k] += squared_error(type_of(s->dtype), want, get(s->dtype, results[k], at));
    }
}

void accuracy_errors(int reference, kiln_dtype dtype, const accuracy_shape *shape, const void *data,
                     const void *const *results, int nresults, double *out) {
    const struct reference *r = &references[reference];
    for (int k = 0; k < nresults; k++) out[k] = 0;
    for (int64_t j = 0; j < shape->slices; j++) {
        slice s = {dtype, data, j * shape->slice_step, shape->n, shape->step};
        if (!r->fold) {
            scan_errors(&s, results, nresults, out);
            continue;
        }
        exact want = r->fold(&s);
        for (int k = 0; k < nresults; k++)
            out[k] += squared_error(type_of(dtype), want, get(dtype, results[k], j));
    }
    double count = (double)shape->slices * (r->fold ? 1 : (double)shape->n);
    for (int k = 0; k < nresults; k++) out[k] /= count;
}
