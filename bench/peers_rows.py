"""Short rows: images beside a colour, tables of few columns beside a row or a column; Kiln, PyTorch and NumPy with out=.

The same operator on as many elements side by side, `flat`, is what a short row should come near.  Then medians with a
second process that keeps a core busy, which is where a pool shows what it is worth.
"""
import json
import statistics
import subprocess
import sys
import time
import warnings

import numpy as np
import torch

import kiln

SHAPES = [((1080, 1920, 3), (3,)), *(((65536, c), (c,)) for c in (2, 3, 7, 10, 12)), ((65536, 3), (65536, 1))]
ROUNDS, SAMPLE_NS = 15, 200e3


def calls(shape, row):
    """Operator -> (Kiln, PyTorch, NumPy or None, Kiln on flat operands), each a function without arguments."""
    x, y, out = torch.rand(shape) + 1, torch.rand(row) + 1, torch.empty(shape)
    full, flag, u8 = torch.rand(shape) + 1, torch.rand(row) > 0.5, torch.randint(0, 255, shape, dtype=torch.uint8)
    flags, nx, ny, no = torch.rand(shape) > 0.5, x.numpy(), y.numpy(), out.numpy()
    n8, where = u8.numpy(), kiln.op("aten::where.self_out")
    found = {}
    for name, ufunc in (("add", np.add), ("sub", np.subtract), ("mul", np.multiply)):
        op, theirs = kiln.op(f"aten::{name}.out"), getattr(torch, name)
        found[name] = (lambda op=op: op(x, y, out=out), lambda theirs=theirs: theirs(x, y, out=out),
                       lambda ufunc=ufunc: ufunc(nx, ny, out=no), lambda op=op: op(x, full, out=out))
    mul = kiln.op("aten::mul.out")
    found["u8 * scale"] = (lambda: mul(u8, y, out=out), lambda: torch.mul(u8, y, out=out), lambda: np.multiply(n8, ny, out=no),
                           lambda: mul(u8, full, out=out))
    found["where"] = (lambda: where(flag, x, full, out=out), lambda: torch.where(flag, x, full, out=out), None,
                      lambda: where(flags, x, full, out=out))
    return found


def timed(call, count):
    start = time.perf_counter_ns()
    for _ in range(count):
        call()
    return (time.perf_counter_ns() - start) / count


def measure(sides, kind):
    sides = {name: side for name, side in zip(("kiln", "torch", "numpy", "flat"), sides) if side}
    counts = {name: max(1, int(SAMPLE_NS / min(timed(side, 1) for _ in range(4)))) for name, side in sides.items()}
    samples = {name: [] for name in sides}
    for _ in range(ROUNDS):
        for name, side in sides.items():
            samples[name].append(timed(side, counts[name]))
    return {name: kind(s) for name, s in samples.items()}


def table(as_json, kind, title):
    if not as_json:
        print(f"{title}, ns per element\n{'':30} {'Kiln':>8} {'PyTorch':>8} {'NumPy':>8} {'flat':>8} {'peer/Kiln':>10} {'flat/Kiln':>10}")
    rows = []
    for shape, row in SHAPES:
        for name, sides in calls(shape, row).items():
            ns = {side: t / torch.Size(shape).numel() for side, t in measure(sides, kind).items()}
            peer = min(ns[side] for side in ("torch", "numpy") if side in ns)
            what = f"{name} {'x'.join(map(str, shape))} {'x'.join(map(str, row))}"
            rows.append((what, peer / ns["kiln"], ns["flat"] / ns["kiln"]))
            if as_json:
                print(json.dumps({"bench": "rows", "case": title, "name": what, "ns_per_element": ns}))
            else:
                print(f"{what:30} {ns['kiln']:8.3f} {ns['torch']:8.3f} {ns.get('numpy', float('nan')):8.3f} {ns['flat']:8.3f}"
                      f" {rows[-1][1]:10.2f} {rows[-1][2]:10.2f}")
    return rows


def run(as_json, threads):
    torch.set_num_threads(threads)
    warnings.simplefilter("ignore")
    rows = table(as_json, min, f"best of {ROUNDS}")
    missed = 0
    for what, column, goal in (("beside the faster of PyTorch and NumPy", 1, 2.0), ("beside the same flat", 2, 0.9)):
        worst = min(rows, key=lambda r: r[column])
        missed += worst[column] < goal
        print(f"{'met   ' if worst[column] >= goal else 'MISSED'} worst, {what}: {worst[column]:.2f}  goal {goal}  {worst[0]}")
    busy = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        table(as_json, statistics.median, "medians with a second process busy")
    finally:
        busy.kill()
        busy.wait()
    return missed
