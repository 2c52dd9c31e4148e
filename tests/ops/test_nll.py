"""Losses of classes beside PyTorch: nll_loss and nll_loss2d, their gradients, and rows of users' that read at computed places.

With and without weights and targets that are ignored, all reductions, tensors in other layouts, on both tiers and with several
threads, which must give the same bits; targets out of range, which are found before anything is written; shapes that do not fit.
PyTorch's f64 judges what is rounded: it adds halves up in halves.
"""
import itertools

import pytest
import torch

from compare import tally
from contexts import by_threads
from kilnlib import Kiln, at_most
from test_fold import FLOATS, bits, both_sides, elements, torch_op, tuples, views
from whole import WHOLE

ROWS = [(0, 3), (1, 1), (3, 4), (70, 10), (5, 1000), (2100, 7)]
IMAGES = [(0, 3, 2, 2), (1, 1, 1, 1), (2, 3, 4, 5), (3, 10, 9, 30), (2, 5, 0, 3)]


def targets(shape, classes, ignored, seed, dtype=torch.int64):
    t = (elements(shape, torch.float64, seed).abs() * 1000).long() % classes
    if ignored is not None and t.numel() > 2:
        t.view(-1)[::3] = ignored
    return t.to(dtype)


def wide(values):
    return [v.double() if isinstance(v, torch.Tensor) and v.is_floating_point() else v for v in values]


def agree(name, args, contexts):
    """Every context gives the same bits and PyTorch's answer, or refuses the call as PyTorch does."""
    tally.cases["losses of classes"] += 1
    sides = both_sides(name, args, contexts)
    if not sides:
        return
    for g, w, e in zip(*sides, tuples(torch_op(name)(*wide(args))), strict=True):
        assert (g.dtype, g.shape) == (w.dtype, w.shape)
        assert g.numel() < 2 or g.stride() == w.stride()
        torch.testing.assert_close(g, e.to(g.dtype), equal_nan=True)


def calls(shape, dtype):
    """(self, target, weight, reduction, ignore_index) of every kind."""
    classes, rest = shape[1], (shape[0], *shape[2:])
    weight = elements((classes,), dtype, 5).abs()
    for k, x in enumerate(views(-elements(shape, dtype, 1).abs())):
        gaps = torch.stack([weight, weight], -1)[:, 0]
        for reduction, w in itertools.product((0, 1, 2), (None, gaps if k % 2 else weight)):
            ignored = (-100, 0, classes + 3)[(k + reduction) % 3]
            yield k, x, targets(rest, classes, ignored, 3 + k), w, reduction, ignored


def tiers(shape, dtype, k, interp, sync):
    return (interp, sync) if WHOLE or (k < (2 if dtype == torch.float32 else 1) and shape in ((70, 10), (3, 10, 9, 30))) else (interp,)


@pytest.mark.parametrize("name, shapes", [("nll_loss", ROWS), ("nll_loss2d", IMAGES)])
def test_like_torch(name, shapes, interp, sync):
    for shape, dtype in itertools.product(shapes, FLOATS if WHOLE else (torch.float32, torch.bfloat16)):
        for k, x, target, weight, reduction, ignored in calls(shape, dtype):
            contexts = tiers(shape, dtype, k, interp, sync)
            agree(f"{name}_forward", (x, target, weight, reduction, ignored), contexts)
            grad = elements(target.shape if reduction == 0 else (), dtype, 9)
            total = torch.full((), 2.5, dtype=dtype)
            x = x if name == "nll_loss" else x.contiguous()  # PyTorch refuses other gradients
            agree(f"{name}_backward", (grad, x, target, weight, reduction, ignored, total), contexts)


def test_one_row(interp, sync):
    """A vector, whose target has no dimensions."""
    for dtype, reduction, weight, ignored in itertools.product(FLOATS, (0, 1, 2), (None, elements((6,), torch.float64, 5).abs()), (-100, 2)):
        x, weight, target = elements((6,), dtype, 1), weight if weight is None else weight.to(dtype), torch.tensor(2)
        contexts = (interp, sync) if dtype == torch.float32 else (interp,)
        agree("nll_loss_forward", (x, target, weight, reduction, ignored), contexts)
        agree("nll_loss_forward", (x, target.view(1), weight, reduction, ignored), (interp,))
        for grad in (torch.full((), 1.5, dtype=dtype), torch.full((1,), 1.5, dtype=dtype)):
            agree("nll_loss_backward", (grad, x, target, weight, reduction, ignored, torch.full((1,), 2.0, dtype=dtype)), contexts)


@pytest.mark.parametrize("dtype", FLOATS)
def test_gradients_of_short_rows(dtype, interp, sync):
    """Many of them are filled as one row where they follow each other without gaps."""
    x, t, weight = elements((90, 10), dtype, 1), targets((180,), 10, 4, 2), elements((10,), dtype, 3).abs()
    total = torch.full((), 2.5, dtype=dtype)
    rooms = torch.zeros(90, 10, dtype=dtype), torch.zeros(90, 13, dtype=dtype)[:, 2:12], torch.zeros(10, 90, dtype=dtype).t(), torch.zeros(90, 20, dtype=dtype)[:, ::2]
    for target, reduction, w, ignored in itertools.product((t[:90], t[::2]), (0, 1), (None, weight), (-100, 4)):
        grad = elements((90,) if reduction == 0 else (), dtype, 9)
        args = grad, x, target, w, reduction, ignored, total
        want = torch_op("nll_loss_backward")(*wide(args))
        for room, k in itertools.product(rooms, (interp, sync)):
            base = room if room._base is None else room._base
            base.fill_(7)
            k.op("aten::nll_loss_backward.grad_input")(*args, grad_input=room)
            torch.testing.assert_close(room, want.to(dtype))
            assert int((base == 7).sum()) == base.numel() - room.numel()


def test_targets_of_bytes(interp):
    x, target = elements((300, 200), torch.float32, 1), targets((300,), 200, 7, 2, torch.uint8)
    for reduction in (0, 1, 2):
        agree("nll_loss_forward", (x, target, None, reduction, 7), (interp,))
        grad = elements((300,) if reduction == 0 else (), torch.float32, 2)
        agree("nll_loss_backward", (grad, x, target, None, reduction, 7, torch.ones(())), (interp,))


def test_layouts(interp, sync):
    """Of images whose dimensions lie in any order; targets too."""
    x, t = elements((3, 4, 10, 9), torch.float32, 1), targets((3, 10, 9), 4, 1, 2)
    for order in itertools.permutations(range(4)):
        back = [order.index(d) for d in range(4)]
        for k, turned in enumerate((t, t.permute(2, 0, 1).contiguous().permute(1, 2, 0))):
            for reduction in (0, 1):
                contexts = (interp, sync) if order in ((0, 1, 2, 3), (0, 2, 3, 1), (2, 1, 3, 0)) and k == 0 else (interp,)
                agree("nll_loss2d_forward", (x.permute(order).contiguous().permute(back), turned, None, reduction, 1), contexts)
        grad = elements((3, 10, 9), torch.float32, 3)
        agree("nll_loss2d_backward", (grad, x, turned, None, 0, 1, torch.ones(())), (interp,))


@pytest.mark.parametrize("tier, threads", [("interp", 1), ("sync", 1), ("sync", 3)])
def test_targets_out_of_range_are_found_before_anything_is_written(tier, threads, interp, sync):
    k = {"interp": interp, "sync": sync}[tier]
    with at_most(threads):
        for n, at, bad, reduction in itertools.product((1, 70, 300001), (0, -1), (10, -1, 2**40), (0, 1, 2)):
            x, target = elements((n, 10), torch.float32, 1), targets((n,), 10, None, 2)
            target[at] = bad
            output, total = torch.full((n,) if reduction == 0 else (), 7.0), torch.full((), 7.0)
            with pytest.raises(IndexError, match="out of bounds"):
                k.op("aten::nll_loss_forward.output")(x, target, None, reduction, -100, output=output, total_weight=total)
            assert bool((output == 7).all()) and total == 7
            given = torch.full((n, 10), 7.0)
            good, grad = k.op("aten::nll_loss_backward.grad_input"), torch.zeros_like(output)
            for _ in range(3):  # and are remembered
                good(grad, x, target.clamp(0, 9), None, reduction, -100, total, grad_input=given)
            given.fill_(7)
            with pytest.raises(IndexError, match="out of bounds"):
                k.op("aten::nll_loss_backward.grad_input")(output, x, target, None, reduction, -100, total, grad_input=given)
            assert bool((given == 7).all())
            k.op("aten::nll_loss_forward.output")(x, target, None, reduction, bad, output=output, total_weight=total)  # which is ignored
            assert not bool((output == 7).any())


def test_what_does_not_fit(interp):
    x, t, w, one = torch.ones(4, 3), torch.zeros(4, dtype=torch.int64), torch.ones(3), torch.ones(())
    for args in [(x, t[:3], None), (x, torch.zeros(()).long(), None), (x, t.view(2, 2), None), (x[0], t, None), (x[0], t[:1], None), (x.view(1, 4, 3), t, None), (one, t, None),
                 (x, t, w[:2]), (x, t, w.view(1, 3)), (x, t, w.double()), (x, t.int(), None), (x, t.float(), None), (x.long(), t, None), (x.to(torch.complex64), t, None)]:
        agree("nll_loss_forward", (*args, 1, -100), (interp,))
    for grad, args, total in [(one, (x, t[:3], None), one), (torch.ones(4), (x, t, None), one), (one, (x, t, w[:2]), one), (one, (x, t, None), torch.ones(2)),
                              (one.double(), (x, t, None), one), (one, (x, t, None), one.double()), (torch.ones(1, 1), (x, t, None), one), (one, (x, t.int(), None), one)]:
        agree("nll_loss_backward", (grad, *args, 1, -100, total), (interp,))
    agree("nll_loss_backward", (one, x, t, None, 0, -100, one), (interp,))
    y, u = torch.ones(2, 3, 4, 5), torch.zeros(2, 4, 5, dtype=torch.int64)
    for args in [(y, u[:1], None), (y, t, None), (x, u, None), (y, u, w[:2]), (y, u.byte(), None), (y, u, w.half()), (y, u.transpose(1, 2), None)]:
        agree("nll_loss2d_forward", (*args, 1, -100), (interp,))
        agree("nll_loss2d_backward", (one, *args, 1, -100, one), (interp,))


def test_results_are_given(interp):
    x, t = elements((70, 10), torch.float32, 1), targets((70,), 10, 3, 2)
    for reduction, gaps in itertools.product((0, 1, 2), (1, 3)):
        want = torch_op("nll_loss_forward")(x, t, None, reduction, 3)
        output, total = (torch.zeros(*w.shape, gaps)[..., 0] for w in want)
        interp.op("aten::nll_loss_forward.output")(x, t, None, reduction, 3, output=output, total_weight=total)
        torch.testing.assert_close((output, total), want)
        given = torch.zeros(10, 70).t() if gaps > 1 else torch.zeros(70, 10)
        interp.op("aten::nll_loss_backward.grad_input")(output, x, t, None, reduction, 3, torch.ones(()), grad_input=given)
        torch.testing.assert_close(given, torch_op("nll_loss_backward")(output, x, t, None, reduction, 3, torch.ones(())))


@pytest.mark.parametrize("mode", ["interp", "sync"])
def test_bits_do_not_depend_on_threads(mode, sync):
    seen = {}
    for threads, k in by_threads(mode, sync):
        for reduction, weight in itertools.product((0, 1), (None, elements((3,), torch.float32, 4).abs())):
            x, t = elements((200001, 3), torch.float32, 1), targets((200001,), 3, 1, 2)
            now = [bits(r) for r in k.op("aten::nll_loss_forward")(x, t, weight, reduction, 1)]
            assert seen.setdefault((reduction, weight is None), now) == now, (reduction, threads)
            grad = elements((200001,) if reduction == 0 else (), torch.float32, 3)
            now = bits(k.op("aten::nll_loss_backward")(grad, x, t, weight, reduction, 1, torch.full((), 3.0)))
            assert seen.setdefault((reduction, weight is None, "gradient"), now) == now, (reduction, threads)


# -- rows of users' ------------------------------------------------------------------------------------------------

ROW = """
fold my::look_up(Tensor table, Tensor at, int[1] dim) -> (Tensor, Tensor) : promote(table) takes i32 f64 takes at: i64
     over   dim
     let    x = table[at] else -1
     state  s = 0
     step   s = s + x
     merge  s = s + rhs.s
     finish each x, s

fold my::add_up(Tensor table, Tensor at, Tensor? other) -> Tensor : promote(table, other) takes float complex takes at: i64
     state  s = 0
     merge  s = s + rhs.s
     let    x = table[at] else 1
     let    y = other[at] else 0
     when   present(other)
     step   s = s + x * y
     finish s
     when   true
     step   s = s + x
     finish s

fold my::less_mean(Tensor x, Tensor mean, int dim) -> Tensor : promote(x, mean) takes float
     over   dim
     lack   mean
     finish each (x - mean) * i
"""


@pytest.mark.parametrize("mode", ["interp", "sync"])
def test_rows_of_a_user(mode):
    with Kiln(mode) as k:
        k.load(ROW)
        table, at = torch.arange(10, 17, dtype=torch.int32), torch.tensor([[0, 6, 7, -1], [3, 3, 2, 1], [5, 4, 100, 0]])
        want = torch.where((at >= 0) & (at < 7), table[at.clamp(0, 6)], -1)
        for dim in (0, 1):
            each, total = k.op("my::look_up")(table, at, [dim])
            assert torch.equal(each, want) and torch.equal(total, want.sum(dim).int())
        for dtype in (torch.complex64, torch.float16):
            some = table.to(dtype) * (1 - 2j if dtype.is_complex else 1)
            want = torch.where((at >= 0) & (at < 7), some[at.clamp(0, 6)], 1)
            torch.testing.assert_close(k.op("my::add_up")(some, at, None), want.sum())
            torch.testing.assert_close(k.op("my::add_up")(some, at, some), torch.where((at >= 0) & (at < 7), want * want, 0).sum())
        x = elements((5, 40, 3), torch.float64, 1)
        for dim in range(-3, 3):
            mean = x.mean(dim)
            places = torch.arange(x.shape[dim]).view([-1 if d == dim % 3 else 1 for d in range(3)])
            torch.testing.assert_close(k.op("my::less_mean")(x, mean, dim), (x - mean.unsqueeze(dim)) * places)
            torch.testing.assert_close(k.op("my::less_mean")(x, torch.ones(1), dim), (x - 1) * places)
            with pytest.raises(RuntimeError, match="'mean' does not fit"):
                k.op("my::less_mean")(x, torch.ones(6), dim)
        with pytest.raises(RuntimeError, match="'table' does not fit"):
            k.op("my::look_up")(table.view(1, 7), at, [0])


@pytest.mark.parametrize("row, text", [
    ("fold my::f(Tensor x, Tensor i) -> Tensor : promote(x) takes real takes i: i64 = acc + x[i] from 0", "expected 'else'"),
    ("fold my::f(Tensor x, Tensor a) -> Tensor : promote(x) takes real takes a: i64\n  let y = x[a] else 0, z = x[.., a] else 0\n  state s = 0\n  step s = s + y + z\n  merge s = s + rhs.s\n  finish s", "another dimension"),
    ("fold my::f(Tensor x, Tensor a) -> Tensor : promote(x) takes real takes a: i64\n  let y = x[a] else 0\n  state s = 0\n  step s = s + y * x\n  merge s = s + rhs.s\n  finish s", "at its own place, too"),
    ("fold my::f(Tensor x, Tensor a) -> Tensor : promote(x) takes real takes a: i64\n  let y = x[a, a] else 0\n  state s = 0\n  step s = s + y\n  merge s = s + rhs.s\n  finish s", r"a fold reads x\[at\]"),
    ("map my::f(Tensor x, Tensor a) -> Tensor : promote(x) takes real takes a: i64\n  let y = x[a] else 0\n  when true = y", "only a fold"),
    ("fold my::f(Tensor? x, Tensor a) -> Tensor : promote(x) takes real takes a: i64\n  let y = x[a] else 0\n  state s = 0\n  step s = s + y\n  merge s = s + rhs.s\n  finish s", "where it may be absent"),
    ("map my::f(Tensor x, int d) -> Tensor = x\n  lack x", "no 'lack' clause"),
    ("fold my::f(Tensor x, int d) -> Tensor : takes real = acc + x from 0\n  over d\n  lack d", "is no tensor"),
    ("fold my::f(Tensor x) -> Tensor : takes real = acc + x from 0\n  over dims(y)", "unknown name 'y'"),
])
def test_what_rows_may_not_say(row, text, own):
    with pytest.raises((RuntimeError, TypeError, ValueError), match=text):
        own.load(row)
