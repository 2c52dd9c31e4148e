"""Every overload that is taken, called on tensors that require a gradient: what comes of it equals PyTorch's, and none is lost.

The overloads come from the dispatcher, not from a list: whatever enable("all") takes is called as torch.ops.aten.NAME.OVERLOAD
with arguments made for its schema.  One that no attempt can call fails, so that a new row is not left out in silence.
Compared are first and second derivatives, tangents of forward mode, and results for integers and truth values.
"""
import pytest
import torch
from torch.autograd import forward_ad
from torch.utils._pytree import tree_map

import kiln.torch
from compare import tally
from outcome import differ, doubled, is_any_place, outcome, tensors

TOGETHER = 40  # overloads that are run each time Kiln is enabled


def taken():
    with kiln.torch.enabled("all"):
        rows = [row.operator for row in kiln.torch.status().rows if row.taken]
        return sorted(name for name in rows if "_fused_" not in name)  # optimizers, of which nothing is differentiated: test_optimizer_steps.py


def overload(name):
    base, _, variant = name.removeprefix("aten::").partition(".")
    return getattr(getattr(torch.ops.aten, base), variant or "default")


def form(name):
    schema = overload(name)._schema
    if not schema.is_mutable:
        return "functional"
    return "in place" if schema.arguments[0].alias_info else "out"


# -- arguments for a schema -------------------------------------------------------------------------------------------

BY_NAME = {"rounding_mode": "trunc", "approximate": "tanh", "dim": 0, "dtype": None, "reduction": 1, "correction": 1,
           "beta": 1.5}  # of integers PyTorch divides by 0 where it is less than 1
BY_TYPE = {"int": 1, "float": 0.5, "number": 0.5, "bool": False, "List[int]": [0], "List[bool]": [True, True, True]}
STATISTICS = ("running_mean", "running_var", "save_mean", "save_var", "save_invstd")  # of norms over channels, as are their weights: 5
GROUPS_OF_CHANNELS = {"N": 4, "C": 5, "HxW": 1, "group": 5}


def tensor_for(arg, schema, generator):
    """A matrix, or what norms have for each of its columns, its rows, or all of it; half of it; an element for each pair of rows."""
    made = torch.rand(4, 5, generator=generator) * 0.8 + 0.1
    channels = "batch_norm" in schema.name or "group_norm" in schema.name
    if channels and arg.name in ("weight", "bias", *STATISTICS) and not arg.is_out:
        return made[0].clone()
    if "layer_norm_backward" in schema.name and arg.name in ("mean", "rstd"):
        return made[:1, :1].clone()
    if "weight_norm" in schema.name and arg.name in ("saved_g", "saved_norms"):
        return made[:, :1].clone()
    if "::glu_" in schema.name and arg.name in ("grad_output", "glu", "grad_glu", "dgrad_glu"):
        return made[:2].clone()
    if "_cdist_backward" in schema.name and arg.name in ("grad", "cdist"):
        return made[:, :4].clone()
    return made


def of_classes(name, arg, dtype, filled):
    """Of losses of classes: five of them, whose numbers are the targets."""
    image, generator = "2d" in name, torch.Generator().manual_seed(len(arg.name))
    if arg.name == "target":
        return torch.randint(0, 5, (2, 3, 4) if image else (4,), generator=generator)
    if arg.name == "weight" and not filled:
        return None
    shapes = {"self": (2, 5, 3, 4) if image else (4, 5), "weight": (5,)}
    return torch.rand(shapes.get("self" if arg.name == "grad_input" else arg.name, ()), generator=generator).to(dtype)


def value_for(arg, schema, dtype, filled):
    """filled: whether optional arguments are given; of operators on lists others are lists."""
    listed = "_foreach_" in schema.name
    if "nll_loss" in schema.name and "Tensor" in str(arg.type):
        return of_classes(schema.name, arg, dtype, filled)
    kind = str(arg.type).removeprefix("Optional[").removesuffix("]" if "Optional" in str(arg.type) else "")
    generator = torch.Generator().manual_seed(len(arg.name))
    if arg.name == "reserve" or ("batch_norm" in schema.name and arg.name == "out3"):
        return torch.empty(0, dtype=torch.uint8)
    if kind == "Tensor":
        made = tensor_for(arg, schema, generator)
        made = made[0, 0] if arg.name == "value" or (arg.name == "other" and listed) else made[:, :1].clone() if arg.name == "g" else made  # g: one for each row
        if arg.name == "exponent" and arg.is_out:
            return made.to(torch.int32)
        return made > 0.5 if arg.name in ("condition", "mask") else made.to(dtype)
    if kind == "List[Tensor]":
        return [(torch.rand(n, generator=generator) * 0.8 + 0.1).to(dtype) for n in (4, 5)]
    if kind == "List[number]":
        return [0.5, 2.5] if dtype.is_floating_point else [1, 2]
    if arg.has_default_value() and not filled:
        return arg.default_value
    if kind == "number" and not dtype.is_floating_point:
        return 1
    if arg.name == "dtype" and "Optional" not in str(arg.type):
        return torch.float64
    if kind == "List[int]":
        return [4, 5] if arg.name == "normalized_shape" else BY_TYPE[kind]
    if arg.name in ("training", "train", "update"):
        return filled or all(other.name != "running_mean" for other in schema.arguments)  # PyTorch reads them, there or not
    return GROUPS_OF_CHANNELS.get(arg.name) or BY_NAME.get(arg.name, BY_TYPE.get(kind))


def arguments(name, dtype, filled):
    schema = overload(name)._schema
    args = [value_for(arg, schema, dtype, filled) for arg in schema.arguments if not arg.kwarg_only]
    return args, {arg.name: value_for(arg, schema, dtype, filled) for arg in schema.arguments if arg.kwarg_only}


def run(name, dtype, filled):
    args, kwargs = arguments(name, dtype, filled)
    return overload(name)(*args, **kwargs), args, kwargs


def ways(name):
    """Arguments that PyTorch accepts, of each dtype."""
    for dtype in (torch.float32, torch.float64, torch.int64, torch.bool):
        for filled in (False, True):
            if outcome(run, name, dtype, filled).error is None:
                yield dtype, filled


# -- what is compared --------------------------------------------------------------------------------------------------

def gradients(name, dtype, filled, widen=lambda value: value):
    args, kwargs = widen(arguments(name, dtype, filled))
    leaves = [t.requires_grad_() for t in tensors((args, kwargs)) if t.is_floating_point()]
    if form(name) == "in place":
        args[0] = [t * 1 for t in args[0]] if isinstance(args[0], list) else args[0] * 1  # a leaf cannot be written
    result = overload(name)(*args, **kwargs)

    def derivatives(of, again):
        of = [t for t in of if t is not None and t.requires_grad]
        ones = [torch.ones_like(t) for t in of]
        return torch.autograd.grad(of, leaves, ones, create_graph=again, allow_unused=True) if of and leaves else ()
    first = derivatives(tensors(result), True)
    return result, first, derivatives(first, False)


def tangents(name, dtype, filled):
    def dual(t):
        floating = isinstance(t, torch.Tensor) and t.is_floating_point()
        return forward_ad.make_dual(t, torch.ones_like(t)) if floating else t
    with forward_ad.dual_level():
        args, kwargs = tree_map(dual, arguments(name, dtype, filled))
        return [tuple(forward_ad.unpack_dual(t)) for t in tensors(overload(name)(*args, **kwargs))]


def calls(name):
    found = list(ways(name))
    assert found, f"no arguments were found for {overload(name)._schema}"
    for dtype, filled in found:
        yield run, name, dtype, filled
        if dtype.is_floating_point and form(name) != "out":
            yield gradients, name, dtype, filled
            yield tangents, name, dtype, filled


TAKEN = taken()
GROUPS = [TAKEN[k:k + TOGETHER] for k in range(0, len(TAKEN), TOGETHER)]


@pytest.mark.usefixtures("interpreted")
@pytest.mark.parametrize("names", GROUPS, ids=lambda names: f"{names[0]}..{names[-1]}")
def test_derivatives(names):
    made = [call for name in names for call in calls(name)]
    native = [outcome(function, *given) for function, *given in made]
    with kiln.torch.enabled("all"):
        kilns = [outcome(function, *given) for function, *given in made]
    differences = []
    for call, ours, theirs in zip(made, kilns, native):
        function, *given = call
        tally.cases["overloads, differentiated, with Kiln and without"] += 1
        in_double = (lambda: outcome(function, *given, doubled)) if function is gradients else None
        said = differ(ours, theirs, in_double)
        if said and not is_any_place(given[0], said):
            differences.append(f"{function.__name__} of {given}: {said}")
    assert not differences, "\n".join(differences)


def test_something_is_taken():
    """Of each form, and nothing that PyTorch differentiates by the operators it is composed of."""
    forms = [form(name) for name in TAKEN]
    assert min(map(forms.count, ("functional", "in place", "out"))) > 100
    composite = [name for name in TAKEN if torch._C._dispatch_has_kernel_for_dispatch_key(name, "CompositeImplicitAutograd")]
    assert not composite
