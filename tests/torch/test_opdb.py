"""PyTorch's own samples of every operator through torch.*, with all of Kiln enabled and without it: the same outcome.

Each sample is run forward, in place, with out= (tensors that fit, and empty ones that are resized), and backward where it
has a gradient; samples that PyTorch refuses must be refused in its words.  tests/ops asks Kiln for each operator itself;
here the question is whether a program notices that Kiln is there: outcome.py says what that means.

`make test` runs two samples of two dtypes of each description, under AddressSanitizer of one dtype; KILN_TEST_ALL every sample of every dtype.
"""
import os
import random
from functools import partial

import pytest
import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._pytree import tree_flatten, tree_map

import descriptions
import kiln.torch
from compare import tally
from outcome import COMPARED, UNDEFINED, differ, doubled, is_any_place, outcome, steps_are_same, tensors
from whole import WHOLE

DTYPES_EACH, SAMPLES_EACH, TOGETHER = (99, 10**6, 1) if WHOLE else (1 if "ASAN_OPTIONS" in os.environ else 2, 2, 24)


def title(op):
    return op.name + (f"-{op.variant_test_name}" if op.variant_test_name else "")


def pick(items, n, rng):
    items = list(items)
    return items if len(items) <= n else [items[k] for k in sorted(rng.sample(range(len(items)), n))]


def copied(sample):
    def copy(t):
        return t.detach().clone() if isinstance(t, torch.Tensor) else t
    return tree_map(copy, ((sample.input, *sample.args), dict(sample.kwargs)))


# -- forms of a call: each gets arguments of its own, and gives all that a program could see --------------------------

def forward(op, args, kwargs):
    return op(*args, **kwargs), args, kwargs


def in_place(op, args, kwargs):
    return op.inplace_variant(*args, **kwargs), args, kwargs


def with_out(op, args, kwargs, make):
    result = op(*args, **kwargs)
    outs = tensors(result)
    if not outs or len(outs) != len(tree_flatten(result)[0]):
        return None
    given = [make(t) for t in outs]
    return op(*args, **kwargs, out=given[0] if isinstance(result, torch.Tensor) else tuple(given)), given, args


def backward(op, args, kwargs):
    def leaf(t):
        floats = isinstance(t, torch.Tensor) and t.layout is torch.strided and (t.is_floating_point() or t.is_complex())
        return t.requires_grad_() if floats else t
    args, kwargs = tree_map(leaf, (args, kwargs))
    results = op(*args, **kwargs)
    needed = [t for t in tensors(results) if t.requires_grad]
    if needed:
        torch.autograd.backward(needed, [torch.ones_like(t) for t in needed])
    return results, [t.grad if t.is_leaf else None for t in tensors((args, kwargs))]


def forms(op, dtype):
    yield "", forward
    if op.inplace_variant:
        yield " in place", in_place
    if op.supports_out:
        yield " out=", partial(with_out, make=torch.empty_like)
        yield " out=empty", partial(with_out, make=lambda t: t.new_empty(0))
    if op.supports_autograd and dtype in op.supported_backward_dtypes("cpu"):
        yield " backward", backward


def calls(op):
    """What to run of a description: (text, function of the arguments, a maker of arguments)."""
    rng = random.Random(title(op))
    dtypes = sorted((d for d in op.supported_dtypes("cpu") if d in COMPARED), key=str)
    for dtype in pick(dtypes, DTYPES_EACH, rng):
        for k, sample in enumerate(pick(descriptions.samples(op, dtype), SAMPLES_EACH, rng)):
            for name, form in forms(op, dtype):
                yield f"{title(op)} {dtype} sample {k}{name}", partial(form, op), partial(copied, sample)
    for k, sample in enumerate(pick(descriptions.wrong_samples(op), SAMPLES_EACH, rng)):
        yield f"{title(op)} wrong sample {k}", partial(forward, op), partial(copied, sample)


def differs(function, make, ours):
    """How it differs without Kiln, if not for a reason that is none of Kiln's."""
    native = outcome(function, *make())
    said = differ(ours, native, lambda: outcome(function, *doubled(make())))
    if not said or is_any_place(function.args[0].name, said):
        return None
    if any(differ(outcome(function, *make()), native) for _ in range(3)):
        tally.notes["calls that PyTorch itself answers in several ways"] += 1
        return None
    if ours.error is None and native.error is None and steps_are_same(function, *make()):
        tally.notes["calls of several operators, each of which is the same by itself"] += 1
        return None
    return said


def compare(op_calls):
    with kiln.torch.enabled("all"):
        ours = [outcome(function, *make()) for _, function, make in op_calls]
    tally.cases["op_db through torch, with Kiln and without"] += len(op_calls)
    found = [(name, differs(function, make, kilns)) for (name, function, make), kilns in zip(op_calls, ours)]
    return [f"{name}: {said}" for name, said in found if said]


SWEPT = [op for op in op_db if op.name not in UNDEFINED]
GROUPS = [SWEPT[k:k + TOGETHER] for k in range(0, len(SWEPT), TOGETHER)]


@pytest.mark.usefixtures("interpreted")
@pytest.mark.parametrize("ops", GROUPS, ids=lambda ops: f"{title(ops[0])}..{title(ops[-1])}" if len(ops) > 1 else title(ops[0]))
def test_descriptions(ops):
    differences = compare([call for op in ops for call in calls(op)])
    assert not differences, f"{len(differences)} calls differ:\n" + "\n".join(differences[:30])
