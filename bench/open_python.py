#!/usr/bin/env python3
"""What Kiln costs a Python process before its second call: bench/open_python.py [--samples N].

Each sample is a fresh process that has imported PyTorch and has 16 more threads alive.  It imports kiln and kiln.torch, enables
Kiln and makes a first call.  Medians count.  A process before the first sample writes the bytecode of the modules, which an installed
package has.  Exits 1 if a goal is missed.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys

CHILD = """
import json, threading, time
import torch
done = threading.Event()
for _ in range(16):
    threading.Thread(target=done.wait, daemon=True).start()
x, took = torch.ones(32, 32), []
def timed(body):
    start = time.perf_counter()
    body()
    took.append((time.perf_counter() - start) * 1e3)
def first_import():
    import kiln
def second_import():
    import kiln.torch
torch.add(x, x), torch.relu(x)
timed(first_import)
import kiln
timed(second_import)
timed(lambda: kiln.torch.enable())
timed(lambda: torch.add(x, x))
print(json.dumps(took))
done.set()
"""
GOALS = {"import kiln": 2, "import kiln.torch": 4, "kiln.torch.enable()": 15, "the first call": 1}


def sample():
    """Milliseconds of each step, in one fresh process."""
    env = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return json.loads(subprocess.run([sys.executable, "-c", CHILD], capture_output=True, text=True, check=True, env=env).stdout)


def main():
    parser = argparse.ArgumentParser(prog="open_python.py")
    parser.add_argument("--samples", type=int, default=9, metavar="N", help="processes; 9 unless given")
    given = parser.parse_args()
    samples = [sample() for _ in range(given.samples + 1)][1:]
    missed = 0
    for (what, limit), took in zip(GOALS.items(), zip(*samples, strict=True), strict=True):
        median = statistics.median(took)
        missed += median > limit
        text = f"{what}, beside PyTorch and 16 threads"
        print(f"{text:66} {median:10.4g} <= {limit:6.4g} ms{'  MISSED' if median > limit else ''}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
