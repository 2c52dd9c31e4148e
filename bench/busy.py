#!/usr/bin/env python3
"""How long a formula stays interpreted on a busy machine: bench/busy.py.

Every core runs a process that counts, and this process gives way to them (nice 10).  A formula on a million elements is computed again and
again in the default mode, until a kernel answers.  Prints the time until then, the median of three processes, beside the same on a
machine without the counting processes.
"""
import os
import statistics
import subprocess
import sys
import time

COUNTING = [sys.executable, "-c", "while True: pass"]
NICE, ROUNDS, LONGEST = 10, 3, 30.0  # LONGEST: seconds after which a process gives up


def child():
    import numpy as np

    import kiln
    os.nice(NICE)
    x, y = np.linspace(0, 1, 1_000_000), np.linspace(0, 9, 1_000_000)
    start = time.perf_counter()
    while kiln.stats()["compiles"] == 0 and time.perf_counter() < start + LONGEST:
        kiln.evaluate("2*x + sin(y)**2")
    print(time.perf_counter() - start)


def median():
    took = [float(subprocess.run([sys.executable, __file__, "child"], check=True, stdout=subprocess.PIPE).stdout) for _ in range(ROUNDS)]
    return statistics.median(took)


def main():
    idle = median()
    counting = [subprocess.Popen(COUNTING) for _ in range(os.cpu_count())]
    try:
        busy = median()
    finally:
        for process in counting:
            process.kill()
            process.wait()
    print(f"until a kernel answers, this process at nice {NICE}: {1e3 * idle:.0f} ms; every core busy: {1e3 * busy:.0f} ms")


if __name__ == "__main__":
    child() if sys.argv[1:] else main()
