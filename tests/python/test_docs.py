"""What documents say is true: the operator table is what the program would write, and the README's lines and the examples run."""
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def test_operator_table():
    done = subprocess.run([sys.executable, ROOT / "tools/operators.py", "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_readme(run_python):
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.S)
    assert blocks
    counting = [re.subn(r"(kiln\.stats.*)# 1:.*\n$", r"print(\1)", block) for block in blocks]
    said = [(run_python(block).strip(), changed) for block, changed in counting]
    assert [count for count, changed in said if changed] == ["1"]


@pytest.mark.parametrize("example", sorted((ROOT / "examples").glob("*.py")), ids=lambda path: path.name)
def test_examples(example, run_torch):
    """Each compares its numbers with PyTorch's and fails where they are far apart."""
    assert "as PyTorch's" in run_torch(example.read_text())
