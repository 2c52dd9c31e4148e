"""Where sanitizers are preloaded (tools/py_sanitized.sh asan), a leak planted in an interpreter is seen, and in a fork of one
(forkserver.py).  Without sanitizers nobody looks for leaks.
"""
import subprocess
import sys

import pytest
from sanitized import SANITIZED

pytestmark = pytest.mark.skipif(not SANITIZED, reason="nobody looks for leaks")
PLANTED = """
import ctypes, kiln
capsule = kiln.Tensor([1.0, 2.0]).__dlpack__(max_version=(1, 0))
ctypes.pythonapi.PyCapsule_SetDestructor(ctypes.py_object(capsule), None)  # nobody calls the deleter
del capsule
"""


def test_in_an_interpreter():
    done = subprocess.run([sys.executable, "-c", PLANTED], capture_output=True, text=True)
    assert done.returncode and "kiln_tensor_to_dlpack" in done.stderr


def test_in_a_fork(fork_server, tmp_path):
    status = fork_server.run(PLANTED, tmp_path / "output", timeout=120)
    assert status and "kiln_tensor_to_dlpack" in (tmp_path / "output").read_text()
