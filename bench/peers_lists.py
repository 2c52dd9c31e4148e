"""Lists: `_foreach_*` and fused optimizers over 200 tensors of 1 KB to 1 MB, beside PyTorch; and lists of small and of large tensors.

Sizes go from the smallest to the largest in equal ratios.  All is in place and called from Python, with torch tensors, and by
turns.  What it costs to hand the tensors over is part of the time, as it is of PyTorch's.  Where lists are larger than caches,
a plain loop in C over the same tensors (bench/loops/plain_lists.c) takes its turn.  With one thread the loop shows what memory allows, and
a goal that asks for more becomes what peers_folds.reachable() says; with more threads the loop is no limit, as it starts its threads
anew and shares out equal halves.
"""
import ctypes
import json
import time
from pathlib import Path

import torch

import kiln
import kiln.torch
from peers_folds import asked, goal, reachable

ROOT = Path(__file__).resolve().parent.parent
ROUNDS, SAMPLE_NS = 9, 20e6
NTENSORS = 200
# Name -> the bytes of the smallest and of the largest tensor.
SETS = {"1 KB to 1 MB": (1 << 10, 1 << 20), "1 KB": (1 << 10, 1 << 10), "16 KB": (1 << 14, 1 << 14), "1 MB": (1 << 20, 1 << 20)}
# Of the first set: times PyTorch's speed.
GOALS = {"_foreach_add_": 2.0, "_fused_adamw_": 1.3}
# What a plain loop computes of the same lists, and from how many elements it is worth its threads.
PLAIN = {"_foreach_add_": (0, 2), "_fused_adamw_": (1, 4)}
PLAIN_ELEMENTS = 1 << 20


def tensors(least, most, positive=False):
    ratio = (most / least) ** (1 / (NTENSORS - 1))
    xs = [torch.randn(max(1, int(least * ratio**k) // 4)) for k in range(NTENSORS)]
    return [x.abs_() for x in xs] if positive else xs


def adam(name, of):
    steps = [torch.tensor(3.0) for _ in range(NTENSORS)]
    p, g, m, v = tensors(*of), tensors(*of), tensors(*of), tensors(*of, True)
    named = {"lr": 1e-9, "beta1": 0.9, "beta2": 0.999, "weight_decay": 0.01, "eps": 1e-8, "amsgrad": False, "maximize": False}
    return (p, g, m, v, [], steps), named


def sgd(name, of):
    named = {"weight_decay": 0.01, "momentum": 0.9, "lr": 1e-9, "dampening": 0.0, "nesterov": False, "maximize": False, "is_first_step": False}
    return (tensors(*of), tensors(*of), tensors(*of)), named


def calls():
    """Name -> Kiln's operator and what makes its arguments."""
    return {
        "_foreach_add_": ("_foreach_add_.List", lambda name, of: ((tensors(*of), tensors(*of)), {"alpha": 1e-9})),
        "_foreach_mul_ number": ("_foreach_mul_.Scalar", lambda name, of: ((tensors(*of), 1.0), {})),
        "_foreach_addcdiv_": ("_foreach_addcdiv_.Scalar", lambda name, of: ((tensors(*of), tensors(*of), tensors(*of, True), 1e-9), {})),
        "_foreach_sqrt": ("_foreach_sqrt", lambda name, of: ((tensors(*of, True),), {})),
        "_fused_adamw_": ("_fused_adamw_", adam),
        "_fused_sgd_": ("_fused_sgd_", sgd),
    }


def timed(call, count):
    start = time.perf_counter_ns()
    for _ in range(count):
        call()
    return (time.perf_counter_ns() - start) / count


def measure(sides):
    """The best time of each side, and how much PyTorch differs from itself."""
    counts = {name: max(1, int(SAMPLE_NS / min(timed(call, 1) for _ in range(3)))) for name, call in sides.items()}
    samples = {name: [] for name in sides}
    for _ in range(ROUNDS):
        for name, call in sides.items():
            samples[name].append(timed(call, counts[name]))
    halves = min(samples["torch"][::2]), min(samples["torch"][1::2])
    return {name: min(found) for name, found in samples.items()}, max(halves) / min(halves)


def plain(name, args, threads):
    """The plain loop over these lists, if there is one: {"plain": function}."""
    if name not in PLAIN or sum(x.numel() for x in args[0]) < PLAIN_ELEMENTS:
        return {}
    which, nlists = PLAIN[name]
    loop = ctypes.CDLL(str(ROOT / "build" / "libkiln_bench.so")).plain_lists
    at = (ctypes.c_void_p * (nlists * NTENSORS))(*(x.data_ptr() for list_ in args[:nlists] for x in list_))
    counts = (ctypes.c_long * NTENSORS)(*(x.numel() for x in args[0]))
    return {"plain": lambda: loop(which, at, counts, ctypes.c_long(NTENSORS), threads)}


def rows(names=None, sets=None, threads=1):
    for name, (given, make) in calls().items():
        for size, of in SETS.items():
            if (names and name not in names) or (sets and size not in sets):
                continue
            args, named = make(name, of)
            op = kiln.op(f"aten::{given}")
            base, _, overload = given.partition(".")
            native = getattr(torch, base)
            sides = {"kiln": lambda: op(*args, **named), "torch": lambda: native(*args, **named), **plain(name, args, threads)}
            ns, spread = measure(sides)
            yield {"bench": "lists", "size": size, "name": name, "ns": ns, "spread": spread}


def run(as_json, threads):
    torch.set_num_threads(threads)
    missed = 0
    for row in rows(threads=threads):
        times = row["ns"]["torch"] / row["ns"]["kiln"]
        if as_json:
            print(json.dumps(row))
        else:
            loop = f"   a plain loop: {row['ns']['torch'] / row['ns']['plain']:.2f}" if "plain" in row["ns"] else ""
            print(f"  {row['name']:22} {row['size']:14} {times:7.2f}   {row['ns']['kiln'] / 1e3:10.1f} us{loop}")
        least = GOALS.get(row["name"]) if row["size"] == "1 KB to 1 MB" else None
        if least:
            within = reachable(least, row["ns"]["torch"], row["ns"]["plain"]) if threads == 1 else least
            missed += goal(times >= within, f"{row['name']} over 200 tensors of {row['size']} {times:.2f}  goal {asked(least, within)}")
    return missed
