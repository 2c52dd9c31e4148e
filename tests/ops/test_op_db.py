"""PyTorch's own operator descriptions, run by PyTorch; every aten overload that really runs and that Kiln serves is run
again by kiln.call, on copies of the same arguments, and must give the same.

A description (torch.testing._internal, 702 of them) knows sample arguments per dtype, wrong arguments, an in-place form, an
out= form and whether it has a gradient: all of them are run.  The same means: dtype, sizes, strides and values of each result
(torch.testing.assert_close's tolerances, integers exactly), the very argument returned where PyTorch returns it, equal
memory behind every written argument, and for what PyTorch refuses an exception of the same type.  Where PyTorch's own f64 says
that its f32 or half is off and Kiln's is not, the call is counted as such.

`make test` runs a sample, chosen by the description's name; KILN_TEST_ALL runs every sample of every dtype.  Overloads
that are not served are counted, and printed by name at the end.
"""
import random
import warnings
from dataclasses import dataclass

import pytest
import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map

import descriptions
import kiln
import known
from compare import by_mpmath, describe, difference, first_line, opinions, tally
from kilnlib import SHORT
from whole import WHOLE

DTYPES_EACH, SAMPLES_EACH = (99, 10**6) if WHOLE else (2, 2)
kiln.configure(mode="interp")  # that both tiers give the same bits is shown elsewhere
SERVED = set(kiln.ops())
RAISES = (RuntimeError, TypeError, IndexError, ValueError)
# -- one call, again ---------------------------------------------------------------------------------------------

class Copies:
    """Copies of tensors that share memory with each other as the tensors do."""

    def __init__(self):
        self.memory = {}  # address of a storage -> its copy
        self.known = {}  # id of a tensor -> its copy

    def of(self, value):
        if not isinstance(value, torch.Tensor):
            return value
        if id(value) not in self.known:
            self.known[id(value)] = self.copy(value)
        return self.known[id(value)]

    def copy(self, value):
        storage = value.untyped_storage()
        if storage.data_ptr() not in self.memory or storage.nbytes() == 0:
            self.memory[storage.data_ptr()] = storage.clone()
        copy = torch.empty(0, dtype=value.dtype)
        copy.set_(self.memory[storage.data_ptr()], value.storage_offset(), value.shape, value.stride())
        copy = torch.conj(copy) if value.is_conj() else copy
        return torch._neg_view(copy) if value.is_neg() else copy


def tensors(value):
    return [t for t in tree_flatten(value)[0] if isinstance(t, torch.Tensor)]


def plain(t):
    """Whether t is a tensor in memory, of a dtype that Kiln has."""
    return type(t) in (torch.Tensor, torch.nn.Parameter) and t.layout is torch.strided and t.device.type == "cpu" \
        and t.dtype in SHORT and not t.is_quantized


def text(value):
    if isinstance(value, torch.Tensor):
        strides = "" if value.is_contiguous() else f":strides={tuple(value.stride())}"
        return f"{SHORT[value.dtype]}{list(value.shape)}{strides}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(text, value)) + "]"
    return repr(value)


def call_text(func, args, kwargs):
    return f"{func.name()}({', '.join([*map(text, args), *(f'{k}={text(v)}' for k, v in kwargs.items())])})"


@dataclass
class Call:
    """What PyTorch ran: the operator, its arguments as they were, and what came of it."""
    func: object
    args: tuple
    kwargs: dict
    results: list = ()
    error: Exception | None = None

    def build(self, private, for_kiln):
        return *tree_map(Copies().of, (self.args, self.kwargs)), None

    def opinions(self, shape, k):
        """What else PyTorch says of result k: of each element by itself, where that has a meaning, and in f64."""
        alone = kiln.op(self.func.name()).__self__.family == "map"

        def ask(wrong):
            if alone:
                yield from opinions(self.func, self, shape, k)(wrong)
            if wrong.any() and self.results[k].is_floating_point():
                yield from self.in_double(wrong, k)
        return ask

    def in_double(self, wrong, k):
        for results, _ in self.widened():
            yield results[k][wrong].to(self.results[k].dtype)

    def written(self, k, dtype):
        """What PyTorch writes to tensor argument k in f64."""
        def ask(wrong):
            if wrong.any() and dtype.is_floating_point:
                yield from (args[k][wrong].to(dtype) for _, args in self.widened())
        return ask

    def widened(self):
        """Results, and tensor arguments after the call, of the same call in f64; nothing, if PyTorch does not make it."""
        for integers in (True, False):  # with integers as well, unless PyTorch takes these alone
            def widen(t):
                wide = isinstance(t, torch.Tensor) and (t.is_floating_point() or integers and t.dtype is not torch.bool)
                return t.to(torch.float64) if wide else t
            args, kwargs = tree_map(widen, self.build(True, False)[:2])
            try:
                results = tree_flatten(self.func(*args, **kwargs))[0]
            except RAISES:
                continue
            tally.notes["op_db: calls for which PyTorch was asked in f64 as well"] += 1
            yield results, tensors((args, kwargs))
            return


class Replay(TorchDispatchMode):
    """Runs what PyTorch runs once more by Kiln, and keeps what differed."""

    def __init__(self):
        super().__init__()
        self.differences = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        name = func.name()
        if name not in SERVED:
            tally.unserved[name] += 1
            return func(*args, **kwargs)
        if not all(map(plain, tensors((args, kwargs)))) or kwargs.get("dtype", torch.bool) not in (None, *SHORT):
            tally.notes["op_db: calls of served overloads on tensors or of dtypes that Kiln does not have"] += 1
            return func(*args, **kwargs)
        again = tree_map(Copies().of, (args, kwargs))
        call = Call(func, args, kwargs)
        if func._schema.is_mutable or "\n     writes " in kiln.op(name).__self__.row:
            call.args, call.kwargs = tree_map(Copies().of, (args, kwargs))
        said, expected = call_text(func, args, kwargs), None
        try:
            expected = func(*args, **kwargs)
            call.results = tree_flatten(expected)[0]
        except RAISES as e:
            call.error = e
        wrong = compare(call, again, tensors((args, kwargs)))
        tally.cases["op_db, interpreter against PyTorch"] += 1
        if wrong:
            self.differences.append((name, f"{said}: {wrong}"))
        if call.error:
            raise call.error
        return expected


def compare(call, again, given):
    """How Kiln's call on the arguments `again` differs, or None.  given: the tensors PyTorch was called with."""
    theirs = call.error
    try:
        results = tree_flatten(kiln.call(call.func.name(), *again[0], **again[1]))[0]
    except RAISES as e:
        if theirs is None:
            return f"raised {type(e).__name__}: {first_line(e)}; PyTorch returned"
        if type(e) is not type(theirs):
            return (f"raised {type(e).__name__}: {first_line(e)}; PyTorch raised {type(theirs).__name__}: "
                    f"{first_line(theirs)}")
        return None
    if theirs is not None:
        return f"returned, but PyTorch raised {type(theirs).__name__}: {first_line(theirs)}"
    if len(results) != len(call.results):
        return f"{len(results)} results, PyTorch's are {len(call.results)}"
    return compare_results(call, results, tensors(again), given)


def compare_results(call, results, again, given):
    random_values = torch.Tag.nondeterministic_seeded in call.func.tags
    for k, (a, e) in enumerate(zip(results, call.results)):
        if [a is t for t in again] != [e is t for t in given]:
            return f"result {k} is another of the arguments, or none of them"
        if not isinstance(e, torch.Tensor):
            said = None if a == e else f"{a!r}, PyTorch's {e!r}"
        elif random_values:
            said = None if describe(a) == describe(e) else f"is {describe(a)}, PyTorch's is {describe(e)}"
        else:
            said = difference(a, e, e.dtype, [], call.opinions(e.shape, k), by_mpmath(call.func.name(), call, e.dtype))
        if said:
            return f"result {k}: {said}"
    for k, (a, e) in enumerate(zip(again, given)):
        said = None if any(a is r for r in results) else difference(a, e, e.dtype, [], call.written(k, e.dtype))
        if said:
            return f"tensor argument {k} after the call: {said}"
    return None


# -- what a description can do -----------------------------------------------------------------------------------

def copied(sample):
    return sample.transform(lambda t: t.detach().clone() if isinstance(t, torch.Tensor) else t)


def run(function, sample, **more):
    return function(sample.input, *sample.args, **sample.kwargs, **more)


def run_out(op, sample, result):
    outs = tensors(result)
    if outs and len(outs) == len(tree_flatten(result)[0]):
        fresh = [torch.empty_like(t) for t in outs]
        run(op, sample, out=fresh[0] if isinstance(result, torch.Tensor) else tuple(fresh))


def run_backward(op, sample):
    def grad(t):
        differentiable = isinstance(t, torch.Tensor) and (t.is_floating_point() or t.is_complex())
        return t.detach().clone().requires_grad_() if differentiable else t
    needed = [t for t in tensors(run(op, sample.transform(grad))) if t.requires_grad]
    if needed:
        torch.autograd.backward(needed, [torch.ones_like(t) for t in needed])


def try_form(form):
    """Descriptions promise less than they seem to: a form that PyTorch itself refuses is passed over."""
    try:
        return form()
    except (*RAISES, AssertionError, AttributeError):
        tally.notes["op_db: forms of samples that PyTorch refuses"] += 1


def run_sample(op, sample, dtype):
    result = try_form(lambda: run(op, copied(sample)))
    if op.inplace_variant and not sample.broadcasts_input:
        try_form(lambda: run(op.inplace_variant, copied(sample)))
    if op.supports_out and result is not None:
        try_form(lambda: run_out(op, copied(sample), result))
    if op.supports_autograd and dtype in op.supported_backward_dtypes("cpu"):
        try_form(lambda: run_backward(op, sample))


def pick(items, n, rng):
    items = list(items)
    return items if len(items) <= n else [items[k] for k in sorted(rng.sample(range(len(items)), n))]


def run_description(op, rng, replay):
    """Samples are made outside of the replay: many are made for the few that are picked."""
    dtypes = sorted((d for d in op.supported_dtypes("cpu") if d in SHORT), key=str)
    for dtype in pick(dtypes, DTYPES_EACH, rng):
        for sample in pick(descriptions.samples(op, dtype), SAMPLES_EACH, rng):
            with replay:
                run_sample(op, sample, dtype)
    for sample in pick(descriptions.wrong_samples(op), SAMPLES_EACH, rng):
        with replay:
            try_form(lambda: run(op, sample))


def title(op):
    return op.name + (f"-{op.variant_test_name}" if op.variant_test_name else "")


@pytest.mark.parametrize("op", op_db, ids=title)
def test_description(op):
    rng = random.Random(title(op))
    replay = Replay()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        run_description(op, rng, replay)
    fresh = []
    for name, said in replay.differences:
        why = known.Entries(name, WHOLE).why(said.removeprefix("aten::"))
        if why:
            tally.notes[f"calls known to differ: {why}"] += 1
        else:
            fresh.append(said)
    assert not fresh, f"{len(fresh)} calls differ:\n" + "\n".join(sorted(set(fresh))[:20])
