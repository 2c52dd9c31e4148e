"""Six formulas by kiln.evaluate, beside NumPy, numexpr and Numba: 1 KB, 1 MB and 64 MB an array, 1 and 2 threads.

    .venv/bin/python bench/evaluate.py [--threads=1,2] [--sizes=1K,1M,64M]

Every side makes a new result, runs in turns with the others, and is compiled before it is timed.  The Numba functions are what a Numba
user would write: an element-wise loop under @njit(parallel=..., fastmath=True); fastmath lets Numba round otherwise than NumPy does, which
Kiln does not do.  Arrays are float64, or float32 where the formula's name says so.  Goals: see `goals`.  Exits 1 if one is missed.

numexpr and Numba are no part of Kiln's own requirements: .venv/bin/python -m pip install numexpr numba
"""
import argparse
import math
import os
import re
import statistics
import sys
import time

GOALS = {"ratio": 2.0, "better": 1.0, "hot": 2.0}  # times numexpr; of the better of numexpr and NumPy; microseconds at 1 KB
SIZES = {"1K": 1 << 10, "1M": 1 << 20, "64M": 1 << 26}
NOISE = 1.05  # a side that is this much slower than another is not told apart from it

FORMULAS = {  # name -> the formula, the dtype
    "polynomial": ("((0.5*x + 1.5)*x - 2.5)*x + 3.5", "f8"),
    "waves": ("2*x + sin(y)**2", "f8"),
    "gauss f32": ("exp(-(x - m)**2/(2*s*s))", "f4"),
    "distance": ("sqrt(x**2 + y**2)", "f8"),
    "choice": ("where(x > y, x - y, 0.5*(y - x))", "f8"),
    "in circle": ("(x*x + y*y < 1) & (x > 0.25)", "f8"),
}


def numba_function(formula, names, dtype, threads):
    """The loop that a Numba user writes."""
    import numba
    out = "np.bool_" if "<" in formula else f"np.{ {'f8': 'float64', 'f4': 'float32'}[dtype] }"
    body = formula
    for name in ("x", "y"):
        body = "".join(part if k % 2 == 0 else f"{name}[i]" for k, part in enumerate(_split(body, name)))
    body = body.replace("where(x[i] > y[i], x[i] - y[i], 0.5*(y[i] - x[i]))", "x[i] - y[i] if x[i] > y[i] else 0.5*(y[i] - x[i])")
    body = body.replace("sin(", "np.sin(").replace("sqrt(", "np.sqrt(").replace("exp(", "np.exp(")
    text = (f"def loop({', '.join(names)}):\n    out = np.empty(x.shape, {out})\n"
            f"    for i in prange(x.size):\n        out[i] = {body}\n    return out\n")
    import numpy as np
    scope = {"np": np, "prange": numba.prange if threads > 1 else range}
    exec(text, scope)
    return numba.njit(parallel=threads > 1, fastmath=True)(scope["loop"])


def _split(text, name):
    """The text's parts, of which every second one is the name."""
    return re.split(rf"\b({name})\b", text)


def sides_of(name, size, threads):
    """Side -> a function of the number of calls that returns seconds a call.  Results were compared with NumPy's."""
    import numexpr
    import numpy as np
    import kiln
    formula, dtype = FORMULAS[name]
    n = size // np.dtype(dtype).itemsize
    rng = np.random.default_rng(3)
    x, y, m, s = rng.random(n).astype(dtype), rng.random(n).astype(dtype), 0.5, 0.25
    used = [k for k in ("x", "y", "m", "s") if len(_split(formula, k)) > 1]
    scope = {"x": x, "y": y, "m": m, "s": s, "kiln": kiln, "numexpr": numexpr, "np": np, "clock": time.perf_counter}
    compiled = numba_function(formula, used, dtype, threads)
    plain = formula
    for function in ("sin", "sqrt", "exp", "where"):
        plain = plain.replace(function + "(", f"np.{function}(")
    calls = {"kiln": f"kiln.evaluate({formula!r})", "numexpr": f"numexpr.evaluate({formula!r})", "numpy": plain,
             "numba": f"compiled({', '.join(used)})"}
    scope["compiled"] = compiled
    sides = {}
    for side, call in calls.items():
        # locals of a function, as a user's would be
        # numexpr takes Python's floats for float64; a user who wants float32 gives it float32
        m_s = "m=np.float32(m), s=np.float32(s)" if (side, dtype) == ("numexpr", "f4") else "m=m, s=s"
        text = (f"def run(calls, x=x, y=y, {m_s}):\n    start = clock()\n    for _ in range(calls):\n        {call}\n"
                f"    return (clock() - start) / calls\n")
        exec(text, scope)
        sides[side] = scope.pop("run")
    want = eval(plain, scope)
    for side in ("kiln", "numexpr", "numba"):
        got = eval(calls[side], scope)
        if got.dtype != want.dtype and side == "kiln":
            sys.exit(f"{name}: Kiln's result is {got.dtype}, NumPy's {want.dtype}")
        np.testing.assert_allclose(got, want, rtol=1e-5 if dtype == "f4" else 1e-12)
    return sides


def measure(sides, size):
    """Seconds a call of each side: the best of turns."""
    calls = {1 << 10: 2000, 1 << 20: 40, 1 << 26: 1}[size]
    best = dict.fromkeys(sides, math.inf)
    for _ in range({1 << 10: 15, 1 << 20: 15, 1 << 26: 5}[size]):
        for side, run in sides.items():
            best[side] = min(best[side], run(calls))
    return best


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--sizes", default="1K,1M,64M")
    options = parser.parse_args()
    try:
        import numba
        import numexpr
    except ImportError as error:
        sys.exit(f"bench/evaluate.py times other packages beside Kiln, and {error.name} is not there: "
                 f"{sys.executable} -m pip install numexpr numba")
    import kiln
    missed, ratios = [], []
    print(f"{'formula':<12}{'array':>6}{'threads':>9}{'Kiln':>12}{'numexpr':>12}{'NumPy':>12}{'Numba':>12}  microseconds; x numexpr")
    for threads in map(int, options.threads.split(",")):
        kiln.configure(mode="sync", threads=threads)
        numexpr.set_num_threads(threads)
        numba.set_num_threads(min(threads, numba.config.NUMBA_NUM_THREADS))
        for size in options.sizes.split(","):
            for name in FORMULAS:
                took = measure(sides_of(name, SIZES[size], threads), SIZES[size])
                ratio = took["numexpr"] / took["kiln"]
                ratios.append(ratio)
                row = "".join(f"{took[side] * 1e6:12.2f}" for side in ("kiln", "numexpr", "numpy", "numba"))
                print(f"{name:<12}{size:>6}{threads:>9}{row}{ratio:12.2f}", flush=True)
                better = min(took["numexpr"], took["numpy"])
                if took["kiln"] > better * GOALS["better"] * NOISE:
                    missed.append(f"{name}, {size}, {threads} threads: {took['kiln'] / better:.2f} times the better of numexpr and NumPy")
                if size == "1K" and took["kiln"] * 1e6 > GOALS["hot"]:
                    missed.append(f"{name}, 1 KB: {took['kiln'] * 1e6:.2f} us, goal {GOALS['hot']}")
    mean = statistics.geometric_mean(ratios)
    print(f"geometric mean: {mean:.2f} times numexpr (goal {GOALS['ratio']})")
    if mean < GOALS["ratio"]:
        missed.append(f"geometric mean: {mean:.2f}, goal {GOALS['ratio']}")
    for line in missed:
        print("missed:", line)
    print("goals were missed" if missed else "all goals are met")
    return bool(missed)


if __name__ == "__main__":
    os.environ.setdefault("NUMBA_NUM_THREADS", "2")
    sys.exit(main())
