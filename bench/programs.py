#!/usr/bin/env python3
"""Whole PyTorch programs with kiln.torch.enable() beside the same programs without it: bench/programs.py [--threads N] [PROGRAM ...].

Each program of bench/models.py is trained with AdamW and asked for answers, in Kiln's default mode.  Two things are measured:

first    fresh processes, with Kiln and without by turns: the first step, the first 20 steps, steps 20 to 100.  Building kernels in
         the background is included.  After 100 steps, `served` is the part of all operators below autograd that Kiln answered, and
         `compiled` the part of those answers that came from a kernel.
steady   one fresh process with two models, which run by turns: one with Kiln enabled, after 100 steps, and one
         without, after 4.  PyTorch takes two turns for each of Kiln's; `spread` says how far these two differ.

Figures are Kiln's time over PyTorch's and medians of three rounds.  `even after` is the number of steps by which Kiln has saved what
it cost at first.  `--json` prints the figures as JSON, and `--markdown FILE ...` makes README's table of such outputs.  All programs take
half an hour on two quiet cores.  Exits 1 if a goal is missed.

Kernels are kept in memory, so that fresh processes build theirs; with KILN_CACHE=disk they find those of earlier processes.
With --pack they find those of the pack beside the Python module, and build the others.
"""
import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

os.environ.setdefault("KILN_CACHE", "memory")
STEPS = 100  # of a fresh process
EARLY = 20
TASKS = ("training", "inference")
SIDES = ("plain", "kiln")
MEAN_GOALS = {1: 0.94, 2: 0.95, 4: 0.93, 16: 0.97}  # threads -> the geometric mean of all programs' steady state
GOALS = {"first_20": 1.3, "steps_20_to_100": 1.05, "steady": 1.02, "compiled": 0.95}
PACK_GOALS = {"first_20": 1.0, "steps_20_to_100": 1.02}
now = time.perf_counter


# -- in a process of its own ---------------------------------------------------------------------------------------

def timed(step):
    start = now()
    step()
    return now() - start


def counts():
    """Calls that Kiln answered, and how many of them it interpreted."""
    import kiln
    stats = kiln.stats()
    return stats["calls"], stats["interp_calls"]


def shares(running, cycle):
    """The part of operators below autograd that Kiln served, and the part of its calls that a kernel answered."""
    from torch.utils._python_dispatch import TorchDispatchMode

    import kiln.torch

    class Count(TorchDispatchMode):
        calls = 0

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            Count.calls += 1
            return func(*args, **(kwargs or {}))

    def served():
        return sum(row.served for row in kiln.torch.status().rows)

    calls, interpreted = counts()
    for _ in range(cycle):
        running.step()
    calls, interpreted = (after - before for after, before in zip(counts(), (calls, interpreted), strict=True))
    before = served()
    with Count():
        for _ in range(cycle):
            running.step()
    return {"served": min(1, (served() - before) / Count.calls), "compiled": 1 - interpreted / max(calls, 1)}


def child_first(side, name, task):
    import models
    if side == "kiln":
        import kiln.torch
        kiln.torch.enable()
    running = models.Running(name, task)
    found = {"steps": [timed(running.step) for _ in range(STEPS)]}
    return found | (shares(running, models.CYCLE) if side == "kiln" else {})


def rounds_of(steps, switch, cycle, turns, rounds):
    """(Kiln's time over PyTorch's, PyTorch's first turns over its second turns) of each round."""
    for _ in range(rounds):
        times = {turn: [[] for _ in range(cycle)] for turn in ("plain", "kiln", "again")}
        for _ in range(turns):
            for turn, batches in times.items():
                side = "kiln" if turn == "kiln" else "plain"
                switch[side]()
                # These steps are not timed: after a switch, caches are cold and threads sleep.
                for _ in range(cycle):
                    steps[side]()
                for batch in batches:
                    batch.append(timed(steps[side]))
        plain, kiln, again = (sum(map(statistics.median, batches)) for batches in times.values())
        yield 2 * kiln / (plain + again), plain / again


def child_steady(name, task, turns, rounds):
    """Both models live in this process.  Each model and its optimizer's state are made on the side that it runs on."""
    import models

    import kiln.torch
    switch = {"plain": kiln.torch.disable, "kiln": kiln.torch.enable}
    steps = {}
    for side in SIDES:
        switch[side]()
        steps[side] = models.Running(name, task).step
        for _ in range(STEPS // models.CYCLE * models.CYCLE if side == "kiln" else models.CYCLE):
            steps[side]()
    return {"rounds": list(rounds_of(steps, switch, models.CYCLE, turns, rounds))}


def child(what, side, name, task, threads, turns, rounds):
    import torch
    torch.set_num_threads(threads)
    print(json.dumps(child_first(side, name, task) if what == "first" else child_steady(name, task, turns, rounds)))


# -- what starts the processes -------------------------------------------------------------------------------

def ask(given, what, side, name, task):
    args = [what, side, name, task, given.threads, given.turns, given.rounds]
    command = [sys.executable, __file__, "--child", json.dumps(args)]
    with tempfile.TemporaryDirectory(prefix="kiln-programs-") as folder:
        pack = {"KILN_CACHE": "disk", "KILN_CACHE_DIR": folder} if given.pack else {}
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, env={**os.environ, **pack})
    if done.returncode:
        raise SystemExit(done.returncode)
    return json.loads(done.stdout.splitlines()[-1])


def measure_first(given, name, task):
    """Medians of three processes of each side."""
    runs = {side: [] for side in SIDES}
    for _ in range(given.rounds):
        for side in SIDES:
            runs[side].append(ask(given, "first", side, name, task))

    def took(side, start, end):
        return statistics.median(sum(run["steps"][start:end]) for run in runs[side])

    late = {side: took(side, EARLY, STEPS) for side in SIDES}
    found = {f"first_step_{side}_ms": 1e3 * took(side, 0, 1) for side in SIDES}
    found |= {key: statistics.median(run[key] for run in runs["kiln"]) for key in ("served", "compiled")}
    return found | {
        "first_20": took("kiln", 0, EARLY) / took("plain", 0, EARLY), "steps_20_to_100": late["kiln"] / late["plain"],
        "plain_ms": 1e3 * late["plain"] / (STEPS - EARLY), "behind_ms": 1e3 * (took("kiln", 0, STEPS) - took("plain", 0, STEPS))}


def measure_steady(given, name, task):
    ratios, spreads = zip(*ask(given, "steady", "both", name, task)["rounds"], strict=True)
    return {"steady": statistics.median(ratios), "spread": statistics.median(max(s, 1 / s) for s in spreads)}


def break_even(figures):
    """The number of steps by which Kiln has saved what it cost at first.  None: never, or not measured."""
    if not {"behind_ms", "steady"} <= figures.keys():
        return None
    if figures["behind_ms"] <= 0:
        return STEPS
    saved = figures["plain_ms"] * (1 - figures["steady"])
    return STEPS + math.ceil(figures["behind_ms"] / saved) if saved > 0 else None


def mean(figures):
    return math.exp(statistics.fmean(math.log(x["steady"]) for x in figures))


# -- printing ------------------------------------------------------------------------------------------------------

COLUMNS = {  # title -> how a figure is printed; "-" stands for one that was not measured
    "first step, ms": lambda x: f"{x['first_step_kiln_ms']:.0f} ({x['first_step_plain_ms']:.0f})", "first 20": lambda x: f"{x['first_20']:.2f}",
    "20 to 100": lambda x: f"{x['steps_20_to_100']:.2f}", "steady": lambda x: f"{x['steady']:.3f}", "spread": lambda x: f"{x['spread']:.3f}",
    "served": lambda x: f"{100 * x['served']:.0f} %", "compiled": lambda x: f"{100 * x['compiled']:.1f} %", "even after": lambda x: even(x),
}


def even(figures):
    steps = break_even(figures)
    if "steady" not in figures or "behind_ms" not in figures:
        raise KeyError("even after")
    return "never" if steps is None else "100 or less" if steps == STEPS else str(steps)


def cell(column, figures):
    try:
        return COLUMNS[column](figures)
    except KeyError:
        return "-"


def heading(out):
    print(f"{'program':9} {'task':10}" + "".join(f"{title:>16}" for title in COLUMNS), file=out)


def line(figures, out):
    cells = "".join(f"{cell(title, figures):>16}" for title in COLUMNS)
    print(f"{figures['program']:9} {figures['task']:10}{cells}", file=out, flush=True)


def goals(threads, figures, whole, limits, out):
    """Prints the goals that were missed, and the geometric mean.  Returns how many were missed."""
    missed = 0

    def goal(text, value, limit, bad):
        nonlocal missed
        missed += bad
        if bad or text == "geometric mean":
            print(f"{text:50} {value:8.3f}  goal {limit:.3f}{'  MISSED' if bad else ''}", file=out)

    for x in figures:
        title = f"{x['program']} {x['task']}"
        for key in ("first_20", "steps_20_to_100"):
            if key in x:
                goal(f"{title}: {key.replace('_', ' ')}", x[key], limits[key], x[key] > limits[key])
        if "steady" in x:
            limit = max(limits["steady"], x["spread"])
            goal(f"{title}: steady", x["steady"], limit, x["steady"] > limit)
        if "compiled" in x and x["task"] == "training":
            goal(f"{title}: part of the served calls compiled", x["compiled"], limits["compiled"], x["compiled"] < limits["compiled"])
    if all("steady" in x for x in figures):
        limit = MEAN_GOALS.get(threads, math.inf) if whole else math.inf
        goal("geometric mean", mean(figures), limit, mean(figures) > limit)
    return missed


def markdown(files):
    """Prints README's table: a row for each program and task, slowest first.

    The steady state has a column for each number of threads.  The other columns are of the fewest threads.
    """
    tables = sorted((json.loads(Path(file).read_text()) for file in files), key=lambda t: t["threads"])
    by_case = {}
    for at, table in enumerate(tables):
        for x in table["figures"]:
            by_case.setdefault((x["program"], x["task"]), {})[at] = x
    heads = [f"steady, {t['threads']} thread{'s' if t['threads'] > 1 else ''}" for t in tables]
    titles = ["program", "first 20 steps", "steps 20 to 100", *heads, "calls served", "compiled", "even after, steps"]
    print(f"| {' | '.join(titles)} |\n|{'---|' * len(titles)}")
    for (program, task), found in sorted(by_case.items(), key=lambda item: -max(x["steady"] for x in item[1].values())):
        base = next(iter(found.values()))
        steady = [f"{found[at]['steady']:.2f}" if at in found else "-" for at in range(len(tables))]
        cells = [cell("first 20", base), cell("20 to 100", base), *steady, *(cell(c, base) for c in ("served", "compiled", "even after"))]
        print(f"| {program}, {task} | " + " | ".join(cells) + " |")
    print("| geometric mean | | | " + " | ".join(f"{mean(t['figures']):.2f}" for t in tables) + " | | | |")


def parse():
    import models
    parser = argparse.ArgumentParser(prog="programs.py")
    parser.add_argument("--threads", type=int, default=1, metavar="N", help="of PyTorch, and so of Kiln; 1 unless given")
    parser.add_argument("--pack", action="store_true", help="with the pack that `make python` made, and an empty cache folder")
    parser.add_argument("--task", choices=TASKS, help="this one alone")
    parser.add_argument("--part", choices=("first", "steady"), help="this one alone")
    parser.add_argument("--rounds", type=int, default=3, metavar="N", help="whose median counts; 3 unless given")
    parser.add_argument("--turns", type=int, default=5, metavar="N", help="of each side in a round of the steady state; 5 unless given")
    parser.add_argument("--json", action="store_true", help="figures as JSON on stdout, everything else on stderr")
    parser.add_argument("--markdown", nargs="+", metavar="FILE", help="makes README's table of outputs of --json, and measures nothing")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("programs", nargs="*", metavar="PROGRAM", help=", ".join(models.PROGRAMS) + "; all unless given")
    given = parser.parse_args()
    known = {name.lower(): name for name in models.PROGRAMS}
    for name in given.programs:
        if name.lower() not in known:
            parser.error(f"no program '{name}'; there are {', '.join(models.PROGRAMS)}")
    given.chosen = [known[name.lower()] for name in given.programs] or list(models.PROGRAMS)
    return given


def main():
    given = parse()
    if given.child:
        return child(*json.loads(given.child))
    if given.markdown:
        return markdown(given.markdown)
    import models
    models.transformers()  # exits now if the package is missing, and says how to install it
    out = sys.stderr if given.json else sys.stdout
    print(f"{given.threads} threads, mode {os.environ.get('KILN_MODE', 'default')}; Kiln's time over PyTorch's", file=out)
    heading(out)
    figures = []
    for name in given.chosen:
        for task in TASKS if not given.task else (given.task,):
            x = {"program": name, "task": task}
            if given.part != "steady":
                x |= measure_first(given, name, task)
            if given.part != "first":
                x |= measure_steady(given, name, task)
            figures.append(x)
            line(x, out)
    missed = goals(given.threads, figures, len(figures) == len(TASKS) * len(models.PROGRAMS), GOALS | (PACK_GOALS if given.pack else {}), out)
    if given.json:
        print(json.dumps({"threads": given.threads, "figures": figures}, indent=1))
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
