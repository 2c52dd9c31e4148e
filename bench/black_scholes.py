#!/usr/bin/env python3
"""Prices of a million options by Black and Scholes' formula: one row of Kiln's beside NumPy, PyTorch and Numba.

All compute the same formula in f64, with the polynomial for the normal distribution that benchmarks of it commonly
use.  Sides take turns in one process; the best and the median of each are printed.  Kiln and NumPy use one thread,
PyTorch what --threads says; Numba is shown where it is installed, with parallel=True.  Exits 1 if a side's prices
differ from NumPy's.
"""
import argparse
import statistics
import sys
import time

import kiln
import numpy as np
import torch

RATE, VOLATILITY = 0.02, 0.30
COEFFICIENTS = (0.31938153, -0.356563782, 1.781477937, -1.821255978, 1.330274429)


def row():
    """The formula as a row: names for its parts, then the price."""
    series = "{k} * (%r + {k} * (%r + {k} * (%r + {k} * (%r + {k} * %r))))" % COEFFICIENTS
    parts = ["root = v * sqrt(years)", "d1 = (log(stock / strike) + (r + 0.5 * v * v) * years) / root", "d2 = d1 - root"]
    for n in "12":
        parts += [f"k{n} = 1 / (1 + 0.2316419 * abs(d{n}))",
                  f"tail{n} = 0.3989422804 * exp(-0.5 * d{n} * d{n}) * " + series.format(k=f"k{n}"),
                  f"normal{n} = d{n} > 0 ? 1 - tail{n} : tail{n}"]
    return ("map bench::call_price(Tensor stock, Tensor strike, Tensor years, float r, float v) -> Tensor"
            " : promote(stock, strike, years) takes float = stock * normal1 - strike * exp(-r * years) * normal2\n"
            + "".join(f"    let {part}\n" for part in parts))


def formula(lib, where, stock, strike, years):
    """The same over arrays of NumPy's or PyTorch's."""
    def normal(d):
        k = 1 / (1 + 0.2316419 * lib.abs(d))
        tail = 0.3989422804 * lib.exp(-0.5 * d * d)
        series = k * 0
        for c in reversed(COEFFICIENTS):
            series = k * (c + series)
        return where(d > 0, 1 - tail * series, tail * series)

    root = VOLATILITY * lib.sqrt(years)
    d1 = (lib.log(stock / strike) + (RATE + 0.5 * VOLATILITY * VOLATILITY) * years) / root
    return stock * normal(d1) - strike * lib.exp(-RATE * years) * normal(d1 - root)


def numba_side(stock, strike, years):
    import math
    import numba

    a, b, c, d, e = COEFFICIENTS

    @numba.njit
    def normal(x):
        k = 1 / (1 + 0.2316419 * abs(x))
        tail = 0.3989422804 * math.exp(-0.5 * x * x) * (k * (a + k * (b + k * (c + k * (d + k * e)))))
        return 1 - tail if x > 0 else tail

    @numba.njit(parallel=True)
    def price(stock, strike, years, out):
        for i in numba.prange(len(stock)):
            root = VOLATILITY * math.sqrt(years[i])
            d1 = (math.log(stock[i] / strike[i]) + (RATE + 0.5 * VOLATILITY * VOLATILITY) * years[i]) / root
            out[i] = stock[i] * normal(d1) - strike[i] * math.exp(-RATE * years[i]) * normal(d1 - root)
        return out

    out = np.empty_like(stock)
    return lambda: price(stock, strike, years, out)


def sides(n):
    rng = np.random.default_rng(1)
    arrays = rng.uniform(5, 30, n), rng.uniform(1, 100, n), rng.uniform(0.25, 10, n)
    tensors = [torch.from_numpy(a) for a in arrays]
    kiln.configure(mode="sync", threads=1)
    kiln.load_ops(row())
    price = kiln.op("bench::call_price")
    found = {"kiln": lambda: price(*arrays, RATE, VOLATILITY), "numpy": lambda: formula(np, np.where, *arrays),
             "torch": lambda: formula(torch, torch.where, *tensors).numpy()}
    try:
        found["numba"] = numba_side(*arrays)
    except ImportError:
        print("numba is not installed")
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=1, help="of PyTorch")
    parser.add_argument("--rounds", type=int, default=15)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    all_sides = sides(1_000_000)
    want, wrong = all_sides["numpy"](), False
    for name, run in all_sides.items():
        same = np.allclose(run(), want, rtol=1e-9, atol=1e-12)
        wrong |= not same
        if not same:
            print(f"{name}: other prices than NumPy's")
    times = {name: [] for name in all_sides}
    for _ in range(given.rounds):
        for name, run in all_sides.items():
            start = time.perf_counter()
            run()
            times[name].append(1e3 * (time.perf_counter() - start))
    for name, taken in times.items():
        print(f"{name:6} {min(taken):8.2f} ms, median {statistics.median(taken):8.2f}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
