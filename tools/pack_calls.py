#!/usr/bin/env python3
"""The calls of the shipped pack: for each operator and dtype the classes that programs meet first, as lines for `kiln warm`.

pack_calls.py [--small] >FILE.  Begins with ops/programs.calls, which has the classes that the programs of bench/models.py need; --programs
makes that file anew, in two minutes.  Then draws calls with the generator of the tests (tests/ops/drawn.py) in chosen shapes and layouts: contiguous, one
operand broadcast, strided; folds and norms along the last dimension, the first one and all.  Kiln interprets each call and records every new
class (KILN_RECORD), so that the lines are exactly those that lack a kernel.  --small: the operators that programs use most, f32, f64 and i64.
"""
import argparse
import os
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests" / "ops")]
RECORD = tempfile.NamedTemporaryFile(prefix="kiln-pack-", suffix=".calls")
os.environ.update(KILN_RECORD=RECORD.name, KILN_CACHE="memory")

import torch  # noqa: E402

import drawn  # noqa: E402
from kilnlib import Kiln  # noqa: E402
from test_sweep import SUBJECTS, Spelled  # noqa: E402
from values import seeded  # noqa: E402

DTYPES = ("f32", "f64", "f16", "bf16", "i32", "i64", "u8", "bool")
SHAPES = ((6, 70), (70, 6), (2000,), (4, 3, 8, 8))
LAYOUTS = ("dense", "dense", "any")
SMALL_SHAPES, SMALL_LAYOUTS = ((6, 70), (70, 6), (2000,)), ("dense", "dense", "turned", "dense")
SMALL_DTYPES = ("f32", "f64", "i64")
SMALL = """
    add.Tensor sub.Tensor mul.Tensor div.Tensor neg exp log sqrt rsqrt pow.Tensor_Scalar abs clamp maximum minimum relu gelu sigmoid silu tanh
    erf sin cos where.self eq.Tensor lt.Tensor gt.Tensor bitwise_and.Tensor logical_not _to_copy fill.Scalar sum sum.dim_IntList mean.dim amax
    argmax var_mean.correction _softmax _log_softmax native_layer_norm nll_loss_forward cumsum gelu_backward silu_backward tanh_backward
    threshold_backward _softmax_backward_data _log_softmax_backward_data native_layer_norm_backward nll_loss_backward mse_loss
    mse_loss_backward _foreach_add.List _foreach_mul.Scalar _fused_adamw_ native_batch_norm native_batch_norm_backward
""".split()


def is_functional(s):
    return not s.out and not s.name.split("::")[1].split(".")[0].endswith("_") or s.name.removeprefix("aten::") in SMALL


def calls(s, dtype, shapes, layouts):
    """Calls of one dtype: in each shape and layout first with all operands alike, then with operands that broadcast."""
    for k, shape in enumerate(shapes):
        for n, layout in enumerate(layouts):
            rng = seeded("pack", s.name, dtype, k, n)
            d = drawn.Draw(s, rng, [dtype])
            d.dtype, d.alike, d.fault, d.shape, d.fill = dtype, True, "none", shape, "random"
            d.layout, d.whole = layout, n == 0
            yield drawn.spelled(s, drawn.with_out(s, d, s.inputs_of(d)), rng)


def run(op, s, dtype, small):
    for call in calls(s, dtype, SMALL_SHAPES if small else SHAPES, SMALL_LAYOUTS if small else LAYOUTS):
        try:
            args, kwargs, _ = call.case.build(True, True)
            Spelled(op, s, call)(*args, **kwargs)
        except (RuntimeError, TypeError, IndexError, ValueError, AssertionError):
            pass  # the schema does not say what belongs together; other draws hit


PROGRAM = """
import sys, torch
torch.set_num_threads(2)
import models, kiln.torch
kiln.torch.enable()
running = models.Running(*sys.argv[1:])
for _ in range(models.CYCLE + 2):
    running.step()
"""


def programs():
    """The lines that all programs record, each once.  They interpret, so that what is recorded depends on no kernel."""
    sys.path.insert(0, str(ROOT / "bench"))
    import models
    environment = {**os.environ, "KILN_MODE": "interp", "PYTHONPATH": str(ROOT / "bench")}
    for name in models.PROGRAMS:
        for task in ("training", "inference"):
            subprocess.run([sys.executable, "-c", PROGRAM, name, task], env=environment, check=True, stdout=subprocess.DEVNULL)
    return sorted(set(Path(RECORD.name).read_text().splitlines()))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--small", action="store_true", help="the operators that programs use most, in f32, f64 and i64")
    parser.add_argument("--programs", action="store_true", help="the lines of ops/programs.calls")
    options = parser.parse_args()
    if options.programs:
        print("# The classes of calls that the programs of bench/models.py need.  Made by tools/pack_calls.py --programs.")
        print(*programs(), sep="\n")
        return
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    kiln = Kiln("interp")
    chosen = [s for s in SUBJECTS if is_functional(s) and (not options.small or s.name.removeprefix("aten::") in SMALL)]
    for k, s in enumerate(chosen):
        op = kiln.op(s.name)
        for dtype in SMALL_DTYPES if options.small else DTYPES:
            if dtype in s.taken:
                run(op, s, dtype, options.small)
        if sys.stderr.isatty():
            print(f"\r{k + 1} of {len(chosen)} operators", end="", file=sys.stderr)
    sys.stdout.write((ROOT / "ops" / "programs.calls").read_text() + Path(RECORD.name).read_text())


if __name__ == "__main__":
    main()
