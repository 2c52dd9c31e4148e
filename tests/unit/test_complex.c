/* test_complex.c - what ops/complex.ops makes of functions, against <complex.h> in long double.
 *
 * Every function of C99's complex library, and some beside it said in those, on c64 and c128: numbers of
 * all sizes, where the distance counts in last places of the result's size; and every pair of special
 * parts, where infinities and NaN must stand where Annex G has them. */
#include <complex.h>
#include <math.h>

#include "call_cases.h"

typedef long double complex wide;

enum { LIMIT = 4 }; /* last places of the result's size */
enum { RANDOM = 4000, NPARTS = 14, NSPECIAL = NPARTS * NPARTS };

/* -- references -------------------------------------------------------------------------------------- */

/* CMPLXL, which not every compiler has: no sum or product, for the sake of zeros' signs and infinities. */
static wide of_parts(long double x, long double y) {
    union {
        long double part[2];
        wide z;
    } u = {{x, y}};
    return u.z;
}

static wide c_expm1(wide z) {
    long double x = creall(z), y = cimagl(z), s = sinl(y / 2);
    if (!isfinite(x) || !isfinite(y)) return cexpl(z) - 1;
    return of_parts(expm1l(x) * cosl(y) - 2 * s * s, cimagl(cexpl(z)));
}
static wide c_log1p(wide z) {
    long double x = creall(z), y = cimagl(z);
    wide l = clogl(of_parts(1 + x, y));
    return of_parts(fabsl(x) < 0.5L && fabsl(y) < 0.5L ? log1pl(x * (2 + x) + y * y) / 2 : creall(l),
                    cimagl(l));
}
static wide by(wide z, long double k) { return of_parts(creall(z) * k, cimagl(z) * k); }
static wide c_log2(wide z) { return by(clogl(z), 1 / logl(2)); }
static wide c_log10(wide z) { return by(clogl(z), 1 / logl(10)); }
static wide c_sigmoid(wide z) {
    wide e = cexpl(creall(z) < 0 ? z : -z);
    return creall(z) < 0 ? e / (1 + e) : 1 / (1 + e);
}

static const struct {
    const char *name;
    wide (*ref)(wide);
    bool special;   /* Annex G speaks of it */
    double largest; /* parts tried; 0: any */
} functions[] = {
    {"exp", cexpl, true, 0},      {"log", clogl, true, 0},           {"sqrt", csqrtl, true, 0},
    {"sin", csinl, true, 0},      {"cos", ccosl, true, 0},           {"tan", ctanl, true, 0},
    {"sinh", csinhl, true, 0},    {"cosh", ccoshl, true, 0},         {"tanh", ctanhl, true, 0},
    {"asin", casinl, true, 0},    {"acos", cacosl, true, 0},         {"atan", catanl, true, 0},
    {"asinh", casinhl, true, 0},  {"acosh", cacoshl, true, 0},       {"atanh", catanhl, true, 0},
    {"log2", c_log2, true, 0},    {"log10", c_log10, true, 0},       {"log1p", c_log1p, false, 0},
    {"expm1", c_expm1, false, 0}, {"sigmoid", c_sigmoid, false, 20},
};
enum { NFUNCTIONS = sizeof functions / sizeof *functions };

/* -- numbers ----------------------------------------------------------------------------------------- */

static uint64_t seed = 1;

static uint64_t next_random(void) {
    seed ^= seed << 13;
    seed ^= seed >> 7;
    return seed ^= seed << 17;
}

/* Half of them near 1 in size, the others of any exponent of the type, but none larger than `largest`. */
static double random_part(int exponents, double largest) {
    double fraction = (double)(next_random() >> 11) * 0x1p-53 + 0.5;
    int range = next_random() & 1 ? 4 : exponents, e = (int)(next_random() % (unsigned)(2 * range)) - range;
    double x = ldexp(fraction, e);
    if (largest != 0 && x > largest) x = fmod(x, largest);
    return next_random() & 1 ? -x : x;
}

static void fill(double (*z)[2], int exponents, double largest) {
    const double part[NPARTS] = {0.0,  -0.0,  1.0,   -1.0,     0.5,       -0.5, 2.0,
                                 -3.0, 1e-30, -1e30, INFINITY, -INFINITY, NAN,  40.5};
    for (int k = 0; k < NSPECIAL; k++) {
        z[k][0] = part[k / NPARTS];
        z[k][1] = part[k % NPARTS];
    }
    for (int k = NSPECIAL; k < NSPECIAL + RANDOM; k++) {
        z[k][0] = random_part(exponents, largest);
        z[k][1] = random_part(exponents, largest);
    }
}

/* -- comparing --------------------------------------------------------------------------------------- */

static long double narrow(long double x, bool f32) {
    return f32 ? (long double)(float)x : (long double)(double)x;
}

/* Beside a NaN the sign of an infinity is mostly left open. */
static bool same_kind(double got, double want, double other) {
    if (isnan(want)) return isnan(got);
    if (isinf(want)) return isinf(got) && (isnan(other) || !signbit(got) == !signbit(want));
    return isfinite(got);
}

/* How far a result is off, in last places of the size of the exact one. */
static double distance(const double *got, wide exact, bool f32) {
    long double x = creall(exact) - got[0], y = cimagl(exact) - got[1], size = cabsl(exact);
    long double unit = f32 ? 0x1p-23L : 0x1p-52L, least = f32 ? 0x1p-126L : 0x1p-1022L;
    return (double)(hypotl(x, y) / (unit * fmaxl(size, least)));
}

static bool finite_case(const double *z) { return isfinite(z[0]) && isfinite(z[1]); }

static void check(int f, const double *z, const double *got, bool f32, double *worst) {
    wide exact = functions[f].ref(of_parts(z[0], z[1]));
    double want[2] = {(double)narrow(creall(exact), f32), (double)narrow(cimagl(exact), f32)};
    if (!finite_case(z) && !functions[f].special) return;
    double largest = functions[f].largest;
    if (largest != 0 && (fabs(z[0]) > largest || fabs(z[1]) > largest)) return;
    if (!same_kind(got[0], want[0], want[1]) || !same_kind(got[1], want[1], want[0])) {
        print_error("%s(%g, %g) of %s is (%g, %g), not (%g, %g)\n", functions[f].name, z[0], z[1],
                    f32 ? "c64" : "c128", got[0], got[1], want[0], want[1]);
        *worst = INFINITY;
    }
    if (!isfinite(want[0]) || !isfinite(want[1])) return;
    double far = distance(got, exact, f32);
    if (far > *worst) {
        *worst = far;
        if (far > LIMIT)
            print_error("%s(%.17g, %.17g) of %s is (%.17g, %.17g), not (%.17g, %.17g): %.2f places\n",
                        functions[f].name, z[0], z[1], f32 ? "c64" : "c128", got[0], got[1], want[0], want[1],
                        far);
    }
}

enum { N = NSPECIAL + RANDOM };

/* my::NAME of z, which c64 first rounds. */
static void run(kiln_ctx *ctx, int f, bool f32, double (*z)[2], double (*got)[2]) {
    static float small[N][2];
    char name[32];
    for (int k = 0; k < N; k++)
        for (int part = 0; f32 && part < 2; part++) z[k][part] = small[k][part] = (float)z[k][part];
    snprintf(name, sizeof name, "my::%s", functions[f].name);
    kiln_tensor *in = tensor_of(f32 ? (void *)small : (void *)z, f32 ? KILN_C64 : KILN_C128, SIZES(N));
    kiln_tensor *out = call1(ctx, name, ARGS(TEN(in)));
    memcpy(f32 ? (void *)small : (void *)got, kiln_tensor_data(out), f32 ? sizeof small : N * sizeof *got);
    for (int k = 0; k < N; k++)
        for (int part = 0; f32 && part < 2; part++) got[k][part] = small[k][part];
    kiln_tensor_release(out);
    kiln_tensor_release(in);
}

static void functions_are_right(bool f32) {
    static double z[N][2], got[N][2];
    char row[160];
    int wrong = 0;
    kiln_ctx *ctx = open_mode(KILN_MODE_INTERP);
    for (int f = 0; f < NFUNCTIONS; f++) {
        double worst = 0;
        int n = snprintf(row, sizeof row, "map my::%s(Tensor self) -> Tensor : takes complex = %s(self)",
                         functions[f].name, functions[f].name);
        MUST_OK(kiln_ops_load(ctx, row, (size_t)n));
        fill(z, f32 ? 126 : 1022, functions[f].largest);
        run(ctx, f, f32, z, got);
        for (int k = 0; k < N; k++) check(f, z[k], got[k], f32, &worst);
        print_message("%-8s %s %.2f\n", functions[f].name, f32 ? "c64 " : "c128", worst);
        wrong += worst > LIMIT;
    }
    kiln_close(ctx);
    assert_int_equal(wrong, 0);
}

static void c64_functions_are_right(void **state) {
    (void)state;
    functions_are_right(true);
}

static void c128_functions_are_right(void **state) {
    (void)state;
    functions_are_right(false);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(c64_functions_are_right),
        cmocka_unit_test(c128_functions_are_right),
    };
    return cmocka_run_group_tests(tests, call_setup, call_teardown);
}
