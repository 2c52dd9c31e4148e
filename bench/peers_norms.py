"""Softmax and norms, and their gradients, beside PyTorch: results are ready on both sides.  Losses are shown with the others.

Each row of CASES is an out= overload, what it is called with for a tensor of the given shape, and the goals: how many times
PyTorch's speed in cache ([64, 1000]), near it ([4096, 768]) and from memory ([1024, 16384]).  [65536, 10] has no goal of its own but not to lose.
"""
import functools
import json

import torch

import kiln
from peers_folds import goal, measure

SHAPES = ([64, 1000], [4096, 768], [1024, 16384], [65536, 10])


def softmax(x, dim):
    return (x, dim, False), [torch.empty_like(x)]


def gradient(function, x, dim):
    return (torch.rand_like(x), function(x, dim), dim, x.dtype), [torch.empty_like(x)]


def layer_norm(x, dim):
    rows = x.new_empty(*x.shape[:-1], 1)
    return (x, x.shape[-1:], torch.rand(x.shape[-1]), torch.rand(x.shape[-1]), 1e-5), [torch.empty_like(x), rows, rows.clone()]


# Name -> (overload, the names of its results, arguments and results for a tensor and a dimension, goals over the last and over the first).
SOFTMAX, BACK = ((1.8, 1.8, 1.25, 1), (2.8, 3.5, 3.5, 1)), ((1.5, 1.5, 1.5, 1), (1.5, 1.5, 1.5, 1))
CASES = {
    "softmax": ("_softmax.out", ("out",), softmax, *SOFTMAX),
    "log_softmax": ("_log_softmax.out", ("out",), softmax, *SOFTMAX),
    "softmax backward": ("_softmax_backward_data.out", ("grad_input",), functools.partial(gradient, torch.softmax), *BACK),
    "log_softmax backward": ("_log_softmax_backward_data.out", ("out",), functools.partial(gradient, torch.log_softmax), *BACK),
    "layer_norm": ("native_layer_norm.out", ("out0", "out1", "out2"), layer_norm, (1.7, 1.25, 1.25, 1), None),
}


def theirs(overload):
    name, form = overload.split(".")
    return getattr(getattr(torch.ops.aten, name), form)


def rows():
    for name, (overload, results, case, *goals) in CASES.items():
        for dim, wanted in zip((-1, 0), goals):
            for shape, want in zip(SHAPES, wanted or ()):
                args, out = case(torch.rand(shape), dim)
                named = dict(zip(results, out))
                ours, other = kiln.op(f"aten::{overload}"), theirs(overload)
                ns, spread = measure((lambda: ours(*args, **named), lambda: other(*args, **named), None))
                yield {"bench": "norms", "name": name, "over": "last" if dim else "first", "shape": shape, "goal": want, "ns": ns, "spread": spread}


def run(as_json, threads):
    torch.set_num_threads(threads)
    missed = 0
    for r in rows():
        if as_json:
            print(json.dumps(r))
            continue
        times, each = r["ns"]["torch"] / r["ns"]["kiln"], r["ns"]["kiln"] / (r["shape"][0] * r["shape"][1])
        missed += goal(times * r["spread"] >= r["goal"], f"{r['name']:20} {r['over']:5} {str(r['shape']):14} {times:6.2f}  goal {r['goal']:4}"
                       f"  {each:.3f} ns an element, PyTorch beside itself {r['spread']:.2f}")
    return missed
