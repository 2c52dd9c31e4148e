#!/usr/bin/env python3
"""Two builds of Kiln by turns in one run: compare.py OLD NEW [ROUNDS].

OLD and NEW are folders of sources, each built by `make python` and `cmake --build build --target benches`; where one has no
.venv, calls from Python are left out.

Of each time the best of the turns (7) counts for its side.  A row's noise is what the old side's odd turns differ from its
even ones.  Exits 1 if a time is more than 3 % and more than the noise worse, if a slot hit takes one instruction more, or
another path 3 % more.  Times of kernels are for 64 KB and 1 MB.
"""
import json
import re
import subprocess
import sys
from pathlib import Path

ALLOWED = 1.03
# Calls that another path answers by now, under the names they had.
NOW_CALLED = {
    "dispatch: general path: add.Tensor f32 [32,32] + [32], alpha": "dispatch: one layout again: add.Tensor f32 [32,32] + [32]",
    "dispatch: general path: add.Tensor f32, channels_last": "dispatch: one layout again: add.Tensor f32, channels_last",
    "dispatch: general path: + [32], [1,32], [1,1,32] in turn": "dispatch: general path: + [32], [1,32], ... in turn",
}
FROM_PYTHON = """
import json, timeit, kiln
x = kiln.Tensor([1.0] * 64); add, out = kiln.op("add"), x + x
for what in ("x + x", "x + 2", "x ** 2", "add(x, x)", "add(x, 2)", "add(x, x, out=out)"):
    for _ in range(3000): eval(what)
    kiln.wait_idle()
    ns = min(timeit.repeat(what, globals=globals(), number=2000, repeat=9)) / 2000 * 1e9
    print(json.dumps({"bench": "python", "what": what, "ns": ns}))
"""


def turn(folder, python):
    """One turn's times, by what was measured."""
    lines = ""
    for name in ("dispatch", "kernels", "open"):  # a goal may be missed here, and an old build lack one of them
        lines += subprocess.run([folder / "build/kiln", "bench", name, "--json"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                                text=True, check=False).stdout
    if python:
        lines += subprocess.run([folder / ".venv/bin/python", "-c", FROM_PYTHON], stdout=subprocess.PIPE, text=True, check=True).stdout
    times = {}
    for row in map(json.loads, lines.splitlines()):
        if row["bench"] == "kernels" and row["nbytes"] in (65536, 1 << 20):
            times[f"kernels: {row['name']}, {row['nbytes']} bytes"] = row["ns_per_call"]
        elif "what" in row:
            times[f"{row['bench']}: {row['what']}"] = row.get("ns", row.get("value"))
    return times


def instructions(folder):
    text = subprocess.run(["bench/instructions.sh"], cwd=folder, stdout=subprocess.PIPE, text=True, check=False).stdout
    found = {name.strip(): int(count) for name, count in re.findall(r"^(.{66}) +(\d+)  goal", text, re.M)}
    return found or sys.exit(f"compare.py: {folder}/bench/instructions.sh counted nothing")


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    sides = [Path(arg).resolve() for arg in sys.argv[1:3]]
    for side in sides:
        if not (side / "build/kiln").exists():
            sys.exit(f"compare.py: {side} has no build/kiln")
    python = all((side / ".venv/bin/python").exists() for side in sides)
    rounds = int(sys.argv[3]) if len(sys.argv) > 3 else 7
    turns = [[turn(side, python) for side in sides] for _ in range(rounds)]
    missed = 0

    def show(what, old, new, bound, noise=None):
        nonlocal missed
        worse = new > bound
        missed += worse
        aside = f"  noise {noise:6.1%}" if noise is not None else ""
        print(f"{what.strip():<72} {old:>12.6g} {new:>12.6g} {new / old:7.3f}{aside}{'  WORSE' if worse else ''}")

    for what in turns[0][0]:
        old = [t[0][what] for t in turns if what in t[0]]
        new = [t[1][name] for t in turns for name in (what, NOW_CALLED.get(what)) if name in t[1]]
        if not new:
            print(f"{what:<72} is not measured by NEW")
            missed += 1
            continue
        noise = abs(min(old[::2]) / min(old[1::2] or old) - 1)
        show(what, min(old), min(new), min(old) * max(ALLOWED, 1 + noise), noise)
    counts = [instructions(side) for side in sides]
    of_call = {what.partition(", ")[2]: count for what, count in counts[1].items()}
    for what, old in counts[0].items():  # a call that another path answers by now is the same call
        new = counts[1].get(what, of_call.get(what.partition(", ")[2], float("inf")))
        show(what, old, new, old if what.startswith("slot") else old * ALLOWED)
    print(f"{missed} worse" if missed else "none is worse")
    return missed > 0


if __name__ == "__main__":
    sys.exit(main())
