#!/usr/bin/env bash
# goals.sh - prints Kiln's figures beside the goals they are to reach; exits 1 if one is missed.
# Ratios are taken within one run, by turns, the best of each side or the median of the turns; instructions are counted by callgrind.
# Run it on a machine that has nothing else to do.
set -u
cd "$(dirname "$0")/.."
missed=0
build/kiln bench dispatch memory first shapes hang threads pool large folds || missed=1
for script in bench/open.sh bench/table.sh bench/instructions.sh; do
    [ ! -x "$script" ] || "$script" || missed=1
done
.venv/bin/python -c "import numexpr, numba" 2>/dev/null || .venv/bin/python -m pip -q install numexpr numba # for evaluate.py
for script in python.py evaluate.py torch_eager.py "peers.py rows" "peers.py folds" "peers.py norms" "peers.py lists" "peers.py accuracy"; do
    # shellcheck disable=SC2086 -- words
    .venv/bin/python bench/$script || missed=1
done
[ $missed = 0 ] && echo "all goals are met" || echo "goals were missed"
exit $missed
