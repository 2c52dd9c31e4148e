"""Whether kernels get built here: what enable() and status() say about compilers and failed builds.

Nothing in this file starts a compiler.  problem() returns a sentence, or None: kernels are expected, or the mode
builds none.
"""
import os
import warnings

import kiln

from .. import _kiln

_FAILURES = ("no_compiler", "compiler_errors", "compiler_timeouts", "load_failures")  # counters of failures that may well hit every class
_IN_A_ROW = 3  # failed builds after which no kernel is expected any more
_ADVICE = "Install gcc or clang, or name a compiler with KILN_CC, and start the program again."
_built = _failed = 0  # what _counters() returned when the current series of failures began
_warned = set()


def _counters():
    stats = _kiln.stats()
    return stats["compiles"], sum(stats[name] for name in _FAILURES)


def forgive():
    """Ignores all failures up to now: the next build may succeed."""
    global _built, _failed
    _built, _failed = _counters()


def note_failure():
    """Call it after a build has failed.  Returns whether there is a problem now."""
    global _built, _failed
    built, failed = _counters()
    if built != _built or failed < _failed:  # a build was successful since, or kiln.configure made a new context
        _built, _failed = built, max(failed - 1, 0)
    return problem() is not None


def _wants_kernels():
    mode = kiln._settings.get("mode", "default")
    return (os.environ.get("KILN_MODE") if mode == "default" else mode) not in ("interp", "frozen")


def _found(start):
    """The text after `start` in the line of kiln.show_config() that begins with `start`, or ""."""
    lines = kiln.show_config().splitlines()
    return next((line.removeprefix(start) for line in lines if line.startswith(start)), "")


def problem():
    """Why no kernels are built, as a sentence; None: there is no problem."""
    if not _wants_kernels():
        return None
    if not _kiln.bridge_compiler():  # then show_config() has no compiler that it could start
        return "there is no compiler that works (" + _found("!compiler: none: ").removesuffix("; calls without a kernel are interpreted") + ")"
    built, failed = _counters()
    if built == _built and failed - _failed >= _IN_A_ROW:
        return f"{failed - _failed} builds in a row have failed (" + _found("!failed compiles: ") + ")"
    return None


def warn(taken, chosen, stacklevel):
    """Warns once for each kind of problem.  taken: how many operators are taken; chosen: not enable("default")."""
    text = problem()
    kind = text and text.partition("(")[0].lstrip("0123456789")
    if not text or kind in _warned:
        return
    _warned.add(kind)
    what = f"the {taken} operators that were asked for may be slower than PyTorch's" if chosen else \
        f"kiln.torch takes only the {taken} operators that have a kernel in a pack or are no slower than PyTorch's when they are interpreted"
    warnings.warn(f"Kiln builds no kernels: {text}. Calls without a kernel are interpreted, so {what}. {_ADVICE}", RuntimeWarning, stacklevel=stacklevel + 1)
