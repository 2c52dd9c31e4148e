"""SANITIZED: whether this runs under sanitizers (tools/py_sanitized.sh asan).  They see at once what shows elsewhere after many calls."""
import os

SANITIZED = "ASAN_OPTIONS" in os.environ
