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
from . import _kiln
from ._kiln import (  # noqa: F401
    Op, Tensor, __version__, bfloat16, bool, call, complex64, complex128, dtype, float16, float32, float64, int8, int16,
    int32, int64, last_tier, load_ops, op, ops, show_config, stats, trim, uint8, uint16, uint32, uint64, wait_idle)

__all__ = [
    "Op", "Tensor", "bfloat16", "call", "complex64", "complex128", "configure", "dtype", "explain", "float16", "float32",
    "float64", "infer_results", "int8", "int16", "int32", "int64", "last_tier", "load_ops", "op", "ops", "show_config", "stats", "trim",
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


def configure(*, cache_dir=None, mode=None, cc=None, isa=None, dump_dir=None, max_kernels=None, threads=None):
    """Reopens the default context with these settings, over those given before; None leaves one as it is.

    mode: "tiered" (compile in the background what is called often), "sync" (compile on the first call), "interp" (never),
    "frozen" (never, and count what is missing) or "default" (KILN_MODE of the environment, or "tiered").
    max_kernels: classes kept in memory; 0 is the default: KILN_MAX_KERNELS, or 4,000.
    threads: that one call may use; 0 is the default: KILN_THREADS, or as many as there are CPUs to run on.
    The environment's numbers are at least 1.  Rows loaded with load_ops are loaded again; counters start at zero.
    """
    import operator
    import os
    texts = {"cache_dir": cache_dir, "mode": mode, "cc": cc, "isa": isa, "dump_dir": dump_dir}
    counts = {"max_kernels": max_kernels, "threads": threads}
    given = {name: os.fspath(value) for name, value in texts.items() if value is not None}
    given |= {name: operator.index(value) for name, value in counts.items() if value is not None}
    merged = {**_settings, **given}
    _kiln.configure(merged)
    _settings.clear()
    _settings.update(merged)


def explain(call, /, *args, stage="source", **kwargs):
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


def infer_results(name, /, *args, **kwargs):
    """What call(name, *args, **kwargs) would give, without computing it: a list of named tuples, one for each result.

    dtype: a kiln.dtype; shape; strides, in elements; arg: the name of the argument that is written and returned ("self"
    of a call in place, "out"), or None where the result is new.  None in place of a result that would not be given.  Raises what the call would raise, but for what only
    computing shows, as integer division by zero, and for gradients that it would lose.
    """
    from ._helpers import ResultInfo
    return [result and ResultInfo(*result) for result in _kiln.infer_results(name, *args, **kwargs)]
