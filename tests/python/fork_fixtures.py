"""Fixtures that run code in forks of a process which has PyTorch already; conftest.py of several folders takes them."""
import itertools

import forkserver
import pytest


@pytest.fixture(scope="session")
def fork_server():
    server = forkserver.Server()
    yield server
    server.close()


@pytest.fixture
def run_torch(fork_server, tmp_path):
    """Runs code in a process of its own which has NumPy and PyTorch already, and not Kiln: its output and errors.  Fails
    the test unless it exits as it should."""
    outputs = (tmp_path / f"output{n}" for n in itertools.count())

    def run(code, exits=0):
        output = next(outputs)
        status = fork_server.run(code, output, timeout=120)
        said = output.read_text()
        assert status == exits, f"exit {status}\n{said}"
        return said
    return run
