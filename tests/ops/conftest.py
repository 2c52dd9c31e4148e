"""Contexts shared by the tests, and the counts printed at the end of a run."""
import os

os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # resizing an out tensor warns

import pytest  # noqa: E402
import torch  # noqa: E402

from compare import tally  # noqa: E402
from kilnlib import Kiln  # noqa: E402
from whole import WHOLE  # noqa: E402

torch.set_num_threads(1)
torch.backends.mkldnn.set_flags(False)  # its gelu ignores the strides of out= and makes NaN of infinity


@pytest.fixture(scope="session")
def interp():
    with Kiln("interp") as k:
        yield k


@pytest.fixture
def own():
    """A context that one test may load rows into: those of other tests ask `interp` which operators are served."""
    with Kiln("interp") as k:
        yield k


@pytest.fixture(scope="session")
def sync():
    with Kiln("sync", threads=8 if WHOLE else 3) as k:
        yield k
        stats = k.stats()
        tally.classes += stats["compiles"]
        for failure in ("compile_failures", "selftest_failures", "fallbacks"):
            assert stats[failure] == 0, f"{stats[failure]} {failure}: what should have been compiled was interpreted"


def pytest_terminal_summary(terminalreporter):
    write = terminalreporter.write_line
    write("")
    for kind, n in tally.cases.items():
        write(f"{n} calls: {kind}")
    write(f"{tally.classes} classes compiled")
    for reason, n in tally.notes.items():
        write(f"{n} {reason}")
    if tally.unserved:
        write(f"{len(tally.unserved)} overloads are not served: "
              + ", ".join(f"{name.removeprefix('aten::')} {n}" for name, n in sorted(tally.unserved.items())))
