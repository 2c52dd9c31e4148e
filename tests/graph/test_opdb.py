"""PyTorch's own samples of every operator: traced, normalised, printed and run, they give what the interpreter gives.

Each sample is taken twice: as make_fx records it, operator by operator, and as one call of the Python function it is a
sample of.  The first sample of each operator, or with KILN_TEST_ALL all of them.
"""
import copy
import warnings

import descriptions
import fxlib
import pytest
import torch
import torch.fx as fx
import torch.utils._pytree as pytree
from fxlib import compiled, interpreted, outcome, same
from torch.fx.experimental.proxy_tensor import make_fx
from torch.testing._internal.common_methods_invocations import op_db
from whole import WHOLE

import kiln.fx

TRIES = 16  # runs of the interpreter after which it is believed to give one answer only
UNDEFINED = ("empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided")  # content


def samples(op):
    for dtype in [torch.float32] if torch.float32 in op.dtypes else sorted(op.dtypes, key=str)[:1]:
        for sample in descriptions.samples(op, dtype):
            yield sample
            if not WHOLE:
                return


def split(sample):
    """(tensors, function from tensors to the sample's arguments)"""
    leaves, spec = pytree.tree_flatten((sample.input, sample.args, sample.kwargs))
    places = [k for k, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]

    def join(values):
        filled = list(leaves)
        for k, value in zip(places, values):
            filled[k] = value
        first, args, kwargs = pytree.tree_unflatten(filled, spec)
        return (first, *args), kwargs

    return [leaves[k].detach() for k in places], join


def traced(op, tensors, join):
    def run(*values):
        args, kwargs = join(values)
        return op.op(*args, **kwargs)
    return make_fx(run)(*tensors)


def direct(op, tensors, join):
    graph = fx.Graph()
    nodes = [graph.placeholder(f"t{k}") for k in range(len(tensors))]
    for node, tensor in zip(nodes, tensors):
        node.meta["val"] = tensor
    args, kwargs = join(nodes)
    graph.output(graph.call_function(op.op, args, kwargs))
    return kiln.fx.from_torch(graph).to_torch()


def copies(tensors):
    """Of the whole storage: operators on strides may reach beyond the view."""
    descriptions.seed(0)
    return [copy.deepcopy(tensor) if tensor.layout is torch.strided else tensor.clone() for tensor in tensors]


def shapes_only(value):
    return pytree.tree_map(lambda leaf: torch.zeros_like(leaf) if isinstance(leaf, torch.Tensor) else leaf, value)


def equal(op, want, got):
    if op.name in UNDEFINED or getattr(op, "aten_name", "") in UNDEFINED:
        want, got = shapes_only(want), shapes_only(got)
    return same(want, got)


def near(want, got):
    if not same(shapes_only(want), shapes_only(got)):
        return False
    pairs = zip(*([leaf for leaf in pytree.tree_leaves(value) if isinstance(leaf, torch.Tensor)] for value in (want, got)))
    return all(torch.allclose(a, b, rtol=1e-6, atol=1e-6, equal_nan=True) for a, b in pairs)


def varies(op, gm, tensors, want):
    """Whether the interpreter itself gives other bits from run to run, as some of LAPACK's routines do by the addresses they get."""
    runs = (outcome(interpreted, gm.graph, gm, *copies(tensors))[1] for _ in range(TRIES))
    return any(not equal(op, want, again) for again in runs)


def check(op, gm, tensors):
    """What is wrong with a graph as Kiln prints and normalises it; None if nothing."""
    kind, want = outcome(interpreted, gm.graph, gm, *copies(tensors))
    if kind == "raises":
        return f"the interpreter raises {want}"
    for name, module in (("printed", gm), ("normalised", kiln.fx.normalize(gm)), ("kwargs only", kiln.fx.normalize(gm, kwargs_only=True))):
        code = kiln.fx.python_code(module)
        kind, got = outcome(compiled(code), module, *copies(tensors))
        if kind == "raises" or not (equal(op, want, got) or near(want, got) and varies(op, gm, tensors, want)):
            return f"{name}: {str(want)[:300]} became {str(got)[:300]}\n{code.src}"
    return None


def sweep(make, title, untraceable_allowed):
    failures, done, untraceable = [], 0, []
    for op in op_db:
        for number, sample in enumerate(samples(op)):
            try:
                tensors, join = split(sample)
                gm = make(op, tensors, join)
            except Exception as error:
                untraceable.append(f"{op.name} {number}: {type(error).__name__}: {str(error)[:80]}")
                continue
            try:
                wrong = check(op, gm, tensors)
            except Exception as error:
                wrong = f"{type(error).__name__}: {error}"
            done += 1
            if wrong:
                failures.append(f"{op.name}{op.variant_test_name and '.' + op.variant_test_name} {number}: {wrong}")
    fxlib.counts.append(f"op_db, {title}: {done - len(failures)} of {done} samples give the same; {len(untraceable)} cannot be traced")
    assert not failures, f"{len(failures)} differ:\n" + "\n".join(failures[:40])
    assert done > len(op_db) * 0.9 and len(untraceable) <= untraceable_allowed * done, "\n".join(untraceable[:40])


@pytest.mark.filterwarnings("ignore")
def test_traced_operators():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        sweep(traced, "traced", 0.1)


@pytest.mark.filterwarnings("ignore")
def test_python_functions():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        sweep(direct, "direct calls", 0.1)
