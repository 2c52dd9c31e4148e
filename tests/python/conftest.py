"""A cache folder of its own for the run, and helpers that several files use."""
import atexit
import itertools
import os
import subprocess
import sys
import tempfile

_folder = tempfile.TemporaryDirectory(prefix="kiln-test-")
atexit.register(_folder.cleanup)
os.environ["KILN_CACHE_DIR"] = _folder.name
os.environ.pop("KILN_MODE", None)

import forkserver  # noqa: E402
import pytest  # noqa: E402
import torch  # noqa: E402

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


@pytest.fixture(scope="session")
def fork_server():
    server = forkserver.Server()
    yield server
    server.close()


@pytest.fixture
def run_torch(fork_server, tmp_path):
    """As run_python, for code that imports PyTorch: in a process of its own which has NumPy and PyTorch already, and not Kiln."""
    outputs = (tmp_path / f"output{n}" for n in itertools.count())

    def run(code):
        output = next(outputs)
        status = fork_server.run(code, output, timeout=120)
        said = output.read_text()
        assert status == 0, f"exit {status}\n{said}"
        return said
    return run
