"""What programs make of the source is up to date and runs: the operator table, the examples in Python."""
import os
import subprocess
import sys

import pytest

from blocks import ROOT


def test_operator_table():
    done = subprocess.run([sys.executable, ROOT / "tools/operators.py", "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("example", sorted((ROOT / "examples").glob("*.py")), ids=lambda path: path.name)
def test_examples(example):
    """Each compares its numbers with PyTorch's and fails where they are far apart."""
    done = subprocess.run([sys.executable, example], capture_output=True, text=True, env={name: value for name, value in os.environ.items() if name != "KILN_MODE"})
    assert done.returncode == 0 and "as PyTorch's" in done.stdout, done.stdout + done.stderr
