#!/usr/bin/env python3
"""Kiln's figures from Python beside the goals they are to reach; exits 1 if one is missed.

Sides take turns in one process, the best of each counts; starts are medians over processes.  Needs `make python` and the library of `make bench`.
"""
import ctypes
import os
import statistics
import subprocess
import sys
import warnings

import peers_dispatch
import peers_kernels
import torch


def out_ratio(lib, context, line):
    """PyTorch's time over Kiln's for one call of bench/kernels.txt at 1 KB with out=, both on torch tensors."""
    parsed, err = ctypes.create_string_buffer(1024), ctypes.create_string_buffer(1024)
    text = ctypes.c_char_p(line["text"].encode())
    assert lib.bench_line_next(ctypes.byref(text), parsed)
    case = lib.bench_case_new(context, parsed, 1 << 10, err)
    if not case:
        raise SystemExit(f"{line['name']}: {err.value.decode()}")
    sides = peers_kernels.sides(lib, line, case)
    times = peers_kernels.measure({name: sides[name] for name in ("python", "torch")}, 1)
    lib.bench_case_free(case)
    return {"name": line["name"], **{kind: times["torch"][kind] / times["python"][kind] for kind in ("best", "median")}}


START = """
import time
begun = time.perf_counter()
import kiln
imported = time.perf_counter()
x = kiln.Tensor([1.0, 2.0])
made = time.perf_counter()
kiln.call("add", x, x)
print(imported - begun, time.perf_counter() - made)
"""


def start_times(processes=21):
    """Seconds of `import kiln` and of the first call, medians over fresh processes with Kiln's own settings."""
    usual = {name: value for name, value in os.environ.items() if not name.startswith("KILN_")}
    runs = [subprocess.run([sys.executable, "-c", START], env=usual, capture_output=True, text=True, check=True)
            for _ in range(processes)]
    return [statistics.median(times) for times in zip(*(map(float, run.stdout.split()) for run in runs))]


def show_start():
    missed = 0
    for what, seconds, goal in zip(("import kiln", "the first call"), start_times(), (15, 1)):
        missed += seconds * 1e3 > goal
        print(f"{what + ', in a fresh process':66} {seconds * 1e3:10.3f} <= {goal:6.2f} ms{'' if seconds * 1e3 <= goal else '  MISSED'}")
    return missed


def main():
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    lib, context = peers_kernels.load_library(), ctypes.c_void_p()
    if lib.kiln_open(None, ctypes.byref(context)):
        raise SystemExit(lib.kiln_last_error().decode())
    times = peers_dispatch.own_times()
    rows = [out_ratio(lib, context, line) for line in peers_kernels.read_lines()]
    mean, worst = peers_kernels.mean(rows, "best"), min(rows, key=lambda row: row["best"])
    missed = show_start() + peers_dispatch.show_goals(times) + (mean < 1.2)
    print(f"{'PyTorch over Kiln, 25 operators with out=, 1 KB, geometric mean':66} {mean:10.3f} >= {1.2:6.2f} x"
          f"{'' if mean >= 1.2 else '  MISSED'}")
    print(f"    by medians {peers_kernels.mean(rows, 'median'):.3f}; least {worst['best']:.2f} ({worst['name']})")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
