"""Whether a run is whole: KILN_TEST_ALL unset, empty or 0 samples the sweeps; anything else takes every case.

tests/whole.h says the same to the tests in C.
"""
import os

WHOLE = os.environ.get("KILN_TEST_ALL", "") not in ("", "0")
