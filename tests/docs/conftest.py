"""A cache folder of its own for the tests that load rows in this process."""
import atexit
import os
import tempfile

_folder = tempfile.TemporaryDirectory(prefix="kiln-test-")
atexit.register(_folder.cleanup)
os.environ["KILN_CACHE_DIR"] = _folder.name
os.environ.pop("KILN_MODE", None)
