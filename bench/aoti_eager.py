#!/usr/bin/env python3
"""PyTorch's AOTI eager and Kiln over the same operators, each in a process of its own, one after the other: bench/aoti_eager.py.

Times of a first call, a new shape, a new number, a hot call and the first call of a second process; then the calls that AOTI
eager answers wrongly or refuses.  AOTI eager compiles for seconds at most of these: the whole takes some minutes.  Its cache is a
folder of its own, empty at first.  Exits 1 if a goal is missed or Kiln is wrong.
"""
import json
import math
import os
import subprocess
import sys
import tempfile
import time

SIDES = ("PyTorch", "AOTI eager", "Kiln")
CALLS = 20000


def register(side, names):
    import torch
    if side == "AOTI eager":
        library = torch.library.Library("aten", "IMPL")
        for name in names:
            library._impl_with_aoti_compile(name, "CPU")
        return library
    if side == "Kiln":
        import kiln.torch
        kiln.torch.enable("all")
    return None


def milliseconds(call):
    start = time.perf_counter()
    call()
    return (time.perf_counter() - start) * 1e3


def hot(call):
    best = math.inf
    for _ in range(20):
        start = time.perf_counter_ns()
        for _ in range(CALLS // 20):
            call()
        best = min(best, (time.perf_counter_ns() - start) / (CALLS // 20))
    return best / 1e6


def until_compiled(call):
    """How many calls it takes until Kiln finds its kernel worth a build."""
    import kiln
    for n in range(0, 1000000, 1000):
        if kiln.stats()["compiles"]:
            return n
        for _ in range(1000):
            call()
        kiln.wait_idle()
    raise SystemExit("aoti_eager.py: a million calls and no kernel")


def times(side):
    """What a call of each kind takes, in milliseconds."""
    import torch
    torch.set_num_threads(1)
    x, y = torch.ones(32, 32, dtype=torch.int32), torch.ones(16, 48, dtype=torch.int32)
    f = torch.rand(32, 32)
    start = time.perf_counter()
    keep = register(side, ["bitwise_not", "add.Tensor"])
    took = {"registering": (time.perf_counter() - start) * 1e3}
    took["first call"] = milliseconds(lambda: torch.bitwise_not(x))
    took["new shape"] = milliseconds(lambda: torch.bitwise_not(y))
    torch.add(f, f, alpha=1.5)
    took["new number"] = milliseconds(lambda: torch.add(f, f, alpha=2.5))
    if side == "Kiln":
        took["calls before the kernel"] = until_compiled(lambda: torch.bitwise_not(x))
    took["hot call"] = hot(lambda: torch.bitwise_not(x))
    del keep
    return took


def questions(torch):
    """Calls of section "wrong or refused": operators, then what is called in order."""
    a, t = torch.arange(6.0).view(2, 3), torch.full((2, 3), 2.5)
    i = torch.tensor([1, 0])
    return {
        "addmm beta=2, then alpha=2": (["addmm"], [lambda: torch.addmm(a[:, :2], a, a.T, beta=2), lambda: torch.addmm(a[:, :2], a, a.T, alpha=2)]),
        "clamp min=t, then max=t": (["clamp.Tensor"], [lambda: torch.clamp(a, min=t), lambda: torch.clamp(a, max=t)]),
        "index [i], then [None, i]": (["index.Tensor"], [lambda: torch.ops.aten.index(a, [i]), lambda: torch.ops.aten.index(a, [None, i])]),
        "masked_fill with NaN, twice": (["masked_fill.Scalar"], [lambda: a.masked_fill(a > 2, math.nan)] * 2),
        "add of 2**40, twice": (["add.Scalar"], [lambda: torch.ops.aten.add.Scalar(torch.arange(3), 2**40)] * 2),
        "sum over a list": (["sum.dim_IntList"], [lambda: torch.sum(a, [1])]),
        "_foreach_add_": (["_foreach_add_.Scalar"], [lambda: torch._foreach_add_([a.clone()], 1.0)]),
        "split": (["split.Tensor"], [lambda: torch.split(a, 1)[1]]),
    }


def same(torch, got, want):
    if isinstance(want, torch.Tensor):
        return got.shape == want.shape and got.dtype == want.dtype and torch.allclose(got, want, equal_nan=True)
    return (got is None) == (want is None)


def answers(side):
    """question -> "right", "wrong" or what was raised; for Kiln also who answered."""
    import torch
    asked = questions(torch)
    want = {name: [call() for call in calls] for name, (_, calls) in asked.items()}
    said = {}
    for name, (operators, calls) in asked.items():
        try:
            keep = register(side, operators)
            got = [call() for call in calls]
            said[name] = "right" if all(map(lambda g, w: same(torch, g, w), got, want[name])) else "WRONG"
        except Exception as error:  # what it raises is the answer
            said[name] = type(error).__name__
        if side == "Kiln":
            said[name] += ", " + who_answered(f"aten::{operators[0]}")
        keep = None  # noqa: F841 -- gives the operators back
    return said


def who_answered(operator):
    import kiln.torch
    for row in kiln.torch.status().rows:
        if row.operator == operator:
            return "served" if row.served else "handed back"
    return "not taken"


def ask(part, side, cache):
    """What a process of its own finds out."""
    environment = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": cache, "XDG_CACHE_HOME": cache, "PYTHONWARNINGS": "ignore"}
    done = subprocess.run([sys.executable, __file__, part, side], capture_output=True, text=True, env=environment, timeout=1200)
    if done.returncode:
        raise SystemExit(f"{side}: {done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def show(rows, sides):
    width = max(len(name) for name in rows)
    print(f"{'':{width}}" + "".join(f" {side:>26}" for side in sides))
    for name, figures in rows.items():
        print(f"{name:{width}}" + "".join(f" {figure:>26}" for figure in figures))


def main():
    first, again, said = {}, {}, {}
    with tempfile.TemporaryDirectory() as cache:
        for side in SIDES:
            first[side] = ask("times", side, cache)
            again[side] = ask("times", side, cache)
            if side != "PyTorch":
                said[side] = ask("answers", side, cache)
    kinds = ["first call", "new shape", "new number", "hot call"]
    rows = {f"{kind}, ms": [f"{first[side][kind]:.4f}" for side in SIDES] for kind in kinds}
    rows["second process: registering, ms"] = [f"{again[side]['registering']:.1f}" for side in SIDES]
    rows["second process: first call, ms"] = [f"{again[side]['first call']:.4f}" for side in SIDES]
    show(rows, SIDES)
    print(f"calls of bitwise_not before Kiln builds a kernel in the background: {first['Kiln']['calls before the kernel']}\n")
    show({name: [said[side][name] for side in SIDES[1:]] for name in said["Kiln"]}, SIDES[1:])
    aoti, own = first["AOTI eager"], first["Kiln"]
    missed = sum(not text.startswith("right") for text in said["Kiln"].values())
    print()
    for text, figure, limit in (("hot call", own["hot call"] / aoti["hot call"], 0.5), ("first call", own["first call"] / aoti["first call"], 1e-3),
                                ("new shape", own["new shape"] / aoti["new shape"], 1e-5)):
        print(f"{text}, Kiln / AOTI eager: {figure:.3g}  goal {limit:g}{'  MISSED' if figure > limit else ''}")
        missed += figure > limit
    return 1 if missed else 0


if __name__ == "__main__":
    if len(sys.argv) == 3:
        print(json.dumps({"times": times, "answers": answers}[sys.argv[1]](sys.argv[2])))
        sys.exit(0)
    sys.exit(main())
