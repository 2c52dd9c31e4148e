"""Calls that PyTorch's AOTI eager answers wrongly, refuses or compiles for again and again, and those its own tests make.

AOTI eager takes an operator over as Kiln does and keeps compiled kernels by what it makes of the arguments.  Each case makes
its calls one after the other, several times, interpreted and compiled: every one must be what PyTorch gives without
Kiln, whether Kiln serves it or hands it back.  Where the case says so, Kiln must have served it.
"""
import pytest
import torch

import kiln
import kiln.torch
from outcome import differ, outcome

G = torch.Generator().manual_seed(11)
A, B, C = (torch.randn(4, 4, generator=G) for _ in range(3))
INTS = torch.arange(-8, 8, dtype=torch.int32).reshape(4, 4)
MASK = A > 0
ROWS, COLUMNS = torch.tensor([2, 0]), torch.tensor([1, 3])


def scalars():
    return [torch.add(A, 1.5), torch.add(A, 2.5), torch.add(A, True), torch.add(A, 1), torch.add(INTS, True), torch.add(INTS, 1),
            torch.add(INTS, 1.0), torch.ops.aten.add.Scalar(A, 2**40), torch.ops.aten.add.Scalar(A, 2**40), torch.add(A, B, alpha=2),
            torch.mul(A, float("inf")), torch.mul(A, -0.0), torch.mul(A, 0.0)]


def defaults():
    """The same values for other parameters: only names tell the calls apart."""
    return [torch.addmm(A, B, C, beta=2), torch.addmm(A, B, C, alpha=2), torch.addmm(A, B, C, beta=2, alpha=3),
            torch.addmm(A, B, C, beta=3, alpha=2), torch.clamp(A, min=0.5), torch.clamp(A, max=0.5), torch.clamp(A, min=B),
            torch.clamp(A, max=B), torch.clamp(A, B, C), torch.nan_to_num(A, nan=1.0), torch.nan_to_num(A, posinf=1.0),
            torch.nan_to_num(A, neginf=1.0), torch.sum(A, 0, keepdim=True), torch.sum(A, 0), torch.sum(A, 1),
            torch.addcmul(A, B, C, value=2), torch.addcmul(A, B, C)]


def absent():
    return [A[ROWS], torch.ops.aten.index(A, [ROWS]), torch.ops.aten.index(A, [None, ROWS]), A[:, ROWS], A[ROWS, COLUMNS],
            torch.ops.aten.index_put(A, [None, ROWS], B[:, :2])]


def nans():
    return [torch.masked_fill(A, MASK, float("nan")) for _ in range(3)] + [torch.masked_fill(A, MASK, float("inf"))]


def lists():
    return [torch.sum(A, [1]), torch.sum(A, [0]), torch.sum(A, [0, 1]), torch.sum(A, []), torch.amax(A, [0]), torch.amax(A, (0, 1)),
            A.split(2), torch.split(A, [1, 3]), torch._foreach_add([A, B], 1), torch.permute(A, [1, 0]).add(1)]


def no_result():
    given = [A.clone(), B.clone()]
    torch._foreach_add_(given, 2)
    return given


def shapes_and_layouts():
    wide = torch.randn(8, 8, generator=torch.Generator().manual_seed(1))
    return [torch.add(x, x) for x in (wide, wide.t(), wide[::2], wide[:, ::2], wide[:1], wide[:, :1], wide[0, 0], wide[:0],
                                      wide.expand(2, 8, 8), wide.to(torch.float64), wide.to(torch.int8), wide.to(torch.complex64),
                                      wide.to(torch.bfloat16), wide[3:].clone(), wide.reshape(4, 2, 8), wide.reshape(-1))]


def random_numbers():
    torch.manual_seed(4)
    x = torch.empty(4, 4)
    return [x.random_(2, 9).clone(), torch.rand(3), torch.bernoulli(MASK.float()), x.uniform_(0, 1), torch.nn.functional.dropout(A)]


def formats():
    x = torch.randn(2, 3, 4, 5, generator=torch.Generator().manual_seed(2))
    return [x.clone(memory_format=torch.channels_last), torch.empty_like(x, memory_format=torch.channels_last).copy_(x),
            x.to(memory_format=torch.channels_last).mul(2), torch.complex(A, B) * 2j, torch.complex(A, B).abs()]


@pytest.mark.parametrize("calls, names", [
    (scalars, "add.Tensor mul.Tensor"), (defaults, "clamp clamp.Tensor nan_to_num addcmul"), (absent, ""),
    (nans, "masked_fill.Scalar"), (lists, "sum.dim_IntList amax"), (no_result, ""), (shapes_and_layouts, "add.Tensor"),
    (random_numbers, ""), (formats, "abs")], ids=lambda given: getattr(given, "__name__", ""))
@pytest.mark.parametrize("mode", ["interp", "sync"])
def test_what_goes_wrong_there(calls, names, mode):
    check(calls, names.split(), mode)


# -- upstream's own ------------------------------------------------------------------------------------------------------

def several():
    return [torch.aminmax(A), torch.aminmax(A, dim=0), torch.aminmax(A, dim=1, keepdim=True),
            torch.native_layer_norm(A, [4], B[0], C[0], 1e-5), torch.native_layer_norm(A, [4], None, None, 1e-5)]


def clamps():
    out = torch.empty(4, 4)
    return [torch.clamp(A, min=-0.5), torch.clamp(A, max=0.5), torch.clamp(A, min=-0.5, max=0.5), torch.clamp(max=0.5, min=-0.5, input=A),
            torch.clamp(A, -0.5, 0.5, out=out), out, torch.clamp(A, min=B, out=torch.empty(0)), torch.clamp(A, B, C, out=torch.empty(4, 4)), A.clone().clamp_(max=0.1)]


def strings():
    return [torch.div(A, B), torch.div(A, B, rounding_mode="floor"), torch.div(A, B, rounding_mode="trunc"),
            torch.div(INTS, 3, rounding_mode="floor"), torch.div(INTS, 3, rounding_mode="trunc"), torch.div(INTS, 3),
            torch.nn.functional.gelu(A, approximate="tanh"), torch.nn.functional.gelu(A)]


def no_tensor():
    return [torch.tril_indices(4, 3), torch.tril_indices(4, 3, -1), torch.tril_indices(3, 3, dtype=torch.int32)]


@pytest.mark.parametrize("calls, names", [
    (lambda: [torch.abs(A), torch.abs(INTS), A.clone().abs_()], "abs abs_"),
    (lambda: [torch.acos(A), torch.acos(INTS)], "acos"),
    (lambda: [torch.add(A, B, alpha=alpha) for alpha in (1, 2, 3)], "add.Tensor"),
    (lambda: [torch.bitwise_not(INTS), torch.bitwise_not(MASK), torch.bitwise_not(INTS.long())], "bitwise_not"),
    (several, "aminmax"), (clamps, "clamp clamp.out clamp.Tensor_out clamp_"), (strings, "div.Tensor div.Tensor_mode gelu"),
    (no_tensor, "")], ids=["abs", "acos", "add", "bitwise_not", "several", "clamps", "strings", "no_tensor"])
@pytest.mark.parametrize("mode", ["interp", "sync"])
def test_upstream(calls, names, mode):
    check(calls, names.split(), mode)


@pytest.mark.parametrize("mode", ["interp", "sync"])
def test_gradient_of_a_taken_operator(mode):
    def calls():
        x = A.clone().requires_grad_()
        torch.add(torch.acos(x.clamp(-0.9, 0.9)), B, alpha=3).abs().sum().backward()
        return [x.grad]
    check(calls, ["acos", "clamp", "add.Tensor", "abs"], mode)


def check(calls, names, mode):
    native = outcome(calls)
    assert native.error is None, native.error
    kiln.configure(mode=mode)
    try:
        with kiln.torch.enabled("all"):
            before = {row.operator: row.served for row in kiln.torch.status().rows}
            ours = [outcome(calls) for _ in range(3)]
            after = {row.operator: row.served for row in kiln.torch.status().rows}
    finally:
        kiln.configure(mode="default")
    assert [differ(one, native) for one in ours] == [None] * 3
    for name in names:
        assert after[f"aten::{name}"] >= before.get(f"aten::{name}", 0) + 3, f"{name} was not served"
