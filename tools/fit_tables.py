#!/usr/bin/env python3
"""Makes the coefficient tables of tanh_f32 and erf_f32 in src/math/elementary_f32.inc.

    .venv/bin/python tools/fit_tables.py          prints them as they stand there, with the error of each piece

A table has eight pieces.  A piece approximates f(a) for a in [lo, hi] by

    max(d, c0) + d * (c1 + c2 d + c3 d^2 + ...),    d = a - c.

In the first piece c and c0 are 0, and the sum starts with d itself, so that its rounding is that of one addition.  In
the others c0 is above every d, and c is a float inside the piece for which f(c) is almost a float too, so that
c0 = f(c) costs no accuracy.  The last piece ends where f rounds to 1, as it does beyond.  The other coefficients make
the largest error, relative to f, small (Lawson's iteration); they are rounded to floats one after the other, the
remaining ones being fitted again each time."""
import mpmath as mp
import numpy as np

mp.mp.prec = 100
POINTS = 160  # of a fit


def to_float(x):
    return float(np.float32(float(x)))


def almost_float(f, inverse, lo, hi):
    """A float c inside the piece and f(c), which is almost a float: the best of some hundred.  f(c) must be above
    hi - c; as far as that allows, c lies where it is in equal proportion to lo and hi."""
    near = 2 / (1 / lo + 1 / hi)
    while f(near) < 1.01 * (hi - near):
        near += (hi - lo) / 64
    y = np.float32(float(f(near)))
    step = np.spacing(y)
    near_floats = (float(y + np.float32(k) * step) for k in range(-100, 100))
    pairs = [(to_float(inverse(mp.mpf(v))), v) for v in near_floats if v < 1]
    return min((pair for pair in pairs if lo < pair[0] < hi and hi - pair[0] < pair[1]),
               key=lambda pair: abs(f(mp.mpf(pair[0])) - pair[1]))


def lawson(basis, want, weight):
    """Coefficients of the columns of `basis` that make max |weight * (basis @ x - want)| small, and that error."""
    best, least = None, np.inf
    w = weight.copy()
    for _ in range(200):
        x = np.linalg.lstsq(basis * w[:, None], want * w, rcond=None)[0]
        error = np.abs((basis @ x - want) * weight)
        if error.max() < least:
            best, least = x, error.max()
        w = w * np.sqrt(error / error.max() + 1e-4)
        w /= w.max()
    return best, least


def piece(f, degree, lo, hi, c, c0, linear):
    """[c, c0, c1, ...] for one piece and its error in 2^-24 of f.  linear: 1 in the first piece, where the sum starts
    with d, else 0."""
    k = np.cos(np.pi * (np.arange(POINTS) + 0.5) / POINTS)
    a = [mp.mpf(float(x)) for x in (lo + hi) / 2 + (hi - lo) / 2 * k]
    y = [f(x) for x in a]
    d = np.array([float(x - c) for x in a])
    want = np.array([float((v - c0) / (x - c) - linear) for v, x in zip(y, a)])
    weight = np.abs(d) / np.array([float(v) for v in y])
    coefficients, error = [], 0
    for n in range(degree):
        scale = np.abs(d).max()
        basis = np.stack([(d / scale) ** p for p in range(degree - n)], 1)
        x, error = lawson(basis, want, weight)
        exact = f is mp.tanh and linear and n == 0  # tanh(a) is a for small a
        coefficients.append(0.0 if exact else to_float(x[0]))
        want = (want - coefficients[-1]) / d
        weight = weight * np.abs(d)
    return [c, c0] + coefficients, error * 2**24


def table(f, inverse, degree, bounds, margin=1e-5):
    """The pieces between bounds, each a little wider than it is, for what rounding of the index leaves open."""
    rows = [piece(f, degree, margin, bounds[1] + margin, 0.0, 0.0, 1)]
    for lo, hi in zip(bounds[1:], bounds[2:]):
        lo, hi = lo - margin, hi + margin
        rows.append(piece(f, degree, lo, hi, *almost_float(f, inverse, lo, hi), 0))
    return rows


def spell(x):
    if x == 0:
        return "0.0f"
    mantissa, exponent = float(x).hex().split("p")
    return mantissa.rstrip("0").rstrip(".") + "p" + exponent + "f"


def show(name, rows, order, numbers):
    print(f"{name}: {numbers}; errors of the pieces in 2^-24: {[round(float(e), 3) for _, e in rows]}")
    for n in range(len(rows[0][0])):
        words = [spell(rows[i][0][n]) for i in order]
        print(f"    KILN_EIGHT({', '.join(words[:4])},\n               {', '.join(words[4:])}),")


def tanh_table():
    """The index is made of the low two bits of the exponent of u = a + 0.75 and of the first bit of its fraction: 5 in
    the first piece."""
    top = to_float(9.2)
    bounds = [u - 0.75 for u in (0.75, 1, 1.5, 2, 3, 4, 6, 8)] + [top]
    show("tanh", table(mp.tanh, mp.atanh, 8, bounds), [3, 4, 5, 6, 7, 0, 1, 2], f"up to {spell(top)}")


def erf_table():
    """The index is a / width, rounded."""
    width = to_float(0.5605)
    top = to_float(7 * width)
    bounds = [0.0] + [(i + 0.5) * width for i in range(7)] + [top]
    numbers = f"1 / width {spell(to_float(1 / width))}, up to {spell(top)}"
    show("erf", table(mp.erf, mp.erfinv, 7, bounds), range(8), numbers)


if __name__ == "__main__":
    tanh_table()
    erf_table()
