"""kiln.infer_results: what a call would give, and nothing done for it."""
import numpy as np
import pytest
import torch

import kiln

CALLS = [
    ("neg", (torch.ones(2, 3).t(),), {}),
    ("add", (torch.ones(4, 1, dtype=torch.float16), np.ones(3, "f8")), {"alpha": 2}),
    ("add", (torch.ones(3, dtype=torch.int32), 2.5), {}),
    ("aten::lt.Tensor", (torch.ones(2, 3, 4, 5).to(memory_format=torch.channels_last), torch.ones(())), {}),
    ("frexp", (torch.ones(0, 3, dtype=torch.float64),), {}),
    ("abs", (torch.ones(3, dtype=torch.complex64),), {}),
    ("aten::gelu", (kiln.Tensor([[1.0, 2.0]]),), {"approximate": "tanh"}),
    ("mul_", (torch.ones(3, 4).t(), torch.ones(3)), {}),
    ("sum", (torch.ones(2, 3, 4, dtype=torch.uint8).transpose(0, 2), [1], True), {}),
    ("var_mean", (torch.ones(2, 3, 4), [0, 2]), {"correction": 0}),
    ("argmax", (torch.ones(2, 3), 0), {}),
    ("amax", (torch.ones(2, 3), [1]), {"out": torch.empty(2)}),
    ("add", (torch.ones(3), torch.ones(2, 1)), {"out": torch.empty(2, 3, dtype=torch.float64)}),
    ("neg", (torch.nn.Parameter(torch.ones(3)).detach(),), {"out": np.empty(3, "f4")}),
]


@pytest.mark.parametrize("name, args, kwargs", CALLS, ids=lambda v: v if isinstance(v, str) else "")
def test_what_the_call_gives(name, args, kwargs):
    before = kiln.stats()
    inferred = kiln.infer_results(name, *args, **kwargs)
    assert kiln.stats() == before
    given = kiln.call(name, *args, **kwargs)
    results = given if isinstance(given, tuple) else (given,)
    assert len(results) == len(inferred)
    for want, got in zip(results, inferred):
        want = kiln.Tensor(want)
        assert (got.dtype, got.shape, got.strides) == (want.dtype, want.shape, want.strides)
        assert got.arg == ("self" if name.endswith("_") else "out" if kwargs.get("out") is not None else None)


def test_nothing_is_written():
    x, out = torch.ones(3), kiln.Tensor([7.0])
    assert kiln.infer_results("neg_", x) == [(kiln.float32, (3,), (1,), "self")]
    assert kiln.infer_results("neg", x, out=out) == [(kiln.float32, (3,), (1,), "out")]
    assert x.tolist() == [1, 1, 1] and out.tolist() == [7]


@pytest.mark.parametrize("args, kwargs", [
    (("add", torch.ones(2), torch.ones(3)), {}), (("add", torch.ones(2)), {}), (("add", "x", 1), {}), (("nope", torch.ones(2)), {}),
    (("silu", torch.ones(2, dtype=torch.int64)), {}), (("neg_", torch.ones(1).expand(3)), {}), ((3, torch.ones(2)), {}),
    (("neg", torch.ones(3)), {"out": torch.ones(3, dtype=torch.int32)}), (("add", torch.ones(2), 1), {"beta": 1})])
def test_it_raises_what_the_call_raises(args, kwargs):
    with pytest.raises(Exception) as call:
        kiln.call(*args, **kwargs)
    with pytest.raises(type(call.value)) as inferred:
        kiln.infer_results(*args, **kwargs)
    assert str(inferred.value) == str(call.value)
    with pytest.raises(TypeError, match="needs an operator's name"):
        kiln._kiln.infer_results()


def test_gradients_play_no_part():
    x = torch.ones(3, requires_grad=True)
    assert kiln.infer_results("exp", x) == kiln.infer_results("exp", x.detach())


def norm(x, mean, var, training=True):
    return kiln.call("native_batch_norm", x, None, None, mean, var, training, 0.1, 1e-5)


@pytest.mark.parametrize("as_kind", [torch.tensor, lambda values: np.array(values, "f4"), kiln.Tensor], ids=["torch", "numpy", "kiln"])
def test_arguments_that_are_written(as_kind):
    """Running statistics, which the schema of native_batch_norm does not mark."""
    x = [[1.0, 2.0], [3.0, 6.0]]
    mean, var = as_kind([0.0, 0.0]), as_kind([1.0, 1.0])
    out = norm(as_kind(x), mean, var)[0]
    assert type(out) is type(mean)
    np.testing.assert_allclose(mean.tolist(), [0.2, 0.4], rtol=1e-6)
    np.testing.assert_allclose(var.tolist(), [1.1, 1.7], rtol=1e-6)
    norm(as_kind(x), mean, var, False)
    np.testing.assert_allclose(mean.tolist(), [0.2, 0.4], rtol=1e-6)


def test_what_cannot_be_written_is_not():
    mean, var = np.zeros(2, "f4"), np.ones(2, "f4")
    var.flags.writeable = False
    with pytest.raises(ValueError, match="running_var.*read-only"):
        norm(np.ones((3, 2), "f4"), mean, var)
    with pytest.raises(RuntimeError, match="requires grad"):
        norm(torch.ones(3, 2), torch.zeros(2), torch.ones(2, requires_grad=True))
    assert (mean == 0).all()


def test_results_that_are_not_given():
    args = (torch.ones(2, 3), torch.ones(2, 3), [3], torch.ones(2, 1), torch.ones(2, 1), torch.ones(3), None, [False, True, False])
    given = kiln.call("native_layer_norm_backward", *args)
    inferred = kiln.infer_results("native_layer_norm_backward", *args)
    assert [r is None for r in given] == [r is None for r in inferred] == [True, False, True]
    assert inferred[1].shape == (3,) == given[1].shape
