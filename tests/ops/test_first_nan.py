"""argmax, argmin, max.dim and min.dim: where a row has NaNs, the first of them is found, wherever it stands.

Kernels take rows of vectors without a NaN another way than those with one: each place of a row has to be tried, and
places before and after it that hold a greater number, an equal one, or another NaN."""
import random

import pytest
import torch

from kilnlib import Kiln

NAN, INF = float("nan"), float("inf")
LONGEST = 300  # more than one row of vectors, less than a block; BLOCKS are more than that
BLOCKS = [1024, 1100, 5000]
OPS = ["argmax", "argmin", "max.dim", "min.dim"]


@pytest.fixture(scope="module", params=["interp", "sync"])
def kiln(request):
    with Kiln(request.param) as k:
        yield k


def torch_op(name):
    packet, _, overload = name.partition(".")
    return getattr(getattr(torch.ops.aten, packet), overload or "default")


def agree(kiln, name, x):
    """The same as PyTorch along each dimension; where rows lie side by side the kernel is another."""
    for dim, t in [(1, x), (0, x.t()), (1, x.t().contiguous().t()), (0, x.t().contiguous())]:
        expected, actual = torch_op(name)(t, dim), kiln.op(name)(t, dim)
        for e, a in zip([expected] if name.startswith("arg") else expected, [actual] if name.startswith("arg") else actual):
            torch.testing.assert_close(a, e, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16])
@pytest.mark.parametrize("name", OPS)
def test_one_nan_at_each_place(kiln, name, dtype):
    x = torch.randn(LONGEST, LONGEST).to(dtype)
    x[range(LONGEST), range(LONGEST)] = NAN
    agree(kiln, name, x)


@pytest.mark.parametrize("name", OPS)
@pytest.mark.parametrize("n", [64, 65, 127, 128, 192, LONGEST, *BLOCKS])
def test_several_nans_and_extremes(kiln, name, n):
    at = random.Random(n)
    for dtype in (torch.float32, torch.float64):
        x = torch.randn(40, n).to(dtype)
        for row in x:
            for value in at.sample([NAN, NAN, INF, -INF, 9.0, 9.0, -9.0, -9.0], at.randrange(1, 8)):
                row[at.randrange(n)] = value
        agree(kiln, name, x)


@pytest.mark.parametrize("name", OPS)
def test_nothing_but_nan_or_one_number(kiln, name):
    for value in (NAN, INF, -INF, 0.0):
        agree(kiln, name, torch.full((3, LONGEST), value))
