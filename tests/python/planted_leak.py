"""A program that proves, where sanitizers are preloaded (tools/py_asan.sh), that a leak planted in an interpreter is seen, and in a
fork of one (forkserver.py).  Not a test by itself: without sanitizers nobody looks for leaks.
"""
import subprocess
import sys
import tempfile
from pathlib import Path

import forkserver

PLANTED = """
import ctypes, kiln
capsule = kiln.Tensor([1.0, 2.0]).__dlpack__(max_version=(1, 0))
ctypes.pythonapi.PyCapsule_SetDestructor(ctypes.py_object(capsule), None)  # nobody calls the deleter
del capsule
"""


def in_an_interpreter(output):
    with output.open("w") as file:
        return subprocess.run([sys.executable, "-c", PLANTED], stdout=file, stderr=file).returncode


def in_a_fork(output):
    server = forkserver.Server()
    status = server.run(PLANTED, output, timeout=120)
    server.close()
    return status


with tempfile.TemporaryDirectory() as folder:
    for run in (in_an_interpreter, in_a_fork):
        output = Path(folder, run.__name__)
        status = run(output)
        if status == 0 or "kiln_tensor_to_dlpack" not in output.read_text():
            sys.exit(f"a leak planted {run.__name__} was not seen: exit {status}\n{output.read_text()}")
