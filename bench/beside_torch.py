#!/usr/bin/env python3
"""The second half of `make run`: a few calls of torch.*, answered by PyTorch's kernels and then by Kiln's, in one process.

Both sides run the same call with one thread, Kiln in its default mode after kernels were built.  They take turns, and the best of
20 samples of each counts, so that a busy machine disturbs both alike.  Prints a short table; asserts nothing about times.
`--rounds N` sets the number of samples.
"""
import argparse
import os
import time

os.environ.pop("KILN_MODE", None)
os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
import torch  # noqa: E402

import kiln.torch  # noqa: E402

SIDES = (32, 512)  # 4 KB and 1 MB of f32
nn = torch.nn.functional
CALLS = {
    "torch.add(x, y, alpha=2)": lambda x, y: torch.add(x, y, alpha=2),
    "torch.tanh(x)": lambda x, y: torch.tanh(x),
    "nn.functional.gelu(x)": lambda x, y: nn.gelu(x),
    "torch.sum(x, 1)": lambda x, y: torch.sum(x, 1),
    "torch.softmax(x, 1)": lambda x, y: torch.softmax(x, 1),
    "torch.cumsum(x, 1)": lambda x, y: torch.cumsum(x, 1),
}


def microseconds(call, x, y, times):
    start = time.perf_counter_ns()
    for _ in range(times):
        call(x, y)
    return (time.perf_counter_ns() - start) / times / 1e3


def build_kernels(call, x, y):
    """Calls until nothing is left to build, as a program would that calls often."""
    for _ in range(20):
        microseconds(call, x, y, 200)
        kiln.wait_idle()


def compare(call, side, rounds):
    """The best time of PyTorch's kernel and of Kiln's."""
    generator = torch.Generator().manual_seed(1)
    x, y = (torch.randn(side, side, generator=generator) for _ in range(2))
    with kiln.torch.enabled():
        build_kernels(call, x, y)
    times = max(1, 20000 // (side * side))
    plain, served = [], []
    for _ in range(rounds):
        plain.append(microseconds(call, x, y, times))
        with kiln.torch.enabled():
            call(x, y)
            served.append(microseconds(call, x, y, times))
    return min(plain), min(served)


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--rounds", type=int, default=20, metavar="N", help="samples of each side; 20 unless given")
    rounds = parser.parse_args().rounds
    torch.set_num_threads(1)
    print(f"\nThe same calls from Python, one thread, PyTorch {torch.__version__}'s kernels and Kiln's under kiln.torch.enable():\n")
    print(f"{'':26} {'f32[32,32]':>21}   {'f32[512,512]':>21}\n{'':26} {'PyTorch':>10} {'Kiln':>10}   {'PyTorch':>10} {'Kiln':>10}")
    for name, call in CALLS.items():
        cells = [f"{plain:7.1f} us {served:7.1f} us" for plain, served in (compare(call, side, rounds) for side in SIDES)]
        print(f"{name:26} " + "   ".join(cells))


main()
