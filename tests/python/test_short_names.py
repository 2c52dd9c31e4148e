"""Names without an overload: the one that PyTorch would call for such arguments."""
import numpy as np
import pytest
import torch

import kiln

T = torch.tensor([1.5, -2.0, 3.0])
I = torch.tensor([4, 5, 6])


@pytest.mark.parametrize("name, args, kwargs", [
    ("add", (T, 2), {}), ("add", (T, T), {}), ("add", (T, T), {"alpha": 2}), ("add", (T, 2, ), {"alpha": 3}), ("add", (2, T), {}),
    ("sub", (I, 1.5), {}), ("mul", (I, True), {}), ("div", (I, I), {}), ("div", (I, 2), {"rounding_mode": "floor"}),
    ("div", (T, T), {"rounding_mode": None}), ("pow", (T, 2), {}), ("pow", (2, T), {}), ("pow", (I, I), {}), ("clamp", (T, 0), {}),
    ("clamp", (T,), {"min": T, "max": I}), ("clamp", (T,), {"max": 1}), ("lt", (T, 1), {}), ("lt", (T, I), {}), ("neg", (T,), {}),
    ("where", (T > 0, T, I), {}), ("bitwise_and", (I, 1), {}), ("bitwise_and", (1, I), {}), ("frexp", (T,), {}),
    ("xlogy", (T.abs(), 2), {}), ("xlogy", (2, T.abs()), {}), ("remainder", (T, 2), {}), ("remainder", (7, I), {})])
def test_as_pytorch_chooses(name, args, kwargs):
    want = getattr(torch, name)(*args, **kwargs)
    got = kiln.call(name, *args, **kwargs)
    many = lambda x: x if isinstance(x, tuple) else (x,)
    for g, w in zip(many(got), many(want), strict=True):
        assert g.dtype == w.dtype and torch.equal(g, w)
    arrays = [a.numpy() if isinstance(a, torch.Tensor) else a for a in args]
    assert many(kiln.op(name)(*arrays, **{k: np.asarray(v) if isinstance(v, torch.Tensor) else v for k, v in kwargs.items()}))[0] \
        .tolist() == many(want)[0].tolist()
    if isinstance(want, torch.Tensor):
        out = torch.empty_like(want)
        assert kiln.call(name, *args, **kwargs, out=out) is out and torch.equal(out, want)
    with pytest.raises((TypeError, RuntimeError)):
        kiln.call(name, *args, **kwargs, nope=1)


def test_in_place():
    x = T.clone()
    assert kiln.call("add_", x, 1) is x and torch.equal(x, T + 1)
    assert kiln.call("add_", x, T) is x and torch.equal(x, T + 1 + T)


def test_none_fits():
    for args, kwargs in [((T,), {}), ((T, "x"), {}), ((T, T, T, T), {}), ((T, [T]), {}), ((None, T), {}), ((T, T), {"beta": 1}),
                         ((T,) * 10_000, {})]:
        with pytest.raises(TypeError, match="no overload fits.*\n  aten::add.Scalar"):
            kiln.call("add", *args, **kwargs)
    with pytest.raises(TypeError, match="aten::neg: takes 1"):  # the default overload says what is wrong
        kiln.call("neg", T, T)


def test_the_operator_of_a_short_name():
    op = kiln.op("add").__self__
    assert op.name == "aten::add" and "aten::add.Tensor(" in op.schema and "aten::add.out(" in op.schema and "add" in repr(op)
    assert op.family == "map" and kiln.op("add").__doc__ == op.schema
    assert kiln.op("aten::neg").__self__.schema.count("\n") == 0  # a full name is that operator alone
    with pytest.raises(TypeError):
        kiln.op("aten::neg")(T, out=T.clone())
    assert "add.Scalar" in kiln.explain("add", T, 2, stage="schema")
    for name in ("nope", "aten::nope", "my::nope", "", "x" * 1000, "add::"):
        with pytest.raises(NotImplementedError):
            kiln.op(name)


def test_overloads_loaded_later():
    kiln.load_ops("map my::late.Tensor(Tensor self, Tensor other) -> Tensor : promote(self, other) = self + other")
    late = kiln.op("my::late")
    assert late(T, T).tolist() == (T + T).tolist()
    kiln.load_ops("map my::late.Scalar(Tensor self, Scalar other) -> Tensor : promote(self, other) = self * other")
    late = kiln.op("my::late")
    assert late(T, T).tolist() == (T + T).tolist() and kiln.call("my::late", T, 3).tolist() == (T * 3).tolist()
    kiln.load_ops("map my::late.three(Tensor self, Tensor a, Tensor b) -> Tensor : promote(self, a, b) = self + a + b")
    assert late(T, T, T).tolist() == (T * 3).tolist()
