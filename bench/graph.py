#!/usr/bin/env python3
"""graph.py [--json] [--rounds N] - printing a graph through Kiln beside torch.fx's own printing.

Times, in turns within one run: torch.fx's Graph.python_code, kiln.fx.python_code (conversion included) and Kiln's
printer alone, on graphs of 10,000 and 100,000 nodes; the median of the rounds counts.  Exits 1 if a goal is missed.
Run with the Python that `make python` prepared: .venv/bin/python bench/graph.py
"""
import argparse
import gc
import json
import operator
import statistics
import sys
import time

import torch
import torch.fx as fx

import kiln.fx
from kiln import _kiln
from kiln._fxbridge import Bridge, Printing

SIZES = (10_000, 100_000)
GOALS = (  # (what, at most)
    ("kiln.fx.python_code / torch.fx, 100,000 nodes", 0.5),
    ("printer alone / torch.fx, 100,000 nodes", 0.05),
    ("time per node at 100,000 / at 10,000 nodes", 1.5),
)


def make_graph(n):
    """n calls of the kinds that traced models are made of."""
    graph = fx.Graph()
    a, b = graph.placeholder("x"), graph.placeholder("y")
    for k in range(n):
        made = (lambda: graph.call_function(torch.ops.aten.add.Tensor, (a, b), {"alpha": 2}),
                lambda: graph.call_function(torch.add, (a, b)),
                lambda: graph.call_function(operator.mul, (a, b)),
                lambda: graph.call_function(torch.ops.aten.sum.dim_IntList, (a, [0], True)),
                lambda: graph.call_method("reshape", (a, (2, -1))),
                lambda: graph.call_function(torch.ops.aten.to.dtype, (a, torch.float32)))[k % 6]()
        a, b = made, a
    graph.output(a)
    return graph


def timed(run):
    gc.collect()
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def measure(n, rounds):
    """Median seconds by what was timed."""
    graph, bridge = make_graph(n), Bridge()
    converted = _kiln.Graph.from_nodes(graph.nodes, bridge)
    compile(kiln.fx.python_code(graph).src, "<printed>", "exec")
    runs = {
        "torch.fx": lambda: graph.python_code("self"),
        "kiln.fx.python_code": lambda: kiln.fx.python_code(graph),
        "printer alone": lambda: converted.python(Printing(bridge), "forward", "self", False, ()),
    }
    times = {name: [] for name in runs}
    for _ in range(rounds):
        for name, run in runs.items():
            times[name].append(timed(run))
    return {name: statistics.median(values) for name, values in times.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--json", action="store_true", help="one JSON object per line")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    small, large = (measure(n, options.rounds) for n in SIZES)
    whole, printer = "kiln.fx.python_code", "printer alone"
    ratios = (large[whole] / large["torch.fx"], large[printer] / large["torch.fx"],
              large[whole] / small[whole] / (SIZES[1] / SIZES[0]))
    missed = False
    for n, times in zip(SIZES, (small, large)):
        for name, seconds in times.items():
            print(json.dumps({"bench": "graph", "nodes": n, "what": name, "seconds": round(seconds, 6)}) if options.json
                  else f"{n:>7,} nodes  {name:<22} {seconds * 1e3:9.1f} ms")
    for (what, goal), ratio in zip(GOALS, ratios):
        missed |= ratio > goal
        print(json.dumps({"bench": "graph", "what": what, "ratio": round(ratio, 4), "goal": goal, "met": ratio <= goal}) if options.json
              else f"{what:<48} {ratio:6.3f}  goal <= {goal}  {'met' if ratio <= goal else 'MISSED'}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
