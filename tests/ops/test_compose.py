"""Operators made of calls, beside PyTorch: results, strides, errors and out= forms; and rows of a user's that call others.

Both tiers give the same bits, and the default mode answers while kernels are being built.  A call that fails, fails
before anything is written, whichever of its calls the fault is in.
"""
import pytest
import torch

from compare import tally
from kilnlib import Kiln, Owned
from listed import is_listed
from test_fold import bits, outcome, torch_op, tuples
from test_layers import CALLS as LAYERS
from whole import WHOLE

FLOAT = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
SHAPES = [(), (1,), (7,), (3, 4), (64, 100), (2, 3, 5), (0, 3), (3, 0)]


def values(shape, dtype, seed=1):
    g = torch.Generator().manual_seed(seed + len(shape))
    x = torch.randn(shape, generator=g, dtype=torch.float64) * 3
    return x.to(dtype) if dtype.is_floating_point else (x * 4).to(dtype)


def calls(name, dtype):
    """Arguments of calls that PyTorch takes, and some that it refuses."""
    for shape in SHAPES:
        x = values(shape, dtype)
        if name.endswith("softmax.int"):
            for dim in (0, -1, 2):
                yield (x, dim), {}
                yield (x, dim), {"dtype": torch.float64}
                yield (x.mT if x.dim() > 1 else x, dim, torch.float32), {}
        elif name == "layer_norm":
            for n in range(3):
                tail = list(shape[len(shape) - n:])
                yield (x, tail), {}
                if dtype.is_floating_point:
                    yield (x, tail, values(tuple(tail), dtype, 2), values(tuple(tail), dtype, 3), 1e-3), {}
            yield (x, [5]), {}
        elif name == "pairwise_distance":
            yield (x, values(shape, dtype, 4)), {}
            yield (x, values(shape, dtype, 4), 1.0, 1e-3, True), {}
            yield (x, values(shape[-1:], dtype, 5), 3.0), {}
        else:
            target = torch.where(values(shape, dtype, 6) > 0, 1, -1).to(dtype)
            for reduction in (0, 1, 2):
                yield (x, values(shape, dtype, 4), target, 0.5, reduction), {}
            yield (x, values(shape, dtype, 4), target.unsqueeze(0)), {}


ROUNDED_ONCE = ("softmax.int", "log_softmax.int")  # by Kiln: PyTorch's f64 judges halves
NAMES = ["softmax.int", "log_softmax.int", "layer_norm", "pairwise_distance", "margin_ranking_loss"]


def is_composition(op):
    """Those over lists are test_foreach.py's and test_optimizers.py's; parts of other operators (kiln::) are tested with them."""
    return op.family == "compose" and not op.name.startswith("kiln::") and "call for" not in op.row and "update" not in op.row


test_is_listed = is_listed(is_composition, {*NAMES, *LAYERS}, "NAMES and `calls`, or LAYERS, of tests/ops/test_compose.py")


@pytest.mark.parametrize("dtype", FLOAT + [torch.int64])
@pytest.mark.parametrize("name", NAMES)
def test_like_torch(name, dtype, interp, sync):
    """A sampled run compiles f32, and i64, which is converted: what is called is compiled with the other dtypes by its own tests."""
    contexts = (interp, sync) if WHOLE or dtype in (torch.float32, torch.int64) else (interp,)
    for args, kwargs in calls(name, dtype):
        tally.cases["compositions beside PyTorch"] += 1
        want = outcome(torch_op(name), args[0], args[1:], kwargs)
        got, *others = (outcome(k.op(f"aten::{name}"), args[0], args[1:], kwargs) for k in contexts)
        if isinstance(want, Exception):
            assert all(type(x) is type(want) for x in (got, *others)), (name, args, got, want)
            continue
        if not dtype.is_floating_point and args[0].numel() == 0 and isinstance(got, NotImplementedError):
            continue  # PyTorch asks for dtypes where it computes
        assert not isinstance(got, Exception), (name, args, kwargs, got)
        exact = iter(tuples(torch_op(name)(args[0].double(), *args[1:], **kwargs)) if name in ROUNDED_ONCE else ())
        assert all([bits(r) for r in other] == [bits(r) for r in got] for other in others), (name, args)
        for g, w in zip(got, want, strict=True):
            assert (g.dtype, g.shape, g.stride()) == (w.dtype, w.shape, w.stride()), (name, args)
            judge = next(exact) if name in ROUNDED_ONCE and dtype.itemsize == 2 and g.dtype == dtype else w
            torch.testing.assert_close(g, judge.to(g.dtype), equal_nan=True)


def test_results_that_are_given(interp):
    x = values((3, 4), torch.float32)
    want = torch.softmax(x, 1)
    for op, args in (("softmax.int_out", (x, 1)),):
        for out in (torch.empty(3, 4), torch.empty(4, 3).mT, torch.empty(3, 8)[:, ::2]):
            interp.op(f"aten::{op}")(*args, out=out)
            torch.testing.assert_close(out, want)
        resized = Owned(torch.empty(0))
        interp.op(f"aten::{op}")(*args, out=resized)
        torch.testing.assert_close(resized.torch(), want)
        with pytest.raises(RuntimeError, match="f64"):
            interp.op(f"aten::{op}")(*args, out=torch.empty(3, 4, dtype=torch.float64))


def test_errors_name_both_operators(interp):
    with pytest.raises(IndexError, match="aten::softmax.int: aten::_softmax: "):
        interp.op("aten::softmax.int")(values((3,), torch.float32), 4)


ROWS = """
compose my::scaled(Tensor x, Tensor y, int n) -> (Tensor, Tensor)
    check n > 0 value : "n must be positive"
    let   half = n / 2
    call a = add.Tensor(x, y)
    call b = mul.Scalar(a, n + 1)
    when n > 10
    call c, at = max.dim(b, 0)
    finish c, a
    when true
    call c = mul.Scalar(b, half)
    finish c, a
compose my::late(Tensor(a!) x, Tensor y, Tensor z) -> Tensor
    call first = add_.Tensor(x, y)
    call add.Tensor(first, z)
compose my::turned(Tensor x, Tensor y) -> Tensor
    call both = add.Tensor(x, y)
    call sub.Tensor(other=both, self=x)
fold my::sums(Tensor x, bool[2] wanted) -> (Tensor, Tensor) : takes float
    gives wanted[0], wanted[1]
    state s = 0, q = 0
    step  s = s + x, q = q + x * x
    merge s = s + rhs.s, q = q + rhs.q
    finish s, q
map my::or_one(Tensor x, Tensor? y) -> Tensor : takes float = x * or_else(y, 1)
compose my::some_sums(Tensor x, bool[2] wanted) -> (Tensor, Tensor, Tensor)
    call s, q = my::sums # a comment is no part of a name
                (x, wanted)
    call scaled = my::or_one(x, q)
    finish q, scaled, s
"""


@pytest.mark.parametrize("mode", ["interp", "sync", "default"])
def test_rows_of_a_user(mode):
    x, y = values((3, 4), torch.float32), values((4,), torch.float32, 9)
    with Kiln(mode) as own:
        own.load(ROWS)
        for _ in range(50):
            c, a = own.op("my::scaled")(x, y, 3)
            torch.testing.assert_close((c, a), ((x + y) * 4 * 1.5, x + y))
            c, a = own.op("my::scaled")(x, y, 11)
            torch.testing.assert_close((c, a), (((x + y) * 12).max(0).values, x + y))
            torch.testing.assert_close(own.op("my::turned")(x, y), x - (x + y))
        with pytest.raises(ValueError, match="my::scaled: n must be positive"):
            own.op("my::scaled")(x, y, 0)


@pytest.mark.parametrize("mode", ["interp", "sync", "default"])
def test_results_that_calls_do_not_give(mode):
    """They are None, for the row's callers and for calls that take them."""
    x = values((3, 4), torch.float32)
    with Kiln(mode) as own:
        own.load(ROWS)
        for wanted in ([True, True], [True, False], [False, True], [False, False]) * 10:
            q, scaled, s = own.op("my::some_sums")(x, wanted)
            assert (s is None, q is None) == (not wanted[0], not wanted[1])
            torch.testing.assert_close(scaled, x * (x * x).sum() if wanted[1] else x)
            if wanted[0]:
                torch.testing.assert_close(s, x.sum())
            if wanted[1]:
                torch.testing.assert_close(q, (x * x).sum())


def test_rest_of_many_tensors_alone(own):
    """Of a row that computes nothing itself another operator gives all, whatever the number of tensors."""
    names = [f"t{k}" for k in range(9)]
    tensors = ", ".join(f"Tensor {n}" for n in names)
    own.load(f"""
fold my::rows({tensors}, bool[2] wanted) -> (Tensor, Tensor) : takes float
    over   last(1)
    gives  wanted[0]
    state  s = 0
    step   s = s + {" + ".join(names)}
    merge  s = s + rhs.s
    finish s
    rest   my::columns
fold my::columns({tensors}, bool[2] wanted) -> Tensor : takes float
    over   first(1)
    gives  wanted[1]
    state  s = 0
    step   s = s + {" - ".join(names)}
    merge  s = s + rhs.s
    finish s
""")
    args = [torch.arange(12.0).view(3, 4) + k for k in range(9)]
    for wanted in ([False, True], [True, True], [True, False]) * 6:
        rows, columns = own.op("my::rows")(*args, wanted)
        assert (rows is None, columns is None) == (not wanted[0], not wanted[1])
        if wanted[0]:
            torch.testing.assert_close(rows, sum(args).sum(1))
        if wanted[1]:
            torch.testing.assert_close(columns, (args[0] - sum(args[1:])).sum(0))


def test_nothing_is_written_before_all_calls_are_known_to_fit(own):
    own.load(ROWS)
    x = torch.zeros(3)
    with pytest.raises(RuntimeError, match="my::late: aten::add.Tensor: "):
        own.op("my::late")(x, torch.ones(3), torch.ones(5))
    assert x.tolist() == [0, 0, 0]
    assert own.op("my::late")(x, torch.ones(3), torch.ones(3)).tolist() == [2, 2, 2]
    assert x.tolist() == [1, 1, 1]


def test_plans_and_stages(own):
    text = own.op("aten::softmax.int").explain("plan", values((3, 4), torch.int64), 1, dtype=torch.float64)
    assert "kind: composition" in text and "call aten::_to_copy\n  call aten::_softmax" in text and "f64[3, 4]" in text
    with pytest.raises(NotImplementedError):
        own.op("aten::softmax.int").explain("ir", values((3,), torch.float32), 0)


REFUSED = [
    ("add.Tensor(a, c)\n    ignore b", "'c' is no argument and no result of a call before"),
    ("a = add.Tensor(a, b)", "'a' has a meaning already"),
    ("c = add.Tensor(a, b)\n    finish d", "no call gives 'd'"),
    ("c, d = add.Tensor(a, b)", "aten::add.Tensor has 1 results"),
    ("softmax.int(a, 0)\n    ignore b", "aten::softmax.int is a compose row itself: call what it calls"),
    ("add.Tensor(a, b, alpha=a)", "does not have the type that aten::add.Tensor takes for 'alpha'"),
    ("for b : neg(a)", "'b' is not a list"),
    ("frexp.Tensor(a)\n    ignore b\n    finish a", "no call gives 'a'"),
]


@pytest.mark.parametrize("text,message", REFUSED)
def test_rows_that_are_refused(text, message, own):
    with pytest.raises(Exception, match=message):
        own.load(f"compose my::f(Tensor a, Tensor b) -> Tensor\n    call {text}")
    with pytest.raises(Exception, match="has 1 results, the row 2"):
        own.load("compose my::f(Tensor a) -> (Tensor, Tensor)\n    call neg(a)")
    with pytest.raises(Exception, match="result 0 is not what the calls of this row give"):
        own.load("compose my::f(Tensor[] a) -> Tensor\n    call for a : neg(a)")
