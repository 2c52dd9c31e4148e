"""special_oracle.py - writes tests/unit/special_cases.txt: special functions at seeded points, by mpmath.

    python tests/ops/special_oracle.py > tests/unit/special_cases.txt

A function starts with `@ name arity limit`; then come lines of its arguments, the exact result rounded to a
double, and the size beside which an error counts where that is not the result's own: the height of a wave
near its zeros.  The limit is in units of the last place of a double.  Half the points are exact in f32.
Results at infinities, poles and outside a domain are PyTorch's.
"""
import math
import random
import re
import struct

import mpmath as mp

mp.mp.dps = 50
INF, NAN = math.inf, math.nan
m = mp.mpf


def f32(x):
    return struct.unpack("f", struct.pack("f", x))[0]


# -- points --------------------------------------------------------------------------------------------------


def uniform(a, b):
    return lambda r: r.uniform(a, b)


def spread(a, b):
    return lambda r: math.exp(r.uniform(math.log(a), math.log(b)))


def minus(draw):
    return lambda r: -draw(r)


def degree(a, b):
    return lambda r: float(r.randint(a, b))


# -- references that mpmath lacks or gets wrong ------------------------------------------------------------


def hurwitz(s, q):
    """Euler-Maclaurin far out; mpmath's own loses most digits for large s."""
    n = 60 + int(s) + max(0, -int(q))
    w = q + n
    total = mp.fsum((q + k) ** -s for k in range(n)) + w ** (1 - s) / (s - 1) + w ** -s / 2
    rise = s
    for j in range(1, 40):
        total += mp.bernoulli(2 * j) / mp.factorial(2 * j) * rise * w ** (-s - 2 * j + 1)
        rise *= (s + 2 * j - 1) * (s + 2 * j)
    return total


def hurwitz_size(s, q):
    return hurwitz(s, q) if q > 0 else hurwitz(s, q - mp.floor(q)) + hurwitz(s, mp.ceil(q) - q)


def polygamma(n, x):
    return mp.digamma(x) if n == 0 else (-1) ** (int(n) + 1) * mp.factorial(n) * hurwitz(n + 1, x)


def polygamma_size(n, x):
    return 1 if n == 0 else mp.factorial(n) * hurwitz_size(n + 1, x)


def log_abs_gamma(x):
    return mp.log(abs(mp.gamma(x)))


def ndtri(p):
    if p > m("0.01"):
        return mp.sqrt(2) * mp.erfinv(2 * p - 1)
    x = -mp.sqrt(-2 * mp.log(p))
    for _ in range(100):
        tail = mp.erfc(-x / mp.sqrt(2)) / 2
        step = mp.log(tail / p) * tail * mp.sqrt(2 * mp.pi) * mp.exp(x * x / 2)
        x -= step
        if abs(step) < m(10) ** -40:
            break
    return x


def log_ndtr(x):
    return mp.log(mp.erfc(-x / mp.sqrt(2)) / 2) if x < 0 else mp.log1p(-mp.erfc(x / mp.sqrt(2)) / 2)


def erfcx(x):
    with mp.workdps(100):
        return mp.exp(x * x) * mp.erfc(x) if x < 1e6 else 1 / (x * mp.sqrt(mp.pi)) * (1 - 1 / (2 * x * x))


def recurrence(first, step):
    """p(0) = 1, p(1) = first(x), p(k + 1) = step(k, x, p(k), p(k - 1))."""
    def value(x, n):
        p, q = m(0), m(1)
        for k in range(int(n)):
            p, q = q, first(x) if k == 0 else step(k, x, q, p)
        return q
    return value


def chebyshev(first):
    return recurrence(first, lambda k, x, q, p: 2 * x * q - p)


def shifted(f):
    return lambda x, n: f(2 * x - 1, n)


def wave(x):
    return mp.sqrt(2 / (mp.pi * abs(x))) if abs(x) > 8 else 0


def airy_size(x):
    return abs(x) ** -0.25 / mp.sqrt(mp.pi) if x < -5 else 0


def below_zero(x):
    return 1 if x < 0 else 0


hermite_h = recurrence(lambda x: 2 * x, lambda k, x, q, p: 2 * x * q - 2 * k * p)
hermite_he = recurrence(lambda x: x, lambda k, x, q, p: x * q - k * p)
laguerre = recurrence(lambda x: 1 - x, lambda k, x, q, p: ((2 * k + 1 - x) * q - k * p) / (k + 1))
legendre = recurrence(lambda x: x, lambda k, x, q, p: ((2 * k + 1) * x * q - k * p) / (k + 1))
cheb = {"t": chebyshev(lambda x: x), "u": chebyshev(lambda x: 2 * x), "v": chebyshev(lambda x: 2 * x - 1),
        "w": chebyshev(lambda x: 2 * x + 1)}


def hermite_size(f):
    return lambda x, n: mp.sqrt(f(x, n) ** 2 + 2 * n * f(x, max(n - 1, 0)) ** 2)


# -- the table: name, limit, reference, size (or None), draws per argument, special values -----------------

ONE = [uniform(-1, 1)]
line = [uniform(0, 10), spread(1e-30, 1e30), minus(uniform(0, 20))]
positive = [uniform(0, 10), spread(1e-30, 500), uniform(1, 60)]
waves = [uniform(0, 8), uniform(8, 100), spread(1e-10, 1e6)]
both_sides = waves + [minus(uniform(0, 12))]
not_below = [(-1, NAN), (-INF, NAN), (NAN, NAN)]
degrees = [degree(0, 6), degree(7, 40)]
cheb_x = [uniform(-1, 1), uniform(-3, 3), lambda r: 1 - math.exp(r.uniform(-30, 0)),
          uniform(-1.01, -0.99)]
no_degree = [(0.3, -1, 0), (0.3, NAN, 0), (0.3, INF, 0), (0.3, -0.5, 1), (NAN, 0, 1), (NAN, 3, NAN),
             (INF, 1, INF)]
order = [degree(0, 4), degree(1, 20)]

TABLE = [
    ("lgamma", 4, log_abs_gamma, below_zero, [line],
     [(0, INF), (-1, INF), (-3, INF), (1, 0), (2, 0), (INF, INF), (-INF, INF), (NAN, NAN), (-1e17, INF)]),
    ("digamma", 6, mp.digamma, below_zero, [line],
     [(0.0, -INF), (-0.0, INF), (-1, NAN), (-2, NAN), (INF, INF), (-INF, NAN), (NAN, NAN)]),
    ("polygamma", 8, polygamma, polygamma_size,
     [order, [uniform(0, 10), spread(1e-3, 1e4), minus(uniform(0, 8))]],
     [(0, 0.0, -INF), (1, 0, INF), (1, -2, INF), (1, INF, 0), (1, -INF, NAN),
      (2, -1, -INF), (3, -1, INF), (2, INF, NAN)]),
    ("zeta", 6, hurwitz, None, [[uniform(1, 5), uniform(1, 60), lambda r: 1 + math.exp(r.uniform(-20, 0))],
                                [uniform(0, 5), spread(1e-3, 1e6)]],
     [(1, 2, INF), (0.5, 2, NAN), (2, 0, INF), (2, -3, INF), (2.5, -0.5, NAN),
      (2, INF, NAN), (NAN, 2, NAN), (INF, 1, 1)]),
    ("igamma", 16, lambda a, x: mp.gammainc(a, 0, x, regularized=True), None, None,
     [(0, 0, NAN), (0, 1, 1), (1, 0, 0), (1, INF, 1), (INF, 1, 0), (INF, INF, NAN),
      (-1, 1, NAN), (1, -1, NAN), (1, NAN, NAN)]),
    ("igammac", 30, lambda a, x: mp.gammainc(a, x, mp.inf, regularized=True), None, None,
     [(0, 0, NAN), (0, 1, 0), (1, 0, 1), (1, INF, 0), (INF, 1, 1), (INF, INF, NAN),
      (-1, 1, NAN), (1, -1, NAN), (NAN, 1, NAN)]),
    ("erfinv", 4, mp.erfinv, None, [ONE + [lambda r: 1 - math.exp(r.uniform(-34, -1)), spread(1e-30, 1)]],
     [(0.0, 0.0), (-0.0, -0.0), (1, INF), (-1, -INF), (1.5, NAN), (-INF, NAN), (NAN, NAN)]),
    ("ndtri", 4, ndtri, None,
     [[uniform(0, 1), spread(1e-37, 0.1), lambda r: 1 - math.exp(r.uniform(-30, -1))]],
     [(0, -INF), (1, INF), (0.5, 0), (-0.5, NAN), (2, NAN), (NAN, NAN), (5e-324, None)]),
    ("log_ndtr", 4, log_ndtr, None, [[uniform(-5, 5), uniform(-40, 10), minus(spread(1, 1000))]],
     [(INF, -0.0), (-INF, -INF), (NAN, NAN)]),
    ("erfcx", 4, erfcx, None, [[uniform(-3, 5), uniform(-9, 30), spread(1e-10, 1e8)]],
     [(INF, 0), (-INF, INF), (NAN, NAN), (-30, INF), (0, 1)]),
    ("i0", 5, lambda x: mp.besseli(0, x), None, [[uniform(-10, 10), uniform(8, 80), spread(1e-5, 700)]],
     [(0, 1), (INF, NAN), (NAN, NAN), (-800, INF)]),
    ("i0e", 5, lambda x: mp.besseli(0, x) * mp.exp(-abs(x)), None, [[uniform(-10, 10), spread(1e-5, 1e6)]],
     [(0, 1), (INF, 0), (-INF, 0), (NAN, NAN)]),
    ("i1", 5, lambda x: mp.besseli(1, x), None, [[uniform(-10, 10), uniform(8, 80), spread(1e-5, 700)]],
     [(0, 0), (INF, NAN), (NAN, NAN), (-800, -INF)]),
    ("i1e", 5, lambda x: mp.besseli(1, x) * mp.exp(-abs(x)), None, [[uniform(-10, 10), spread(1e-5, 1e6)]],
     [(0, 0), (INF, 0), (-INF, -0.0), (NAN, NAN)]),
    ("modified_bessel_i0", 5, lambda x: mp.besseli(0, x), None, [[uniform(-10, 10)]], [(0, 1)]),
    ("modified_bessel_i1", 5, lambda x: mp.besseli(1, x), None, [[uniform(-10, 10)]], [(0, 0)]),
    ("modified_bessel_k0", 6, lambda x: mp.besselk(0, x), None, [positive], [(0, INF), (INF, 0)] + not_below),
    ("modified_bessel_k1", 6, lambda x: mp.besselk(1, x), None, [positive], [(0, INF), (INF, 0)] + not_below),
    ("scaled_modified_bessel_k0", 6, lambda x: mp.besselk(0, x) * mp.exp(x), None, [positive],
     [(0, INF), (INF, 0)] + not_below),
    ("scaled_modified_bessel_k1", 6, lambda x: mp.besselk(1, x) * mp.exp(x), None, [positive],
     [(0, INF), (INF, 0)] + not_below),
    ("bessel_j0", 8, lambda x: mp.besselj(0, x), wave, [both_sides], [(0, 1), (INF, NAN), (NAN, NAN)]),
    ("bessel_j1", 8, lambda x: mp.besselj(1, x), wave, [both_sides],
     [(0.0, 0.0), (-0.0, -0.0), (INF, NAN), (NAN, NAN)]),
    ("bessel_y0", 8, lambda x: mp.bessely(0, x), wave, [waves], [(0, -INF), (INF, NAN)] + not_below),
    ("bessel_y1", 8, lambda x: mp.bessely(1, x), wave, [waves], [(0, -INF), (INF, NAN)] + not_below),
    ("spherical_bessel_j0", 4, lambda x: mp.sin(x) / x, None, [[uniform(-30, 30), spread(1e-10, 1e30)]],
     [(0, 1), (INF, 0), (-INF, 0), (NAN, NAN)]),
    ("airy_ai", 8, mp.airyai, airy_size,
     [[uniform(-5, 5), uniform(2, 50), uniform(-50, -5), minus(spread(5, 1e4))]],
     [(INF, NAN), (-INF, NAN), (NAN, NAN), (1000, 0)]),
]
for k in "tuvw":
    TABLE.append(("chebyshev_" + k, 8, cheb[k], lambda x, n: 1, [cheb_x, degrees],
                  no_degree + [(1, 9, None), (-1, 9, None), (1, 10, None), (-1, 10, None),
                               (0.25, 8.9, None)]))
    TABLE.append(("shifted_chebyshev_" + k, 8, shifted(cheb[k]), lambda x, n: 1,
                  [[uniform(0, 1), uniform(-1, 2)], degrees],
                  no_degree + [(1, 9, None), (0, 9, None), (1, 10, None), (0, 10, None)]))
TABLE += [
    ("hermite_h", 12, hermite_h, hermite_size(hermite_h), [[uniform(-6, 6)], degrees], no_degree),
    ("hermite_he", 12, hermite_he, hermite_size(hermite_he), [[uniform(-6, 6)], degrees], no_degree),
    ("laguerre_l", 60, laguerre, lambda x, n: 1, [[uniform(-3, 20)], degrees],
     no_degree[:-1] + [(0, 9, 1), (INF, 1, -INF), (0.5, 2e6, NAN)]),
    ("legendre_p", 16, legendre, lambda x, n: 1, [[uniform(-1, 1), uniform(-3, 3)], degrees],
     no_degree + [(1, 9, 1), (-1, 9, -1), (0.5, 2e6, NAN)]),
]


def igamma_points(r, i):
    a = math.exp(r.uniform(math.log(1e-3), math.log(2))) if i % 4 == 0 else r.uniform(0.1, 60) if i % 4 < 3 \
        else math.exp(r.uniform(math.log(30), math.log(3000)))
    return a, a * max(0.05, 1 + r.gauss(0, 2) / math.sqrt(a)) + (0.01 if i % 8 == 0 else 0)


def points(r, i, draws):
    if draws is None:
        return igamma_points(r, i)
    return [d[(i // 2 + k * (i // 4)) % len(d)](r) for k, d in enumerate(draws)]


def number(x):
    if not math.isfinite(x):
        return str(x)
    return re.sub(r"\.?0+p", "p", x.hex()).replace("0x0p+0", "0")


def emit(name, args, want, size):
    text = [number(float(a)) for a in args] + [number(float(want))]
    if size and float(size) > abs(want):
        text.append("%.2g" % float(size))
    print(" ".join(text))


def main():
    for name, limit, reference, size, draws, specials in TABLE:
        r = random.Random(name)
        arity = len(specials[0]) - 1
        print("@", name, arity, limit)
        for i in range(36):
            args = points(r, i, draws)
            if i % 2:
                args = [f32(a) for a in args]
            exact = [m(a) for a in args]
            emit(name, args, mp.re(reference(*exact)), size(*exact) if size else None)
        for *args, want in specials:
            if want is None:
                want = reference(*[mp.floor(a) if k else m(a) for k, a in enumerate(args)])
            emit(name, args, want, None)


if __name__ == "__main__":
    main()
