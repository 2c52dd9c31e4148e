"""equal beside PyTorch: one truth value for two tensors, a Python bool.

Dtypes are promoted as for `==`; tensors of other sizes are not broadcast but differ, those without elements do not.
"""
import itertools

import pytest
import torch

import kiln
from compare import tally
from kilnlib import Kiln
from test_fold import elements, views

UNSIGNED = [torch.uint16, torch.uint32, torch.uint64]
DTYPES = [torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.float16, torch.bfloat16, torch.float32, torch.float64,
          *UNSIGNED, torch.complex64, torch.complex128]
nan = float("nan")


def outcome(op, *args):
    tally.cases["tensors compared beside PyTorch"] += 1
    try:
        return op(*args)
    except RuntimeError as e:
        return type(e)


def equal(a, b):
    return kiln.call("equal", a, b)


def agree(a, b):
    want, got = outcome(torch.equal, a, b), outcome(equal, a, b)
    assert type(got) is type(want) and got == want, (a.dtype, b.dtype, a.shape, b.shape, got, want)


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_two_dtypes(dtype):
    pairs = [([1, 1, 1], [1, 1, 1]), ([1, 1, 1], [1, 1, 2]), ([1, 1], [1]), ([], []), (1, 1), (1, 0), ([[1]], [1]), ([], [[]])]
    for other, (a, b) in itertools.product(DTYPES, pairs):
        a, b = torch.tensor(a).to(dtype), torch.tensor(b).to(other)
        if a.shape != b.shape and (dtype in UNSIGNED) + (other in UNSIGNED) and dtype != other:
            continue  # PyTorch looks at sizes before dtypes that do not promote
        agree(a, b)


def test_every_layout():
    for shape in [(), (7,), (3, 4), (64, 100), (9, 1, 70), (0, 3), (5, 6, 7)]:
        x = elements(shape, torch.float32, 1)
        for a, b in itertools.product(views(x), views(x.clone())):
            agree(a, b)
        for y in views(x + (torch.arange(x.numel()).reshape(shape) == x.numel() - 1)):
            agree(x, y)
            agree(x, y.t() if y.dim() == 2 else y[None])


def test_every_element_counts():
    x = torch.zeros(4097)
    for k in (0, 1, 15, 16, 255, 4095, 4096):
        y = x.clone()
        y[k] = 1
        assert equal(x, y) is False and equal(y, y.clone()) is True


def test_nan_and_zeros():
    for a, b in [([nan], [nan]), ([0.0], [-0.0]), ([nan, 1], [1, nan])]:
        agree(torch.tensor(a), torch.tensor(b))
    x = torch.tensor([nan])
    agree(x, x)


def test_threads_and_tiers():
    x = elements((700, 900), torch.float64, 3)
    y = x.clone()
    y[699, 899] += 1e-9
    for mode, threads in itertools.product(("interp", "sync"), (1, 3)):
        with Kiln(mode, threads=threads) as k:
            op = k.op("aten::equal")
            assert [bool(op(x, z)) for z in (x.clone(), y, x.t(), x[:1]) for _ in range(2)] == [True] * 2 + [False] * 6


def test_other_arrays_than_torchs():
    assert equal(kiln.Tensor([1, 2]), kiln.Tensor([1.0, 2.0])) is True
    assert equal(torch.ones(2).numpy(), torch.zeros(2).numpy()) is False
    with pytest.raises(TypeError):
        kiln.call("equal", torch.ones(2))


@pytest.mark.parametrize("row, why", [
    ("fold my::e(Tensor x, int dim) -> bool : -> bool = acc & (x == 0) from true\n  over dim", "result 0 is a bool"),
    ("fold my::e(Tensor x) -> bool : takes real = acc + x from 0", "result 0 is a bool"),
    ("map my::e(Tensor x) -> bool : -> bool = x == 0", "result 0 is a bool"),
    ("fold my::e(Tensor x) -> bool : -> bool = acc & (x == 0) from true\n  check alike(x, 1) : \"no\"", "alike takes two tensors"),
])
def test_rows_that_say_nothing_sensible_are_refused(row, why, interp):
    with pytest.raises((RuntimeError, ValueError, TypeError), match=why):
        interp.load(row)
