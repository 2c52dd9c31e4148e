"""PyTorch's eager operators served by Kiln.

    >>> import torch, kiln.torch
    >>> kiln.torch.enable()
    >>> torch.add(torch.ones(3), 2)
    tensor([3., 3., 3.])
    >>> kiln.torch.disable()

enable() puts Kiln's kernels under torch.* for tensors in this machine's memory, below autograd, torch.autocast and
torch.func, so that programs stay as they are.  A call that Kiln does not answer goes to PyTorch's own kernel and is counted:
print(kiln.torch.status()).  Needs PyTorch 2.10 or later, and a bridge built for it: python -m kiln.torch build.
"""
import atexit
import contextlib
import difflib
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from .. import _kiln
from .._lock import lock as _lock

if not _kiln.in_main_interpreter:  # PyTorch crashes in others
    raise ImportError("kiln.torch cannot be imported in a subinterpreter: PyTorch works in the main interpreter only")

import torch  # noqa: E402

from . import _build, _compiler, _trace  # noqa: E402

__all__ = ["Status", "define", "disable", "enable", "enabled", "status"]

_OLDEST = (2, 10)
_FITS = 0  # ORDER: kiln_bridge_fit
_LEFT_ALONE = {
    1: "this PyTorch does not have it",
    2: "this PyTorch has it with another schema",
    3: "PyTorch computes it, and its gradient, by other operators",
    4: "PyTorch has no kernel for it on the CPU",
    5: "it has arguments that cannot be passed on",
    6: "it has a result that is no tensor",
}
_loaded = False
_which = []  # what enable() was asked for
_changing = False  # what is taken is being changed; under the lock


def _load():
    """Loads the bridge for the running PyTorch.  kiln.call and kiln.op then make their torch tensors by it, too."""
    global _loaded
    if _loaded:
        return
    version = tuple(int(part) for part in torch.__version__.split("+")[0].split(".")[:2])
    if version < _OLDEST:
        raise RuntimeError(f"kiln.torch needs PyTorch {_OLDEST[0]}.{_OLDEST[1]} or later, and this is {torch.__version__}")
    refused = []
    for path in _build.found():
        try:
            built_for = _kiln.bridge_open(str(path))
        except ImportError as error:
            refused.append(str(error))
            continue
        if built_for == torch.__version__.split("+")[0]:
            atexit.register(disable)
            _loaded = True
            return
        refused.append(f"{path} was built for PyTorch {built_for}, and this is {torch.__version__}")
    why = "; ".join(refused) or f"there is no bridge for PyTorch {torch.__version__}"
    raise RuntimeError(f"{why}: run  python -m kiln.torch build")


def _served():
    return [name for name in _kiln.ops() if name.startswith("aten::")]


def _overloads(name, served):
    """The operators that a name means: one overload, or, where it has none, all of that name."""
    full = name if "::" in name else f"aten::{name}"
    if full.endswith(".default"):
        return {full.removesuffix(".default")} & served
    if "." in full:
        return {full} & served
    return {other for other in served if other.partition(".")[0] == full}


def _named(names):
    served = set(_served())
    found = set()
    for name in names:
        if not isinstance(name, str):
            raise TypeError(f"an operator's name must be str, not {name!r}")
        these = _overloads(name, served)
        if not these:
            short = name.removeprefix("aten::")
            known = {other.removeprefix("aten::") for other in served}
            near = difflib.get_close_matches(short, sorted(known | {other.partition(".")[0] for other in known}), 3)
            hint = f"; did you mean {', '.join(near)}?" if near else ""
            raise ValueError(f"Kiln serves no operator {name!r}{hint}")
        fitting = {other for other in these if _kiln.bridge_fit(other) == _FITS}
        if not fitting:
            why = _LEFT_ALONE[_kiln.bridge_fit(min(these))]
            raise ValueError(f"{name} cannot be taken: {why}")
        found |= fitting
    return found


def _default(interpreted):
    """The operators of default.txt; interpreted: only those that are no slower than PyTorch's without a kernel, too, or have one in a pack."""
    table = (Path(__file__).parent / "default.txt").read_text().splitlines()
    rows = [line.split() for line in table if line and not line.startswith("#")]
    packed = set(_kiln.packed_ops()) if interpreted else ()
    fine = {f"aten::{name}" for name, *marks in rows if not interpreted or "interpreted" in marks or f"aten::{name}" in packed}
    return fine & set(_served())


def _wanted(which):
    """The operators that `which` means; those that do not fit this PyTorch may be among them."""
    if which == "all":
        return set(_served())
    if which == "default":
        return _default(interpreted=_compiler.problem() is not None)
    if isinstance(which, str):
        raise ValueError(f"which must be 'default', 'all' or a list of names, not {which!r}")
    if not isinstance(which, Iterable):
        raise TypeError(f"which must be 'default', 'all' or a list of names, not {which!r}")
    return _named(which)


def _taken():
    """Of the bridge itself: rows that were replaced may have been given back."""
    return _kiln.bridge_taken()


def _set(names):
    """Takes those of these operators that fit, and no others; or raises, and those that were taken before stay taken."""
    before = _taken()
    refused = {name: fit for name in sorted(names - before) if (fit := _kiln.bridge_take(name)) != _FITS}
    refused = {name: fit for name, fit in refused.items() if _kiln.bridge_fit(name) == _FITS}
    for name in sorted((names - before if refused else before - names) & _taken()):
        _kiln.bridge_drop(name)
    if refused:
        name, fit = next(iter(refused.items()))
        raise RuntimeError(f"{len(refused)} of {len(names)} operators could not be taken, so nothing has changed; "
                           f"{name}: {_LEFT_ALONE.get(fit, fit)}")


def _change(which, names):
    global _changing, _which
    _changing = True
    try:
        _set(names)
        _which = which
        if which == "default" and _compiler.problem():  # builds may have failed meanwhile
            _set(_wanted(which))
    finally:
        _changing = False


def _builds_failed():
    """Called on the main thread, between any two of its instructions, after builds have failed."""
    if not _taken() or not _compiler.note_failure():
        return
    with _lock:
        if _which == "default" and not _changing:
            _change(_which, _wanted(_which))
        taken, chosen = len(_taken()), _which != "default"
    _compiler.warn(taken, chosen, stacklevel=2)


def enable(which="default"):
    """Serves operators of torch.* from now on, in all threads; those taken before and not named here are given back.

    which: "default", the operators that were measured to be no slower than PyTorch's; "all" that Kiln serves; or names,
    with or without "aten::" and an overload: ["add", "mul.Tensor"].

    Without a compiler, "default" means the operators that are no slower even when they are interpreted.  If builds fail later, the
    others are given back.  Either is said once, by a RuntimeWarning.
    """
    if torch.compiler.is_compiling() or torch.jit.is_tracing():
        raise RuntimeError("kiln.torch.enable() cannot be called inside a trace: call it before")
    with _lock:
        _load()
        _compiler.forgive()
        _change(which, _wanted(which))
        _kiln.bridge_watch(_builds_failed)
        taken = len(_taken())
    if taken or which == "default":
        _compiler.warn(taken, which != "default", stacklevel=2)


def disable():
    """Gives every operator back; PyTorch's dispatcher is as it was."""
    with _lock:
        if _loaded:
            _kiln.bridge_watch(None)
            _change([], set())


@contextlib.contextmanager
def enabled(which="default"):
    """Within it, enable(which); after it, what was taken before."""
    with _lock:
        before = _which, _taken()
        enable(which)
    try:
        yield
    finally:
        with _lock:
            _change(*before)


def define(name, row, *, differentiable=True, replace=False):
    """Makes an operator of PyTorch's of a row (docs/OPS.md): the operator, which is torch.ops.NAMESPACE.NAME, too.

        define("my::swiglu", "map my::swiglu(Tensor x, Tensor gate) -> Tensor : takes float = x * gate * sigmoid(gate)")

    It has a kernel for the CPU, gradients of every order, and works under torch.compile, torch.export and torch.func.  Gradients are
    derived from the row, or stated by its `grad` clause; NotImplementedError names what has no derivative, unless
    differentiable is False.  The same row again is fine; another of the name is a ValueError, unless replace is True.
    """
    if torch.compiler.is_compiling() or torch.jit.is_tracing():
        raise RuntimeError("kiln.torch.define() cannot be called inside a trace: call it before")
    with _lock:
        _load()
        from . import _define  # imports much of PyTorch, which enable() can do without
        return _define.define(name, row, differentiable=differentiable, replace=replace)


class Row(NamedTuple):
    operator: str
    taken: bool
    served: int
    handed_back: dict[str, int]  # why: how often
    defined: bool = False  # by define(), and not PyTorch's


class Work(NamedTuple):
    """How far calls run by kernels: of this process, since the last kiln.configure, kiln.call included."""
    compiled: int  # calls that a kernel answered
    interpreted: int
    built: int  # kernels
    waiting: int  # kernels that are being built, or queued
    failed: int  # builds
    problem: str | None  # why no more kernels are to be expected

    def __str__(self):
        calls = self.compiled + self.interpreted
        share = f" ({100 * self.compiled / calls:.0f} %)" if calls else ""
        text = (f"{self.compiled} calls by kernels{share}, {self.interpreted} interpreted; "
                f"{self.built} kernels built, {self.waiting} on their way, {self.failed} builds failed")
        return f"{text}\nno kernels are built: {self.problem}" if self.problem else text


class Status(NamedTuple):
    """What is taken and what became of the calls; print() shows a table."""
    rows: list[Row]
    left_alone: dict[str, str]  # operators that Kiln serves and PyTorch must keep: why
    work: Work
    threads: tuple[str, int]  # whose threads run Kiln's large calls, and how many one call may use

    def __str__(self):
        taken = sum(row.taken for row in self.rows)
        lines = [f"{taken} operators taken, {sum(r.served for r in self.rows)} calls served, "
                 f"{sum(sum(r.handed_back.values()) for r in self.rows)} handed back to PyTorch", str(self.work),
                 f"large calls run on threads that are {self.threads[0]}: up to {self.threads[1]} for a call"]
        called = [row for row in self.rows if row.served or row.handed_back]
        if called:
            lines.append(f"{'operator':32} {'served':>12} {'handed back':>12}")
        for row in sorted(called, key=lambda row: -row.served):
            name = row.operator.removeprefix("aten::") + ("" if row.taken or row.defined else " (given back)")
            lines.append(f"{name:32} {row.served:12} {sum(row.handed_back.values()):12}")
            lines += [f"    {n} handed back: {why}" for why, n in row.handed_back.items()]
        reasons = sorted(set(self.left_alone.values()))
        lines += [f"left alone, since {reason}: {sum(text == reason for text in self.left_alone.values())}" for reason in reasons]
        return "\n".join(lines)


def _work():
    stats = _kiln.stats()
    return Work(stats["calls"] - stats["interp_calls"], stats["interp_calls"], stats["compiles"], stats["builds_waiting"],
                stats["compile_failures"], _compiler.problem())


def status():
    """What is taken, calls served, calls handed back and why, operators left alone, how far calls run by kernels, and the threads in use, as a Status."""
    with _lock:
        _load()
        fits = {name: _kiln.bridge_fit(name) for name in _served()}
        left = {name: _LEFT_ALONE[fit] for name, fit in fits.items() if fit != _FITS}
        return Status([Row(*counts) for counts in _kiln.bridge_counts()], left, _work(), _kiln.threads())


with contextlib.suppress(RuntimeError):
    _load()


_trace.register()
