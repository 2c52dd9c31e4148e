#!/usr/bin/env python3
"""Kiln beside its peers, in one process and one run: bench/peers.py NAME [--json].

Each benchmark is a module peers_NAME.py with run(as_json) -> the number of goals missed; that is the exit status's
reason.  Sides take turns, the best of many samples counts and the median is shown too: on a shared machine only
ratios within one run mean something.  Needs `make bench` or `cmake --build build --target benches`, and `make python`.
"""
import importlib
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent


def main(arguments):
    known = sorted(path.stem.removeprefix("peers_") for path in HERE.glob("peers_*.py"))
    names = [a for a in arguments if a != "--json"]
    if len(names) != 1 or names[0] not in known:
        print(f"usage: peers.py {'|'.join(known)} [--json]", file=sys.stderr)
        return 2
    sys.path.insert(0, str(HERE))
    return 1 if importlib.import_module(f"peers_{names[0]}").run("--json" in arguments) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
