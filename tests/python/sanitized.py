"""SANITIZED: whether this runs under sanitizers (tools/py_asan.sh).  They see at once what shows elsewhere after many calls."""
import os

SANITIZED = "ASAN_OPTIONS" in os.environ
