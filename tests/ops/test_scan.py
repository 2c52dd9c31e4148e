"""Scans beside PyTorch, on every tier and with any number of threads.

Every served scan row is called with whole tensors and views (transposed, permuted, with gaps, expanded) along each
dimension, with every dtype that PyTorch takes and some that it refuses.  PyTorch scans in order, in f64 for f32, and so
does Kiln: sums and products must have PyTorch's bits, whatever is running them.  Few long rows go by blocks: those are
test_long_scans.py's.
"""
import itertools
import random

import numpy as np
import pytest
import torch

from compare import tally
from contexts import by_threads, worth
from kilnlib import Kiln
from listed import is_listed
from test_fold import bits, elements, outcome, special, torch_op, tuples, views
from whole import WHOLE

FLOAT = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
WHOLE_NUMBERS = [torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64]
UNSIGNED = [torch.uint16, torch.uint32, torch.uint64]
COMPLEX = [torch.complex64, torch.complex128]
ALL = FLOAT + WHOLE_NUMBERS + UNSIGNED + COMPLEX
SHAPES = [(), (1,), (7,), (4099,), (3, 4), (64, 100), (100, 3), (9, 1, 70), (40, 5, 3), (5, 6, 7, 8), (0,), (0, 3), (3, 0)]
COMPILED = [(7,), (64, 100), (40, 5, 3)]  # shapes that are compiled with every dtype too

NAMES = ["cumsum", "cumprod", "cummax", "cummin", "logcumsumexp"]
CHOOSES = ("cummax", "cummin")


def tensor(shape, dtype, seed):
    if dtype in UNSIGNED:
        return elements(shape, torch.int32, seed).abs().to(dtype)
    return elements(shape, dtype, seed)


def layouts(x):
    yield from views(x)
    if not x.dtype.is_complex and x.dtype not in UNSIGNED:
        yield from views(special(x, x.dim()))


def dims(x):
    return range(-max(x.dim(), 1), max(x.dim(), 1))


def judge(name, got, want):
    """The same bits, but for logarithms: their functions are others than PyTorch's."""
    for g, w in zip(got, want, strict=True):
        assert (g.dtype, g.shape, g.stride()) == (w.dtype, w.shape, w.stride())
        if name == "logcumsumexp":
            torch.testing.assert_close(g, w, equal_nan=True)
        elif name == "cumprod" and g.dtype.is_complex:  # PyTorch's sum of two products is rounded otherwise, and overflows elsewhere
            finite = torch.isfinite(w)
            torch.testing.assert_close(g[finite], w[finite])
            assert not torch.isfinite(g[~finite]).any()
        else:
            assert bits(g) == bits(w)


def agree(name, x, args, named, contexts):
    """Every context gives the same bits and PyTorch's answer, or refuses the call as PyTorch does."""
    tally.cases["scans beside PyTorch"] += 1
    want = outcome(torch_op(name), x, args, named)
    first, *others = (outcome(k.op(f"aten::{name}"), x, args, named) for k in worth(contexts, f"aten::{name}", (x, *args), named))
    for other in others:
        assert type(other) is type(first)
        assert isinstance(first, Exception) or [bits(r) for r in other] == [bits(r) for r in first]
    if name in CHOOSES and (x.dtype in UNSIGNED or x.dtype.is_complex):
        assert isinstance(first, NotImplementedError)  # PyTorch takes them where there is nothing to compare
    elif isinstance(want, Exception):
        assert type(first) is type(want), (name, x.dtype, args, named, first, want)
    else:
        assert not isinstance(first, Exception), (name, x.dtype, args, named, first)
        judge(name, first, want)


test_is_listed = is_listed(lambda op: op.family == "scan", NAMES, "NAMES of tests/ops/test_scan.py")


@pytest.mark.parametrize("name", NAMES)
def test_like_torch(name, interp, sync):
    """Interpreted with every dtype; compiled too with f32, and of some shapes with every dtype."""
    rng = random.Random(name)
    for shape, dtype in itertools.product(SHAPES, ALL):
        x = tensor(shape, dtype, len(shape))
        compiled = WHOLE or dtype == torch.float32 or shape in COMPILED
        for k, x in enumerate(layouts(x)):
            some = list(dims(x))
            for dim in some if WHOLE or len(some) <= 2 else rng.sample(some, 2):
                agree(name, x, (dim,), {}, (interp, sync) if compiled and (k < 3 or WHOLE) else (interp,))


@pytest.mark.parametrize("name", ["cumsum", "cumprod"])
def test_dtype_is_given(name, interp, sync):
    for dtype, to in itertools.product(ALL, ALL):
        x = tensor((6, 5), dtype, 3)
        if dtype.is_complex and not to.is_complex:
            x = x.real.to(dtype)  # of others PyTorch warns
        agree(name, x, (1,), {"dtype": to}, (interp, sync) if dtype in (torch.float32, torch.int8) else (interp,))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("shape, dim", [((3, 4), 2), ((3, 4), -3), ((), 1), ((), -2), ((0, 3), 0)])
def test_wrong_dimensions_are_refused_as_in_torch(name, shape, dim, interp):
    agree(name, torch.ones(shape), (dim,), {}, (interp,))


def written(name, k, x, dim, **named):
    """What the out form of k (None: PyTorch) leaves in tensors of those dtypes and strides, or how it fails."""
    outs = named.pop("outs")
    op = getattr(getattr(torch.ops.aten, name), "out") if k is None else k.op(f"aten::{name}.out")
    names = ("values", "indices") if name in CHOOSES else ("out",)
    try:
        op(x, dim, **dict(zip(names, outs, strict=True)), **named)
    except (RuntimeError, IndexError, TypeError, ValueError, NotImplementedError) as e:
        return e
    return outs


@pytest.mark.parametrize("name", NAMES)
def test_results_are_given(name, interp, sync):
    """Of every dtype; in rows, transposed, with gaps."""
    x = elements((6, 50), torch.float32, 1)
    places = [lambda t: torch.zeros(6, 50, dtype=t), lambda t: torch.zeros(50, 6, dtype=t).t(),
              lambda t: torch.zeros(6, 50, 3, dtype=t)[..., 1]]
    for dim, dtype, place in itertools.product((0, 1), ALL, places):
        def make():
            return [place(dtype), place(torch.int64)] if name in CHOOSES else [place(dtype)]
        want = written(name, None, x, dim, outs=make())
        for k in (interp, sync) if dtype in (torch.float32, torch.float64) else (interp,):
            got = written(name, k, x, dim, outs=make())
            tally.cases["scans into given tensors"] += 1
            assert type(got) is type(want), (name, dtype, got, want)
            if not isinstance(want, Exception):
                judge(name, got, want)


@pytest.mark.parametrize("name", ["cumsum", "cumprod"])
def test_dtype_and_result_must_agree(name, interp):
    for to in (torch.float32, torch.float64):
        x, outs = torch.ones(3), [torch.zeros(3, dtype=torch.float64)]
        want, got = (written(name, k, x, 0, outs=outs, dtype=to) for k in (None, interp))
        assert type(want) is type(got) and isinstance(want, RuntimeError) == (to is torch.float32)


@pytest.mark.parametrize("name", ["cumsum", "cumprod"])
def test_in_place(name, interp, sync):
    """The result keeps the dtype: integers are not widened."""
    for dtype, shape in itertools.product(ALL, [(), (9,), (40, 30), (3, 4, 50)]):
        for dim in range(-max(len(shape), 1), max(len(shape), 1)):
            for k, layout in enumerate((torch.clone, lambda x: torch.stack([x, x], -1)[..., 0], lambda x: x.transpose(0, -1) if x.dim() else x)):
                x = tensor(shape, dtype, 4)
                want = outcome(getattr(torch.ops.aten, name + "_").default, layout(x.clone()), (dim,), {})
                for context in (interp, sync) if dtype in (torch.float32, torch.int32) else (interp,):
                    mine = layout(x.clone())
                    got = outcome(context.op(f"aten::{name}_"), mine, (dim,), {})
                    tally.cases["scans in place"] += 1
                    assert type(got) is type(want), (dtype, shape, got, want)
                    if not isinstance(want, Exception):
                        judge(name, [mine], want)


@pytest.mark.parametrize("name", NAMES)
def test_results_may_lie_in_the_argument(name, interp, sync):
    """In its own place; or where PyTorch does not refuse it, anywhere: as if all had been read before."""
    def outs(values):
        return [values, torch.zeros(values.shape, dtype=torch.int64)] if name in CHOOSES else [values]
    for k, dim in itertools.product((interp, sync), (0, 1)):
        x = elements((30, 40), torch.float32, 7)
        want = tuples(torch_op(name)(x, dim))
        same = x.clone()
        judge(name, written(name, k, same, dim, outs=outs(same)), want)
        memory = torch.zeros(30, 41)
        memory[:, :40] = x
        got = written(name, k, memory[:, :40], dim, outs=outs(memory[:, 1:]))
        for g, w in zip(got, want, strict=True):
            judge(name, [g.contiguous()], [w])
        square = elements((40, 40), torch.float32, 8)
        want = torch_op(name)(square, dim)
        got = written(name, k, square, dim, outs=outs(square.t()))
        assert isinstance(got, RuntimeError) == (name not in CHOOSES)
        if name in CHOOSES:
            assert bits(got[0].contiguous()) == bits(want[0])


def large():
    """Tensors that threads share, and a dimension of each."""
    for shape, dim in [((300001,), 0), ((5, 100001), 1), ((100001, 5), 0), ((60, 40, 301), 1), ((1024, 768), 0), ((1024, 768), 1), ((1000, 21, 3, 16), 1)]:
        x = elements(shape, torch.float32, 3)
        yield x[:, :20, :2, ::2] if x.dim() == 4 else x, dim


@pytest.mark.parametrize("mode", ["interp", "sync"])
def test_bits_do_not_depend_on_threads(mode, sync):
    seen = {}
    for threads, k in by_threads(mode, sync):
        for (x, dim), name in itertools.product(large(), ("cumsum", "cummax")):
            now = [bits(r) for r in tuples(k.op(f"aten::{name}")(x, dim))]
            assert seen.setdefault((tuple(x.shape), dim, name), now) == now, (x.shape, dim, name, threads)
            tally.cases["scans with several threads"] += 1
    for (x, dim), name in itertools.product(large(), ("cumsum", "cummax")):
        if x.dim() > 1 or name == "cummax":  # a sum of one long row has an order of its own
            assert seen[tuple(x.shape), dim, name] == [bits(r) for r in tuples(torch_op(name)(x, dim))]


@pytest.mark.parametrize("name", ["cumsum", "cummax"])
def test_large_results_go_past_the_caches(name, sync):
    """More than 32 MB move: rows that are whole cache lines, rows that are not, and an argument of one column."""
    for cols in (1040, 1041):
        x = elements((2100, cols), torch.float64, 5)
        for x in (x, x[:, :1].expand(x.shape), x.t()):
            for dim in (0, 1):
                judge(name, tuples(sync.op(f"aten::{name}")(x, dim)), tuples(torch_op(name)(x, dim)))
                tally.cases["large scans"] += 1


ROWS = """
scan my::running_max(Tensor x, int dim) -> Tensor : takes all = max(acc, x) from lowest
     over dim

scan my::before(Tensor x, int d) -> Tensor : takes real
     over   d
     state  s: wide = 0
     step   s = s + x
     finish s - x

scan my::decay(Tensor x, Tensor a, float rate, int dim) -> (Tensor, Tensor) : takes f32 f64 -> (same, i64)
     over   dim
     host   keep: f64 = 1 - rate
     state  s = 0, seen: i64 = 0
     step   s = s * a * keep + x, seen = seen + (x > 0 ? n - i : 0)
     finish s, seen

scan my::quotients(Tensor x, int dim) -> Tensor : takes int
     over   dim
     state  s = 100
     step   s = idiv(s, x)
     finish s
"""


@pytest.mark.parametrize("mode", ["interp", "sync"])
def test_rows_of_a_user(mode):
    with Kiln(mode) as k:
        k.load(ROWS)
        x = elements((20, 30), torch.float32, 1)
        assert torch.equal(k.op("my::running_max")(x, 1), x.cummax(1).values)
        before = (x.double().cumsum(0) - x).float()
        torch.testing.assert_close(k.op("my::before")(x, 0), before, rtol=0, atol=0)
        a = torch.linspace(0.1, 0.9, 20)[:, None]
        got, seen = k.op("my::decay")(x, a, 0.25, 1)
        want, s = torch.empty_like(x), torch.zeros(20)
        for i in range(30):
            s = s * a[:, 0] * 0.75 + x[:, i]
            want[:, i] = s
        torch.testing.assert_close(got, want)
        assert torch.equal(seen, ((x > 0) * (30 - torch.arange(30))).cumsum(1))
        ones = torch.ones(3, 4, dtype=torch.int32)
        ones[1, 2] = 7
        assert k.op("my::quotients")(ones, 1).tolist() == [[100] * 4, [100, 100, 14, 14], [100] * 4]
        ones[2, 3] = 0
        with pytest.raises((RuntimeError, ZeroDivisionError)):
            k.op("my::quotients")(ones, 1)


@pytest.mark.parametrize("row, why", [
    ("scan my::s(Tensor x, int dim) -> Tensor = acc + x from 0\n  ignore dim", "a scan is over one dimension"),
    ("scan my::s(Tensor x, int[] dim) -> Tensor = acc + x from 0\n  over dim", "a scan is over one dimension"),
    ("scan my::s(Tensor x, int? dim) -> Tensor = acc + x from 0\n  over dim", "a scan is over one dimension"),
    ("scan my::s(Tensor x, int dim) -> Tensor = acc + x from 0\n  over last(1)\n  ignore dim", "a scan is over one dimension"),
    ("scan my::s(Tensor x, int dim, bool k) -> Tensor = acc + x from 0\n  over dim keep k", "no 'keep'"),
    ("scan my::s(Tensor x, int dim) -> Tensor = x\n  over dim", "a scan needs a state"),
    ("scan my::s(Tensor x, int dim) -> Tensor\n  over dim\n  state s = 0\n  finish s + x", "a scan needs a step"),
    ("scan my::s(Tensor x, int dim) -> Tensor\n  over dim\n  state s = 0\n  step s = x\n  finish each s", "no 'each'"),
    ("scan my::s(Tensor x, int dim) -> Tensor\n  over dim\n  state s = 0\n  step s = x", "result 0 has no finish"),
    ("scan my::s(Tensor x, int dim) -> Tensor\n  over dim\n  state s: f16 = 0\n  step s = x\n  finish s", "or 'wide'"),
    ("scan my::s(Tensor x, int dim) -> Tensor\n  over dim\n  state s = 0\n  step s = x\n  merge s = s + x\n  finish s", "a merge cannot see this"),
    ("scan my::s(Tensor x, int dim) -> Tensor\n  over dim\n  state s = 0, t = 0\n  step s = x, t = x\n  merge s = s + rhs.s\n  finish s", "merge gives 1 of 2 states"),
    ("scan my::s(Tensor x, int dim) -> Tensor\n  over dim\n  state s = 0\n  step s = x\n  merge s = rhs.t\n  finish s", "unknown name"),
    ("scan my::s(Tensor x, int dim) -> Tensor\n  over dim\n  state s = x\n  step s = x\n  finish s", "a state cannot see this"),
])
def test_rows_that_say_nothing_sensible_are_refused(row, why, interp):
    with pytest.raises((RuntimeError, ValueError, TypeError), match=why):
        interp.load(row)
