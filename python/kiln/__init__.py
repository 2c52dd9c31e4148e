"""Kiln: tensor operator calls turned into machine code, once per class of calls.

    >>> import kiln
    >>> x = kiln.Tensor([[1.0, 2.0], [3.0, 4.0]])
    >>> kiln.call("aten::add.Tensor", x, x, alpha=2)
    kiln.Tensor([[ 3.,  6.],
                 [ 9., 12.]], dtype=float32)

Tensors may be kiln.Tensor, torch tensors, NumPy arrays, or anything with __dlpack__; the result is of the kind
of the first one.  Gradients are not recorded: a call on a torch tensor that would lose some raises RuntimeError, unless
it is made under torch.no_grad() or on tensor.detach().

A NumPy scalar given for a tensor is an array without dimensions, of its dtype, and promotes as PyTorch's tensors without
dimensions do: numpy.float64(2) beside an array of float32 gives float32, alone or beside integers float64.  It decides the
kind of the result only where no tensor does; that is a numpy.ndarray then, as it is for arrays without dimensions.  Given
for a number it is that number.  Masked arrays, and arrays whose class has an __array_ufunc__ of its own (units), are refused.
"""
import atexit as _atexit
import os as _os

from . import _kiln
from ._kiln import (  # noqa: F401
    Op, Tensor, __version__, bfloat16, bool, call, complex64, complex128, dtype, evaluate, float16, float32, float64, int8, int16,
    int32, int64, last_tier, op, ops, prepare, show_config, stats, trim, uint8, uint16, uint32, uint64)
from ._lock import lock as _lock

__all__ = [
    "Op", "Tensor", "bfloat16", "call", "complex64", "complex128", "configure", "dtype", "evaluate", "explain", "float16", "float32",
    "float64", "infer_results", "int8", "int16", "int32", "int64", "kernels", "last_tier", "load_ops", "op", "ops", "prepare", "show_config", "stats", "trim",
    "uint8", "uint16", "uint32", "uint64", "wait_idle"]

_settings = {}


def __getattr__(name):
    if name in ("fx", "torch"):  # imported when they are asked for: they need PyTorch
        import importlib
        try:
            return importlib.import_module(f"kiln.{name}")
        except ModuleNotFoundError as error:
            if error.name != "torch":
                raise
            raise AttributeError(f"kiln.{name} needs PyTorch, and there is no module 'torch'") from error
    raise AttributeError(f"module 'kiln' has no attribute {name!r}")


def configure(*, cache_dir=None, mode=None, cc=None, isa=None, dump_dir=None, max_kernels=None, threads=None, log=None, cache=None,
              cache_size=None, cache_shared=None, key_file=None, packs=None, redis_url=None):
    """Gives the default context these settings, over those given before; None leaves one as it is.

    A new mode alone keeps the kernels that were compiled, unless it is "interp", which begins without any.  Any other setting opens a
    new context, which has no kernels at first.

    mode: "tiered" (compile in the background what is called often), "sync" (compile on the first call), "interp" (never),
    "frozen" (never, and count what is missing) or "default" (KILN_MODE of the environment, or "tiered").
    max_kernels: classes kept in memory; 0 is the default: KILN_MAX_KERNELS, or 4,000.
    threads: that one call may use; 0 is the default: KILN_THREADS, or as many as there are CPUs to run on.  Where PyTorch is
    loaded, never more than torch.get_num_threads().
    log: who is told of builds, failed builds and other events: a function of level (0 error, 1 warning, 2 info, 3 debug), topic and
    text, or a logging.Logger; False stops that.  A log alone leaves the context as it is.  A thread of Kiln's calls the function,
    soon after the event; wait_idle() returns when it was called for all events.
    cache: "disk" (kernels are kept in the folder `kernels` of cache_dir, and later processes use them), "memory" (no kernel is kept on disk),
    "off" (not even two classes of calls share a kernel) or "default" (KILN_CACHE of the environment, or "disk").
    cache_size: bytes of kernels on disk; 0 is the default: KILN_CACHE_SIZE, or 1 GiB.
    cache_shared: True if others may write cache_dir; then every kernel must be signed.  False is the default: KILN_CACHE_SHARED, or not.
    key_file: the file whose bytes sign kernels.  packs: files of kernels that are read only; one path, several with ':' between them,
    or a list of paths.  redis_url: a server that keeps kernels for many machines.  docs/CACHE.md has the whole of it.
    The environment's numbers are at least 1.  Rows loaded with load_ops are loaded again; counters start at zero.
    """
    import operator
    import os
    if isinstance(packs, (list, tuple)):
        if wrong := [pack for pack in packs if not isinstance(pack, (str, bytes, os.PathLike))]:
            raise TypeError(f"configure: packs must be paths, not {wrong[0]!r}")
        packs = ":".join(os.fsdecode(pack) for pack in packs)
    texts = {"cache_dir": cache_dir, "mode": mode, "cc": cc, "isa": isa, "dump_dir": dump_dir, "cache": cache, "key_file": key_file,
             "packs": packs, "redis_url": redis_url}
    counts = {"max_kernels": max_kernels, "threads": threads, "cache_size": cache_size, "cache_shared": cache_shared}
    for kind, method, values in (("str", "__fspath__", texts), ("int", "__index__", counts)):
        for name, value in values.items():
            if value is not None and not isinstance(value, (str, bytes) if kind == "str" else int) and not hasattr(value, method):
                raise TypeError(f"configure: {name} must be {kind}, not {value!r}")
    given = {name: os.fspath(value) for name, value in texts.items() if value is not None}
    given |= {name: operator.index(value) for name, value in counts.items() if value is not None}
    if log is not None:
        from . import _log
        _log.check(log)
    interprets = (os.environ.get("KILN_MODE") if mode == "default" else mode) == "interp"
    with _lock:
        merged = {**_settings, **given}
        keeps = mode is not None and not interprets and {**merged, "mode": mode} == {**_settings, "mode": mode}
        if given or log is None:
            (_kiln.set_mode if keeps else _kiln.configure)(merged)
            _settings.clear()
            _settings.update(merged)
        if log is not None:
            _log.set_log(log)


def _print_stats():
    """For KILN_STATS=1: what the calls and builds of the context came to."""
    import sys
    text = _kiln.stats_text()
    if text and sys.stderr:
        sys.stderr.write(text)


def wait_idle():
    """Returns when no compile is running or queued, and the log of configure has been told of those that ended."""
    import sys
    _kiln.wait_idle()
    if "kiln._log" in sys.modules:
        sys.modules["kiln._log"].tell_all()


def load_ops(text, /, *, replace=False):
    """Adds operators, given as rows; all or none of them.

    A row that is there already to the letter is passed over.  With replace, rows loaded before give way to new ones of their name.
    """
    import os
    if isinstance(text, os.PathLike) or (isinstance(text, str) and text.endswith(".ops") and not {"(", "\n"} & set(text)):
        raise TypeError(f"load_ops takes the text of rows, not the name of a file: write kiln.load_ops(open({os.fspath(text)!r}).read())")
    with _lock:
        _kiln.load_ops(text, replace=replace)


def explain(call, /, *args, stage="plan", **kwargs):
    """The text of one stage of a call: schema, bind, plan, key, ir, source or asm.

    call is an operator's name, followed by the arguments, or a whole call as text, in the language of the command
    `kiln explain`: explain("add.Tensor(f32[4,8], f32[8], alpha=2)", stage="key").
    """
    if not isinstance(call, str):
        raise TypeError(f"an operator's name must be str, not {call!r}")
    if "(" in call:
        if args or kwargs:
            raise TypeError("a call given as text holds its own arguments")
        return _kiln.explain_text(call, stage)
    return _kiln.explain(call, stage, *args, **kwargs)


def kernels():
    """The classes of calls that the context has in memory, each with what answers it: a list of named tuples, which print() shows as a table.

    operator; key: dtypes and strides of its operands, and what else is part of its code, in one line; tier: "compiled", "interp", or what
    needs no kernel: "routine", "view"; interp_calls: calls that the interpreter has run; build_ms: what building took;
    code_bytes: of the kernel; failed_builds.  Calls that a kernel answers are not counted by class, since that would slow each of them.
    Compiled classes come first, by the time that building took, then interpreted ones, by their calls.
    """
    from ._kernels import Kernel, Kernels
    return Kernels(sorted((Kernel(*row) for row in _kiln.kernels()), key=Kernel.order))


def infer_results(name, /, *args, **kwargs):
    """What call(name, *args, **kwargs) would give, without computing it: a list of named tuples, one for each result.

    dtype: a kiln.dtype; shape; strides, in elements; arg: the name of the argument that is written and returned ("self"
    of a call in place, "out"), or None where the result is new.  None in place of a result that would not be given.  Raises what the call would raise, but for what only
    computing shows, as integer division by zero, and for gradients that it would lose.
    """
    from ._helpers import ResultInfo
    return [result and ResultInfo(*result) for result in _kiln.infer_results(name, *args, **kwargs)]


if _os.environ.get("KILN_STATS") == "1":
    _atexit.register(_print_stats)
