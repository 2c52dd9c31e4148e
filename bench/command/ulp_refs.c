/* ulp_refs.c - slow, plain references in long double for `kiln bench ulp`, where libm has none.
 *
 * Each is a textbook formula other than the library's own: integrals by the trapezoidal rule, which converges
 * beyond all powers for these, series and recurrences with eleven bits to spare. */
#include <float.h>
#include <math.h>

#include "ulp_refs.h"

typedef long double wide;

static const wide PI = 3.14159265358979323846264338327950288L;
static const wide ROOT_PI = 1.77245385090551602729816748334114518L;
static const wide ROOT_2 = 1.41421356237309504880168872420969808L;

wide ulp_rsqrt(wide x) { return 1 / sqrtl(x); }
wide ulp_sigmoid(wide x) { return x < 0 ? expl(x) / (1 + expl(x)) : 1 / (1 + expl(-x)); }

/* -- gamma and zeta ---------------------------------------------------------------------------------- */

static const wide BERNOULLI[] = {1 / 6.0L,       -1 / 30.0L,      1 / 42.0L, -1 / 30.0L,
                                 5 / 66.0L,      -691 / 2730.0L,  7 / 6.0L,  -3617 / 510.0L,
                                 43867 / 798.0L, -174611 / 330.0L};
enum { BERNOULLIS = sizeof BERNOULLI / sizeof *BERNOULLI };

wide ulp_digamma(wide x) {
    wide sum = 0, power = 1;
    if (x <= 0 && floorl(x) == x) return x == 0 ? -1 / x : NAN;
    if (x < 0) {
        wide part = x - rintl(x); /* the tangent of what is left of a period */
        return ulp_digamma(1 - x) - PI / tanl(PI * part);
    }
    while (x < 40) {
        sum -= 1 / x;
        x += 1;
    }
    sum += logl(x) - 0.5L / x;
    for (int k = 0; k < BERNOULLIS; k++) sum -= BERNOULLI[k] / (2 * (k + 1)) * (power /= x * x);
    return sum;
}

/* Euler and Maclaurin: terms up to q + 40, then the integral and its corrections. */
wide ulp_zeta(wide s, wide q) {
    wide sum = 0, w = q, term, rise = s;
    for (int k = 0; k < 40; k++, w += 1) sum += powl(w, -s);
    sum += powl(w, 1 - s) / (s - 1) + 0.5L * powl(w, -s);
    term = powl(w, -s - 1);
    for (int k = 0; k < BERNOULLIS; k++) { /* B(2k) / (2k)! s (s + 1) ... w^(-s - 2k + 1) */
        rise /= k == 0 ? 2 : (2.0L * k + 1) * (2.0L * k + 2);
        sum += BERNOULLI[k] * rise * term;
        rise *= (s + 2 * k + 1) * (s + 2 * k + 2);
        term /= w * w;
    }
    return sum;
}

wide ulp_polygamma(wide n, wide x) {
    return (fmodl(n, 2) == 0 ? -1 : 1) * tgammal(n + 1) * ulp_zeta(n + 1, x);
}

static wide igamma_front(wide a, wide x) { return expl(a * logl(x) - x - lgammal(a)); }

static wide igamma_series(wide a, wide x) {
    wide term = 1 / a, sum = term;
    for (wide k = a + 1; term > sum * LDBL_EPSILON / 4; k += 1) sum += term *= x / k;
    return sum * igamma_front(a, x);
}

static wide igammac_fraction(wide a, wide x) {
    wide f = 0;
    for (int k = 4000; k > 0; k--) f = k * (a - k) / (x + 2 * k + 1 - a + f);
    return igamma_front(a, x) / (x + 1 - a + f);
}

/* Each from the smaller of the two parts. */
wide ulp_igamma(wide a, wide x) { return x > a + 1 ? 1 - igammac_fraction(a, x) : igamma_series(a, x); }
wide ulp_igammac(wide a, wide x) { return x > a + 1 ? igammac_fraction(a, x) : 1 - igamma_series(a, x); }

/* -- error functions --------------------------------------------------------------------------------- */

wide ulp_erfcx(wide x) {
    if (x > 60) {
        wide sum = 0, term = 1 / (x * ROOT_PI);
        for (int k = 1; k < 20; k++) sum += term, term *= -(2 * k - 1) / (2 * x * x);
        return sum;
    }
    wide square = x * x, low = fmal(x, x, -square);
    return (expl(square) * erfcl(x)) * (1 + low);
}

wide ulp_log_ndtr(wide x) {
    if (x > -1) return log1pl(-0.5L * erfcl(x / ROOT_2));
    return logl(0.5L * ulp_erfcx(-x / ROOT_2)) - 0.5L * x * x;
}

/* The y with erfc(y) = q, for q in (0, 1]: Newton's steps on the logarithm, which is nearly a parabola. */
static wide erfc_inverse(wide q) {
    wide y = q > 0.1L ? 0.5L : sqrtl(-logl(q));
    for (int k = 0; k < 60; k++) {
        wide c = erfcl(y), step = logl(c / q) * c * ROOT_PI / 2 * expl(y * y);
        y += step;
        if (fabsl(step) <= LDBL_EPSILON / 2 * y) break;
    }
    return y;
}

/* The y with erf(y) = x, for |x| <= 1/2: Newton's steps. */
static wide erf_inverse(wide x) {
    wide y = x * ROOT_PI / 2;
    for (int k = 0; k < 10; k++) y -= (erfl(y) - x) * ROOT_PI / 2 * expl(y * y);
    return y;
}

wide ulp_erfinv(wide x) {
    if (fabsl(x) == 1) return x * INFINITY;
    return fabsl(x) <= 0.5L ? erf_inverse(x) : copysignl(erfc_inverse(1 - fabsl(x)), x);
}

wide ulp_ndtri(wide p) {
    if (p == 0 || p == 1) return p == 0 ? -INFINITY : INFINITY;
    if (p > 0.25L && p < 0.75L) return ROOT_2 * erf_inverse(2 * p - 1);
    return ROOT_2 * (p < 0.5L ? -erfc_inverse(2 * p) : erfc_inverse(2 - 2 * p));
}

/* -- Bessel's and Airy's ----------------------------------------------------------------------------- */

/* e^-|x| I(order): the integral over half a turn of e^(x cos t), for order 1 by parts so that nothing
 * cancels. */
static wide bessel_ie(int order, wide x) {
    wide a = fabsl(x), sum = 0;
    int n = 64 + (int)(20 * sqrtl(a));
    for (int k = 0; k <= n; k++) {
        wide t = PI * k / n, s = sinl(t / 2), w = k == 0 || k == n ? 0.5L : 1;
        sum += w * expl(-2 * a * s * s) * (order ? sinl(t) * sinl(t) : 1);
    }
    return sum / n * (order ? x : 1);
}

wide ulp_i0e(wide x) { return bessel_ie(0, x); }
wide ulp_i1e(wide x) { return bessel_ie(1, x); }
wide ulp_i0(wide x) { return bessel_ie(0, x) * expl(fabsl(x)); }
wide ulp_i1(wide x) { return bessel_ie(1, x) * expl(fabsl(x)); }

/* e^x K(order): the integral over t >= 0 of e^(-x (cosh t - 1)) cosh(order t). */
static wide bessel_ke(wide order, wide x) {
    wide h = fminl(0.125L, 0.4L / sqrtl(x)), sum = 0.5L;
    for (int k = 1;; k++) {
        wide s = sinhl(k * h / 2), term = expl(-2 * x * s * s) * coshl(order * k * h);
        sum += term;
        if (2 * x * s * s > 60 + order * k * h) return sum * h;
    }
}

static wide at_zero(wide x, wide v) { return x == 0 ? INFINITY : v; }
wide ulp_k0e(wide x) { return at_zero(x, x == 0 ? 0 : bessel_ke(0, x)); }
wide ulp_k1e(wide x) { return at_zero(x, x == 0 ? 0 : bessel_ke(1, x)); }
wide ulp_k0(wide x) { return at_zero(x, x == 0 ? 0 : bessel_ke(0, x) * expl(-x)); }
wide ulp_k1(wide x) { return at_zero(x, x == 0 ? 0 : bessel_ke(1, x) * expl(-x)); }
wide ulp_spherical_j0(wide x) { return x == 0 ? 1 : sinl(x) / x; }

/* One step of y'' = x y by its Taylor series. */
static void airy_step(wide x, wide h, wide *y, wide *dy) {
    wide c[40] = {*y, *dy, x * *y / 2}, sum = 0, slope = 0;
    for (int k = 3; k < 40; k++) c[k] = (x * c[k - 2] + c[k - 3]) / (k * (k - 1));
    for (int k = 39; k >= 0; k--) sum = sum * h + c[k];
    for (int k = 39; k >= 1; k--) slope = slope * h + k * c[k];
    *y = sum;
    *dy = slope;
}

wide ulp_airy_ai(wide x) {
    if (x > 1) {
        wide z = 2 * x * sqrtl(x) / 3;
        return sqrtl(x / 3) / PI * bessel_ke(1 / 3.0L, z) * expl(-z);
    }
    wide y = 0.355028053887817239260063186004183176397979L,
         dy = -0.258819403792806798405183560189203963479091L, at = 0;
    for (; fabsl(x - at) > 0.25L; at += copysignl(0.25L, x)) airy_step(at, copysignl(0.25L, x), &y, &dy);
    airy_step(at, x - at, &y, &dy);
    return y;
}

/* -- polynomials ------------------------------------------------------------------------------------- */

static wide chebyshev(wide x, wide n, wide first) {
    wide p = 1, q = first;
    for (int k = 1; k < (int)n; k++) {
        wide r = 2 * x * q - p;
        p = q, q = r;
    }
    return n < 1 ? 1 : q;
}

wide ulp_chebyshev_t(wide x, wide n) { return chebyshev(x, n, x); }
wide ulp_chebyshev_u(wide x, wide n) { return chebyshev(x, n, 2 * x); }
wide ulp_chebyshev_v(wide x, wide n) { return chebyshev(x, n, 2 * x - 1); }
wide ulp_chebyshev_w(wide x, wide n) { return chebyshev(x, n, 2 * x + 1); }

/* The others, by p(k + 1) from q = p(k) and p = p(k - 1). */
#define RECURRENCE(name, first, next)      \
    wide name(wide x, wide n) {            \
        wide p = 1, q = (first);           \
        for (int k = 1; k < (int)n; k++) { \
            wide r = (next);               \
            p = q, q = r;                  \
        }                                  \
        return n < 1 ? 1 : q;              \
    }
RECURRENCE(ulp_hermite_h, 2 * x, 2 * x * q - 2 * k * p)
RECURRENCE(ulp_hermite_he, x, x *q - k * p)
RECURRENCE(ulp_laguerre_l, 1 - x, ((2 * k + 1 - x) * q - k * p) / (k + 1))
RECURRENCE(ulp_legendre_p, x, ((2 * k + 1) * x * q - k * p) / (k + 1))
