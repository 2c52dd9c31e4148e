"""What PyTorch does around a CPU kernel, beside the computing: nothing of that may be lost when Kiln's kernel takes its place.

Every overload that the bridge can take is called with simple arguments, without Kiln and with it.  Version counters, checks of
inference tensors, what autograd keeps of the results, alerts of deterministic mode and records of the profiler must be equal.
docs/PYTORCH.md has the table.
"""
import contextlib
import warnings

import pytest
import torch
from torch.profiler import ProfilerActivity, profile

import kiln.torch
from kiln import _kiln
from outcome import tensors, text

FITS = 0  # ORDER: kiln_bridge_fit


def overloads():
    for name in _kiln.ops():
        if name.startswith("aten::") and _kiln.bridge_fit(name) == FITS:
            packet, _, overload = name.removeprefix("aten::").partition(".")
            yield getattr(getattr(torch.ops.aten, packet), overload or "default")


def tensor(seed, dtype):
    return (torch.rand(3, 4, generator=torch.Generator().manual_seed(seed)) + 0.25).to(dtype)


def value(argument, k, dtype):
    """Something simple of the type that the argument number k has."""
    kind = str(argument.type)
    if kind in ("List[Tensor]", "List[Optional[Tensor]]"):
        return [tensor(9 * k + j, dtype) for j in range(3)]
    if kind in ("Tensor", "Optional[Tensor]"):
        return None if argument.name in ("grad_scale", "found_inf") else tensor(k, dtype)
    if argument.has_default_value():
        return argument.default_value
    return {"List[number]": [1.5, 2.0, 0.5], "List[int]": [0], "int": 0, "number": 1.5, "float": 1.5, "bool": True}.get(kind)


def arguments(op, dtype, change=lambda tensor, j: tensor):
    """For each argument of the schema; change(tensor, j) of each tensor, j its place in a list."""
    given = [value(a, k, dtype) for k, a in enumerate(op._schema.arguments)]
    return [[change(x, j) if isinstance(x, torch.Tensor) else x for j, x in enumerate(v)] if isinstance(v, list)
            else change(v, 0) if isinstance(v, torch.Tensor) else v for v in given]


def call(op, given):
    """The results, or type and text of the error; and the text of each warning."""
    by_position = [v for v, a in zip(given, op._schema.arguments) if not a.kwarg_only]
    by_name = {a.name: v for v, a in zip(given, op._schema.arguments) if a.kwarg_only}
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        try:
            results, error = tensors(op(*by_position, **by_name)), None
        except Exception as e:
            results, error = [], (type(e).__name__, text(e))
    return results, error, [str(w.message) for w in said]


def kept(t):
    """What PyTorch keeps of a tensor beside its elements."""
    return {"version": None if t.is_inference() else t._version, "inference": t.is_inference(), "leaf": t.is_leaf,
            "requires_grad": t.requires_grad, "grad_fn": t.grad_fn and t.grad_fn.name(), "view": t._is_view(), "pinned": t.is_pinned(),
            "conj": t.is_conj(), "neg": t.is_neg(), "output_nr": t.output_nr}


def compare(op, make, context):
    """An error of op, or the facts about results and arguments after the call, equal with Kiln and without it."""
    def run():
        given = make()
        with context():
            results, *said = call(op, given)
        return [kept(t) for t in results], [kept(t) for t in tensors(given)], said
    native = run()
    with kiln.torch.enabled([op.name()]):
        ours = run()
    assert ours == native, op.name()


def served():
    return sum(row.served for row in kiln.torch.status().rows)


def as_inference(t):
    with torch.inference_mode():
        return t.clone()


ALL = list(overloads())
WRITING = [op for op in ALL if any(a.alias_info and a.alias_info.is_write for a in op._schema.arguments) or "batch_norm" in op.name()]
CONTEXTS = {"plain": contextlib.nullcontext, "no_grad": torch.no_grad, "inference_mode": torch.inference_mode,
            "below autograd": torch._C._AutoDispatchBelowAutograd, "below counting": torch._C._AutoDispatchBelowADInplaceOrView}
TENSORS = {"plain tensors": lambda t, j: t, "inference tensors": lambda t, j: as_inference(t),
           "an inference tensor among others": lambda t, j: as_inference(t) if j == 1 else t}


@pytest.mark.parametrize("kind", TENSORS)
@pytest.mark.parametrize("context", CONTEXTS)
def test_writes_are_counted_and_checked(context, kind):
    assert len(WRITING) > 500 and any("_foreach_" in op.name() for op in WRITING)
    before = served()
    for op in WRITING:
        for dtype in (torch.float32, torch.int64) if context == "plain" else (torch.float32,):
            compare(op, lambda: arguments(op, dtype, TENSORS[kind]), CONTEXTS[context])
    assert served() - before > 200


@pytest.mark.parametrize("write", [
    lambda w: torch._foreach_mul_([w], 10.0), lambda w: torch._foreach_add_([w], [w.detach().clone()]), lambda w: w.mul_(2),
    lambda w: torch._foreach_zero_([w]), lambda w: torch.ops.aten._foreach_neg.out([w.detach().clone()], out=[w]),
    lambda w: torch.optim.SGD([w], lr=0.1, foreach=True).step(), lambda w: torch.optim.Adam([w], lr=0.1, foreach=True).step()],
    ids=["_foreach_mul_", "_foreach_add_", "mul_", "_foreach_zero_", "_foreach_neg.out", "SGD", "Adam"])
@pytest.mark.parametrize("which", ["default", "all"])
def test_a_saved_tensor_that_changed(which, write):
    """A gradient of it would be wrong, so PyTorch raises an error instead."""
    w = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
    w.grad = torch.ones(3)
    with kiln.torch.enabled(which):
        y = w * w
        with torch.no_grad():
            write(w)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            y.sum().backward()


CHANGES = {"as they are": lambda t, j: t, "requiring gradients": lambda t, j: t.requires_grad_() if t.dtype.is_floating_point or t.is_complex() else t,
           "conjugate": lambda t, j: t.conj(), "views": lambda t, j: t.view(3, 4)}


@pytest.mark.parametrize("tensors_are", CHANGES)
@pytest.mark.parametrize("deterministic", [False, True])
def test_what_results_carry(deterministic, tensors_are):
    """Under torch.use_deterministic_algorithms, PyTorch's kernels raise errors and fill memory that nothing writes to."""
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(deterministic)
    try:
        for op in ALL:
            compare(op, lambda: arguments(op, torch.complex64 if tensors_are == "conjugate" else torch.float32, CHANGES[tensors_are]),
                    contextlib.nullcontext)
    finally:
        torch.use_deterministic_algorithms(before)


@pytest.mark.parametrize("form", ["List_out", "out"])
def test_outputs_of_lists_keep_their_dtypes(form):
    """PyTorch computes these results aside, and copies them into no other dtype."""
    op = getattr(torch.ops.aten._foreach_add if form == "List_out" else torch.ops.aten._foreach_sin, form)
    for dtype in (torch.float32, torch.float64, torch.float16, torch.complex64):
        lists = [[torch.ones(3)]] * (2 if form == "List_out" else 1)
        compare(op, lambda: [*lists, *([1] if form == "List_out" else []), [torch.zeros(3, dtype=dtype)]], contextlib.nullcontext)


def program():
    x = torch.ones(1000)
    y = torch.add(x, 2)
    torch._foreach_add_([x], [y])
    more = torch._foreach_add([x], [y])
    del y
    return torch.sum(torch.mul(more[0], x))


def records():
    """Calls that the program makes itself, with the shapes of their arguments and the memory that they take or give back."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True, record_shapes=True) as p:
        program()
    return [(e.name, e.input_shapes, e.cpu_memory_usage) for e in p.events() if e.cpu_parent is None and (e.name != "[memory]" or abs(e.cpu_memory_usage) > 8)]


def test_profiler():
    native = records()
    with kiln.torch.enabled("all"):
        ours = records()
    assert ours == native and ("aten::add", [[1000], [], []], 4000) in ours


def test_memory_that_outlives_the_profiler():
    with kiln.torch.enabled("all"):
        before = torch.add(torch.ones(100), 1)
        with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as p:
            del before  # not taken while the profiler ran
            after = torch.add(torch.ones(100), 1)
        del after
        assert sum(e.cpu_memory_usage for e in p.events() if e.name == "aten::add") == 400


def test_there_are_no_names():
    """If a later PyTorch has named tensors again, how Kiln treats them must be tested here."""
    assert not hasattr(torch.Tensor, "names")
    with pytest.raises(TypeError, match="unexpected keyword argument 'names'"):
        torch.ones(2, names=("a",))
