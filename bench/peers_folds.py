"""Reductions and scans: 24 operators over all elements, the last, the first and a middle dimension; Kiln, PyTorch and NumPy.

Results are ready where PyTorch's operator takes out=.  Everything is called from Python.  Losses come first, then means by size,
then the shape [4096, 768], each beside its goal.  A goal never asks for more than memory gives: see reachable().
"""
import json
import math
import time
import warnings

import numpy as np
import torch

import kiln

# Size -> shapes of two and three dimensions, of f32.
SIZES = {"1 KB": ((16, 16), (4, 16, 4)), "64 KB": ((128, 128), (16, 64, 16)), "1 MB": ((512, 512), (64, 64, 64)),
         "64 MB": ((4096, 4096), (256, 256, 256))}
ROUNDS = 9
SAMPLE_NS, SHARED_SAMPLE_NS = 100e3, 1e6  # with several threads so many calls that waking them does not count
SLEEPS_S = 0.003  # until threads that have nothing to do sleep
CUMULATIVE = ("cumsum", "cumprod", "cummax")
OF_PLAIN = 0.9  # part of a plain operator's speed that is enough where memory allows no more


def listed(dim):
    return [dim]


def alone(dim):
    return dim


# Name -> (Kiln's operator and PyTorch's function over dimensions, how the dimension is given, arguments after it, results,
#          the same over all elements or None, NumPy's function or None).
OPS = {
    "sum": ("sum.IntList_out", torch.sum, listed, (), 1, ("sum", torch.sum), np.sum),
    "count_nonzero": ("count_nonzero.dim_IntList", torch.count_nonzero, listed, (), 0, ("count_nonzero", torch.count_nonzero), np.count_nonzero),
    "mean": ("mean.out", torch.mean, listed, (), 1, ("mean", torch.mean), np.mean),
    "prod": ("prod.int_out", torch.prod, alone, (), 1, ("prod", torch.prod), np.prod),
    "amax": ("amax.out", torch.amax, listed, (), 1, ("amax", torch.amax), np.max),
    "amin": ("amin.out", torch.amin, listed, (), 1, ("amin", torch.amin), np.min),
    "max.dim": ("max.dim", torch.max, alone, (), 0, None, None),
    "min.dim": ("min.dim", torch.min, alone, (), 0, None, None),
    "argmax": ("argmax.out", torch.argmax, alone, (), 1, ("argmax", torch.argmax), np.argmax),
    "argmin": ("argmin.out", torch.argmin, alone, (), 1, ("argmin", torch.argmin), np.argmin),
    "any": ("any.out", torch.any, alone, (), 1, ("any", torch.any), None),
    "all": ("all.out", torch.all, alone, (), 1, ("all", torch.all), None),
    "var": ("var.correction_out", torch.var, listed, (), 1, ("var", torch.var), None),
    "std": ("std.correction_out", torch.std, listed, (), 1, ("std", torch.std), None),
    "var_mean": ("var_mean.correction", torch.var_mean, listed, (), 0, ("var_mean", torch.var_mean), None),
    "logsumexp": ("logsumexp.out", torch.logsumexp, listed, (), 1, None, None),
    "norm 2": ("linalg_vector_norm.out", None, listed, (2.0,), 1, None, None),
    "norm 1": ("linalg_vector_norm.out", None, listed, (1.0,), 1, None, None),
    "norm inf": ("linalg_vector_norm.out", None, listed, (math.inf,), 1, None, None),
    "nansum": ("nansum.out", torch.nansum, listed, (), 1, ("nansum", torch.nansum), None),
    "aminmax": ("aminmax", torch.aminmax, alone, (), 0, ("aminmax", torch.aminmax), None),
    "cumsum": ("cumsum.out", torch.cumsum, alone, (), 1, None, np.cumsum),
    "cumprod": ("cumprod.out", torch.cumprod, alone, (), 1, None, np.cumprod),
    "cummax": ("cummax", torch.cummax, alone, (), 0, None, None),
}
# At [4096, 768]: operator -> times PyTorch's speed over the last and the first dimension, one thread.
GOALS = {**dict.fromkeys(("var_mean", "var", "std"), (10, 10)), **dict.fromkeys(("argmax", "argmin", "max.dim", "min.dim"), (7, 15)),
         **dict.fromkeys(("any", "all"), (6, 6)), "logsumexp": (4, 4), "sum": (0, 1.7), "cumsum": (2, 15)}


def norm_sides(x, dim, order):
    op, dims = kiln.op("aten::linalg_vector_norm.out"), None if dim is None else [dim]
    out = torch.linalg.vector_norm(x, order, dims)
    return lambda: op(x, order, dims, out=out), lambda: torch.linalg.vector_norm(x, order, dims, out=out), None


def sides(name, x, dim):
    """(Kiln, PyTorch, NumPy or None), functions without arguments; None: PyTorch has no such form."""
    given, theirs, how, more, results, whole, numpys = OPS[name]
    if more:
        return norm_sides(x, dim, *more)
    if dim is None:
        if not whole:
            return None
        op, function = kiln.op(f"aten::{whole[0]}"), whole[1]
        return (lambda: op(x)), (lambda: function(x)), (lambda: numpys(x.numpy())) if numpys else None
    op, where = kiln.op(f"aten::{given}"), how(dim)
    if name == "aminmax":
        return (lambda: op(x, dim=dim)), (lambda: theirs(x, dim=dim)), None
    out = theirs(x, where)
    ours = (lambda: op(x, where, out=out)) if results else (lambda: op(x, where))
    torchs = (lambda: theirs(x, where, out=out)) if results else (lambda: theirs(x, where))
    return ours, torchs, (lambda: numpys(x.numpy(), axis=dim)) if numpys else None


def timed(call, count):
    start = time.perf_counter_ns()
    for _ in range(count):
        call()
    return (time.perf_counter_ns() - start) / count


def measure(calls, in_a_row=1):
    """Side -> best time; and how much PyTorch differs from itself.  Sides take turns; a turn has in_a_row samples, so that
    what fits the last cache is there for all but the first of them, whatever the other side left in it.  With several threads a
    side begins when those of the one before sleep, which else take the cores for milliseconds, and is timed when its own are awake."""
    calls = {name: call for name, call in zip(("kiln", "torch", "numpy"), calls) if call}
    shared = torch.get_num_threads() > 1
    least = SHARED_SAMPLE_NS if shared else SAMPLE_NS
    counts = {name: max(1, int(least / min(timed(call, 1) for _ in range(3)))) for name, call in calls.items()}
    samples = {name: [] for name in calls}
    for _ in range(ROUNDS):
        for name, call in calls.items():
            if shared:
                time.sleep(SLEEPS_S)
                timed(call, counts[name])
            samples[name].append(min(timed(call, counts[name]) for _ in range(in_a_row)))
    halves = min(samples["torch"][::2]), min(samples["torch"][1::2])
    return {name: min(s) for name, s in samples.items()}, max(halves) / min(halves)


def elements(name, shape):
    x = torch.rand(shape) + 0.5
    if name in ("any", "count_nonzero"):
        x = (x < 0).to(torch.float32)  # nothing ends the search early
    return x


def rows(size, two, three):
    bytes_moved = {}  # (which plain operator, shape) -> its time
    for name in OPS:
        for where, shape, dim in (("all", two, None), ("last", two, 1), ("first", two, 0), ("middle", three, 1)):
            if dim is None and name in CUMULATIVE:
                continue
            x = elements(name, shape)
            calls = sides(name, x, dim)
            if not calls:
                continue
            ns, spread = measure(calls)
            which = name if name in CUMULATIVE else "sum", shape
            if which not in bytes_moved:
                bytes_moved[which] = plain(name, x)
            yield {"bench": "folds", "size": size, "name": name, "over": where, "ns": ns | {"plain": bytes_moved[which]}, "spread": spread}


def plain(name, x):
    """Best time of an operator that does next to nothing and moves as many bytes as the named one: a sum, or a scan's copy with signs changed."""
    if name not in CUMULATIVE:
        calls = (lambda: kiln.op("aten::sum")(x)), (lambda: torch.sum(x))
    else:
        y = x.double() if name == "cummax" else x  # its places are i64: 4 bytes are read and 12 written for each element
        out = torch.empty_like(y)
        calls = (lambda: kiln.op("aten::neg.out")(y, out=out)), (lambda: torch.neg(y, out=out))
    return min(measure(calls, in_a_row=5)[0].values())


def reachable(want, torch_ns, plain_ns):
    """The goal `want`, in times PyTorch's speed.  If a plain operator that moves as many bytes is slower than that: 0.9 of its speed."""
    at_plain = torch_ns / plain_ns
    return want if want <= at_plain else OF_PLAIN * at_plain


def asked(want, goal):
    return f"{goal:.2f}" if goal == want else f"{goal:.2f} (asked for {want}, more than memory gives)"


def goal(met, text):
    print(f"{'met   ' if met else 'MISSED'} {text}")
    return not met


def geometric(numbers):
    return math.exp(sum(map(math.log, numbers)) / len(numbers))


def by_size(size, found, as_json):
    found = sorted(found, key=lambda r: r["ns"]["torch"] / r["ns"]["kiln"])
    if not as_json:
        print(f"\n{size}: times the speed of PyTorch (NumPy), slowest first")
        for r in found:
            times, other = r["ns"]["torch"] / r["ns"]["kiln"], r["ns"].get("numpy", math.nan) / r["ns"]["kiln"]
            print(f"  {r['name']:14} {r['over']:7} {times:7.2f} ({other:7.2f})   {r['ns']['kiln'] / 1e3:10.2f} us")
    mean, at_plain = (geometric([r["ns"]["torch"] / r["ns"][side] for r in found]) for side in ("kiln", "plain"))
    want = reachable(2.0, at_plain, 1)
    missed = goal(mean >= want, f"geometric mean at {size} {mean:.2f}  goal {asked(2.0, want)}")
    worst = min(found, key=lambda r: r["ns"]["torch"] / r["ns"]["kiln"] * r["spread"] / reachable(0.95, r["ns"]["torch"], r["ns"]["plain"]))
    least, want = worst["ns"]["torch"] / worst["ns"]["kiln"], reachable(0.95, worst["ns"]["torch"], worst["ns"]["plain"])
    return missed + goal(least * worst["spread"] >= want, f"worst at {size} {least:.2f}, PyTorch beside itself {worst['spread']:.2f}"
                         f"  goal {asked(0.95, want)}  {worst['name']} {worst['over']}")


def at_4096_768():
    missed = 0
    for name, least in GOALS.items():
        for dim, want in zip((1, 0), least):
            x = elements(name, (4096, 768))
            ns, _ = measure(sides(name, x, dim), in_a_row=5)
            times, within = ns["torch"] / ns["kiln"], reachable(want, ns["torch"], plain(name, x))
            missed += goal(times >= within, f"[4096, 768] {name} over the {'last' if dim else 'first'} {times:.2f}"
                           f"  goal {asked(want, within)}  {ns['kiln'] / x.numel():.3f} ns an element")
    return missed


def run(as_json, threads):
    torch.set_num_threads(threads)
    warnings.simplefilter("ignore")
    missed = 0
    for size, shapes in SIZES.items():
        found = []
        for row in rows(size, *shapes):
            found.append(row)
            if as_json:
                print(json.dumps(row))
        missed += by_size(size, found, as_json)
    return missed + (at_4096_768() if threads == 1 else 0)
