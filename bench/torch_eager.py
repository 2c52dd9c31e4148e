#!/usr/bin/env python3
"""torch.* served by Kiln beside PyTorch's own kernels, in one process: bench/torch_eager.py [--threads N] [PART ...].

Both sides take turns within a run, enabled and disabled again and again; the best of many samples counts, so that a busy
machine disturbs both alike.  `spread` is how far PyTorch differs from itself in the run: the best of its odd turns over that of its
even ones.  The parts start, hot, large, train and interpreted hold goals; interpreted is hot with every operator taken and no kernel
built.  pools compares Kiln's own threads, in a process without PyTorch, with PyTorch's, which Kiln uses where PyTorch is loaded.

Three parts write python/kiln/torch/default.txt, what enable() takes: make-default measures every operator, and narrow-default those of the
file with another number of threads; each leaves out what is slower.  make-interpreted measures them without kernels.
Exits 1 if a goal is missed.
"""
import argparse
import json
import math
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

os.environ.setdefault("KILN_MODE", "sync")
os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # a warning for each out= that is resized takes longer than the call
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


def machine():
    return f"{threads()} on {len(os.sched_getaffinity(0))} cores"


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


def interpreted():
    kiln.configure(mode="interp")
    figures = by_turns(CALLS, Tensors(32), 40, 8, 14)
    kiln.configure(mode="sync")
    table(f"interpreted calls on [32,32] through torch.*, {threads()}", figures, 1, "ns")
    folds = ("sum (dim)", "amax (dim)", "var_mean")
    elementwise = [name for name in CALLS if name not in folds]
    goal(f"geometric mean of the {len(elementwise)} element-wise, interpreted", mean_of(figures, elementwise), 0.75)
    for name in (max(elementwise, key=lambda name: figures[name][1] / figures[name][0]), *folds):
        native, own, _ = figures[name]
        goal(f"{'' if name in folds else 'worst of these: '}{name}, interpreted", own / native, 1.5 if name in folds else 1.0)


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
    """A call of the operator that PyTorch takes, or None.  An older PyTorch may lack the operator."""
    base, _, overload = name.removeprefix("aten::").partition(".")
    op = getattr(getattr(torch.ops.aten, base, None), overload or "default", None)
    if op is None:
        return None
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


SIDES = {32: (40, 8), 512: (3, 5)}  # side of the tensors -> calls of a sample, rounds


def compare_all(names):
    """Times the operators on tensors of each side: (those that could be tried, those slower than PyTorch's -> by how much and where)."""
    tried, slow = set(), {}
    for side, (n, rounds) in SIDES.items():
        suspects = {name: call for name in names if name not in slow and (call := call_of(name, side))}
        tried |= suspects.keys()
        # Measures what looks slow again, for longer and with new tensors: where tensors lie in memory changes times.
        for more in (1, 2, 3):
            figures = by_turns(suspects, None, n, 4, more * rounds)
            ratios = {name: own / native for name, (native, own, spread) in figures.items() if own > 1.05 * max(1, spread, 1 / spread) * native}
            suspects = {name: call_of(name, side) for name in ratios}
        slow |= {name: f"{ratio:.2f} on [{side},{side}], {machine()}" for name, ratio in ratios.items()}
    return tried, slow


DEFAULT = ROOT / "python/kiln/torch/default.txt"
HEAD = """\
# default.txt - the operators that kiln.torch.enable() takes by default.  They were measured to be no slower than
# PyTorch's own, on tensors of [32,32] and of 1 MB.
# "interpreted": the operator was no slower without a kernel either.  enable() takes it without a compiler, too.
# "left out": the operator was slower.  The number is Kiln's time over PyTorch's; the size of the tensors and the machine follow.
# Made by bench/torch_eager.py make-default and narrow-default; do not edit.
"""
MEASURED, LEFT_OUT = "# measured with: ", "# left out: "


class Default(NamedTuple):
    """What stands in default.txt."""
    measured: list[str]  # numbers of threads
    taken: dict[str, str]  # operator -> "interpreted" or ""
    left_out: dict[str, str]  # operator -> Kiln's time over PyTorch's, and where it was measured

    def write(self):
        lines = [f"{name} {mark}".rstrip() for name, mark in sorted(self.taken.items())]
        left = [f"{LEFT_OUT}{name}: {why}" for name, why in sorted(self.left_out.items())]
        DEFAULT.write_text("\n".join([f"{HEAD}{MEASURED}{', '.join(self.measured)}", *left, *lines]) + "\n")


def read_default():
    text = DEFAULT.read_text().splitlines()
    measured = next((line for line in text if line.startswith(MEASURED)), MEASURED).removeprefix(MEASURED)
    left = (line.removeprefix(LEFT_OUT).split(": ", 1) for line in text if line.startswith(LEFT_OUT))
    taken = (line.partition(" ") for line in text if not line.startswith("#"))
    return Default(measured.split(", ") if measured else [], {name: mark for name, _, mark in taken}, dict(left))


def in_full(names):
    return [f"aten::{name}" for name in names]


def leave_out(default, slow):
    print(f"slower with {machine()}: {len(slow)}")
    for name, why in sorted(slow.items()):
        print(f"  {name.removeprefix('aten::')}: {why}")
        default.left_out[name.removeprefix("aten::")] = why
        default.taken.pop(name.removeprefix("aten::"), None)


def make_default():
    """Writes default.txt: the operators that can be tried and are no slower, on small and on large tensors."""
    kiln.torch.disable()
    names = [n for n in kiln.ops() if n.startswith("aten::") and n not in kiln.torch.status().left_alone]
    tried, slow = compare_all(names)
    default = Default([machine()], {name.removeprefix("aten::"): "" for name in tried}, {})
    leave_out(default, slow)
    print(f"{len(default.taken)} of {len(names)} operators; {len(names) - len(tried)} were not tried")
    default.write()
    make_interpreted()


def narrow_default():
    """Measures the operators of default.txt with another number of threads, and leaves out those that are slower there."""
    kiln.torch.disable()
    default = read_default()
    _, slow = compare_all(in_full(default.taken))
    leave_out(default, slow)
    if machine() not in default.measured:
        default.measured.append(machine())
    default.write()


def make_interpreted():
    """Measures the operators of default.txt without kernels, and writes the marks anew."""
    kiln.torch.disable()
    default = read_default()
    kiln.configure(mode="interp")
    tried, slow = compare_all(in_full(default.taken))
    kiln.configure(mode="sync")
    quick = {name.removeprefix("aten::") for name in tried - slow.keys()}
    default.taken.update({name: "interpreted" if name in quick else "" for name in default.taken})
    default.write()
    print(f"{len(quick)} of {len(default.taken)} operators are no slower when they are interpreted")


POOL = """if True:
    import json, sys, time
    with_torch, threads = json.loads(sys.argv[1])
    if with_torch:
        import torch
        torch.set_num_threads(threads)
    import kiln, numpy
    kiln.configure(mode="sync", threads=threads)
    now, took = time.perf_counter_ns, {}
    for name in ("neg", "exp", "tanh"):
        call = kiln.op(f"aten::{name}.out")
        for size, calls in ((64, 1500), (128, 1000), (256, 600), (1024, 300), (4096, 150), (65536, 25)):
            x, y = (kiln.Tensor(numpy.full(size * 256, 0.5, numpy.float32)) for _ in range(2))
            samples = []
            for _ in range(calls + 3):  # the first ones compile and wake threads
                start = now()
                call(x, out=y)
                samples.append(now() - start)
            took[f"{name} {size}"] = sorted(samples[3:])[calls // 2]
    print(json.dumps([kiln.show_config(), took]))
"""


def pool_times(with_torch, n):
    """(whose threads ran the calls, "operator KB" -> median in ns), measured in a fresh process."""
    code = [sys.executable, "-c", POOL, json.dumps([with_torch, n])]
    config, took = json.loads(subprocess.run(code, capture_output=True, text=True, check=True).stdout)
    return config.split("\npool: ")[1].splitlines()[0], took


def pools():
    """What direct calls take on one thread, on all threads of Kiln's pool and on all of PyTorch's."""
    n = os.cpu_count()
    for busy in (False, True):
        other = subprocess.Popen([sys.executable, "-c", "while True: pass"]) if busy else None
        try:
            turns = [[pool_times(*side) for side in ((False, 1), (False, n), (True, n))] for _ in range(3)]
        finally:
            if other:
                other.kill()
                other.wait()
        assert [owner for owner, _ in turns[0]][1:] == ["Kiln's", "PyTorch's"]
        print(f"\n{n} threads, {'one core busy' if busy else 'nothing else running'}: medians in us")
        print(f"{'operator':12} {'size':>8} {'1 thread':>10} {'Kiln':>10} {'PyTorch':>10} {'Kiln/PyTorch':>13}")
        for case in turns[0][0][1]:
            one, own, torchs = (sorted(turn[side][1][case] for turn in turns)[1] / 1e3 for side in range(3))
            name, size = case.split()
            print(f"{name:12} {size:>5} KB {one:10.1f} {own:10.1f} {torchs:10.1f} {own / torchs:13.3f}")


def main():
    known = {"hot": hot, "interpreted": interpreted, "large": large, "train": training, "start": start, "pools": pools,
             "make-default": make_default, "narrow-default": narrow_default, "make-interpreted": make_interpreted}
    parser = argparse.ArgumentParser(prog="torch_eager.py")
    parser.add_argument("--threads", type=int, default=1, metavar="N", help="of both sides; 1 unless given")
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(known) + "; start, hot, large, train and interpreted unless given")
    given = parser.parse_args()
    for part in given.parts:
        if part not in known:
            parser.error(f"no part '{part}'; there are {' '.join(known)}")
    torch.set_num_threads(given.threads)
    kiln.configure(threads=given.threads)
    for part in given.parts or ("start", "hot", "large", "train", "interpreted"):
        known[part]()
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
