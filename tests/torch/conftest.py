"""A cache folder of its own for the run, helpers that several files use, and the counts of the sweeps in the closing summary.

Kiln is disabled when a test begins, and must be again when it has ended.
"""
import atexit
import os
import subprocess
import sys
import tempfile
from pathlib import Path

_folder = tempfile.TemporaryDirectory(prefix="kiln-test-")
atexit.register(_folder.cleanup)
os.environ["KILN_CACHE_DIR"] = _folder.name
os.environ.pop("KILN_MODE", None)
os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # resizing an out tensor warns
sys.path.append(str(Path(__file__).parents[1] / "ops"))  # what "the same as PyTorch" means is said there

import pytest  # noqa: E402
import torch  # noqa: E402

import kiln.torch  # noqa: E402
from compare import tally  # noqa: E402

torch.set_num_threads(1)
torch.backends.mkldnn.set_flags(False)  # its gelu ignores the strides of out= and makes NaN of infinity


@pytest.fixture(autouse=True)
def given_back():
    yield
    taken = [row.operator for row in kiln.torch.status().rows if row.taken]
    kiln.torch.disable()
    assert not taken, "the test has left operators taken"


@pytest.fixture
def run_python():
    """Runs code in another interpreter: its output and errors.  Fails the test if that one fails, dies or takes long."""
    def run(code, *options, **environment):
        done = subprocess.run([sys.executable, *options, "-c", code], capture_output=True, text=True, timeout=120,
                              env={**os.environ, **environment})
        assert done.returncode == 0, f"exit {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout + done.stderr
    return run


def pytest_terminal_summary(terminalreporter):
    write = terminalreporter.write_line
    write("")
    for kind, n in tally.cases.items():
        write(f"{n} calls: {kind}")
    for reason, n in tally.notes.items():
        write(f"{n} {reason}")
