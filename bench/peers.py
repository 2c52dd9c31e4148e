#!/usr/bin/env python3
"""Kiln beside its peers, in one process and one run: bench/peers.py NAME [--json] [--threads N|all].

Each benchmark is a module peers_NAME.py with run(as_json, threads) -> the number of goals missed; that is the exit status's
reason.  Every side has so many threads, one unless given.  Sides take turns, the best of many samples counts and the median is shown too: on a shared machine only
ratios within one run mean something.  Needs `make bench` or `cmake --build build --target benches`, and `make python`.
"""
import argparse
import importlib
import os
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent


def main():
    known = sorted(path.stem.removeprefix("peers_") for path in HERE.glob("peers_*.py"))
    parser = argparse.ArgumentParser(prog="peers.py")
    parser.add_argument("name", choices=known)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--threads", default="1", metavar="N", help="of every side; all: as many as there are CPUs")
    given = parser.parse_args()
    threads = len(os.sched_getaffinity(0)) if given.threads == "all" else int(given.threads)
    os.environ.update(KILN_MODE="sync", KILN_THREADS=str(threads), OMP_NUM_THREADS=str(threads))  # before the modules are imported
    sys.path.insert(0, str(HERE))
    return 1 if importlib.import_module(f"peers_{given.name}").run(given.json, threads) else 0


if __name__ == "__main__":
    sys.exit(main())
