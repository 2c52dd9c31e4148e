"""Gradients: Kiln records none, so a call that would lose some is refused, and only such a call."""
import pytest
import torch
from torch.autograd import forward_ad

import kiln

REFUSED = r"requires grad or has a tangent, and Kiln records no gradients: give x\.detach\(\), or call under torch\.no_grad\(\)"


def recorded():
    """Tensors whose gradients PyTorch records."""
    leaf = torch.ones(2, 3, requires_grad=True)
    return {"leaf": leaf, "result": leaf * 2, "view": leaf[1:], "view of a result": (leaf * 2).t(), "parameter": torch.nn.Parameter(torch.ones(3)),
            "complex": torch.ones(3, dtype=torch.complex64, requires_grad=True), "conjugated": torch.ones(3, dtype=torch.complex64, requires_grad=True).conj(),
            "no dimensions": torch.ones((), requires_grad=True), "no elements": torch.ones(0, 3, requires_grad=True),
            "double": torch.ones(3, dtype=torch.float64, requires_grad=True), "subclass": leaf.as_subclass(type("Mine", (torch.Tensor,), {})),
            "written since": torch.zeros(3).add_(torch.ones(3, requires_grad=True))}


@pytest.mark.parametrize("what", recorded())
def test_no_gradient_is_lost(what):
    x = recorded()[what]
    plain, before = torch.ones_like(x).detach(), x.tolist()
    into = torch.empty_like(plain)
    calls = [(lambda: kiln.call("neg", x), "neg", "self"), (lambda: kiln.call("add", plain, x), "add.Tensor", "other"),
             (lambda: kiln.op("aten::add.Tensor")(x, 2), "add.Tensor", "self"), (lambda: kiln.call("neg_", x), "neg_", "self"),
             (lambda: kiln.call("add_", plain, x), "add_.Tensor", "other"), (lambda: kiln.call("neg", x, out=into), "neg.out", "self"),
             (lambda: kiln.call("neg", plain, out=x), "neg.out", "out"), (lambda: kiln.call("aten::add.Tensor", 1, x), "add.Tensor", "other"),
             (lambda: kiln.call("add", x.numpy(force=True), x), "add.Tensor", "other"),
             (lambda: kiln.call("add", kiln.Tensor(plain), x), "add.Tensor", "other"),
             (lambda: kiln.call("where", plain == 1, plain, x), "where.self", "other")]
    for f, op, argument in calls:
        with pytest.raises(RuntimeError, match=rf"^aten::{op}: argument '{argument}': the tensor {REFUSED}"):
            f()
    for f in (lambda: kiln.Tensor(x), lambda: kiln.Tensor([x, x]), lambda: kiln.Tensor(x, dtype="f64")):
        with pytest.raises(RuntimeError, match=REFUSED):
            f()
    assert x.tolist() == before and (plain == 1).all()
    for mode in (torch.no_grad, torch.inference_mode):
        with mode():
            assert kiln.call("neg", x).tolist() == torch.neg(x).tolist() and kiln.Tensor(x).tolist() == before
    assert kiln.call("neg", x.detach()).tolist() == torch.neg(x).tolist()
    if not x.is_leaf or x.is_complex():
        return
    with torch.no_grad():
        want = torch.neg(x).tolist()
        assert kiln.call("neg_", x) is x and x.requires_grad and x.tolist() == want


def test_a_number_with_a_gradient():
    scale = torch.tensor(2.0, requires_grad=True)
    with pytest.raises(RuntimeError, match="add.Tensor: argument 'alpha': .*requires grad"):
        kiln.call("add", torch.ones(2), torch.ones(2), alpha=scale)
    assert kiln.call("add", torch.ones(2), torch.ones(2), alpha=scale.detach()).tolist() == [3, 3]


def test_results_that_have_no_gradient_are_given():
    x = torch.tensor([1.0, float("nan")], requires_grad=True)
    assert kiln.call("isnan", x).tolist() == [False, True] and kiln.call("gt", x, 0).tolist() == [True, False]
    into = torch.empty(2, dtype=torch.bool)
    assert kiln.call("ge", x, x, out=into) is into and into.tolist() == [True, False]
    with pytest.raises(RuntimeError, match="frexp.Tensor: argument 'self'"):
        kiln.call("frexp", x)  # one of two


def test_other_tensors_stay_as_they_are():
    """Whatever was recorded around them."""
    x = torch.ones(3, requires_grad=True)
    for y in (torch.ones(3), x.detach(), x.data, torch.ones(4)[1:], torch.ones(3).requires_grad_().requires_grad_(False)):
        assert not kiln.call("neg", y).requires_grad
    with torch.no_grad():
        assert kiln.call("neg", x * 2).tolist() == [-2, -2, -2]
    (x * 2).sum().backward()
    assert kiln.call("neg", x.grad).tolist() == [-2, -2, -2]


def test_tangents():
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(torch.ones(3), torch.ones(3))
        for x in (dual, dual[1:], dual * 2):
            for f in (lambda: kiln.call("neg", x), lambda: kiln.call("neg", torch.ones(3), out=dual), lambda: kiln.Tensor(x)):
                with pytest.raises(RuntimeError, match=REFUSED):
                    f()
            with torch.no_grad(), pytest.raises(RuntimeError, match=REFUSED):  # of no concern to forward mode
                kiln.call("neg", x)
            with torch.inference_mode():
                kiln.call("neg", x)
            kiln.call("neg", x.detach())
        assert kiln.call("neg", torch.ones(3)).tolist() == [-1, -1, -1]
    assert kiln.call("neg", dual).tolist() == [-1, -1, -1]


def test_transforms_of_functions():
    x = torch.ones(3)
    for transform in (lambda f: torch.func.grad(lambda x: f(x).sum())(x), lambda f: torch.func.jvp(f, (x,), (x,)), lambda f: torch.vmap(f)(x)):
        for f in (lambda x: kiln.call("neg", x), lambda x: torch.from_dlpack(kiln.Tensor(x))):
            with pytest.raises((NotImplementedError, RuntimeError)):
                transform(f)


def test_explaining_a_call_records_nothing():
    assert "f32" in kiln.explain("gelu", torch.ones(3, requires_grad=True), stage="key")
