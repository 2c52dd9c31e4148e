"""A cache folder of its own for the run, and the counts of each sweep in the closing summary."""
import atexit
import os
import tempfile

_folder = tempfile.TemporaryDirectory(prefix="kiln-test-")
atexit.register(_folder.cleanup)
os.environ["KILN_CACHE_DIR"] = _folder.name

import fxlib  # noqa: E402
import torch  # noqa: E402

torch.set_num_threads(1)


def pytest_terminal_summary(terminalreporter):
    for line in fxlib.counts:
        terminalreporter.write_line(line)
