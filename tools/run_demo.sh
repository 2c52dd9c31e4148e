#!/bin/sh
# run_demo.sh - what `make run` shows: `kiln demo`, and then the times of Kiln beside PyTorch's where PyTorch can be imported.
# PyTorch is looked for in .venv, which `make python` makes, and in python3.  Installs nothing.
set -eu
cd "$(dirname "$0")/.."
build/kiln demo
has_torch() { "$1" -c 'import torch' 2>/dev/null; }
if has_torch .venv/bin/python; then
    make -s python >/dev/null
    exec .venv/bin/python bench/beside_torch.py
fi
if has_torch python3; then
    echo 'PyTorch is installed here: after "make python", "make run" also shows the time of Kiln beside that of PyTorch.'
else
    echo 'PyTorch is not installed here, so nothing is timed beside it ("make python" installs it into .venv).'
fi
