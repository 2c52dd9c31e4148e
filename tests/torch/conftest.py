"""A cache folder of its own for the run, helpers that several files use, and the counts of the sweeps in the closing summary.

Kiln is disabled when a test begins, and must be again when it has ended.
"""
import atexit
import os
import sys
import tempfile
from pathlib import Path

_folder = tempfile.TemporaryDirectory(prefix="kiln-test-")
atexit.register(_folder.cleanup)
os.environ["KILN_CACHE_DIR"] = _folder.name
os.environ.pop("KILN_MODE", None)
os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # resizing an out tensor warns
for other in ("ops", "python"):  # compare.py, exact.py; fork_fixtures.py
    sys.path.append(str(Path(__file__).parents[1] / other))

import pytest  # noqa: E402
import torch  # noqa: E402
from fork_fixtures import fork_server, run_torch  # noqa: E402, F401

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


@pytest.fixture(scope="module")
def interpreted():
    """For sweeps: that both tiers give the same bits is shown elsewhere."""
    kiln.configure(mode="interp")
    yield
    kiln.configure(mode="default")


def pytest_terminal_summary(terminalreporter):
    write = terminalreporter.write_line
    write("")
    for kind, n in tally.cases.items():
        write(f"{n} calls: {kind}")
    for reason, n in tally.notes.items():
        write(f"{n} {reason}")
