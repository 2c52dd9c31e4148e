"""Warnings under kiln.torch: a program sees those that PyTorch's own kernels show, with category, text, order and number.

outcome.py compares warnings for everything that it runs.  Here are the calls of which PyTorch is known to warn, each of them served by
Kiln but for the warning, so that the comparison cannot pass for want of a case: a row hands such a call back by `check torch`.
Each case is run interpreted and compiled, after calls that do not warn and after direct calls, which keep their answer.
"""
import textwrap
import warnings

import pytest
import torch

import kiln
import kiln.torch
from outcome import differ, outcome

aten = torch.ops.aten
A = torch.arange(1.0, 7.0).reshape(2, 3)
C = A.to(torch.complex64) * (1 + 2j)
FREEDOM, CAST, RESIZED = "degrees of freedom is <= 0", "Casting complex values to real", "was resized"

CASES = {
    "std of one row": (lambda: torch.std(A[:1], 0), FREEDOM),
    "std of one element": (lambda: torch.std(A[0, :1]), FREEDOM),
    "var of a number": (lambda: torch.var(A[0, 0]), FREEDOM),
    "var with a large correction": (lambda: torch.var(A, 0, correction=2), FREEDOM),
    "var with a fraction": (lambda: torch.var(A, 0, correction=2.5), FREEDOM),
    "var of nothing": (lambda: torch.var(A[:0], 0), FREEDOM),
    "var without results": (lambda: torch.var(A[:0], 1), FREEDOM),
    "std unbiased": (lambda: torch.std(A[:1], 0, True), FREEDOM),
    "std_mean": (lambda: torch.std_mean(A[:1], 0), FREEDOM),
    "std_mean with a correction": (lambda: torch.std_mean(A, 1, correction=3), FREEDOM),
    "var_mean": (lambda: torch.var_mean(A[:1], 0, keepdim=True), FREEDOM),
    "std out=": (lambda: torch.std(A[:1], 0, out=torch.empty(3)), FREEDOM),
    "std of complex numbers": (lambda: torch.std(C[:1], 0), FREEDOM),
    "to": (lambda: C.to(torch.float32), CAST),
    "to integers": (lambda: C.to(torch.int64), CAST),
    "float": (lambda: C.float(), CAST),
    "sum": (lambda: torch.sum(C, dtype=torch.float32), CAST),
    "sum along a dimension": (lambda: torch.sum(C, 0, dtype=torch.float64), CAST),
    "sum out=": (lambda: torch.sum(C, 0, out=torch.empty(3)), CAST),
    "prod": (lambda: torch.prod(C, dtype=torch.float32), CAST),
    "prod along a dimension": (lambda: torch.prod(C, 1, dtype=torch.int64), CAST),
    "mean": (lambda: torch.mean(C, dtype=torch.float32), CAST),
    "mean along a dimension": (lambda: torch.mean(C, 0, dtype=torch.float64), CAST),
    "cumsum": (lambda: torch.cumsum(C, 0, dtype=torch.float32), CAST),
    "cumprod": (lambda: torch.cumprod(C, 0, dtype=torch.float32), CAST),
    "softmax": (lambda: torch.softmax(C, 0, dtype=torch.float32), CAST),
    "eq out=": (lambda: torch.eq(C, C, out=torch.empty(2, 3)), CAST),
    "ne of a number out=": (lambda: torch.ne(C, 1, out=torch.empty(2, 3, dtype=torch.int64)), CAST),
    "logical_or out=": (lambda: torch.logical_or(C, A, out=torch.empty(2, 3)), CAST),
    "mse_loss out=": (lambda: torch._C._nn.mse_loss(A, A + 1, out=torch.empty(())), RESIZED),
    "huber_loss out=": (lambda: torch._C._nn.huber_loss(A, A + 1, out=torch.empty(())), RESIZED),
    "smooth_l1_loss out=": (lambda: torch._C._nn.smooth_l1_loss(A, A + 1, out=torch.empty(())), RESIZED),
    "soft_margin_loss out=": (lambda: torch._C._nn.soft_margin_loss(A, A, out=torch.empty(())), RESIZED),
    "huber_loss, broadcast": (lambda: torch._C._nn.huber_loss(A[:1], A), RESIZED),
    "huber_loss_backward, broadcast": (lambda: aten.huber_loss_backward(A, A[:, :1], A, 0, 1.0), RESIZED),
    "mse_loss_backward, broadcast": (lambda: aten.mse_loss_backward(A, A[:1], A, 0), RESIZED),
    "smooth_l1_loss_backward, broadcast": (lambda: aten.smooth_l1_loss_backward(A, A[:1], A, 0, 1.0), RESIZED),
    "log_sigmoid_backward, broadcast": (lambda: aten.log_sigmoid_backward(A[:1], A, A), RESIZED),
    "_prelu_kernel, broadcast": (lambda: torch._prelu_kernel(A[:1], A), RESIZED),
    "where of a u8 condition": (lambda: torch.where((A > 2).to(torch.uint8), A, -A), "uint8 condition tensor"),
}


@pytest.fixture(params=["interp", "sync"])
def mode(request):
    kiln.configure(mode=request.param)
    yield request.param
    kiln.configure(mode="default")


@pytest.mark.parametrize("case", CASES)
def test_a_call_that_warns(case, mode):
    call, text = CASES[case]
    native = outcome(call)
    assert native.error is None and any(text in said for _, said in native.warned), "PyTorch does not warn here"
    with kiln.torch.enabled("all"):
        kilns = [outcome(call) for _ in range(3)]
    assert [differ(ours, native) for ours in kilns] == [None] * 3


@pytest.mark.parametrize("case, call", [
    ("std", lambda: torch.std(A, 0)), ("var", lambda: torch.var(A, 0, correction=1.5)), ("var_mean", lambda: torch.var_mean(A, 1)),
    ("to bool", lambda: C.to(torch.bool)), ("to complex", lambda: C.to(torch.complex128)), ("sum", lambda: torch.sum(C, 0)),
    ("eq", lambda: torch.eq(C, C, out=torch.empty(2, 3, dtype=torch.bool))), ("loss", lambda: torch.nn.functional.mse_loss(A, A + 1)),
    ("where", lambda: torch.where(A > 2, A, -A)), ("prelu", lambda: torch._prelu_kernel(A, A[:1])), ("huber_loss", lambda: torch._C._nn.huber_loss(A, A[:1]))])
def test_a_call_that_does_not_warn_is_served(case, call, mode):
    """The condition is no wider than the warning: status() counts nothing as handed back."""
    native = outcome(call)
    with kiln.torch.enabled("all"):
        before = {row.operator: row.handed_back for row in kiln.torch.status().rows}
        ours = outcome(call)
        after = {row.operator: row.handed_back for row in kiln.torch.status().rows}
    assert not native.warned and differ(ours, native) is None
    assert after == {**after, **before}, "a call was handed back"


def test_a_kernel_of_a_direct_call_does_not_hide_the_warning(mode):
    """A direct call has the same arguments and the same kernel, and answers; a call of PyTorch's must not find its memo."""
    one = A[:1].clone()
    native = outcome(torch.std, one, 0)
    for _ in range(3):
        assert kiln.call("std.correction", one, [0]).isnan().all()
        assert torch.equal(kiln.call("_to_copy", C, dtype=torch.float32), A)
    with kiln.torch.enabled("all"):
        for _ in range(3):
            torch.std(A, 0)
            assert differ(outcome(torch.std, one, 0), native) is None
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert kiln.call("std.correction", one, [0]).isnan().all()


def test_once_per_process(run_torch):
    """Without torch.set_warn_always the cast is warned of once, and degrees of freedom each time."""
    said = run_torch(textwrap.dedent("""
        import warnings, torch, kiln.torch
        kiln.torch.enable("all")
        c, a = torch.ones(3) * 1j, torch.ones(1)
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            for _ in range(3):
                c.to(torch.float32)
                c.to(torch.float64)
                a.std()
        texts = [str(w.message) for w in seen]
        print(sum("Casting" in t for t in texts), sum("freedom" in t for t in texts), len(texts))
    """))
    assert said.split() == ["1", "3", "4"], said
