"""Lists: `_foreach_*` and fused optimizers over 200 tensors of 1 KB to 1 MB, beside PyTorch; and lists of small and of large tensors.

Sizes go from the smallest to the largest in equal ratios.  All is in place and called from Python, with torch tensors, and by
turns.  What it costs to hand the tensors over is part of the time, as it is of PyTorch's.
"""
import json
import time

import torch

import kiln
import kiln.torch

ROUNDS, SAMPLE_NS = 9, 20e6
NTENSORS = 200
# Name -> the bytes of the smallest and of the largest tensor.
SETS = {"1 KB to 1 MB": (1 << 10, 1 << 20), "1 KB": (1 << 10, 1 << 10), "16 KB": (1 << 14, 1 << 14), "1 MB": (1 << 20, 1 << 20)}
# Of the first set: times PyTorch's speed.
GOALS = {"_foreach_add_": 2.0, "_fused_adamw_": 1.3}


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


def measure(ours, theirs):
    """The best times of both, and how much PyTorch differs from itself."""
    both = ours, theirs
    counts = [max(1, int(SAMPLE_NS / min(timed(call, 1) for _ in range(3)))) for call in both]
    samples = [], []
    for _ in range(ROUNDS):
        for call, count, found in zip(both, counts, samples):
            found.append(timed(call, count))
    halves = min(samples[1][::2]), min(samples[1][1::2])
    return min(samples[0]), min(samples[1]), max(halves) / min(halves)


def rows(names=None, sets=None):
    for name, (given, make) in calls().items():
        for size, of in SETS.items():
            if (names and name not in names) or (sets and size not in sets):
                continue
            args, named = make(name, of)
            op = kiln.op(f"aten::{given}")
            base, _, overload = given.partition(".")
            native = getattr(torch, base)
            mine, theirs, spread = measure(lambda: op(*args, **named), lambda: native(*args, **named))
            yield {"bench": "lists", "size": size, "name": name, "ns": {"kiln": mine, "torch": theirs}, "spread": spread}


def goal(met, text):
    print(f"{'met   ' if met else 'MISSED'} {text}")
    return not met


def run(as_json, threads):
    torch.set_num_threads(threads)
    missed = 0
    for row in rows():
        times = row["ns"]["torch"] / row["ns"]["kiln"]
        if as_json:
            print(json.dumps(row))
        else:
            print(f"  {row['name']:22} {row['size']:14} {times:7.2f}   {row['ns']['kiln'] / 1e3:10.1f} us")
        least = GOALS.get(row["name"]) if row["size"] == "1 KB to 1 MB" else None
        if least:
            missed += goal(times >= least, f"{row['name']} over 200 tensors of {row['size']} {times:.2f}  goal {least}")
    return missed
