"""Folds that see their arguments in other sizes, beside PyTorch: gated linear units, masked softmax, distances; and rows of users'.

Whole tensors and views, along every dimension, with NaN and infinities, on both tiers, which must give the same bits.  PyTorch's
f64 judges what is rounded.
"""
import itertools

import pytest
import torch

from compare import tally
from contexts import by_threads
from kilnlib import Kiln, Owned
from test_fold import FLOATS, both_sides, elements, outcome, special, torch_op, tuples, views

inf = float("inf")
NAMES = ["glu", "glu_backward", "glu_jvp", "glu_backward_jvp", "_masked_softmax", "_masked_softmax_backward", "_cdist_forward", "_cdist_backward", "cosine_similarity"]


def agree(name, args, contexts, judge=None, strides=True):
    """Every context gives the same bits and PyTorch's answer, or refuses the call as PyTorch does.  judge: arguments that f64 judges by."""
    tally.cases["folds that see arguments in other sizes"] += 1
    sides = both_sides(name, args, contexts)
    if not sides:
        return
    wide = [v.double() if isinstance(v, torch.Tensor) and v.dtype.is_floating_point else v for v in judge or args]
    for g, w, e in zip(*sides, tuples(torch_op(name)(*wide)), strict=True):
        assert (g.dtype, g.shape) == (w.dtype, w.shape)
        assert not strides or g.numel() == 0 or g.stride() == w.stride(), (name, args[0].stride(), g.stride(), w.stride())
        torch.testing.assert_close(g, e.to(g.dtype), equal_nan=True)


# -- gated linear units ----------------------------------------------------------------------------------------------

SHAPES = [(2,), (6,), (4, 10), (64, 100), (9, 1, 70), (4, 6, 2, 8), (0, 4), (4, 0)]


def halves(shape):
    return [d for d in range(-len(shape), len(shape)) if shape[d] % 2 == 0]


def tiers(shape, x, k, interp, sync):
    """f32 is compiled, row-major and transposed; of other dtypes one shape."""
    return (interp, sync) if (x.dtype == torch.float32 and k < 2 and shape in ((64, 100), (4, 6, 2, 8))) or (k == 0 and shape == (9, 1, 70)) else (interp,)


def tensors(shape, dtype):
    x = elements(shape, dtype, len(shape))
    yield from views(x)
    if len(shape) == 4:
        yield x.to(memory_format=torch.channels_last)
    yield special(x, 1)


def test_glu(interp, sync):
    for shape, dtype in itertools.product(SHAPES, FLOATS):
        for k, x in enumerate(tensors(shape, dtype)):
            for dim in halves(shape):
                agree("glu", (x, dim), tiers(shape, x, k, interp, sync))


def test_gradients_of_glu(interp, sync):
    for shape, dtype in itertools.product(SHAPES, FLOATS):
        for k, x in enumerate(tensors(shape, dtype)):
            for dim in halves(shape):
                y = torch.nn.functional.glu(x, dim)
                g = next(itertools.islice(views(elements(y.shape, dtype, 7)), k % 2, None))
                contexts = tiers(shape, x, k, interp, sync)
                if dtype.itemsize > 2:
                    agree("glu_backward", (g, x, dim), contexts)
                else:  # PyTorch rounds on the way, and Kiln where it does
                    got, want = both_sides("glu_backward", (g, x, dim), contexts)
                    torch.testing.assert_close(got, want, equal_nan=True)


def test_forward_gradients_of_glu(interp, sync):
    """Values of f64, as terms cancel; f32 must have the same bits on both tiers, and halves are taken or refused as PyTorch does."""
    for shape, dtype in itertools.product(SHAPES, FLOATS):
        for k, x in enumerate(tensors(shape, dtype)):
            for dim in halves(shape):
                y = torch.nn.functional.glu(x, dim)
                g, dg, dx = elements(y.shape, dtype, 7), elements(y.shape, dtype, 9), elements(shape, dtype, 8)
                grad_x = torch.ops.aten.glu_backward(g, x, dim)
                for name, args in (("glu_jvp", (y, x, dx, dim)), ("glu_backward_jvp", (grad_x, g, x, dg, dx, dim))):
                    if dtype == torch.float64:
                        agree(name, args, tiers(shape, x, k, interp, sync), strides=x.is_contiguous())
                    elif k == 0 and shape == (64, 100):
                        sides = both_sides(name, args, (interp, sync) if dtype == torch.float32 else (interp,))
                        assert not sides or [t.dtype for t in sides[0]] == [t.dtype for t in sides[1]] == [dtype], name


def test_what_glu_refuses(interp):
    x = torch.ones(4, 6)
    for args in ((torch.ones(()), 0), (torch.ones(3, 5), 1), (x, 2), (x, -3), (x.int(), 0), (x.bool(), 0), (x.to(torch.complex64), 0)):
        agree("glu", args, (interp,))
    for g, y, dim in ((torch.ones(4, 4), x, 1), (torch.ones(3, 3), x, 1), (torch.ones(4, 3).double(), x, 1), (torch.ones(4, 3), x, 5), (torch.ones(4, 6), x, 1)):
        agree("glu_backward", (g, y, dim), (interp,))
    with pytest.raises(NotImplementedError):
        interp.op("aten::glu_backward")(torch.ones(3), x, 1)


def test_glu_into_given_results(interp, sync):
    """In rows, transposed, with gaps; resized; and where they overlap what is read."""
    x, g = elements((6, 50), torch.float32, 1), elements((6, 25), torch.float32, 2)
    want, slope = torch.nn.functional.glu(x, 1), torch.ops.aten.glu_backward(g, x, 1)
    for k in (interp, sync):
        for out in (torch.zeros(6, 25), torch.zeros(25, 6).t(), torch.zeros(6, 25, 3)[..., 1]):
            k.op("aten::glu.out")(x, 1, out=out)
            torch.testing.assert_close(out, want)
        resized = Owned(torch.empty(0))
        k.op("aten::glu.out")(x, 1, out=resized)
        torch.testing.assert_close(resized.torch(), want)
        for out in (torch.zeros(6, 50), torch.zeros(50, 6).t(), torch.zeros(6, 50, 3)[..., 1]):
            k.op("aten::glu_backward.grad_input")(g, x, 1, grad_input=out)
            torch.testing.assert_close(out, slope)
        both = x.clone()
        k.op("aten::glu_backward.grad_input")(g, both[:, :], 1, grad_input=both)
        torch.testing.assert_close(both, slope)
        with pytest.raises(RuntimeError):
            k.op("aten::glu_backward.grad_input")(g, x, 1, grad_input=torch.zeros(6, 50, dtype=torch.float64))


# -- masked softmax --------------------------------------------------------------------------------------------------

def masks(shape, seed):
    """Of the input's sizes: none, some, all of a row, all."""
    some = elements(shape, torch.bool, seed)
    yield torch.zeros(shape, dtype=torch.bool)
    yield some
    yield torch.cat([torch.ones_like(some[:1]), some[1:]]) if len(shape) > 1 else ~some
    yield torch.ones(shape, dtype=torch.bool)


def test_masked_softmax(interp, sync):
    for shape, dtype in itertools.product([(), (7,), (64, 100), (2, 3, 4, 5), (0, 3)], FLOATS):
        x = elements(shape, dtype, len(shape))
        for k, (mask, x) in enumerate(itertools.product(masks(shape, 3), (x, special(x, 1)))):
            contexts = (interp, sync) if k == 2 and shape == (64, 100) and dtype in FLOATS[::2] else (interp,)
            for dim in (None, *(d for d in (0, -1, 2)[:len(shape)] if shape[d])):
                agree("_masked_softmax", (x, mask, dim, 2), contexts)
                if shape:
                    y = torch.ops.aten._masked_softmax(x, mask, dim, 2)
                    agree("_masked_softmax_backward", (x, y, mask, dim), contexts)


def test_masks_of_attention_and_padding(interp, sync):
    for dtype, (b, h, n) in itertools.product(FLOATS, [(2, 3, 5), (1, 1, 1), (3, 2, 40)]):
        x = elements((b, h, n, n), dtype, 1)
        contexts = (interp, sync) if n == 40 and dtype == torch.float32 else (interp,)
        for kind, shape, dim in itertools.product((0, 1), ((n, n), (b, n)), (None, 3, -1, 0, 1, 2)):
            mask = elements(shape, torch.bool, 4)
            agree("_masked_softmax", (x, mask, dim, kind), contexts)
            agree("_masked_softmax", (x, mask.t().contiguous().t(), dim, kind), (interp,))


def test_masked_softmax_of_views_and_of_nothing(interp):
    """PyTorch reads views well and lays results out as their memory is; along dimensions of no elements it reads what is not there."""
    x, mask = elements((4, 6, 5), torch.float64, 1), elements((4, 6, 5), torch.bool, 2)
    op = interp.op("aten::_masked_softmax")
    for k, view in enumerate(itertools.islice(views(x), 4)):
        torch.testing.assert_close(op(view, mask, 1, 2), op(x, mask, 1, 2), equal_nan=True)
        torch.testing.assert_close(op(x, list(views(mask))[k], 1, 2), op(x, mask, 1, 2), equal_nan=True)
    assert op(torch.ones(3, 0), torch.ones(3, 0, dtype=torch.bool), 1, 2).shape == (3, 0)


def test_what_masked_softmax_refuses(interp):
    x, mask = torch.ones(2, 3, 4, 4), torch.ones(4, 4, dtype=torch.bool)
    same = torch.ones(2, 3, 4, 4, dtype=torch.bool)
    for args in ((x, mask), (x, mask, 3), (x, mask, 3, 2), (x, mask, 3, 3), (x, mask, 3, -1), (x, mask[:3], 3, 0), (x, mask[:3], 3, 1), (x, mask.float(), 3, 0),
                 (x, same[:1], 3, 2), (x, same, 4, 2), (x, same, -5, 2), (x.int(), same, 3, 2), (x, mask[0], 3, 0)):
        agree("_masked_softmax", args, (interp,))
    for args in ((x, x, mask, 3), (x, x, same.float(), 3), (x, x.double(), same, 3), (x, x, same, 4), (x.int(), x.int(), same, 3)):
        agree("_masked_softmax_backward", args, (interp,))


def test_masked_softmax_into_given_results(interp):
    x, mask = elements((3, 8), torch.float32, 1), elements((3, 8), torch.bool, 2)
    want = torch.ops.aten._masked_softmax(x, mask, 1, 2)
    for out in (torch.zeros(3, 8), torch.zeros(8, 3).t(), torch.zeros(3, 8, 2)[..., 0], x):
        interp.op("aten::_masked_softmax.out")(x, mask, 1, 2, out=out)
        torch.testing.assert_close(out, want)


def test_masked_softmax_without_dimensions_into_results_that_are_resized(interp):
    x, mask = torch.tensor(3.0, dtype=torch.float64), torch.tensor(False)
    for sizes in ((4, 3), (7,), (0,), ()):
        out = Owned(torch.zeros(sizes, dtype=torch.float64))
        interp.op("aten::_masked_softmax.out")(x, mask, -1, None, out=out)
        assert out.torch().shape == () and out.torch() == 1


# -- distances -------------------------------------------------------------------------------------------------------

ORDERS = (2.0, 0.0, 1.0, inf, 3.0, 0.5)


def test_distances(interp, sync):
    for (a, b), dtype in itertools.product([((3, 4), (5, 4)), ((1, 7), (1, 7)), ((40, 70), (30, 70)), ((2, 1, 3, 5), (4, 6, 5)), ((2, 3, 5), (2, 0, 5)), ((3, 0), (2, 0)),
                                            ((0, 3), (2, 3))], FLOATS[:2]):
        x, y = elements(a, dtype, 1), elements(b, dtype, 2)
        for k, (v, w) in enumerate(((x, y), (x.mT.contiguous().mT, torch.stack([y, y], -1)[..., 0]), (special(x, 1), special(y, 2)))):
            for p, mode in itertools.product(ORDERS, (None, 2)):
                compiled = k == 0 and a == (40, 70) and dtype == torch.float32 and mode == 2
                if (mode == 2 or k < 2) and (k < 2 or p != inf):  # the greatest of numbers and NaN is NaN; PyTorch's is not
                    agree("_cdist_forward", (v, w, p, mode), (interp, sync) if compiled else (interp,), judge=(v, w, p, 2))


def test_gradients_of_distances(interp, sync):
    for (a, b), dtype in itertools.product([((3, 4), (5, 4)), ((40, 70), (30, 70)), ((2, 3, 5), (2, 4, 5)), ((2, 3, 5), (2, 0, 5)), ((3, 0), (2, 0))], FLOATS[:2]):
        x, y = elements(a, dtype, 1), elements(b, dtype, 2)
        if 0 not in a + b:
            x[..., 0, :] = y[..., 0, :]
        for p in ORDERS:
            dist = torch.cdist(x, y, p, "donot_use_mm_for_euclid_dist")
            contexts = (interp, sync) if a == (40, 70) and dtype == torch.float32 and p in (2.0, 3.0) else (interp,)
            args = elements(dist.shape, dtype, 3), x, y, p, dist
            if dtype == torch.float64 or p in (1.0, 2.0):
                agree("_cdist_backward", args, contexts)
            else:  # powers of small numbers, of which f64 finds others
                assert both_sides("_cdist_backward", args, contexts)


def test_what_distances_refuse(interp):
    x = torch.ones(3, 4)
    for args in ((x, torch.ones(3, 5), 2.0, None), (x, torch.ones(4), 2.0, None), (x, x, -1.0, None), (x, x, 2.0, 3), (x, x.double(), 2.0, None), (x.int(), x.int(), 2.0, None),
                 (torch.ones(2, 3, 4), torch.ones(3, 3, 4), 2.0, None)):
        agree("_cdist_forward", args, (interp,))
    for name, v in itertools.product(("pdist", "_pdist_forward"), (x.half(), x.bfloat16(), x.int(), x.bool(), x.to(torch.complex64), x[0], x[0, 0])):
        agree(name, (v,), (interp,))
    for wrong in ((x[None],), (x, -1.0)):  # of which PyTorch's makes something
        assert isinstance(outcome(interp.op("aten::_pdist_forward"), wrong[0], wrong[1:], {}), RuntimeError)


def test_distances_of_pairs(interp, sync):
    """Where columns begin at multiples of a vector and where they do not, few and many of them, folds of each kind."""
    for (n, m), dtype in itertools.product([(2, 3), (3, 200), (9, 5), (12, 5), (33, 1), (70, 12), (70, 64), (20, 127), (40, 127), (20, 300), (300, 4)], FLOATS[:2]):
        x = elements((n, m), dtype, 1)
        x[-1] = x[0]
        for k, (v, p) in enumerate(itertools.product((x, x.mT.contiguous().mT, torch.stack([x, x], -1)[..., 0], x[:1].expand(n, m), special(x, 1)), ORDERS)):
            agree("pdist", (v, p), (interp, sync) if dtype == torch.float32 and (n, m) in ((70, 12), (20, 300)) and k < len(ORDERS) else (interp,))


@pytest.mark.parametrize("mode", ["interp", "sync"])
def test_distances_of_pairs_by_threads(mode, sync):
    """Threads share rows of the triangle; a row is short at its end."""
    for (n, m), p in itertools.product([(700, 20), (300, 400), (2000, 1)], (2.0, 1.0)):
        x, first = elements((n, m), torch.float32, 1), None
        for _, k in by_threads(mode, sync):
            for _ in range(3):  # the first call of a class has not been timed
                got = k.op("aten::_pdist_forward")(x, p)
                first = got if first is None else first
                assert torch.equal(got, first)
        torch.testing.assert_close(first, torch.pdist(x.double(), p).float())


def test_distances_of_pairs_into_given_results(interp):
    x = elements((7, 5), torch.float32, 1)
    want = torch.pdist(x)
    for out in (torch.zeros(21), torch.zeros(42)[::2], torch.zeros(21, 2)[:, 1], x.clone().view(-1)[:21]):
        interp.op("aten::_pdist_forward.out")(x, 2.0, out=out)
        torch.testing.assert_close(out, want)
    interp.op("aten::_pdist_forward.out")(x, 2.0, out=x.view(-1)[:21])  # which is read
    torch.testing.assert_close(x.view(-1)[:21], want)
    resized = Owned(torch.empty(0))
    interp.op("aten::_pdist_forward.out")(elements((7, 5), torch.float32, 1), 2.0, out=resized)
    torch.testing.assert_close(resized.torch(), want)
    with pytest.raises(RuntimeError, match="f64"):
        interp.op("aten::_pdist_forward.out")(x, 2.0, out=torch.zeros(21, dtype=torch.float64))


def test_rows_read_again(interp, sync):
    """Few elements beside many rows: the tensor that would have to be turned for each of them is so once, in a copy."""
    for (a, b), dtype in itertools.product([((70, 16), (90, 16)), ((9, 100), (40, 100)), ((3, 30, 7), (3, 50, 7)), ((2, 1, 40, 9), (3, 60, 9)), ((40, 63), (9, 63)), ((9, 127), (40, 127))], FLOATS[:2]):
        x, y = elements(a, dtype, 1), elements(b, dtype, 2)
        assert "copy x2 to temporary" in interp.op("aten::_cdist_forward").explain("plan", x, y, 1.0, 2)
        for v, w in ((x, y), (x.flip(-2), y.flip(-2)), (torch.stack([x, x], -1)[..., 0], torch.stack([y, y], -1)[..., 0])):
            agree("_cdist_forward", (v, w, 1.0, 2), (interp, sync))


def test_cosine_similarity(interp, sync):
    for (a, b), dtype in itertools.product([((3, 4), (3, 4)), ((64, 100), (64, 100)), ((5, 1, 7), (6, 7)), ((3, 4), (4,)), ((3, 1), (3, 6)), ((0, 3), (0, 3)), ((3, 0), (3, 0))], FLOATS):
        x, y = elements(a, dtype, 1), elements(b, dtype, 2)
        if a == b and a[0] and dtype != torch.float16:
            x[0] = 0
        for dim, eps in itertools.product((1, 0, -1), (1e-8, 1e-3, 10.0)):
            agree("cosine_similarity", (x, y, dim, eps), (interp, sync) if a == (64, 100) and eps == 1e-8 and dtype == torch.float32 else (interp,))
    zeros = torch.zeros(2, 3, dtype=torch.float16)  # in which 1e-8 is 0
    assert bool(interp.op("aten::cosine_similarity")(zeros, zeros + 1).isnan().all()) and bool(torch.cosine_similarity(zeros, zeros + 1).isnan().all())


# -- rows of users' --------------------------------------------------------------------------------------------------

ROWS = """
fold my::distances(Tensor x, Tensor y) -> Tensor : takes float
     over   last(1)
     view   x [.. -1, 1, -1 ..]
     view   y [.. -2, 1, -2 ..]
     state  s = 0
     step   s = s + abs(x - y)
     merge  s = s + rhs.s
     finish s
fold my::halves(Tensor x, int dim) -> Tensor : takes float strides like x
     over   dims(at)
     view   x [.. at, 2, size(x, at) // 2, at + 1 ..]
     check  dim >= -rank(x) and dim < rank(x) and size(x, dim) % 2 == 0 : "expected a dimension of even size"
     host   at = dim < 0 ? dim + rank(x) : dim
     state  s = 0
     step   s = s + (i == 0 ? x : -x)
     merge  s = s + rhs.s
     finish s
fold my::flat(Tensor x, bool flat) -> Tensor : takes real
     over   dims(-1)
     view   x [span(x, 0)] when flat
     state  s = 0
     step   s = s + x
     merge  s = s + rhs.s
     finish s
fold my::nothing(Tensor x, int dim, bool none) -> Tensor : takes float
     over   dim
     state  s = 3
     merge  s = s
     when   none
     step   s = s
     finish s
     when   true
     step   s = x
     finish s
fold my::pairs(Tensor x, Tensor y) -> (Tensor, Tensor) : promote(x, y) takes all -> (same, i64)
     over   dims(2) triangle
     view   x [.. -1, 1, -1 ..]
     view   y [1, 0 ..]
     state  s = 0, at: i64 = -1
     step   s = s + x * y, at = x == y ? i : at
     merge  s = s + rhs.s, at = max(at, rhs.at)
     finish s, at
fold my::wrong(Tensor x, int d) -> Tensor : takes real = acc + x from 0
     over   dims(0)
     view   x [.. d, d ..]
"""


@pytest.mark.parametrize("mode", ["interp", "sync"])
def test_rows_of_a_user(mode):
    with Kiln(mode) as k:
        k.load(ROWS)
        x, y = elements((4, 1, 6, 5), torch.float64, 1), elements((3, 7, 5), torch.float64, 2)
        torch.testing.assert_close(k.op("my::distances")(x, y), (x.unsqueeze(-2) - y.unsqueeze(-3)).abs().sum(-1))
        for v in (x, x.permute(2, 0, 3, 1), x.transpose(0, 2).contiguous().transpose(0, 2)):
            for dim in halves(v.shape):
                a, b = v.chunk(2, dim)
                got = k.op("my::halves")(v, dim)
                torch.testing.assert_close(got, a - b, check_stride=True)
        assert k.op("my::flat")(torch.ones(3, 4), True).tolist() == 12 and k.op("my::flat")(torch.ones(3, 4), False).tolist() == [4, 4, 4]
        assert k.op("my::nothing")(torch.ones(2, 3), 0, True).tolist() == [3, 3, 3]  # a branch that reads no tensor
        for n, m in ((0, 3), (1, 3), (2, 3), (5, 3), (40, 7), (20, 90)):
            x, y = elements((n, m), torch.int32, 1), elements((n, m), torch.int64, 2)
            total, at = k.op("my::pairs")(x, y)
            i, j = torch.triu_indices(n, n, 1)
            same = torch.where(x[i] == y[j], torch.arange(m), -1)
            assert torch.equal(total, (x[i] * y[j]).sum(1)) and torch.equal(at, same.amax(1))
        with pytest.raises(RuntimeError, match="my::pairs: expected two dimensions of one size beside those that are folded"):
            k.op("my::pairs")(torch.ones(3, 4), torch.ones(5, 4))
        for d in (0, 1, 2, -1, -2):
            assert k.op("my::wrong")(torch.ones(3, 4), d).tolist() == [3, 3, 3, 3]
        for d in (3, -3, 1 << 40):
            with pytest.raises(RuntimeError, match="do not fit the sizes"):
                k.op("my::wrong")(torch.ones(3, 4), d)


@pytest.mark.parametrize("row, text", [
    ("over dims(y)", "unknown name 'y'"), ("over dims(0)\n view x [.. ]", "expected"), ("over dims(0)\n view x [.. y]", "unknown name 'y'"),
    ("over dims(0)\n view x [0 ..] when y", "unknown name 'y'"), ("over dims(0)\n view x [1, 1, 1, 1, 1, 1, 0 ..]", "at most 6 sizes"),
    ("over dims()", "expected"), ("over dims(0, 1, -2)", None),
])
def test_what_rows_may_not_say(row, text, own):
    text and pytest.raises(Exception, own.load, f"fold my::f(Tensor x) -> Tensor : takes real = acc + x from 0\n {row}", match=text)
    if not text:
        own.load(f"fold my::f(Tensor x) -> Tensor : takes real = acc + x from 0\n {row}")
        assert isinstance(outcome(own.op("my::f"), torch.ones(2, 3), (), {}), RuntimeError)
