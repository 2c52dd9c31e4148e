"""Errors of reductions and scans: Kiln beside PyTorch on the same data, against exact results; Kiln's root mean square over PyTorch's.

Data and references (long double with two-sum) are those of `kiln bench accuracy`, called in build/libkiln_bench.so; the calls are
those of peers_folds.py.  Every cell is to be at most 1.02.  Beside each ratio stands what it is over odd and over even seeds: where
both round alike it is 1, where they round differently the two say how much of the ratio is chance.
"""
import ctypes
import json
import math

import torch

import kiln
from peers_folds import sides
from peers_kernels import load_library

SLICES, LENGTH, LONG = 8, 10007, 12_500_000
ALLOWED = 1.02
# Title -> (kind of data, elements of a slice, seeds).
DATA = {"uniform": ("uniform", LENGTH, 100), "cancelling": ("cancelling", LENGTH, 100), "denormal": ("denormal", LENGTH, 100),
        "1e8": ("uniform", LONG, 2)}
DTYPES = {"f32": torch.float32, "f64": torch.float64}
OVERS = {"all": None, "last": 1, "first": 0}
# Reference -> the operator as peers_folds.py calls it.
OPS = {"sum": "sum", "mean": "mean", "var": "var", "std": "std", "logsumexp": "logsumexp", "norm2": "norm 2", "norm1": "norm 1",
       "cumsum": "cumsum"}


class Shape(ctypes.Structure):
    """accuracy_shape of bench/command/accuracy.h."""
    _fields_ = [(name, ctypes.c_int64) for name in ("slices", "n", "slice_step", "step")]


def declare(lib):
    p, i, text = ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p
    for name, result, arguments in (("accuracy_data", i, [text]), ("accuracy_reference", i, [text]),
                                    ("accuracy_fill", None, [i, i, ctypes.POINTER(Shape), ctypes.c_uint64, p]),
                                    ("accuracy_errors", None, [i, i, ctypes.POINTER(Shape), p, p, i, p])):
        f = getattr(lib, name)
        f.restype, f.argtypes = result, arguments
    names = {lib.kiln_dtype_name(k).decode(): k for k in range(15)}
    return {torch.float32: names["f32"], torch.float64: names["f64"]}


def lay_out(n, dim):
    """The tensor's sizes, and its slices as a fold over dim meets them."""
    if dim is None:
        return (SLICES, n), Shape(1, SLICES * n, 0, 1)
    return ((n, SLICES), Shape(SLICES, n, 1, SLICES)) if dim == 0 else ((SLICES, n), Shape(SLICES, n, n, 1))


def both(name, x, dim):
    """What Kiln and PyTorch make of x, in memory of their own."""
    if name == "logsumexp" and dim is None:
        return kiln.op("aten::logsumexp")(x, [0, 1]), torch.logsumexp(x, [0, 1])
    return [call().clone() for call in sides(OPS[name], x, dim)[:2]]


def squares(lib, codes, name, x, shape, results):
    """The mean squared error of each result."""
    out = (ctypes.c_double * len(results))()
    places = (ctypes.c_void_p * len(results))(*[r.data_ptr() for r in results])
    lib.accuracy_errors(lib.accuracy_reference(name.encode()), codes[x.dtype], shape, x.data_ptr(), places, len(results), out)
    return list(out)


def measure(lib, codes, data, n, seeds, dtype, dim):
    """Operator -> a list over seeds of (Kiln's, PyTorch's) mean squared errors."""
    sizes, shape = lay_out(n, dim)
    x, found = torch.empty(sizes, dtype=dtype), {}
    for seed in range(1, seeds + 1):
        lib.accuracy_fill(lib.accuracy_data(data.encode()), codes[dtype], shape, seed, x.data_ptr())
        for name in OPS:
            if name != "cumsum" or dim is not None:
                found.setdefault(name, []).append(squares(lib, codes, name, x, shape, both(name, x, dim)))
    return found


def ratio(squared):
    """Kiln's root mean square over PyTorch's; 1 where both are exact."""
    ours, theirs = (math.sqrt(math.fsum(side) / len(squared)) for side in zip(*squared))
    return ours, theirs, 1.0 if ours == theirs else ours / theirs if theirs else math.inf


def rows(lib, codes):
    for title, (data, n, seeds) in DATA.items():
        for dtype_name, dtype in DTYPES.items():
            for over, dim in OVERS.items():
                for name, squared in measure(lib, codes, data, n, seeds, dtype, dim).items():
                    ours, theirs, times = ratio(squared)
                    yield {"bench": "accuracy", "data": title, "seeds": seeds, "elements": SLICES * n, "dtype": dtype_name, "over": over,
                           "name": name, "kiln": ours, "torch": theirs, "ratio": times,
                           "odd": ratio(squared[::2])[2], "even": ratio(squared[1::2])[2], "met": times <= ALLOWED}


def run(as_json, threads):
    torch.set_num_threads(threads)
    lib = load_library()
    codes, missed, last = declare(lib), [], None
    for row in rows(lib, codes):
        if not row["met"]:
            missed.append(row)
        if as_json:
            print(json.dumps(row), flush=True)
            continue
        if row["data"] != last:
            last = row["data"]
            print(f"\n{last}: {row['elements']} elements, {row['seeds']} seeds; errors in epsilons, Kiln's over PyTorch's (odd, even seeds)")
        print(f"  {row['dtype']} {row['over']:6} {row['name']:10} {row['kiln']:10.4g} {row['torch']:10.4g} {row['ratio']:8.4f}"
              f"  ({row['odd']:.3f}, {row['even']:.3f}){'' if row['met'] else '  MISSED'}", flush=True)
    if not as_json:
        print(f"\n{len(missed)} cells where Kiln's error is larger than {ALLOWED} of PyTorch's; goal: none")
    return len(missed)
