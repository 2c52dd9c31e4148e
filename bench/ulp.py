"""The worst error of each function in f32 and f64, in units of the last place: Kiln beside PyTorch, in one run.

    python bench/ulp.py [NAME...]

Both get the same seeded points; the exact results are mpmath's.  `kiln bench ulp` measures Kiln alone, on more
points and more dtypes, against long double, and needs no Python.  Prints a line of JSON per function and dtype.
"""
import json
import math
import random
import sys

import kiln
import mpmath
import torch

POINTS = 500
mp = mpmath.mp
mp.prec = 200

# Kiln's primitive: PyTorch's function, mpmath's, and where points are drawn from.
FUNCTIONS = {
    "exp": (torch.exp, mp.exp, -80, 80), "exp2": (torch.exp2, lambda x: mp.power(2, x), -100, 100),
    "expm1": (torch.expm1, mp.expm1, -20, 20), "log": (torch.log, mp.log, 0, 100),
    "log2": (torch.log2, lambda x: mp.log(x, 2), 0, 100), "log10": (torch.log10, mp.log10, 0, 100),
    "log1p": (torch.log1p, mp.log1p, -1, 100), "rsqrt": (torch.rsqrt, lambda x: 1 / mp.sqrt(x), 0, 100),
    "sin": (torch.sin, mp.sin, -100, 100), "cos": (torch.cos, mp.cos, -100, 100), "tan": (torch.tan, mp.tan, -100, 100),
    "asin": (torch.asin, mp.asin, -1, 1), "acos": (torch.acos, mp.acos, -1, 1), "atan": (torch.atan, mp.atan, -10, 10),
    "sinh": (torch.sinh, mp.sinh, -20, 20), "cosh": (torch.cosh, mp.cosh, -20, 20), "tanh": (torch.tanh, mp.tanh, -10, 10),
    "asinh": (torch.asinh, mp.asinh, -10, 10), "acosh": (torch.acosh, mp.acosh, 1, 10),
    "atanh": (torch.atanh, mp.atanh, -1, 1), "erf": (torch.erf, mp.erf, -5, 5), "erfc": (torch.erfc, mp.erfc, -5, 9),
    "sigmoid": (torch.sigmoid, lambda x: 1 / (1 + mp.exp(-x)), -40, 40),
    "lgamma": (torch.lgamma, lambda x: mp.log(abs(mp.gamma(x))), 0, 100),
    "digamma": (torch.digamma, mp.digamma, 0, 100), "erfinv": (torch.erfinv, mp.erfinv, -1, 1),
    "ndtri": (torch.special.ndtri, lambda p: mp.sqrt(2) * mp.erfinv(2 * p - 1), 0, 1),
    "log_ndtr": (torch.special.log_ndtr, lambda x: mp.log(mp.erfc(-x / mp.sqrt(2)) / 2), -30, 10),
    "erfcx": (torch.special.erfcx, lambda x: mp.exp(x * x) * mp.erfc(x), -5, 10),
    "i0": (torch.special.i0, lambda x: mp.besseli(0, x), -20, 20), "i1": (torch.special.i1, lambda x: mp.besseli(1, x), -20, 20),
    "modified_bessel_k0": (torch.special.modified_bessel_k0, lambda x: mp.besselk(0, x), 0, 20),
    "modified_bessel_k1": (torch.special.modified_bessel_k1, lambda x: mp.besselk(1, x), 0, 20),
    "bessel_j0": (torch.special.bessel_j0, mp.j0, -20, 20), "bessel_j1": (torch.special.bessel_j1, mp.j1, -20, 20),
    "bessel_y0": (torch.special.bessel_y0, lambda x: mp.bessely(0, x), 0, 20),
    "bessel_y1": (torch.special.bessel_y1, lambda x: mp.bessely(1, x), 0, 20),
    "airy_ai": (torch.special.airy_ai, mp.airyai, -10, 5),
}
DTYPES = {"f32": (torch.float32, 24, -125), "f64": (torch.float64, 53, -1021)}


def distance(got, want, digits, least):
    """From got to want in units of the last place of want; infinite where only one is a number."""
    if math.isnan(got) or math.isinf(got):
        return math.inf
    exponent = mp.frexp(want)[1] if want else least
    return float(abs(got - want) / mp.ldexp(1, max(exponent, least) - digits))


def main(names):
    for name in names or FUNCTIONS:
        torch_function, exact, low, high = FUNCTIONS[name]
        kiln.load_ops(f"map ulp::{name}(Tensor self) -> Tensor : takes float = {name}(self)")
        rng = random.Random(name)
        points = [rng.uniform(low, high) for _ in range(POINTS)]
        for dtype, (torch_dtype, digits, least) in DTYPES.items():
            x = torch.tensor(points, dtype=torch.float64).to(torch_dtype)
            x = x[(x > low) & (x < high)]
            want = [exact(mp.mpf(v)) for v in x.tolist()]
            worst = {}
            for who, result in (("kiln", kiln.call(f"ulp::{name}", x)), ("torch", torch_function(x))):
                worst[who] = max(distance(g, w, digits, least) for g, w in zip(result.tolist(), want))
            print(json.dumps({"bench": "ulp", "function": name, "dtype": dtype, "points": len(x), **worst}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
