"""A cache folder of its own for the run, and helpers that several files use."""
import atexit
import os
import subprocess
import sys
import tempfile

_folder = tempfile.TemporaryDirectory(prefix="kiln-test-")
atexit.register(_folder.cleanup)
os.environ["KILN_CACHE_DIR"] = _folder.name
os.environ.pop("KILN_MODE", None)

import pytest  # noqa: E402
import torch  # noqa: E402
from fork_fixtures import fork_server, run_torch  # noqa: E402, F401

import kiln  # noqa: E402

torch.set_num_threads(1)
kiln.load_ops("map my::axpb(Tensor self, Scalar a, Scalar b) -> Tensor : promote(self, a, b) = a * self + b")


@pytest.fixture
def run_python():
    """Runs code in another interpreter: its output.  Fails the test if that one fails or dies."""
    def run(code, *options, **environment):
        done = subprocess.run([sys.executable, *options, "-c", code], capture_output=True, text=True, timeout=120,
                              env={**os.environ, **environment})
        assert done.returncode == 0, f"exit {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout + done.stderr
    return run
