"""What a piece of PyTorch code comes to, with Kiln and without it, and a text that says how the two differ.

An outcome is all values that the code gives, or its exception, and the warnings that were shown.  Two outcomes are the same if
each tensor has the same dtype, sizes, strides and values (as tests/ops/compare.py judges), other values are equal, an exception
has the same type and text, and the warnings have the same categories and texts, in the same order.  Warnings that PyTorch shows
once per process are shown each time here.  Values that differ are right, and counted, where PyTorch's own f64 says so, or mpmath
(tests/ops/exact.py); and where each operator that ran below gave what PyTorch gives for the same arguments: differences within the
tolerance add up, in halves soon.
"""
import contextlib
import random
import re
import warnings
from dataclasses import dataclass, field

import numpy as np
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map

import exact
import kiln.torch
from compare import TOLERANCE, difference, tally

RAISES = (RuntimeError, TypeError, IndexError, ValueError, AssertionError, AttributeError, KeyError, OverflowError)

UNDEFINED = ("empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided")  # content


@dataclass
class Outcome:
    values: list = field(default_factory=list)
    error: Exception | None = None
    warned: list = field(default_factory=list)  # (category, text) of each warning, in order


def tensors(value):
    return [t for t in tree_flatten(value)[0] if isinstance(t, torch.Tensor)]


def seed():
    torch.default_generator.manual_seed(7)
    random.seed(7)
    np.random.seed(7)


@contextlib.contextmanager
def every_warning():
    """A list that gets (category, text) of each warning shown within, those that PyTorch shows once per process included."""
    shown, always = [], torch.is_warn_always_enabled()
    torch.set_warn_always(True)
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            warnings.filterwarnings("ignore", "`torch.jit.script` is deprecated")  # only when first needed, by PyTorch itself
            yield shown
    finally:
        torch.set_warn_always(always)
        shown += [(w.category.__name__, str(w.message)) for w in caught]


class WithinBinding:
    """An argument for torch.neg, which then runs code.  torch.neg is a Python binding, and bindings turn warnings of C++ into
    Python's.  torch.ops is no binding: without one around it, the warnings of its calls go to stderr, where no test compares them."""
    def __init__(self, run):
        self.run = run

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        return args[0].run()


def heard(function, *args, **kwargs):
    """function(*args, **kwargs), with all warnings of C++ as Python's."""
    return torch.neg(WithinBinding(lambda: function(*args, **kwargs)))


def outcome(function, *given):
    """What function(*given) comes to, given in a copy of its own."""
    seed()
    with every_warning() as warned:
        try:
            return Outcome(values=tree_flatten(heard(function, *given))[0], warned=warned)
        except RAISES as e:
            return Outcome(error=e, warned=warned)


def text(error):
    """Of an exception, without what differs from run to run, addresses, where in C++ it was thrown, and elements of tensors
    in it, which may be nobody's yet, and without the kernel for the CPU in a list of all kernels of an operator: Kiln's
    is there while it is enabled."""
    left_out = ("Exception raised from", "frame #", "CPU: ")
    lines = [line for line in str(error).split("\n") if not line.startswith(left_out)]
    plain = re.sub(r"0x[0-9a-f]+", "0x", "\n".join(lines)).strip()
    return re.sub(r"tensor\([^()]*\)", "tensor", plain)


# -- the operators below ------------------------------------------------------------------------------------------------

@dataclass
class Step:
    """An operator that ran, its arguments and the generator as they were, and what came of it."""
    func: object
    generator: torch.Tensor
    args: tuple
    kwargs: dict
    result: Outcome

    def run(self, convert=lambda value: value):
        torch.default_generator.set_state(self.generator)
        args, kwargs = convert(copies((self.args, self.kwargs)))
        return self.func(*args, **kwargs)

    def judge(self):
        """Which elements are right by mpmath; None for an operator that it does not know."""
        if not exact.function_of(self.func.name()):
            return None
        return lambda wrong, actual: exact.right(self.func.name(), self.args, self.kwargs, wrong, actual,
                                                 TOLERANCE[actual.dtype])

    def is_same(self):
        if self.func.overloadpacket.__name__ in UNDEFINED or self.func.is_view:  # a view computes nothing
            return True
        native = outcome(self.run)
        return not differ(self.result, native, lambda: outcome(self.run, doubled), self.judge)


class Recorder(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.steps = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        before = torch.default_generator.get_state(), *copies((args, kwargs or {}))
        with every_warning() as warned:
            result = heard(func, *args, **kwargs or {})
        self.steps.append(Step(func, *before, Outcome(tree_flatten(copies(result))[0], warned=warned)))
        return result


def copied(t):
    """With its strides, whatever they are."""
    if not isinstance(t, torch.Tensor):
        return t
    if type(t) not in (torch.Tensor, torch.nn.Parameter) or t.layout is not torch.strided or t.is_quantized or t.is_conj() or t.is_neg():
        return t.detach().clone()
    return torch.empty(0, dtype=t.dtype).set_(t.untyped_storage().clone(), t.storage_offset(), t.shape, t.stride())


def copies(value):
    return tree_map(copied, value)


def steps_are_same(function, *given):
    """Whether each operator below, with Kiln, gives what PyTorch gives for the same arguments."""
    with kiln.torch.enabled("all"), Recorder() as recorder:
        outcome(function, *given)
    return all(step.is_same() for step in recorder.steps)


ANY_PLACE = {"kthvalue", "median", "mode", "nanmedian"}


def is_any_place(name, said):
    """Whether all that differs is which of several equal elements was picked, of which PyTorch gives any (tests/ops/test_select.py looks at it)."""
    same = name.removeprefix("aten::").partition(".")[0] in ANY_PLACE and said.startswith("value 1: i64 at ")
    tally.notes["calls that pick another of several equal elements"] += same
    return same


# -- comparing -----------------------------------------------------------------------------------------------------------

def differ(ours, native, in_double=None, judge=lambda: None):
    """None, or how they differ.  in_double: gives the native outcome in f64; judge: gives who else may judge the values."""
    return results_differ(ours, native, in_double, judge) or warnings_differ(ours, native)


def warnings_differ(ours, native):
    return None if ours.warned == native.warned else f"warnings {ours.warned}, without Kiln {native.warned}"


def results_differ(ours, native, in_double, judge):
    if ours.error is not None or native.error is not None:
        if type(ours.error) is type(native.error) and text(ours.error) == text(native.error):
            return None
        return f"{type(ours.error).__name__} {text(ours.error)}, without Kiln {type(native.error).__name__} {text(native.error)}"
    if len(ours.values) != len(native.values):
        return f"{len(ours.values)} values, without Kiln {len(native.values)}"
    widened = None
    for k, (a, e) in enumerate(zip(ours.values, native.values)):
        said = value_differs(a, e)
        if said and in_double and said != shape_differs(a, e):
            widened = widened or in_double()
            same = widened.error is None and len(widened.values) == len(native.values)
            said = value_differs(a, e, widened.values[k] if same else None, judge())
        if said:
            return f"value {k}: {said}"
    return None


def shape_differs(a, e):
    """How they differ in all but values."""
    if not isinstance(a, torch.Tensor) or type(a) is not type(e):
        return None if type(a) is type(e) else f"{a!r}, without Kiln {e!r}"
    for what in ("layout", "device", "dtype", "shape", "requires_grad", "is_quantized"):
        if getattr(a, what) != getattr(e, what):
            return f"{what} {getattr(a, what)}, without Kiln {getattr(e, what)}"
    if a.layout is torch.strided and a.stride() != e.stride():
        return f"strides {a.stride()}, without Kiln {e.stride()}"
    return None


def value_differs(a, e, widened=None, judge=None):
    said = shape_differs(a, e)
    if said or not isinstance(e, torch.Tensor):
        return said or (None if a == e or a != a and e != e else f"{a!r}, without Kiln {e!r}")
    if a.layout is not torch.strided or a.is_quantized or a.device.type != "cpu" or a.dtype not in COMPARED:
        return other_differs(a, e)
    a, e = (t.detach().resolve_conj().resolve_neg() for t in (a, e))

    def opinions(wrong):
        if isinstance(widened, torch.Tensor) and widened.shape == e.shape:
            tally.notes["values for which PyTorch was asked in f64 as well"] += 1
            yield widened.detach()[wrong].to(e.dtype)
    return difference(a, e, e.dtype, [], opinions, judge)


COMPARED = {torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.uint16, torch.uint32,
            torch.uint64, torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64, torch.complex128}


def other_differs(a, e):
    """Of tensors that have no elements in memory of their own: sparse, quantized, meta."""
    try:
        torch.testing.assert_close(a.detach(), e.detach(), equal_nan=True)
    except AssertionError as wrong:
        return str(wrong)
    except RAISES:  # nothing compares these: at least they print the same
        return None if repr(a) == repr(e) else f"{a!r}, without Kiln {e!r}"
    return None


def doubled(value):
    """The same in f64 and c128, where it is floating."""
    def widen(t):
        if not isinstance(t, torch.Tensor) or not (t.is_floating_point() or t.is_complex()):
            return t
        return t.to(torch.complex128 if t.is_complex() else torch.float64)
    return tree_map(widen, value)
