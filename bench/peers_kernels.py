"""The calls of bench/kernels.txt: Kiln from C and from Python, PyTorch with out=, NumPy; outputs ready.

All sides work on the same memory.  Kiln from C is the loop of `kiln bench kernels` (build/libkiln_bench.so); the
others are called from one generated Python loop, the same for each.  A ratio is the peer's time over Kiln's.
Copying is timed in memory as the calls have it, which is Kiln's (large tensors in huge pages), and in PyTorch's.
With several threads a side begins when the threads of the one before have gone to sleep, and is timed when its own are awake.
"""
import ctypes
import json
import math
import random
import re
import statistics
import time
import warnings
from itertools import repeat
from pathlib import Path

import numpy as np
import torch

import kiln

ROOT = Path(__file__).resolve().parents[1]
SIZES = {"1 KB": 1 << 10, "16 KB": 16 << 10, "64 KB": 64 << 10, "256 KB": 256 << 10, "1 MB": 1 << 20, "4 MB": 4 << 20, "64 MB": 64 << 20}
ROUNDS = 11  # of each case at least, ...
CASE_S = 0.6  # ... and as long as this
SAMPLE_NS, SHARED_SAMPLE_NS = 100e3, 2e6  # calls again and again: with several threads so many that waking them does not count
SLEEPS_S = 0.003  # until threads that have nothing to do sleep
U8 = 1  # KILN_U8
DTYPES = {"f16": torch.float16, "bf16": torch.bfloat16, "f32": torch.float32, "f64": torch.float64, "bool": torch.bool,
          "i32": torch.int32, "i64": torch.int64, "c64": torch.complex64}
NUMPY = {"neg": "negative", "neg_t": "negative", "sqrt": "sqrt", "exp": "exp", "exp_f64": "exp", "log": "log",
         "sin": "sin", "tanh": "tanh", "mul_row": "multiply", "sub_column": "subtract", "div": "divide",
         "maximum": "maximum", "pow_cube": "power", "lt": "less", "clamp": "clip", "not_i32": "invert",
         "floordiv_i32": "floor_divide", "mul_c64": "multiply"}  # where NumPy has the same call


# -- Kiln from C -------------------------------------------------------------------------------------------------

def load_library():
    path = ROOT / "build" / "libkiln_bench.so"
    if not path.exists():
        raise SystemExit(f"{path} is missing: cmake --build {ROOT / 'build'} --target benches")
    lib = ctypes.CDLL(str(path))
    p, n, i = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int64
    for name, result, arguments in [
        ("kiln_open", ctypes.c_int, [p, p]), ("kiln_last_error", ctypes.c_char_p, []),
        ("bench_line_next", ctypes.c_bool, [p, p]), ("bench_case_new", p, [p, p, i, p]),
        ("bench_case_free", None, [p]), ("bench_case_ns", ctypes.c_double, [p, i]), ("bench_case_tensor", p, [p, n]),
        ("bench_copy_ns", ctypes.c_double, [p, p, n, i]), ("bench_read_ns", ctypes.c_double, [p, p, n, i]),
        ("kiln_tensor_data", p, [p]),
        ("kiln_tensor_new", ctypes.c_int, [ctypes.c_int, ctypes.c_int, p, p, p]),
        ("kiln_tensor_dtype", ctypes.c_int, [p]), ("kiln_dtype_name", ctypes.c_char_p, [ctypes.c_int]),
        ("kiln_tensor_rank", ctypes.c_int, [p]), ("kiln_tensor_sizes", ctypes.POINTER(i), [p]),
        ("kiln_tensor_strides", ctypes.POINTER(i), [p]), ("kiln_tensor_nelem", i, [p]),
    ]:
        f = getattr(lib, name)
        f.restype, f.argtypes = result, arguments
    return lib


def as_torch(lib, t):
    """The tensor's own memory as a torch tensor."""
    dtype, rank = DTYPES[lib.kiln_dtype_name(lib.kiln_tensor_dtype(t)).decode()], lib.kiln_tensor_rank(t)
    buffer = (ctypes.c_char * (lib.kiln_tensor_nelem(t) * dtype.itemsize)).from_address(lib.kiln_tensor_data(t))
    flat = torch.frombuffer(buffer, dtype=dtype)
    return flat.as_strided(lib.kiln_tensor_sizes(t)[:rank], lib.kiln_tensor_strides(t)[:rank])


# -- the same call from Python -----------------------------------------------------------------------------------

def python_loop(call, function, tensors):
    """n -> nanoseconds per call of `function` over n calls.  call: arguments, tensors spelled t0, t1, ..."""
    names = [f"t{k}" for k in range(len(tensors))]
    scope = {"now": time.perf_counter_ns, "repeat": repeat}
    exec(f"def make(f, {', '.join(names)}):\n"
         f"    def loop(n):\n"
         f"        start = now()\n"
         f"        for _ in repeat(None, n): f({call})\n"
         f"        return (now() - start) / n\n"
         f"    return loop\n", scope)
    return scope["make"](function, *tensors)


def split_call(text):
    """'neg.out(f32[N], out=f32[N])' -> 'neg.out', 't0, out=t1' and which arguments those are."""
    name, arguments = re.fullmatch(r"([\w.]+)\((.*)\)", text).groups()
    tensor = r"\b(?:f16|bf16|f32|f64|bool|i32|i64|c64)\[[^\]]*\](?::strides=\([^)]*\))?"
    places = [k for k, a in enumerate(re.split(r", (?![^\[(]*[\])])", arguments)) if re.search(tensor, a)]
    count = iter(range(len(places)))
    return name, re.sub(tensor, lambda _: f"t{next(count)}", arguments), places


def torch_function(name):
    base = name.split(".")[0]
    return getattr(torch, base, None) or getattr(torch._C._nn, base)


def sides(lib, line, case):
    """Name -> function of a number of calls that gives nanoseconds per call."""
    name, call, places = split_call(line["call"])
    tensors = [as_torch(lib, lib.bench_case_tensor(case, k)) for k in places]
    found = {"c": lambda n: lib.bench_case_ns(case, n),
             "python": python_loop(call, kiln.op(f"aten::{name}"), tensors),
             "torch": python_loop(call, torch_function(name), tensors)}
    if line["name"] in NUMPY:
        call = re.sub(r", rounding_mode=\S+", ",", call)
        found["numpy"] = python_loop(call, getattr(np, NUMPY[line["name"]]), [t.numpy() for t in tensors])
    return found


# -- measuring ---------------------------------------------------------------------------------------------------

def measure(run, threads):
    """Best and median nanoseconds per call of each side, the sides taking turns; spread: what the best of every other turn is
    worse than that of the turns between, which is how far a side differs from itself in this run."""
    counts, samples = {}, {name: [] for name in run}
    for name, side in run.items():
        count = 1
        for _ in range(3):  # the first calls compile, and find nothing in the caches
            count = max(1, int((SHARED_SAMPLE_NS if threads > 1 else SAMPLE_NS) / side(count)))
        counts[name] = count
    end = time.perf_counter() + CASE_S
    while len(samples[name]) < ROUNDS or time.perf_counter() < end:
        for name, side in random.sample(list(run.items()), len(run)):  # who comes after whom decides what the caches hold
            if threads > 1:
                time.sleep(SLEEPS_S)
            side(counts[name] if threads > 1 else 1)  # its threads are awake then, and what it needs is where the others left theirs
            samples[name].append(side(counts[name]))
    halves = {name: (min(s[::2]), min(s[1::2])) for name, s in samples.items()}
    return {name: {"best": min(s), "median": statistics.median(s), "spread": max(halves[name]) / min(halves[name])}
            for name, s in samples.items()}


def read_lines():
    for text in (ROOT / "bench" / "kernels.txt").read_text().splitlines():
        if text and not text.startswith("#"):
            name, bound, low, high, call = text.split(None, 4)
            yield {"name": name, "bound": bound, "call": call, "text": text}


def moved_bytes(tensors):
    return sum(t.numel() * t.element_size() for t in tensors)


def kiln_bytes(lib, nbytes):
    """The address of that many bytes in a tensor of Kiln's, which stays."""
    t, size = ctypes.c_void_p(), ctypes.c_int64(nbytes)
    if lib.kiln_tensor_new(U8, 1, ctypes.byref(size), None, ctypes.byref(t)):
        raise SystemExit(lib.kiln_last_error().decode())
    ctypes.memset(lib.kiln_tensor_data(t), 1, nbytes)
    return lib.kiln_tensor_data(t)


def run_case(lib, context, line, nbytes, copies, threads):
    parsed, err = ctypes.create_string_buffer(1024), ctypes.create_string_buffer(1024)
    text = ctypes.c_char_p(line["text"].encode())
    assert lib.bench_line_next(ctypes.byref(text), parsed)
    case = lib.bench_case_new(context, parsed, nbytes, err)
    if not case:
        raise SystemExit(f"{line['name']}: {err.value.decode()}")
    run = sides(lib, line, case)
    for side, buffers in copies.items():
        run[side] = lambda n, buffers=buffers: lib.bench_copy_ns(*buffers, nbytes, n)
    run["read"] = lambda n: lib.bench_read_ns(*copies["copy"], nbytes, n)
    times = measure(run, threads)
    _, _, places = split_call(line["call"])
    moved = moved_bytes([as_torch(lib, lib.bench_case_tensor(case, k)) for k in places])
    lib.bench_case_free(case)
    row = {"bench": "kernels", "name": line["name"], "bound": line["bound"], "nbytes": nbytes, "ns": times}
    for kind in ("best", "median"):
        row[f"torch_over_c_{kind}"] = times["torch"][kind] / times["c"][kind]
        row[f"torch_over_python_{kind}"] = times["torch"][kind] / times["python"][kind]
        if "numpy" in times:
            row[f"numpy_over_c_{kind}"] = times["numpy"][kind] / times["c"][kind]
        row[f"peer_over_c_{kind}"] = min(times[side][kind] for side in ("torch", "numpy") if side in times) / times["c"][kind]
    row["torch_spread"] = times["torch"]["spread"]
    row["peer_spread"] = min((times[side] for side in ("torch", "numpy") if side in times), key=lambda t: t["best"])["spread"]
    for side in copies:
        row[f"of_{side}"] = (moved / times["c"]["best"]) / (2 * nbytes / times[side]["best"])
    row["read_of_copy"] = (nbytes / times["read"]["best"]) / (2 * nbytes / times["copy"]["best"])
    return row


# -- goals -------------------------------------------------------------------------------------------------------

def mean(rows, field):
    return math.exp(statistics.fmean(math.log(row[field]) for row in rows))


def least(rows, field):
    row = min(rows, key=lambda r: r[field])
    return row[field], row["name"]


def worst(rows, peer, goal):
    """The operator that misses most, where a peer's own spread in this run is allowed for: figure, goal, remark, spread."""
    row = min(rows, key=lambda r: r[f"{peer}_over_c_best"] * r[f"{peer}_spread"])
    spread = row[f"{peer}_spread"]
    return row[f"{peer}_over_c_best"], goal, f"{row['name']}, the peer beside itself {spread:.2f}", spread


def goals(rows, threads):
    """What must hold: (what, figure, goal, remark, what the figure may miss it by)."""
    at = {size: [r for r in rows if r["nbytes"] == n] for size, n in SIZES.items()}
    if threads > 1:
        for size in ("64 KB", "256 KB", "1 MB", "4 MB", "64 MB"):
            yield f"geometric mean at {size}, {threads} threads", mean(at[size], "torch_over_c_best"), 1.8, "", 1
            yield f"worst operator at {size}", *worst(at[size], "torch", 1.0)
        return
    for size in ("64 KB", "1 MB"):
        yield f"worst at {size}, beside PyTorch and NumPy", *worst(at[size], "peer", 1.0)
        yield f"tanh at {size}, beside NumPy", next(r for r in at[size] if r["name"] == "tanh")["numpy_over_c_best"], 1.15, "", 1
    yield "geometric mean at 1 KB, from C", mean(at["1 KB"], "torch_over_c_best"), 3.0, "", 1
    yield "geometric mean at 1 KB, from Python", mean(at["1 KB"], "torch_over_python_best"), 1.2, "", 1
    for size in ("64 KB", "1 MB", "64 MB"):
        for side in ("c", "python"):
            yield (f"geometric mean at {size}, from {side.replace('c', 'C') if side == 'c' else 'Python'}",
                   mean(at[size], f"torch_over_{side}_best"), 1.0, "", 1)
    for size in ("1 MB", "64 MB"):
        yield f"worst operator at {size}", *worst(at[size], "torch", 0.8)
    for name in ("tanh", "neg_t"):
        row = next(r for r in at["1 MB"] if r["name"] == name)
        yield f"{name} at 1 MB", row["torch_over_c_best"], 2.0, "", 1
    bound = [r for r in at["64 MB"] if r["bound"] == "memory"]
    figure, name = least(bound, "of_copy_torch")
    yield "memory-bound at 64 MB, of PyTorch's copy", figure, 0.9, name, 1


def print_roof(rows):
    """What stands in the way of more: a copy in huge pages, half of which are stores, is faster than reading alone."""
    bound = [r for r in rows if r["nbytes"] == SIZES["64 MB"] and r["bound"] == "memory"]
    figure, name = least(bound, "of_copy")
    roof = statistics.median(r["read_of_copy"] for r in bound)
    print(f"       of a copy in the same huge pages {figure:.2f} ({name}), where reading alone reaches {roof:.2f}")


def print_rows(rows):
    print("PyTorch's time over Kiln's, from C and from Python, best (median); then NumPy's over Kiln's from C;\n"
          "bytes per second as a part of a copy's in the same memory, and in PyTorch's.  * loses.\n")
    for size, nbytes in SIZES.items():
        print(f"{size:12} {'C':>15} {'Python':>15} {'NumPy':>9} {'of copy':>9} {'torch':>6}")
        for row in (r for r in rows if r["nbytes"] == nbytes):
            cells = [f"{row[f'torch_over_{s}_best']:7.2f} ({row[f'torch_over_{s}_median']:.2f})" for s in ("c", "python")]
            numpy = f"{row['numpy_over_c_best']:.2f}" if "numpy_over_c_best" in row else "-"
            lost = " *" if min(row["torch_over_c_best"], row["torch_over_python_best"]) < 1 else ""
            print(f"  {row['name']:10} {cells[0]:>15} {cells[1]:>15} {numpy:>9} {row['of_copy']:9.2f} {row['of_copy_torch']:6.2f}{lost}")
        print()


def run(as_json, threads):
    torch.set_num_threads(threads)
    warnings.simplefilter("ignore")
    np.seterr(all="ignore")
    lib, context = load_library(), ctypes.c_void_p()
    if lib.kiln_open(None, ctypes.byref(context)):
        raise SystemExit(lib.kiln_last_error().decode())
    largest = max(SIZES.values())
    theirs = [torch.ones(largest + 64, dtype=torch.uint8) for _ in range(2)]
    copies = {"copy": [kiln_bytes(lib, largest) for _ in range(2)],
              "copy_torch": [(t.data_ptr() + 63) // 64 * 64 for t in theirs]}
    rows = []
    for line in read_lines():
        for nbytes in SIZES.values():
            rows.append(run_case(lib, context, line, nbytes, copies, threads))
            if as_json:
                print(json.dumps(rows[-1]), flush=True)
    if not as_json:
        print_rows(rows)
    missed = 0
    for what, figure, goal, remark, spread in goals(rows, threads):
        met = figure * spread >= goal
        missed += not met
        if as_json:
            print(json.dumps({"goal": what, "figure": figure, "at_least": goal, "met": met, "remark": remark}))
        else:
            print(f"{'met   ' if met else 'MISSED'} {what:40} {figure:6.2f}  goal {goal:.2f}  {remark}")
    if not as_json:
        print_roof(rows)
    return missed
