"""What an operator should give, by mpmath: the judge where Kiln and PyTorch differ by more than the tolerance.

PyTorch is not exact: it squares an f32 before exp, lets intermediate results overflow, or multiplies the error of a
logarithm.  For the operators here an element that differs is right if it is within the tolerance of the exact result of the
same arguments, as they are after promotion.  A power's argument error is multiplied by its exponent: `Near` says by how much a
result computed in f64 may be off, and nothing is asked of one whose direction no f64 can know.  Where an argument is infinite or NaN
mpmath is not asked; of C99's complex functions NumPy's are, which follow its Annex G.
"""
import functools
import math

import mpmath as mp
import numpy as np
import torch

import special_oracle as oracle

mp.mp.dps = 50
m = mp.mpf


class Near:
    """An exact value.  size: what an error counts beside, where that is not the value's own, since it is a difference of
    larger numbers; slack: the relative error that no computation in f64 stays below."""

    def __init__(self, value, size=None, slack=0):
        self.value, self.size, self.slack = value, abs(value) if size is None else size, slack


def power(a, b):
    """exp(b log a): an error of 2 units in log a turns into |b log a| times as much of the result."""
    if a == 0:
        return m(0) if mp.re(b) > 0 else None
    p = b * mp.log(a)
    return Near(mp.exp(p), slack=abs(p) * m(2) ** -51)


def sigmoid(x):
    """Near a pole the sum below is as small as its error."""
    e = mp.exp(-x)
    return Near(1 / (1 + e), (1 + abs(e)) / abs(1 + e) ** 2)


def silu(x):
    s = sigmoid(x)
    return Near(x * s.value, abs(x) * s.size)


def silu_backward(g, x):
    e = mp.exp(-x)
    s = 1 / (1 + e)
    worse = (1 + abs(e)) / abs(1 + e)
    return Near(g * s * (1 + x * (1 - s)), abs(g * s) * (1 + abs(x * (1 - s))) * worse)


def gelu_backward(g, x, approximate="none"):
    """Far to the left it is a difference of two halves."""
    if approximate == "none":
        return Near(g * (mp.erfc(-x / mp.sqrt(2)) / 2 + x * mp.exp(-x * x / 2) / mp.sqrt(2 * mp.pi)), abs(g))
    k = mp.sqrt(2 / mp.pi)
    t = mp.tanh(k * (x + m("0.044715") * x ** 3))
    return Near(g * ((1 + t) / 2 + x * (1 - t * t) / 2 * k * (1 + 3 * m("0.044715") * x * x)), abs(g))


def quotient(x, y, rounding_mode=None):
    return x / y if rounding_mode is None else None


def addcdiv(x, y, z, value=1):
    """The quotient is rounded before it is added, and may be nearly -x."""
    q = value * y / z
    return Near(x + q, abs(x) + abs(q))


def logaddexp(a, b):
    hi, lo = (a, b) if mp.re(a) >= mp.re(b) else (b, a)
    return hi + mp.log1p(mp.exp(lo - hi))


def gammainc(a, x):
    """P(a, x); for a large a by the first term of its uniform expansion, whose error is 1 / a."""
    if a <= 0 or x <= 0:
        return m(0) if a > 0 and x == 0 else None
    if a < 1000 and x < 10000:
        return mp.gammainc(a, 0, x, regularized=True)
    if a < 1000:
        return m(1)
    far = mp.sqrt(a * (x / a - 1 - mp.log(x / a)))
    if far > 50:
        return m(1 if x > a else 0)
    return mp.erfc(far if x < a else -far) / 2 if a > 1e9 else None


def gammaincc(a, x):
    p = gammainc(a, x)
    return None if p is None else 1 - p


def polygamma(n, x):
    """At its poles one of odd order is infinite, which sin(pi * x) in f32 does not see."""
    if x <= 0 and x == mp.floor(x):
        return mp.inf if n % 2 else None
    return oracle.polygamma(n, x)


def bessel(f, order, scaled=False):
    def value(x):
        return f(order, x) * (mp.exp(x) if scaled else 1)
    return value


def airy(x):
    """Far to the left a wave, whose phase no f64 knows beyond its own last place."""
    if x > -1000:
        return mp.airyai(x)
    size = oracle.airy_size(x)
    slack = abs(x) ** 1.5 * m(2) ** -52
    return Near(mp.airyai(x) if slack < 1 else m(0), size, slack)


EXACT = {
    "pow": power, "float_power": power,
    "ldexp": lambda x, y: x * mp.mpf(2) ** y,
    "div": quotient, "divide": quotient, "true_divide": quotient,
    "addcdiv": addcdiv,
    "sigmoid": sigmoid, "special_expit": sigmoid, "silu": silu,
    "silu_backward": silu_backward, "gelu_backward": gelu_backward,
    "logaddexp": logaddexp,
    "exp2": lambda x: mp.exp(x * mp.log(2)), "special_exp2": lambda x: mp.exp(x * mp.log(2)),
    "expm1": mp.expm1, "special_expm1": mp.expm1,
    "polygamma": polygamma, "special_polygamma": polygamma,
    "special_bessel_j0": bessel(mp.besselj, 0), "special_bessel_j1": bessel(mp.besselj, 1),
    "special_bessel_y0": bessel(mp.bessely, 0), "special_bessel_y1": bessel(mp.bessely, 1),
    "special_airy_ai": airy, "special_erfcx": oracle.erfcx,
    "special_hermite_polynomial_h": oracle.hermite_h, "special_hermite_polynomial_he": oracle.hermite_he,
    "special_shifted_chebyshev_polynomial_v": oracle.shifted(oracle.cheb["v"]),
    "i0": bessel(mp.besseli, 0), "special_i0": bessel(mp.besseli, 0), "special_i1": bessel(mp.besseli, 1),
    "special_modified_bessel_i0": bessel(mp.besseli, 0), "special_modified_bessel_i1": bessel(mp.besseli, 1),
    "special_modified_bessel_k0": bessel(mp.besselk, 0), "special_modified_bessel_k1": bessel(mp.besselk, 1),
    "special_scaled_modified_bessel_k0": bessel(mp.besselk, 0, True),
    "special_scaled_modified_bessel_k1": bessel(mp.besselk, 1, True),
    "igamma": gammainc, "special_gammainc": gammainc, "igammac": gammaincc, "special_gammaincc": gammaincc,
}


C99 = {"exp": np.exp, "log": np.log, "sqrt": np.sqrt, "sin": np.sin, "cos": np.cos, "tan": np.tan, "sinh": np.sinh,
       "cosh": np.cosh, "tanh": np.tanh, "asin": np.arcsin, "acos": np.arccos, "atan": np.arctan, "asinh": np.arcsinh,
       "acosh": np.arccosh, "atanh": np.arctanh, "arcsin": np.arcsin, "arccos": np.arccos, "arctan": np.arctan,
       "arcsinh": np.arcsinh, "arccosh": np.arccosh, "arctanh": np.arctanh, "abs": np.abs, "absolute": np.abs,
       "expm1": np.exp, "special_expm1": np.exp}  # e^x - 1 is e^x where x is not finite


def packet_of(name):
    """pow, of `aten::pow_.Tensor`."""
    return name.removeprefix("aten::").split(".")[0].removesuffix("_")


def function_of(name):
    """None if PyTorch is the only judge."""
    return EXACT.get(packet_of(name)) or C99.get(packet_of(name))


# -- one element ---------------------------------------------------------------------------------------------------

def finite(v):
    return isinstance(v, str) or (math.isfinite(v.real) and math.isfinite(v.imag))


def number(v):
    return v if isinstance(v, str) else mp.mpc(v.real, v.imag) if isinstance(v, complex) and v.imag else m(v.real)


def by_c99(packet, value):
    if packet not in C99 or not isinstance(value, complex):
        return None
    with np.errstate(all="ignore"):
        value = complex(C99[packet](np.complex128(value)))
    return value.real, value.imag, 0.0, 0.0


@functools.lru_cache(maxsize=1 << 16)
def evaluate(packet, args, kwargs):
    """(real part, imaginary part, size, slack); None where there is no exact answer.  A part whose very sign is in doubt is
    None."""
    if not all(map(finite, [*args, *(v for _, v in kwargs)])):
        return by_c99(packet, args[0])
    if packet not in EXACT:
        return None
    try:
        result = EXACT[packet](*map(number, args), **{n: number(v) for n, v in kwargs})
    except (ZeroDivisionError, ValueError, OverflowError, mp.libmp.NoConvergence):
        return None
    if result is None:
        return None
    near = result if isinstance(result, Near) else Near(mp.mpmathify(result))
    doubt = near.slack * near.size
    re, im = (None if near.slack and abs(x) <= doubt else float(x) for x in (mp.re(near.value), mp.im(near.value)))
    return re, im, float(near.size), float(near.slack)


# -- tensors -------------------------------------------------------------------------------------------------------

def promoted(tensors, numbers, packet):
    """The dtype that elements are computed with."""
    if packet == "float_power":
        anywhere = any(t.is_complex() for t in tensors) or any(isinstance(v, complex) for v in numbers)
        return torch.complex128 if anywhere else torch.float64
    first = max(tensors, key=torch.Tensor.dim)
    for other in (*tensors, *numbers):
        try:
            first = torch.empty_like(first, dtype=torch.result_type(first, other))
        except RuntimeError:  # u16, u32 and u64 hardly promote; ldexp takes them without
            continue
    return first.dtype if first.is_floating_point() or first.is_complex() else torch.float32


def agrees(actual, want, dtype, rtol, atol):
    *parts, size, slack = want
    part = dtype.to_real() if dtype.is_complex else dtype

    def close(a, b):
        if b is None:
            return True
        b = torch.tensor(b, dtype=torch.float64).to(part).item()  # what is too large is infinite
        counts = max(abs(b), size) if slack or math.isfinite(size) else abs(b)
        return a == b or a != a and b != b or \
            math.isfinite(a) and math.isfinite(b) and abs(a - b) <= atol + (rtol + slack) * counts
    return close(complex(actual).real, parts[0]) and close(complex(actual).imag, parts[1])


def column(value, wrong, common):
    """One argument of each element, after promotion."""
    if isinstance(value, torch.Tensor):
        return value.expand(wrong.shape)[wrong].to(common).tolist()
    if common is not None and not isinstance(value, str):
        value = torch.tensor(value, dtype=common if common.is_complex or not isinstance(value, complex) else None).item()
    return [value] * int(wrong.sum())


def right(name, args, kwargs, wrong, actual, tolerance):
    """Which of the elements `actual`, those of a call where `wrong`, are right; None if nobody can tell."""
    packet = packet_of(name)
    whole = "polygamma" in packet  # its first argument is an int
    tensors = [t for t in args if isinstance(t, torch.Tensor)]
    if not tensors or any(v is None for v in args):
        return None
    common = promoted(tensors, [] if whole else [v for v in args if isinstance(v, (int, float, complex))], packet)
    columns = [column(v, wrong, None if whole and isinstance(v, int) else common) for v in args]
    named = tuple(sorted((n, v) for n, v in kwargs.items() if v is not None and not isinstance(v, torch.Tensor)))
    found = []
    for element, arguments in zip(actual.tolist(), zip(*columns)):
        want = evaluate(packet, arguments, named)
        found.append(want is not None and agrees(element, want, actual.dtype, *tolerance))
    return torch.tensor(found, dtype=torch.bool)
