"""Every operator through every surface (torch.*, kiln.call, kiln.op), with facts about tensors beside their values.

Each overload that Kiln serves is called by position and by keywords alone, on ordinary tensors and on inference tensors, inside
inference mode and outside.  Results, written arguments, version counters and what else PyTorch keeps of a tensor must be what
PyTorch's own call gives, and Kiln must refuse what PyTorch refuses.  User operators are redefined between calls.
"""
import contextlib
import itertools
import warnings

import pytest
import torch

import kiln
import kiln.torch
from compare import tally
from outcome import RAISES, differ, is_any_place, outcome, results_differ, tensors
from test_around import arguments as simple_arguments, as_inference, kept
from sanitized import SANITIZED
from test_backward import arguments, overload, ways
from whole import WHOLE

TOGETHER = 60  # overloads that are run each time Kiln is enabled
SIMPLE = ("_fused_ad", "_fused_sgd", "poisson_nll_loss")  # whose arguments test_backward.py does not make

# Calls that differ from PyTorch's, and why: through kiln.call and kiln.op, and through every surface.
OWN = {
    "aten::conj_physical": "PyTorch gives a real argument itself; results of Kiln's own calls are new",
    "batch_norm": "PyTorch counts no writes to running statistics and does not check them; Kiln's own calls do both",
    "aten::_fused_sgd_": "PyTorch does not check momentum buffers; Kiln's own calls do",
}
EVERYWHERE = {
    "aten::binary_cross_entropy.out": "PyTorch computes the losses in the output before it reduces them, and so refuses an output of the result's shape",
}


def known_to_pytorch(name):
    try:
        torch._C._dispatch_find_schema_or_throw(*(name.split(".", 1) if "." in name else (name, "")))
    except RuntimeError:
        return False
    return True


SERVED = sorted(name for name in kiln.ops() if name.startswith("aten::") and known_to_pytorch(name))
GROUPS = [SERVED[k:k + TOGETHER] for k in range(0, len(SERVED), TOGETHER)]


# -- arguments ------------------------------------------------------------------------------------------------------------

def changed(value, change):
    """The same with change(tensor) for each tensor."""
    if isinstance(value, torch.Tensor):
        return change(value)
    if isinstance(value, (list, tuple)):
        return [changed(v, change) for v in value]
    return {key: changed(v, change) for key, v in value.items()} if isinstance(value, dict) else value


def simple(name):
    op = overload(name)
    given = simple_arguments(op, torch.float32)
    return ([v for v, a in zip(given, op._schema.arguments) if not a.kwarg_only],
            {a.name: v for v, a in zip(given, op._schema.arguments) if a.kwarg_only})


def of_any_shape(name):
    """A function that makes arguments anew, by position and by name: such as PyTorch accepts, if any are known."""
    found = None if any(part in name for part in SIMPLE) else next(ways(name), None)

    def make():
        args, kwargs = arguments(name, *found) if found else simple(name)
        for k, argument in enumerate(overload(name)._schema.arguments[:len(args)]):
            if argument.name == "input_dtype":
                args[k] = torch.float32
        return args, kwargs
    return make


def maker(name):
    """The same, where outputs have their results' shapes: Kiln's own calls resize none but empty ones."""
    make = of_any_shape(name)
    args, kwargs = make()
    with warnings.catch_warnings(), contextlib.suppress(*RAISES):
        warnings.simplefilter("ignore")  # outputs are resized
        overload(name)(*args, **kwargs)
    fitting = {key: changed(value, torch.clone) for key, value in kwargs.items() if tensors(value)}

    def make_fitting():
        args, kwargs = make()
        return args, kwargs | changed(fitting, torch.clone)
    return make_fitting


def short(name):
    """Of all overloads, which the arguments choose among."""
    return name.removeprefix("aten::").partition(".")[0]


def by_keyword(name, args, kwargs):
    """The same arguments, none by position; those that have their default are left out."""
    schema = overload(name)._schema
    given = {a.name: v for a, v in zip(schema.arguments, args)} | kwargs
    left_out = {a.name for a in schema.arguments if a.has_default_value() and a.default_value is given[a.name]}
    return [], {key: v for key, v in given.items() if key not in left_out}


STYLES = {"by position": lambda name, args, kwargs: (args, kwargs), "by keyword": by_keyword}
SURFACES = {"torch": overload, "kiln.call": lambda name: lambda *args, **kwargs: kiln.call(name, *args, **kwargs), "kiln.op": kiln.op,
            "kiln.op of the short name": lambda name: kiln.op(short(name))}
TENSORS = {"ordinary": lambda value: value, "inference": lambda value: changed(value, as_inference)}
MODES = {"outside": contextlib.nullcontext, "inside": torch.inference_mode}


# -- what a call comes to ---------------------------------------------------------------------------------------------------

def facts(t, *but):
    return ", ".join(f"{key} {value}" for key, value in kept(t).items() if key not in but)


def version(t):
    return 0 if t.is_inference() else t._version


class Draw:
    """An operator, arguments, the kind of their tensors, and the mode."""

    def __init__(self, name, make, kind, mode):
        self.name, self.make, self.kind, self.mode = name, make, kind, mode

    def run(self, target, style, own):
        """What a program can see after the call.  The cause of an error says whether the call has written before it was refused.

        Two things are not compared.  Where PyTorch composes a new result of several operators that count their writes, its
        version does not begin with 0.  And those operators may count a write twice that Kiln's own surfaces count once."""
        args, kwargs = TENSORS[self.kind](self.make())
        given = tensors((args, kwargs))
        before, content = [version(t) for t in given], [t.tolist() for t in given]
        args, kwargs = STYLES[style](self.name, args, kwargs)
        try:
            with MODES[self.mode]():
                results = tensors(target(*args, **kwargs))
        except RAISES as error:
            raise error from (ValueError("written") if str([t.tolist() for t in given]) != str(content) else None)
        counts = [version(t) - n for t, n in zip(given, before)]
        left_out = ("version", "view") if own or (self.kind, self.mode) == ("inference", "outside") else ()
        new = [not any(t is other for other in given) for t in results]
        return (results, [facts(t, *left_out) for t, is_new in zip(results, new) if is_new], new,
                given, [facts(t, "version") for t in given], [n > 0 for n in counts] if own else counts)

    def outcome(self, target, style, own):
        return outcome(self.run, target, style, own)

    def differences(self, surfaces):
        """Of each surface and style, from PyTorch's own call, which is made now."""
        native = {own: self.outcome(overload(self.name), "by position", own) for own in (False, True)}

        def compare():
            for surface, target in surfaces.items():
                own = surface != "torch"
                if any(part in self.name for part in OWN) and own or self.name in EVERYWHERE:
                    continue
                for style in STYLES:
                    tally.cases["overloads through torch.*, kiln.call and kiln.op, by position and by keyword"] += 1
                    said = said_of(self.outcome(target(self.name), style, own), native[own], own)
                    if said and not is_any_place(self.name, said):
                        yield f"{self.name} through {surface} {style}, {self.kind} tensors {self.mode} inference mode: {said}"
        return compare


def said_of(ours, native, own):
    """How they differ.  Kiln's own surfaces refuse in words of their own, and write nothing then.  They give no warnings."""
    if not own:
        return differ(ours, native)
    if ours.warned:
        return f"warned {ours.warned}"
    if ours.error is None or native.error is None:
        return results_differ(ours, native, None, lambda: None)
    if "inference tensor" in str(native.error) and "inference tensor" not in str(ours.error):
        return f"{ours.error!r}, PyTorch {native.error!r}"
    return f"{ours.error!r}, and arguments were written" if ours.error.__cause__ else None


def draws(names):
    """All kinds and modes of each; under sanitizers, where a call takes long, one of each in turn."""
    for k, name in enumerate(names):
        make, all_of_them = maker(name), list(itertools.product(TENSORS, MODES))
        for kind, mode in [all_of_them[k % 4]] if SANITIZED and not WHOLE else all_of_them:
            yield Draw(name, make, kind, mode)


@pytest.mark.usefixtures("interpreted")
@pytest.mark.parametrize("names", GROUPS, ids=lambda names: f"{names[0]}..{names[-1]}")
def test_surfaces(names):
    comparisons = [draw.differences(SURFACES) for draw in draws(names)]
    with kiln.torch.enabled("all"):
        said = [line for compare in comparisons for line in compare()]
    assert not said, f"{len(said)} calls differ:\n" + "\n".join(said)


def uncounted(args):
    args[0].data.mul_(2)
    return args[0]


def unchecked(args):
    with torch.inference_mode():
        return args[0].mul_(2)


@pytest.mark.parametrize("kind, wrong", [("ordinary", uncounted), ("inference", unchecked)])
@pytest.mark.parametrize("surface", SURFACES)
def test_planted(surface, kind, wrong):
    """A write that is not counted, and one to an inference tensor that is not refused, are seen of every surface."""
    draw = Draw("aten::mul_.Scalar", lambda: ([torch.ones(3), 2], {}), kind, "outside")

    def planted(name):
        return lambda *args, **kwargs: wrong([*args, *kwargs.values()])
    assert not list(draw.differences({surface: SURFACES[surface]})())
    assert len(list(draw.differences({surface: planted})())) == len(STYLES)


# -- redefinition -----------------------------------------------------------------------------------------------------------

def summed_up(term):
    return f"takes float\n    over dim\n    state s: wide = 0\n    step s = s + {term}\n    finish s"


# A schema, and rows with what PyTorch makes of them: each replaces the one before it.
ROWS = {
    "map": ("(Tensor x, Tensor y)", [
        ("map", "takes float = x * y", lambda x, y: x * y), ("map", "takes float = x - y", lambda x, y: x - y),
        ("map", "takes real to_float = x * x + y", lambda x, y: x * x + y)]),
    "fold": ("(Tensor x, Tensor y)", [
        ("fold", "takes float = acc + x * y from 0", lambda x, y: (x * y).sum()),
        ("fold", "takes float = acc + (x - y) from 0", lambda x, y: (x - y).sum())]),
    "other family": ("(Tensor x, Tensor y)", [
        ("map", "takes float = x * y", lambda x, y: x * y), ("fold", "takes float = acc + x * y from 0", lambda x, y: (x * y).sum()),
        ("map", "takes float = x + 2 * y", lambda x, y: x + 2 * y)]),
    "same row": ("(Tensor x, Tensor y)", [("map", "takes float = x * y", lambda x, y: x * y)] * 2),
    "scan": ("(Tensor x, Tensor y, int dim=-1)", [
        ("scan", summed_up("x * y"), lambda x, y: (x * y).cumsum(-1)), ("scan", summed_up("x - y"), lambda x, y: (x - y).cumsum(-1))]),
    "composition": ("(Tensor x, Tensor y)", [
        ("compose", "call aten::mul.Tensor(x, y)", lambda x, y: x * y),
        ("compose", "call z = aten::sub.Tensor(x, y)\n    call aten::exp(z)", lambda x, y: (x - y).exp()),
        ("map", "takes float = x / y", lambda x, y: x / y)]),
}


def row(family, name, schema, body):
    return f"{family} {name}{schema} -> Tensor" + ("\n    " if family == "compose" else " : ") + body + "\n"


@pytest.mark.parametrize("mode", ["interp", "sync", "tiered"])
@pytest.mark.parametrize("what", ROWS)
def test_redefined_between_calls(what, mode):
    """Callables that were made before, and names, mean the newest row; so do calls by keyword and of other tensors."""
    schema, rows = ROWS[what]
    name = f"redefined::{what.replace(' ', '_')}_{mode}"
    x, y, held = torch.rand(5, 3) + 1, torch.rand(3) + 1, []
    kiln.configure(mode=mode)
    try:
        for family, body, want in [*rows, *rows]:
            kiln.load_ops(row(family, name, schema, body), replace=True)
            held.append(kiln.op(name))
            for _ in range(3):
                for op in (*held, lambda *args, **kwargs: kiln.call(name, *args, **kwargs)):
                    tally.cases["calls of operators that were redefined"] += 3
                    torch.testing.assert_close(op(x, y), want(x, y))
                    torch.testing.assert_close(op(y=y.double(), x=x.double()), want(x.double(), y.double()))
                    torch.testing.assert_close(torch.from_dlpack(op(kiln.Tensor(x), kiln.Tensor(y))), want(x, y))
    finally:
        kiln.configure(mode="default")


@pytest.mark.parametrize("what", ROWS)
def test_defined_anew_between_calls(what):
    """The same of an operator of PyTorch's: through torch.ops and through Kiln's own surfaces, forward and backward."""
    schema, rows = ROWS[what]
    name = f"anew::{what.replace(' ', '_')}"
    x, y = torch.rand(5, 3, dtype=torch.float64) + 1, torch.rand(3, dtype=torch.float64) + 1
    for family, body, want in [*rows, *rows]:
        has_gradients = family not in ("scan", "compose")
        made = kiln.torch.define(name, row(family, name, schema, body), differentiable=has_gradients, replace=True)
        ours = (made, getattr(torch.ops.anew, name.removeprefix("anew::")), kiln.op(name), lambda *args, **kwargs: kiln.call(name, *args, **kwargs))
        for k, op in enumerate(ours):
            tally.cases["calls of operators that were redefined"] += 2
            torch.testing.assert_close(op(x, y), want(x, y))
            torch.testing.assert_close(op(y=y, x=x), want(x, y))
            leaves = x.clone().requires_grad_(), y.clone().requires_grad_()
            if k < 2 and has_gradients:
                torch.testing.assert_close(torch.autograd.grad(op(*leaves).sum(), leaves), torch.autograd.grad(want(*leaves).sum(), leaves))
