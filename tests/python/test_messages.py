"""Wrong calls and rows that a beginner would write: each message names the mistake itself and the way out."""
import pathlib

import numpy as np
import pytest

import kiln

X = np.ones((3, 4), np.float32)
ROW = "map beginner::f(Tensor x) -> Tensor : takes float = x + 1"


@pytest.fixture(scope="module", autouse=True)
def row():
    kiln.load_ops(ROW)


@pytest.mark.parametrize("call, error, said", [
    (lambda: kiln.call("f", X), NotImplementedError, "no operator 'f'; did you mean beginner::f?"),
    (lambda: kiln.call("torch.add", X, X), NotImplementedError, "no operator 'torch.add'; did you mean add?"),
    (lambda: kiln.call("np.f", X), NotImplementedError, "no operator 'np.f'; did you mean beginner::f?"),
    (lambda: kiln.op("beginner::g"), NotImplementedError, "no operator 'beginner::g'; did you mean beginner::f?"),
    (lambda: kiln.call("F", X), NotImplementedError, "no operator 'F'; did you mean beginner::f?"),
    (lambda: kiln.call("beginner.f", X), NotImplementedError, "no operator 'beginner.f'; did you mean beginner::f?"),
    (lambda: kiln.call("aten.add", X, X), NotImplementedError, "no operator 'aten.add'; did you mean aten::add?"),
    (lambda: kiln.call("torch.ops.aten.mul", X), NotImplementedError, "no operator 'torch.ops.aten.mul'; did you mean aten::mul?"),
    (lambda: kiln.call("mul.Scaler", X), NotImplementedError, "no operator 'mul.Scaler'; did you mean aten::mul.Scalar?"),
    (lambda: kiln.call("np.sinn", X), NotImplementedError, "no operator 'np.sinn'; did you mean aten::sin, aten::sinc, aten::sinh?"),
    (lambda: kiln.call("sinn", X), NotImplementedError, "no operator 'sinn'; did you mean aten::sin, aten::sinc, aten::sinh?"),
    (lambda: kiln.call("matmul", X, X), NotImplementedError, "aten::matmul is a PyTorch operator that Kiln does not serve"),
    (lambda: kiln.call("sum", X, axis=1), TypeError,
     "aten::sum: no overload fits these arguments\n  aten::sum: has no argument 'axis'\n"
     "  aten::sum.dim_IntList: has no argument 'axis'; did you mean 'dim'?"),
    (lambda: kiln.call("argmax", X, axis=1), TypeError, "aten::argmax: has no argument 'axis'; did you mean 'dim'?"),
    (lambda: kiln.call("amax", X, keepdims=True), TypeError, "aten::amax: has no argument 'keepdims'; did you mean 'keepdim'?"),
    (lambda: kiln.call("gelu", X, aproximate="tanh"), TypeError, "aten::gelu: has no argument 'aproximate'; did you mean 'approximate'?"),
    (lambda: kiln.call("softmax", X), TypeError,
     "aten::softmax: no overload fits these arguments\n  aten::softmax.int: argument 'dim' (int) is missing"),
    (lambda: kiln.call("exp", [1, 2, 3]), TypeError,
     "aten::exp: argument 'self' must be Tensor, not list; kiln.Tensor(...) or numpy.array(...) makes a tensor of a list"),
    (lambda: kiln.call("layer_norm", X, 4), TypeError,
     "aten::layer_norm: argument 'normalized_shape' must be a list of int, not int"),
    (lambda: kiln.call("layer_norm", X), TypeError, "aten::layer_norm: argument 'normalized_shape' (a list of int) is missing"),
    (lambda: kiln.configure(threads="two"), TypeError, "configure: threads must be int, not 'two'"),
    (lambda: kiln.configure(mode=3), TypeError, "configure: mode must be str, not 3"),
    (lambda: kiln.load_ops("rows/my.ops"), TypeError,
     "load_ops takes the text of rows, not the name of a file: write kiln.load_ops(open('rows/my.ops').read())"),
    (lambda: kiln.load_ops(pathlib.Path("my.txt")), TypeError,
     "load_ops takes the text of rows, not the name of a file: write kiln.load_ops(open('my.txt').read())"),
    (lambda: kiln.explain("exp(f32(3))"), ValueError,
     "call:8: sizes of a tensor stand in square brackets, as f32[3] or f32[2,3]\n  exp(f32(3))\n         ^"),
    (lambda: kiln.explain("_foreach_add([f32[3],f32[4]],1)"), NotImplementedError,
     "aten::_foreach_add.Scalar: calls for each item of lists have no plan of their own; explain the stage 'bind', or the call of one item"),
    (lambda: kiln.call("beginner::f"), TypeError, "beginner::f: argument 'x' (Tensor) is missing"),
    (lambda: kiln.call("add", X, np.ones(5, np.float32)), RuntimeError,
     "aten::add.Tensor: argument 'other': The size of tensor a (4) must match the size of tensor b (5) at non-singleton dimension 1"),
    (lambda: kiln.load_ops(ROW + " + 2"), RuntimeError,
     "rows:1:5: beginner::f is defined already, at rows:1:5; replace=True in Python, and kiln_ops_replace in C, replace it\n"
     f"  {ROW} + 2\n      ^"),
    (lambda: kiln.explain("neg", X, stage="infer"), ValueError,
     "unknown stage 'infer': expected schema, bind, plan, key, ir, source or asm")])
def test_message(call, error, said):
    with pytest.raises(error) as caught:
        call()
    assert str(caught.value) == said
