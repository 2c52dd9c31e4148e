"""Scans of few long rows, which go by blocks: beside PyTorch, on both tiers, with any number of threads, around the borders of
blocks.

What is chosen or counted must be PyTorch's exactly.  Sums of a row have an order of their own, by blocks: they are close to
PyTorch's, and the same bits whatever runs them.
"""
import itertools

import pytest
import torch

from compare import tally
from contexts import by_threads, worth
from kilnlib import Kiln
from test_fold import bits, elements, tuples
from test_scan import ALL, CHOOSES, COMPLEX, UNSIGNED, WHOLE_NUMBERS, tensor, torch_op, written
from whole import WHOLE

BLOCK = 1040
LENGTHS = [8 * BLOCK - 1, 8 * BLOCK, 8 * BLOCK + 1, 9 * BLOCK + 17, 16 * BLOCK, 17 * BLOCK + BLOCK - 1, 100_000]
NAMES = ["cumsum", "cumprod", "cummax", "cummin", "logcumsumexp"]


def judge(name, got, want):
    for g, w in zip(got, want, strict=True):
        assert (g.dtype, g.shape, g.stride()) == (w.dtype, w.shape, w.stride())
        exact = name in CHOOSES or not (g.dtype.is_floating_point or g.dtype.is_complex)
        if exact:
            assert bits(g) == bits(w)
        else:
            torch.testing.assert_close(g, w, equal_nan=True)


def agree(name, x, dim, contexts):
    tally.cases["long scans beside PyTorch"] += 1
    want = tuples(torch_op(name)(x, dim))
    first, *others = (tuples(k.op(f"aten::{name}")(x, dim)) for k in worth(contexts, f"aten::{name}", (x, dim)))
    for other in others:
        assert [bits(r) for r in other] == [bits(r) for r in first]
    judge(name, first, want)


def takes(name, dtype):
    if name == "logcumsumexp":
        return dtype.is_floating_point or dtype.is_complex
    return dtype not in UNSIGNED and dtype is not torch.bool and not (name in CHOOSES and dtype.is_complex)


def numbers(n, dtype, seed):
    """Sums that stay within PyTorch's tolerance of halves: their own rounding is the larger part."""
    x = tensor((n,), dtype, seed)
    return x / 64 if dtype in (torch.float16, torch.bfloat16) else x


def layouts(n, dtype):
    x = numbers(2 * n, dtype, 3)
    yield x[:n], 0
    yield x[:n].view(1, n), 1
    yield x[:n].view(n, 1), 0
    yield x.view(2, n), 1
    yield x.view(n, 2), 0
    yield x[::2], 0
    yield torch.stack([x, x])[:, ::2], 1
    yield x[:1].expand(n), 0


@pytest.mark.parametrize("name", NAMES)
def test_lengths_around_the_borders_of_blocks(name, interp, sync):
    for n in LENGTHS:
        for x, dim in layouts(n, torch.float32):
            agree(name, x, dim, (interp, sync))


@pytest.mark.parametrize("name", NAMES)
def test_every_dtype(name, interp, sync):
    for dtype in ALL:
        if not takes(name, dtype):
            continue
        compiled = WHOLE or dtype in (torch.float64, torch.float16, torch.int8, torch.int64)
        for k, (x, dim) in enumerate(layouts(9 * BLOCK + 17, dtype)):
            if name == "cumprod" and dtype.is_floating_point:
                x = 1 + x / 4096
            if not (name == "cumprod" and dtype.is_complex):  # sums of products are rounded otherwise
                agree(name, x, dim, (interp, sync) if compiled and k < 4 else (interp,))


def test_sums_of_doubles_are_as_near_as_in_order(interp):
    """Beside exact sums: of many numbers of one sign blocks round less often."""
    x = torch.rand(300_001, dtype=torch.float64)
    whole = (x * 2.0**44).to(torch.int64)
    exact = whole.cumsum(0)  # below 2^63 for so few
    assert exact[-1] > 0
    x = whole.double() * 2.0**-44
    want = exact.double() * 2.0**-44
    off = (interp.op("aten::cumsum")(x, 0) - want).abs().max()
    assert off <= 2 * (x.cumsum(0) - want).abs().max() + 1e-10


@pytest.mark.parametrize("name", ["cummax", "cummin"])
def test_ties_and_nan_across_borders(name, interp, sync):
    """Of equal elements the last; once there was a NaN the last of those."""
    n = 10 * BLOCK + 5
    inf, nan = float("inf"), float("nan")
    spots = [0, 1, BLOCK - 1, BLOCK, BLOCK + 1, 5 * BLOCK - 1, 5 * BLOCK, 8 * BLOCK, 10 * BLOCK - 1, 10 * BLOCK, n - 1]
    for fill in (0.0, inf, -inf, nan):
        agree(name, torch.full((n,), fill), 0, (interp, sync))
    for value, count in itertools.product((inf, -inf, nan, -0.0, 7.0), (1, 2, len(spots))):
        for some in itertools.islice(itertools.combinations(spots, count), 12):
            for x in (torch.zeros(n), elements((n,), torch.float32, 2).round()):
                x[list(some)] = value
                agree(name, x, 0, (interp, sync))


@pytest.mark.parametrize("name", ["cumsum", "logcumsumexp", "cumprod"])
def test_infinities_and_nan_across_borders(name, interp, sync):
    n = 10 * BLOCK + 5
    inf, nan = float("inf"), float("nan")
    spots = [0, BLOCK - 1, BLOCK, 5 * BLOCK, 10 * BLOCK, n - 1]
    for (a, b), (p, q) in itertools.product([(inf, inf), (inf, -inf), (-inf, -inf), (nan, inf), (-inf, 0.0)], itertools.combinations(spots, 2)):
        x = elements((n,), torch.float32, 4).abs() + 1 if name == "cumprod" else elements((n,), torch.float32, 4)
        x[p], x[q] = a, b
        agree(name, x, 0, (interp, sync))


def test_a_product_of_nothing_stays_nothing(interp, sync):
    """Although that of the numbers after it would be infinite."""
    x = torch.full((100_000,), 3.0)
    x[0] = 0
    agree("cumprod", x, 0, (interp, sync))


def test_places_beyond_16_bits(interp, sync):
    x = torch.arange(200_000.0)
    for x in (x, x.flip(0), (x % 70_001) + x / 200_000):
        agree("cummax", x, 0, (interp, sync))
        agree("cummin", x, 0, (interp, sync))


@pytest.mark.parametrize("mode", ["interp", "sync"])
def test_bits_do_not_depend_on_threads(mode, sync):
    seen = {}
    for threads, k in by_threads(mode, sync):
        for name, shape in itertools.product(("cumsum", "cummax", "logcumsumexp"), ((300_001,), (3, 99_999), (2_000_003,))):
            if len(shape) == 1 and shape[0] > 10**6 and (mode == "interp" or name == "logcumsumexp"):
                continue
            x = elements(shape, torch.float32, 5)
            for _ in range(3):  # what is shared depends on how long the calls before took
                now = [bits(r) for r in tuples(k.op(f"aten::{name}")(x, len(shape) - 1))]
                assert seen.setdefault((name, shape), now) == now, (name, shape, threads)
                tally.cases["long scans with several threads"] += 1


@pytest.mark.parametrize("isa", ["x86-64-v2", "x86-64-v3", "x86-64-v4"])
def test_bits_do_not_depend_on_the_level(isa, interp):
    try:
        k = Kiln("sync", isa=isa.encode())
    except (RuntimeError, NotImplementedError, ValueError):
        pytest.skip(f"this machine is not {isa}")
    with k:
        for name, dtype in itertools.product(("cumsum", "cummax"), (torch.float32, torch.float64)):
            x = elements((100_000,), dtype, 6)
            got, want = (tuples(c.op(f"aten::{name}")(x, 0)) for c in (k, interp))
            assert [bits(r) for r in got] == [bits(r) for r in want]


@pytest.mark.parametrize("name", NAMES)
def test_results_are_given(name, interp, sync):
    """With gaps, in the argument's own place, and in another place of its memory."""
    n = 9 * BLOCK + 17
    x = elements((n,), torch.float32, 1)
    if name == "cumprod":
        x = 1 + x / 4096
    want = tuples(torch_op(name)(x, 0))

    def outs(values):
        return [values, torch.zeros(n, 2, dtype=torch.int64)[:, 0]] if name in CHOOSES else [values]
    for k in (interp, sync):
        memory = torch.zeros(2 * n + 1)
        memory[1::2] = x
        for source, place in ((x, torch.zeros(n, 3)[:, 1]), (x, torch.zeros(n + 1)[1:]), (memory[1::2], memory[:-1:2])):
            got = written(name, k, source, 0, outs=outs(place))
            judge(name, [g.contiguous() for g in got], want)
        same = x.clone()
        judge(name, [g.contiguous() for g in written(name, k, same, 0, outs=outs(same))], want)
        tally.cases["long scans into given tensors"] += 4
    if name in CHOOSES:  # these may overlap: as if all had been read before
        for k in (interp, sync):
            memory = torch.cat([x, torch.zeros(1)])
            judge(name, [g.contiguous() for g in written(name, k, memory[:-1], 0, outs=outs(memory[1:]))], want)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int32, torch.int64])
def test_in_place(dtype, interp, sync):
    for shape, dim in (((100_000,), 0), ((2, 9 * BLOCK), 1), ((9 * BLOCK, 2), 0)):
        x = tensor(shape, dtype, 4)
        want = x.clone().cumsum_(dim)
        got = [x.clone() for _ in range(2)]
        for k, mine in zip((interp, sync), got):
            k.op("aten::cumsum_")(mine, dim)
            judge("cumsum", [mine], [want])
        assert bits(got[0]) == bits(got[1])


def test_empty_rows(interp):
    for shape, dim in (((0, 100_000), 1), ((100_000, 0), 0)):
        agree("cumsum", torch.zeros(shape), dim, (interp,))


ROWS = """
scan my::recurrence(Tensor a, Tensor b, int dim) -> Tensor : takes float
     doc    "y[i] = a[i] * y[i - 1] + b[i]"
     over   dim
     state  f: f64 = 1, y: f64 = 0
     step   f = f * a, y = y * a + b
     merge  f = f * rhs.f, y = y * rhs.f + rhs.y
     finish y

scan my::running_max(Tensor x, int dim) -> Tensor : takes all = max(acc, x) from lowest
     over dim

scan my::since(Tensor x, int dim) -> (Tensor, Tensor) : takes float -> (i64, same)
     doc    "places since the last number below 0, and the sum of the places' halves"
     over   dim
     state  last: i64 = -1, s: f64 = 0
     step   last = x < 0 ? i : last, s = s + f64(i) / 2
     merge  last = max(last, rhs.last), s = s + rhs.s
     finish i - last, s

scan my::share(Tensor x, int dim) -> Tensor : takes f64
     over   dim
     state  s = 0
     step   s = s + x
     merge  s = s + rhs.s
     finish s / n

scan my::quotients(Tensor x, int dim) -> Tensor : takes int
     over   dim
     state  s: i64 = 0
     step   s = s + idiv(100, x)
     merge  s = s + rhs.s
     finish s
"""


@pytest.mark.parametrize("mode", ["interp", "sync"])
def test_rows_of_a_user(mode):
    """A merge that asks for its sides in their order; short form; places; and rows that keep the plain order."""
    n = 9 * BLOCK + 17
    with Kiln(mode) as k:
        k.load(ROWS)
        a, b = torch.rand(n, dtype=torch.float64), elements((n,), torch.float64, 1)
        want, y = [], 0.0
        for f, c in zip(a.tolist(), b.tolist()):
            y = y * f + c
            want.append(y)
        torch.testing.assert_close(k.op("my::recurrence")(a, b, 0), torch.tensor(want, dtype=torch.float64))
        x = elements((n,), torch.float32, 1)
        assert torch.equal(k.op("my::running_max")(x, 0), x.cummax(0).values)
        last, s = k.op("my::since")(x, 0)
        places = torch.arange(n)
        assert torch.equal(last, places - torch.where(x < 0, places, -1).cummax(0).values)
        torch.testing.assert_close(s, (places / 2).double().cumsum(0).float())
        torch.testing.assert_close(k.op("my::share")(b, 0), b.cumsum(0) / n)
        whole = torch.ones(n, dtype=torch.int32)
        assert k.op("my::quotients")(whole, 0)[-1] == 100 * n
        whole[-1] = 0
        with pytest.raises((RuntimeError, ZeroDivisionError)):
            k.op("my::quotients")(whole, 0)


def test_integers_are_exact(interp, sync):
    for dtype in WHOLE_NUMBERS[1:]:
        x = tensor((100_000,), dtype, 9)
        agree("cumsum", x, 0, (interp, sync))


def test_complex_numbers_keep_their_order(interp):
    for dtype in COMPLEX:
        x = elements((9 * BLOCK,), dtype, 2)
        assert bits(interp.op("aten::cumsum")(x, 0)) == bits(x.cumsum(0))
