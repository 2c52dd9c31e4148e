#!/usr/bin/env python3
"""torch.* served by Kiln beside PyTorch's own kernels, in one process: bench/torch_eager.py [--threads N] [hot|large|train|start|pools|make-default].

Both sides take turns within a run, enabled and disabled again and again; the best of many samples counts, so that a busy
machine disturbs both alike.  `spread` is how far PyTorch differs from itself in the run: the best of its odd turns over that of its
even ones.  pools compares Kiln's threads with PyTorch's, on a quiet machine and with one core busy.  make-default measures every operator and writes python/kiln/torch/default.txt, what enable() takes.
Exits 1 if a goal is missed.
"""
import argparse
import ctypes
import math
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

os.environ.setdefault("KILN_MODE", "sync")
import torch  # noqa: E402

import kiln  # noqa: E402
import kiln.torch  # noqa: E402

ROOT = Path(__file__).resolve().parents[1]
now = time.perf_counter_ns


class Tensors:
    """What the calls work on: square, so many elements of f32."""

    def __init__(self, side):
        shape = side, side
        generator = torch.Generator().manual_seed(1)
        self.x = torch.randn(shape, generator=generator)
        self.y = torch.rand(shape, generator=generator) + 0.5
        self.i = torch.randint(-9, 9, shape, generator=generator, dtype=torch.int32)
        self.m = self.x > 0
        self.z = self.x.clone()
        self.w, self.b = torch.rand(side, generator=generator), torch.rand(side, generator=generator)
        self.mean, self.var = torch.zeros(side), torch.ones(side)
        self.target = torch.randint(0, side, (side,), generator=generator)
        self.list, self.others = list(self.z.clone().chunk(8)), list(self.y.chunk(8))
        self.moments, self.squares = ([torch.zeros_like(x) for x in self.list] for _ in range(2))
        self.steps = [torch.tensor(1.0) for _ in self.list]


CALLS = {
    "bitwise_not": lambda t: torch.bitwise_not(t.i), "add (alpha)": lambda t: torch.add(t.x, t.y, alpha=2),
    "sub": lambda t: torch.sub(t.x, t.y), "mul": lambda t: torch.mul(t.x, t.y), "div": lambda t: torch.div(t.x, t.y),
    "neg": lambda t: torch.neg(t.x), "abs": lambda t: torch.abs(t.x), "exp": lambda t: torch.exp(t.x),
    "log": lambda t: torch.log(t.y), "sqrt": lambda t: torch.sqrt(t.y), "rsqrt": lambda t: torch.rsqrt(t.y),
    "tanh": lambda t: torch.tanh(t.x), "sigmoid": lambda t: torch.sigmoid(t.x),
    "gelu": lambda t: torch.nn.functional.gelu(t.x), "silu": lambda t: torch.nn.functional.silu(t.x),
    "relu": lambda t: torch.relu(t.x), "clamp": lambda t: torch.clamp(t.x, -1, 1), "pow (2)": lambda t: torch.pow(t.x, 2),
    "where": lambda t: torch.where(t.m, t.x, t.y), "lt": lambda t: torch.lt(t.x, t.y), "eq": lambda t: torch.eq(t.x, t.y),
    "maximum": lambda t: torch.maximum(t.x, t.y), "sin": lambda t: torch.sin(t.x), "erf": lambda t: torch.erf(t.x),
    "add_": lambda t: t.z.add_(1e-30), "sum (dim)": lambda t: torch.sum(t.x, 1), "amax (dim)": lambda t: torch.amax(t.x, 1),
    "var_mean": lambda t: torch.var_mean(t.x, 1),
}
FOLDS = {  # more reductions and a scan, held to the same goals by themselves
    "sum": lambda t: torch.sum(t.x), "aminmax": lambda t: torch.aminmax(t.x, dim=1), "max (dim)": lambda t: torch.max(t.x, 1),
    "argmax": lambda t: torch.argmax(t.x, 1), "cumsum": lambda t: torch.cumsum(t.x, 1),
}
nn = torch.nn.functional
NORMS = {  # a fold and a map in one, losses and lists
    "softmax": lambda t: torch.softmax(t.x, 1), "log_softmax": lambda t: torch.log_softmax(t.x, 1),
    "layer_norm": lambda t: nn.layer_norm(t.x, t.w.shape, t.w, t.b), "rms_norm": lambda t: nn.rms_norm(t.x, t.w.shape, t.w, 1e-5),
    "batch_norm": lambda t: nn.batch_norm(t.x, t.mean, t.var, t.w, t.b, True), "cross_entropy": lambda t: nn.cross_entropy(t.x, t.target),
    "mse_loss": lambda t: nn.mse_loss(t.x, t.y), "_foreach_add_": lambda t: torch._foreach_add_(t.list, t.others, alpha=1e-30),
    "_fused_adamw_": lambda t: torch._fused_adamw_(t.list, t.others, t.moments, t.squares, [], t.steps, lr=1e-3, beta1=0.9, beta2=0.999,
                                                   weight_decay=0.01, eps=1e-8, amsgrad=False, maximize=False),
}
EVERY = CALLS | FOLDS | NORMS
# Set -> its calls, and goals of the geometric mean on [32,32], at 1 MB and at 64 MB.  Norms and lists are to be no slower on the whole.
SETS = {f"the {len(CALLS)}": (CALLS, 0.70, 0.6, 0.4), f"{len(FOLDS)} more folds": (FOLDS, 0.70, 0.6, 0.4),
        f"{len(NORMS)} norms, losses and lists": (NORMS, 1.0, 1.0, 1.0)}
missed = 0


def goal(text, figure, limit):
    global missed
    bad = figure > limit
    missed += bad
    print(f"{text:66} {figure:8.3f}  goal {limit:g}{'  MISSED' if bad else ''}")


def sample(call, t, n, windows):
    """The best of some windows of n calls, in nanoseconds a call."""
    best = math.inf
    for _ in range(windows):
        start = now()
        for _ in range(n):
            call(t)
        best = min(best, (now() - start) / n)
    return best


def by_turns(calls, t, n, windows, rounds, which="all"):
    """name -> (native, Kiln, spread of native)."""
    kiln.torch.enable(which)
    for call in calls.values():
        for _ in range(3):
            call(t)
    times = {name: ([], []) for name in calls}
    for _ in range(rounds):
        for side in (0, 1):
            kiln.torch.enable(which) if side else kiln.torch.disable()
            for name, call in calls.items():
                call(t)
                times[name][side].append(sample(call, t, n, windows))
    kiln.torch.disable()
    return {name: (min(native), min(own), min(native[::2]) / min(native[1::2])) for name, (native, own) in times.items()}


def table(title, figures, scale, unit):
    print(f"\n{title}\n{'operator':14} {'PyTorch ' + unit:>12} {'Kiln ' + unit:>12} {'Kiln/PyTorch':>13} {'spread':>7}")
    for name, (native, own, spread) in figures.items():
        print(f"{name:14} {native / scale:12.1f} {own / scale:12.1f} {own / native:13.3f} {spread:7.2f}")


# -- the goals' parts ----------------------------------------------------------------------------------------------

def threads():
    n = torch.get_num_threads()
    return f"{n} thread{'s' if n > 1 else ''}"


def mean_of(figures, calls):
    return math.exp(sum(math.log(figures[name][1] / figures[name][0]) for name in calls) / len(calls))


def worst_of(figures, calls):
    """Of those that enable() takes: its name, the ratio, and how far PyTorch differs from itself there."""
    name = max(filter(in_default, calls), key=lambda name: figures[name][1] / figures[name][0])
    native, own, spread = figures[name]
    return name, own / native, max(1, spread, 1 / spread)


def in_default(name):
    """Whether enable() takes what the call runs."""
    def served():
        return sum(row.served for row in kiln.torch.status().rows)

    given = Tensors(32)
    kiln.torch.enable()
    before = served()
    EVERY[name](given)
    took = served() > before
    kiln.torch.disable()
    return took


def hot():
    figures = by_turns(EVERY, Tensors(32), 40, 8, 14)
    table(f"hot calls on [32,32] through torch.*, {threads()}", figures, 1, "ns")
    for title, (calls, limit, *_) in SETS.items():
        goal(f"geometric mean of {title}", mean_of(figures, calls), limit)
        name, ratio, spread = worst_of(figures, calls)
        goal(f"worst of {title} that enable() takes: {name}", ratio, 1.05 * spread)
    invert, x = kiln.op("aten::bitwise_not"), torch.ones(32, 32, dtype=torch.int32)
    sides = {"native": torch.bitwise_not, "kiln.op": invert}
    best = {name: math.inf for name in sides}
    for _ in range(60):
        for name, call in sides.items():
            best[name] = min(best[name], sample(call, x, 100, 3))
    goal("kiln.op on torch tensors, bitwise_not [32,32] / torch.bitwise_not", best["kiln.op"] / best["native"], 0.28)


def large():
    for which, (text, side, n, rounds) in enumerate((("1 MB", 512, 5, 8), ("64 MB", 4096, 1, 5))):
        figures = by_turns(EVERY, Tensors(side), n, 3, rounds)
        table(f"{text}, fresh results, {threads()}", figures, 1e3, "us")
        for title, (calls, _, *limits) in SETS.items():
            goal(f"geometric mean of {title} at {text}", mean_of(figures, calls), limits[which])


class Block(torch.nn.Module):
    """A small transformer block."""

    def __init__(self, width=64):
        super().__init__()
        self.norm1, self.norm2 = torch.nn.LayerNorm(width), torch.nn.LayerNorm(width)
        self.qkv, self.out = torch.nn.Linear(width, 3 * width), torch.nn.Linear(width, width)
        self.mlp = torch.nn.Sequential(torch.nn.Linear(width, 4 * width), torch.nn.GELU(), torch.nn.Linear(4 * width, width))

    def forward(self, x):
        q, k, v = self.qkv(self.norm1(x)).chunk(3, -1)
        weights = torch.softmax(q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1]), -1)
        x = x + self.out(weights @ v)
        return x + self.mlp(self.norm2(x))


class Cell(torch.nn.Module):
    """An LSTM cell written out, four steps."""

    def __init__(self, width=64):
        super().__init__()
        self.gates = torch.nn.Linear(2 * width, 4 * width)

    def forward(self, x):
        h = c = torch.zeros(x.shape[0], x.shape[2], dtype=x.dtype)
        for step in range(x.shape[1]):
            i, f, g, o = self.gates(torch.cat([x[:, step], h], 1)).chunk(4, 1)
            c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
            h = torch.sigmoid(o) * torch.tanh(c)
        return h


def mlp(width=64):
    layer = torch.nn.Linear
    return torch.nn.Sequential(layer(width, 128), torch.nn.ReLU(), layer(128, 128), torch.nn.Tanh(), layer(128, width))


MODELS = {"3-layer MLP": (mlp, (32, 64)), "LSTM cell": (Cell, (32, 4, 64)), "transformer block": (Block, (8, 16, 64))}


def train(make, shape, steps, dtype=torch.float32):
    """Losses of so many steps of Adam, and the best time of a step in nanoseconds."""
    torch.manual_seed(0)
    model, x = make().to(dtype), torch.randn(shape, dtype=torch.float64).to(dtype)
    optimizer, losses, best = torch.optim.Adam(model.parameters(), lr=1e-3), [], math.inf
    for _ in range(steps):
        start = now()
        optimizer.zero_grad()
        loss = (model(x) - 0.5).square().mean()
        loss.backward()
        optimizer.step()
        best = min(best, now() - start)
        losses.append(loss.item())
    return losses, best


def training():
    for name, (make, shape) in MODELS.items():
        exact, _ = train(make, shape, 200, torch.float64)
        times = {False: math.inf, True: math.inf}
        for _ in range(5):
            for own in times:
                kiln.torch.enable() if own else kiln.torch.disable()
                losses, best = train(make, shape, 200)
                times[own] = min(times[own], best)
                if own:
                    mine = losses
                else:
                    native = losses
        kiln.torch.disable()
        print(f"\n{name}: {times[False] / 1e3:.0f} us a step with PyTorch's kernels, {times[True] / 1e3:.0f} with Kiln's")
        goal("time, Kiln / PyTorch", times[True] / times[False], 0.9)
        goal("largest relative difference of the first 10 losses", max(abs(a - b) / abs(b) for a, b in zip(mine[:10], native[:10], strict=True)), 1e-5)
        far = abs(native[-1] - exact[-1])
        goal("distance from f64 at 200 steps, in PyTorch's distances", abs(mine[-1] - exact[-1]) / far if far else 0.0, 2.0)


def start():
    code = ("import time, torch; t = time.perf_counter(); import kiln.torch; kiln.torch.enable(); "
            "print((time.perf_counter() - t) * 1e3)")
    took = min(float(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout) for _ in range(5))
    goal("import kiln.torch and enable(), in ms", took, 100)


# -- what enable() takes -------------------------------------------------------------------------------------------

def tensor(side):
    return torch.rand(side, side) + 0.5


def row(side):
    return torch.rand(side) + 0.5


# What arguments are, by their types; and by their names where an operator has others than tensors of one shape.
MADE = {"Tensor": tensor, "number": lambda _: 2, "int": lambda _: 1, "float": lambda _: 1, "bool": lambda _: False, "str": lambda _: "floor",
        "List[int]": lambda _: [1], "List[Tensor]": lambda side: list(tensor(side).chunk(8)), "List[number]": lambda _: [2] * 8}
NAMED = {
    **dict.fromkeys(("weight", "bias", "running_mean", "running_var", "save_mean", "save_invstd", "save_var"), row),
    **dict.fromkeys(("mean", "rstd"), lambda side: torch.rand(side, 1) + 0.5), "normalized_shape": lambda side: [side],
    "target": lambda side: torch.randint(0, side, (side,)), "total_weight": lambda side: torch.tensor(1.0 * side), "ignore_index": lambda _: -100,
    "output_mask": lambda _: [True] * 3, "N": lambda side: side, "C": lambda side: side, "state_steps": lambda _: [torch.tensor(1.0) for _ in range(8)],
    "max_exp_avg_sqs": lambda _: [], "lr": lambda _: 1e-3, "eps": lambda _: 1e-5, "input_dtype": lambda _: torch.float32, "training": lambda _: True,
    "condition": lambda side: tensor(side) > 1, "mask": lambda side: tensor(side) > 1, "self": tensor,
}
WAYS = (NAMED, {k: v for k, v in NAMED.items() if k not in ("target", "weight", "bias")}, {**NAMED, "min": lambda _: 1},
        {**NAMED, **dict.fromkeys(("value", "other", "grad_output", "lr"), lambda _: torch.tensor(0.5))},
        {**NAMED, **dict.fromkeys(("self", "target", "grad_output"), lambda side: torch.rand(side, side))})


def make_up(schema, dtype, side, way):
    """Arguments of a call of that schema by their names, or None where there is no telling what they might be."""
    args = {}
    for a in schema.arguments:
        kind = str(a.type).removeprefix("Optional[").removesuffix("]") if str(a.type).startswith("Optional[") else str(a.type)
        make = way.get(a.name) if a.name != "self" or kind == "Tensor" else None
        if a.has_default_value() and (make is None or way is not WAYS[2]):
            continue
        make = make or MADE.get(kind)
        if make is None:
            return None
        value = make(side)
        if make is tensor and dtype != torch.float32:
            value = (value * 10).to(dtype)
        args[a.name] = value
    return args


def call_of(name, side):
    """A call of the operator that PyTorch takes, or None."""
    base, _, overload = name.removeprefix("aten::").partition(".")
    op = getattr(getattr(torch.ops.aten, base), overload or "default")
    for dtype, way in (*((torch.float32, way) for way in WAYS), (torch.int32, NAMED), (torch.bool, NAMED)):
        args = make_up(op._schema, dtype, side, way)
        if args is None:
            return None
        try:
            op(**args)
            return lambda _, op=op, args=args: op(**args)
        except (RuntimeError, TypeError, IndexError, ValueError, NotImplementedError):
            continue
    return None


def make_default():
    """Operators that are no slower, small and large; those that cannot be tried are left out."""
    kiln.torch.disable()
    names = [n for n in kiln.ops() if n.startswith("aten::") and n not in kiln.torch.status().left_alone]
    calls = {side: {n: c for n in names if (c := call_of(n, side))} for side in (32, 512)}
    slow, ratios = set(), {}
    for side, n, rounds in ((32, 40, 8), (512, 3, 5)):
        suspects = calls[side]
        for more in (1, 2, 3):  # what looks slow is looked at again, for longer, in other memory: where tensors lie beside each other counts
            figures = by_turns(suspects, None, n, 4, more * rounds)
            suspects = {name: call_of(name, side) for name, (native, own, spread) in figures.items()
                        if own > 1.05 * max(1, spread, 1 / spread) * native}
            ratios |= {name: [*ratios.get(name, []), own / native] for name, (native, own, _) in figures.items()}
        slow |= set(suspects)
    fast = sorted(n.removeprefix("aten::") for n in ratios if n not in slow)
    head = ["# default.txt - what kiln.torch.enable() takes: operators that were no slower than PyTorch's own on [32,32] and on",
            "# 1 MB, one thread.  Made by bench/torch_eager.py make-default; do not edit."]
    (ROOT / "python/kiln/torch/default.txt").write_text("\n".join(head + fast) + "\n")
    print(f"{len(fast)} of {len(names)} operators; {len(names) - len(ratios)} were not tried; slower:")
    for name in sorted(slow):
        print(f"  {name}: {', '.join(f'{r:.2f}' for r in ratios[name])}")


def pools():
    """What a call takes by one thread, and by all threads of Kiln's pool and of PyTorch's."""
    torch.set_num_threads(os.cpu_count())
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder) / "pools.so"
        build = kiln.torch._build.command(ROOT / "bench/torch_pools.cpp", [ROOT / "include"], library)
        subprocess.run([*build, "-fopenmp", str(ROOT / "build/libkiln.a"), "-lm", "-lpthread"], check=True)
        timed = ctypes.CDLL(str(library)).time_calls
    timed.restype, timed.argtypes = ctypes.c_double, (ctypes.c_int, ctypes.c_char_p, ctypes.c_int64, ctypes.c_int)
    for busy in (False, True):
        other = subprocess.Popen([sys.executable, "-c", "while True: pass"]) if busy else None
        print(f"\n{torch.get_num_threads()} threads, {'one core busy' if busy else 'nothing else running'}: medians in us")
        print(f"{'operator':12} {'size':>8} {'1 thread':>10} {'Kiln':>10} {'PyTorch':>10} {'Kiln/PyTorch':>13}")
        try:
            for name in ("neg", "exp", "tanh"):
                for size, calls in ((256, 600), (1024, 300), (4096, 150), (65536, 25)):
                    turns = [[timed(pool, f"aten::{name}.out".encode(), size * 256, calls) for pool in (0, 1, 2)] for _ in range(3)]
                    one, own, host = (sorted(side)[1] * 1e6 for side in zip(*turns))
                    print(f"{name:12} {size:5} KB {one:10.1f} {own:10.1f} {host:10.1f} {own / host:13.3f}")
        finally:
            if other:
                other.kill()
                other.wait()


def main():
    known = {"hot": hot, "large": large, "train": training, "start": start, "pools": pools, "make-default": make_default}
    parser = argparse.ArgumentParser(prog="torch_eager.py")
    parser.add_argument("--threads", type=int, default=1, metavar="N", help="of both sides; 1 unless given")
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(known) + "; start, hot, large and train unless given")
    given = parser.parse_args()
    for part in given.parts:
        if part not in known:
            parser.error(f"no part '{part}'; there are {' '.join(known)}")
    torch.set_num_threads(given.threads)
    kiln.configure(threads=given.threads)
    for part in given.parts or ("start", "hot", "large", "train"):
        known[part]()
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
