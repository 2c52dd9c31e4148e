"""Elements that routines pick from rows, beside PyTorch: medians, k-th values, modes.

Every served extern row is called with whole tensors and views (transposed, permuted, with gaps, expanded) along each
dimension, with every dtype that PyTorch takes and those it refuses.  Values must be PyTorch's.  Of equal elements PyTorch
gives any, so an index is right if the element there is the value; Kiln's own does not depend on layout or threads.
"""
import itertools
import random

import numpy as np
import pytest
import torch

from compare import tally
from kilnlib import Kiln
from listed import is_listed
from test_fold import bits, elements, outcome, special, torch_op, tuples, views
from whole import WHOLE

FLOAT = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
WHOLE_NUMBERS = [torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64]
UNFIT = [torch.uint16, torch.uint32, torch.uint64, torch.complex64, torch.complex128]
ALL = FLOAT + WHOLE_NUMBERS + UNFIT
SHAPES = [(), (1,), (2,), (7,), (300,), (4099,), (3, 4), (64, 100), (100, 3), (9, 1, 70), (5, 6, 7, 8), (0,), (0, 3), (3, 0)]
OF_ALL = ["median", "nanmedian"]
ALONG = ["median.dim", "nanmedian.dim", "kthvalue", "mode"]
nan = float("nan")


def tensor(shape, dtype, seed):
    if dtype in UNFIT and not dtype.is_complex:
        return elements(shape, torch.int32, seed).abs().to(dtype)
    return elements(shape, dtype, seed)


def layouts(x):
    """Other layouts of x, of x with many equal elements, and with NaN here and there."""
    yield from views(x)
    if x.dtype in UNFIT:
        return
    yield from views(special(x, x.dim()))
    if x.dtype.is_floating_point and x.numel():
        yield torch.full_like(x, nan)
        yield x.round()


def without_order(name, x):
    """Whether PyTorch sorts NaN by an order that is none: the mode it gives then depends on where they stand."""
    return name == "mode" and x.dtype.is_floating_point and bool(torch.isnan(x).any())


def at(x, dim, places, keep):
    """The elements of x at those places along dim."""
    if x.dim() == 0 or x.numel() == 0:
        return x.expand(places.shape) if x.dim() == 0 else x.new_empty(places.shape)
    got = torch.gather(x, dim, places if keep else places.unsqueeze(dim))
    return got if keep else got.squeeze(dim)


def alike(a, b):
    """Equal elements; zeros of either sign and NaNs are equal."""
    return bool(((a == b) | ((a != a) & (b != b))).all())


def judge(name, x, args, got, want):
    for g, w in zip(got, want, strict=True):
        assert (g.dtype, g.shape, g.stride()) == (w.dtype, w.shape, w.stride()), (name, x.shape, args, g.stride(), w.stride())
    if not without_order(name, x):
        assert alike(got[0], want[0]), (name, x, args, got, want)
    if len(got) == 2 and x.numel():
        dim, keep = args[-2:]
        assert bits(at(x, dim, got[1], keep).contiguous()) == bits(got[0].contiguous()), (name, x, args, got)


def agree(name, x, args, context):
    tally.cases["elements picked beside PyTorch"] += 1
    own = x.contiguous() if 0 in x.stride() else x  # PyTorch's median reads beyond an expanded dimension
    want, got = outcome(torch_op(name), own, args, {}), outcome(context.op(f"aten::{name}"), x, args, {})
    taken = x.dtype not in UNFIT and (x.dtype is not torch.bool or name == "mode")
    if not taken:
        assert isinstance(got, (NotImplementedError, IndexError)), (name, x.dtype, got)
        assert isinstance(want, (NotImplementedError, IndexError)) or x.numel() == 0 or x.dim() == 0  # it compares nothing there
    elif isinstance(want, Exception):
        assert type(got) is type(want), (name, x.dtype, x.shape, args, got, want)
    else:
        assert not isinstance(got, Exception), (name, x.dtype, x.shape, args, got)
        judge(name, x, args, got, want)


def calls(name, x, rng):
    """Arguments after x: k, where there is one, dim, keepdim."""
    every = list(itertools.product(range(-max(x.dim(), 1), max(x.dim(), 1)), (False, True)))
    for dim, keep in every if WHOLE or len(every) <= 4 else rng.sample(every, 3):
        n = x.shape[dim] if x.dim() else 1
        for k in {1, n, max(1, n // 3)} if name == "kthvalue" else (None,):
            yield (dim, keep) if k is None else (k, dim, keep)


test_is_listed = is_listed(lambda op: op.family == "extern", OF_ALL + ALONG, "OF_ALL or ALONG of tests/ops/test_select.py")


@pytest.mark.parametrize("name", OF_ALL + ALONG)
def test_like_torch(name, interp):
    rng = random.Random(name)
    for shape, dtype in itertools.product(SHAPES, ALL):
        for x in layouts(tensor(shape, dtype, len(shape))):
            for args in [()] if name in OF_ALL else calls(name, x, rng):
                agree(name, x, args, interp)


@pytest.mark.parametrize("name, args", [("median.dim", ()), ("nanmedian.dim", ()), ("kthvalue", (1,)), ("mode", ())])
def test_wrong_dimensions_are_refused_as_in_torch(name, args, interp):
    for shape, dim in [((3, 4), 2), ((3, 4), -3), ((), 1), ((), -2), ((0, 3), 0), ((3, 0), 1)]:
        agree(name, torch.ones(shape), (*args, dim, False), interp)


def test_k_out_of_range_is_refused(interp):
    for x, k in itertools.product((torch.ones(3), torch.ones(()), torch.ones(3, 0), torch.ones(0)), (-1, 0, 1, 4, 2**40)):
        agree("kthvalue", x, (k, 0, False), interp)
    with pytest.raises(RuntimeError, match="selected number k out of range"):
        interp.op("aten::kthvalue")(torch.ones(3), 4)


def test_nothing_has_a_median(interp):
    for name, dtype in itertools.product(OF_ALL, FLOAT + WHOLE_NUMBERS[1:]):
        x = torch.zeros(2, 0, dtype=dtype)
        got, want = interp.op(f"aten::{name}")(x), torch_op(name)(x)
        assert bits(got) == bits(want), (name, dtype, got, want)


def expected_mode(row):
    """A NaN equals nothing; the smallest of the most frequent numbers, and its last place."""
    numbers = sorted(v for v in row if v == v)
    if not numbers:
        return nan, 0
    value = max(sorted(set(numbers)), key=numbers.count)
    return value, max(i for i, v in enumerate(row) if v == value)


def test_modes_of_nans_and_ties(interp):
    rng = np.random.default_rng(1)
    rows = [[nan, 1, 2], [nan, nan, 1], [nan] * 3, [5, 5, 1, 1], [2.5], [1, nan, 1, nan, nan, 2, 2], [0.0, -0.0, 1]]
    rows += [rng.choice([1.0, 2.0, 3.0, -4.0, nan], n).tolist() for n in (1, 2, 5, 17, 48, 49, 300, 1000) for _ in range(5)]
    for row, dtype in itertools.product(rows, FLOAT):
        value, place = expected_mode(row)
        got = interp.op("aten::mode")(torch.tensor(row, dtype=dtype))
        assert got[1].item() == place and alike(got[0], torch.tensor(value, dtype=dtype)), (row, got)
        if len(row) <= 16 and nan not in row and not any(v != v for v in row):  # PyTorch's sort is stable there
            assert torch.mode(torch.tensor(row, dtype=dtype)).indices.item() == place


def hard(n):
    """Rows that make bad pivots of samples: sorted, in saw teeth, of one value, of few; organ pipes; with outliers."""
    i = torch.arange(n)
    yield from (i, i.flip(0), i % 7, i * 0, i // 2, (i * 7919) % n, torch.minimum(i, i.flip(0)), i * i * (i % 3 - 1))
    yield torch.where(i % (n // 15) == n // 30, i + n, i % 3)  # where samples are taken


def test_rows_that_are_hard_to_part(interp):
    for n, dtype in itertools.product((255, 256, 1000, 30030), (torch.int32, torch.int64, torch.float32, torch.float64)):
        for x in hard(n):
            x, order = x.to(dtype), x.to(dtype).sort().values
            for k in {1, 2, n // 2, n - 1, n}:
                value, place = interp.op("aten::kthvalue")(x, k)
                tally.cases["rows that are hard to part"] += 1
                assert value == order[k - 1] and x[place] == value and (x[:place] != value).all()


def written(name, k, x, args, values, indices):
    """What the out form of k (None: PyTorch) leaves in given tensors, or how it fails."""
    base, _, overload = name.partition(".")
    overload = "dim_values" if overload else "values"
    op = getattr(getattr(torch.ops.aten, base), overload) if k is None else k.op(f"aten::{base}.{overload}")
    try:
        op(x, *args, values=values, indices=indices)
    except (RuntimeError, IndexError, TypeError, NotImplementedError) as e:
        return e
    return values, indices


@pytest.mark.parametrize("name", ALONG)
def test_results_are_given(name, interp):
    """Of every dtype, in rows, with gaps, transposed: written, or refused and left as they were."""
    x = elements((6, 5, 50), torch.float32, 1)
    places = [lambda t: torch.full((6, 5), 9).to(t), lambda t: torch.full((5, 6), 9).to(t).t(), lambda t: torch.full((6, 5, 3), 9).to(t)[..., 1]]
    for dtype, places_dtype, place in itertools.product(ALL, (torch.int64, torch.int32), places):
        args = (3, 2, False) if name == "kthvalue" else (2, False)
        want, got = (written(name, k, x, args, place(dtype), place(places_dtype)) for k in (None, interp))
        tally.cases["elements picked into given tensors"] += 1
        assert type(got) is type(want), (name, dtype, got, want)
        if not isinstance(want, Exception):
            judge(name, x, args, got, want)
            continue
        values, indices = place(dtype), place(places_dtype)
        before = [values.clone(), indices.clone()]
        assert isinstance(written(name, interp, x, args, values, indices), Exception)
        assert all(torch.equal(a, b) for a, b in zip(before, (values, indices)))


@pytest.mark.parametrize("name", OF_ALL)
def test_the_median_of_all_is_given(name, interp):
    x = elements((6, 50), torch.float64, 1)
    out = torch.zeros((), dtype=torch.float64)
    interp.op(f"aten::{name}.out")(x, out=out)
    assert out == torch_op(name)(x)
    with pytest.raises(RuntimeError):
        interp.op(f"aten::{name}.out")(x, out=torch.zeros((), dtype=torch.float32))
    interp.op(f"aten::{name}.out")(x, out=x[2, 3])
    assert x[2, 3] == out


@pytest.mark.parametrize("name", ALONG)
def test_results_may_lie_in_the_argument(name, interp):
    """Where PyTorch does not refuse it: as if all had been read before."""
    for step in (1, 2):
        x = elements((9, 8), torch.float64, 7)
        args = (4, 0, False) if name == "kthvalue" else (0, False)
        want = torch_op(name)(x, *args)[0]
        theirs, mine = x.clone(), x.clone()
        answer = written(name, None, theirs[:, ::step], args, theirs[2][::step], torch.zeros(8 // step, dtype=torch.int64))
        got = written(name, interp, mine[:, ::step], args, mine[2][::step], torch.zeros(8 // step, dtype=torch.int64))
        assert type(got) is type(answer), (name, step, got, answer)
        if isinstance(got, Exception):
            assert torch.equal(mine, x)
        else:
            assert torch.equal(got[0], want[::step])


def large():
    """Tensors that threads share, and a dimension of each."""
    for shape, dim in [((300001,), 0), ((5, 100001), 1), ((100001, 5), 0), ((60, 40, 301), 1), ((1024, 768), 0), ((1024, 768), 1), ((1000, 21, 3, 16), 1)]:
        x = elements(shape, torch.float32, 3).round(decimals=2)
        yield x[:, :20, :2, ::2] if x.dim() == 4 else x, dim


def test_bits_do_not_depend_on_threads():
    seen = {}
    for threads in (1, 2, 3, 8):
        with Kiln("interp", threads=threads) as k:
            for (x, dim), name in itertools.product(large(), ALONG):
                args = (7, dim) if name == "kthvalue" else (dim,)
                for _ in range(2):  # what the first took is known then
                    now = tuples(k.op(f"aten::{name}")(x, *args))
                    first = seen.setdefault((tuple(x.shape), dim, name), now)
                    assert [bits(r) for r in now] == [bits(r) for r in first], (x.shape, dim, name, threads)
                tally.cases["elements picked by several threads"] += 1
            assert k.stats()["compiles"] == 0
    for (x, dim), name in itertools.product(large(), ALONG):
        args = (7, dim) if name == "kthvalue" else (dim,)
        assert alike(seen[tuple(x.shape), dim, name][0], torch_op(name)(x, *args)[0])


ROWS = """
extern my::third_least(Tensor x, int dim, bool keep=False) -> (Tensor, Tensor) : takes f32 i8 out exact -> (same, i64)
     over    dim keep keep
     host    k = 3
     check   n > 2 value : "three are needed"
     routine kth_at(x, k)

extern my::middle_of_last(Tensor x) -> Tensor : takes real out exact
     over    last(2)
     routine median(x)
"""


def test_rows_of_a_user():
    with Kiln("interp") as k:
        k.load(ROWS)
        x = elements((5, 6, 7), torch.float32, 1)
        got, want = k.op("my::third_least")(x, 1, keep=True), torch.kthvalue(x, 3, 1, keepdim=True)
        assert torch.equal(got[0], want.values) and torch.equal(got[1], want.indices)
        with pytest.raises(ValueError, match="three are needed"):
            k.op("my::third_least")(x[:, :2], 1)
        for y in (x, x.transpose(1, 2), x[:, ::2], x.transpose(0, 2)):
            assert torch.equal(k.op("my::middle_of_last")(y), torch.stack([m.median() for m in y]))


HEAD = "extern my::e(Tensor x, int k) -> (Tensor, Tensor) : takes real out exact -> (same, i64)\n  "


@pytest.mark.parametrize("row, why", [
    (HEAD + "routine first_at(x, k)", "the name of a routine"),
    (HEAD + "ignore k", "an extern row needs a routine clause"),
    (HEAD + "routine kth_at(x)\n  ignore k", "gets another number of arguments"),
    (HEAD + "routine kth_at(x, x)\n  ignore k", "gets an integer here"),
    (HEAD + "routine kth_at(x, k + 1)", "gets an integer here"),
    (HEAD + "routine kth_at(k, x)", "a routine's first argument is a tensor"),
    (HEAD + "when k == 1 = x\n  routine kth_at(x, k)", "an extern row has no 'when' clause"),
    (HEAD + "state s = 0\n  routine kth_at(x, k)", "an extern row has no 'state' clause"),
    ("map my::e(Tensor x) -> Tensor = x\n  routine median(x)", "a map row has no 'routine' clause"),
    ("extern my::e(Tensor x) -> Tensor : takes real out exact = x\n  routine median(x)", "no body"),
    ("extern my::e(Tensor x) -> Tensor : takes real\n  routine median(x)", "write 'out exact' or 'out copied'"),
    ("extern my::e(Tensor x) -> Tensor : takes complex out exact\n  routine median(x)", "takes no complex numbers"),
    ("extern my::e(Tensor x) -> Tensor : takes real to_float out exact\n  routine median(x)", "as they are"),
    ("extern my::e(Tensor x, Tensor y) -> Tensor : takes real out exact\n  routine median(x)\n  ignore y", "as they are"),
    ("extern my::e(Tensor x) -> Tensor : takes real out exact -> f32\n  routine median(x)", "gives elements as they are"),
    ("extern my::e(Tensor x) -> (Tensor, Tensor) : takes real out exact -> (same, i64)\n  routine median(x)", "another number of results"),
])
def test_rows_that_do_not_fit_their_routine_are_refused(row, why, interp):
    with pytest.raises((RuntimeError, ValueError, TypeError), match=why):
        interp.load(row)


@pytest.mark.parametrize("planted", ["nanmedian_at", "mode_at"])
def test_a_wrong_routine_is_found(planted):
    """The comparison above finds a median that leaves out NaN, or counts."""
    row = f"extern my::median(Tensor self, int dim, bool keepdim=False) -> (Tensor, Tensor) : takes real out copied -> (same, i64)\n  over dim keep keepdim\n  routine {planted}(self)"
    with Kiln("interp") as k:
        k.load(row)
        wrong = k.op("my::median")
        found = 0
        for x in layouts(elements((9, 8), torch.float32, 2)):
            try:
                judge("median.dim", x, (1, False), tuples(wrong(x, 1, False)), torch.median(x, 1))
            except AssertionError:
                found += 1
        assert found


def test_numbers_that_fit_no_row_are_refused(own):
    """A row of a user's need not check them: the routine does, before anything is written."""
    own.load("extern my::kth(Tensor self, int k, int dim) -> (Tensor, Tensor) : takes all out exact -> (same, i64)\n  over dim\n  routine kth_at(self, k)")
    for n, k in itertools.product((1, 3, 300), (0, -1, -(2**40), 2**62, 301, 10**9)):
        with pytest.raises(IndexError, match="out of range"):
            own.op("my::kth")(torch.rand(2, n), k, 1)
    assert own.op("my::kth")(torch.tensor([3.0, 1.0, 2.0]), 2, 0)[0] == 2
    values, places = own.op("my::kth")(torch.empty(2, 0), 1, 1)
    assert values.isnan().all() and places.tolist() == [-1, -1]
    for kind, number in (("float", "k"), ("int", "h")):
        with pytest.raises(TypeError, match="gets an integer here"):
            own.load(f"extern my::bad(Tensor self, {kind} k, int dim) -> (Tensor, Tensor) : takes all out exact -> (same, i64)\n"
                        f"  over dim\n  host h: f64 = k + 0.5\n  routine kth_at(self, {number})")
