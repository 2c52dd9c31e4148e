"""Layers and losses under the names that programs use, beside PyTorch: norms, cross entropy and other losses made of calls.

Results, strides and errors; running statistics; targets out of range, which are found before anything is written.  PyTorch's f64
judges halves, as PyTorch rounds after each of its own calls.
"""
import itertools

import pytest
import torch

from compare import tally
from test_fold import FLOATS, bits, elements, outcome, torch_op, tuples

F32, I64 = torch.float32, torch.int64


def channels(dtype, shape, seed):
    return [elements((shape[1],), dtype, seed + k) for k in range(2)]


def some_or_none(*lists):
    yield from ([None] * len(lists[0]), *lists)


# -- norms -----------------------------------------------------------------------------------------------------------

INPUTS = [(2, 6), (4, 6, 5), (2, 6, 5, 7), (3, 6, 1), (2, 6, 3, 2, 2)]


def rms_norms(dtype):
    for shape, eps in itertools.product(INPUTS, (None, 1e-3)):
        x = elements(shape, dtype, 1)
        for n in (1, 2):
            yield x, list(shape[-n:]), None, eps
            yield x, list(shape[-n:]), elements(shape[-n:], dtype, 2), eps
    yield elements((3, 4), dtype, 1), [5]
    yield elements((3, 4), dtype, 1), []


def group_norms(dtype):
    for shape, groups in itertools.product([*INPUTS, (2, 6, 0), (0, 6, 2)], (1, 2, 6)):
        for w, b in some_or_none(channels(dtype, shape, 2)):
            yield elements(shape, dtype, 1), groups, w, b, 1e-3
    yield elements((2, 6, 3, 4), dtype, 1).to(memory_format=torch.channels_last), 3
    for bad in ((elements((2, 6), dtype, 1), 4), (elements((6,), dtype, 1), 2), (elements((2, 6), dtype, 1), 0), (elements((2, 6), dtype, 1), 2, torch.ones(5, dtype=dtype))):
        yield bad


def batch_norms(dtype):
    for shape, training in itertools.product([*INPUTS, (0, 6, 2), (2, 6, 0)], (True, False)):
        for (w, b), (m, v) in itertools.product(some_or_none(channels(dtype, shape, 2)), some_or_none(channels(dtype, shape, 4))):
            yield elements(shape, dtype, 1), w, b, m, v if v is None else v.abs(), training, 0.25, 1e-3, False
    x = elements((2, 6, 3, 4), dtype, 1).to(memory_format=torch.channels_last)
    yield x, None, None, None, None, True, 0.1, 1e-5, True
    yield x, torch.ones(5, dtype=dtype), None, None, None, True, 0.1, 1e-5, True
    yield x, None, None, torch.ones(5, dtype=dtype), torch.ones(5, dtype=dtype), False, 0.1, 1e-5, True


def instance_norms(dtype):
    for shape, stats in itertools.product([s for s in INPUTS if len(s) > 2 and s[2] > 1], (True, False)):
        for (w, b), (m, v) in itertools.product(some_or_none(channels(dtype, shape, 2)), some_or_none(channels(dtype, shape, 4))):
            yield elements(shape, dtype, 1), w, b, m, v if v is None else v.abs(), stats, 0.25, 1e-3, False
    yield elements((2, 6, 3, 4), dtype, 1).to(memory_format=torch.channels_last), None, None, None, None, True, 0.1, 1e-5, True
    yield elements((2, 6, 3, 4), dtype, 1).to(memory_format=torch.channels_last), None, None, *channels(dtype, (2, 6), 4), True, 0.1, 1e-5, True


# -- losses ----------------------------------------------------------------------------------------------------------

def targets(shape, seed, ignored):
    """Classes, of which some are ignored."""
    n = 1 if len(shape) == 1 else 0
    at = (elements(shape[:1 - n] + shape[2:], torch.float64, seed).abs() * 100).long() % shape[1 - n]
    return torch.where(at == 1, ignored, at)


CLASSES = [(5,), (7, 5), (64, 10), (3, 5, 6), (2, 5, 3, 4), (2, 4, 3, 2, 2), (0, 5), (0, 5, 3)]


def of_classes(dtype, shapes):
    for shape, reduction, ignored in itertools.product(shapes, (0, 1, 2), (-100, 1)):
        classes = shape[1 if len(shape) > 1 else 0]
        for weight in (None, elements((classes,), dtype, 3).abs()):
            yield elements(shape, dtype, 1), targets(shape, 2, ignored), weight, reduction, ignored


def nll_losses(dtype):
    yield from of_classes(dtype, CLASSES[:3])
    yield elements((7, 5), dtype, 1), torch.full((7,), 5)
    yield elements((7, 5), dtype, 1), torch.zeros(6, dtype=I64)
    yield elements((7, 5), dtype, 1), torch.zeros(7, dtype=I64), torch.ones(4, dtype=dtype)


def nll_losses_2d(dtype):
    yield from of_classes(dtype, [(2, 5, 3, 4)])
    yield elements((2, 5, 3, 4), dtype, 1), torch.zeros(2, 3, 5, dtype=I64)


def nll_losses_nd(dtype):
    yield from of_classes(dtype, CLASSES)
    yield elements((), dtype, 1), torch.zeros((), dtype=I64)
    yield elements((2, 5, 3), dtype, 1), torch.zeros(2, 4, dtype=I64)
    yield elements((2, 5, 3), dtype, 1), torch.zeros(3, 3, dtype=I64)
    yield elements((2, 5, 3), dtype, 1), torch.full((2, 3), 5)
    yield elements((2, 5, 3), dtype, 1), torch.zeros(2, 3, dtype=I64), torch.ones(3, dtype=dtype)


def cross_entropies(dtype):
    for args, smoothing in itertools.product(of_classes(dtype, CLASSES), (0.0, 0.25)):
        yield *args, smoothing
    for shape, reduction, smoothing in itertools.product([s for s in CLASSES if s[0]], (0, 1, 2), (0.0, 0.5)):
        x, y = elements(shape, dtype, 1), elements(shape, torch.float64, 4).softmax(0).to(dtype)
        classes = shape[1 if len(shape) > 1 else 0]
        for weight in (None, elements((classes,), dtype, 3).abs()):
            yield x, y, weight, reduction, -100, smoothing
    x = elements((3, 4), dtype, 1)
    yield x, torch.zeros(3, dtype=I64), None, 1, -100, 1.5
    yield x, torch.ones(3, 4, dtype=I64)
    yield x, x, None, 1, 2
    yield x, torch.tensor([0, 4, 1])
    yield x, torch.tensor([0, -1, 1])
    yield x, torch.zeros(2, dtype=I64)
    yield x, torch.zeros(3, dtype=I64), torch.ones(3, dtype=dtype)
    yield x, x, torch.ones(3, dtype=dtype)


PAIRS = [((), ()), ((7,), (7,)), ((3, 4), (3, 4)), ((64, 100), (64, 100)), ((3, 1), (4,)), ((0, 3), (0, 3))]


def triplets(dtype):
    for shape, p, swap, reduction in itertools.product([(7,), (3, 4), (64, 100), (2, 3, 5)], (2.0, 1.0), (False, True), (0, 1, 2)):
        yield *(elements(shape, dtype, k) / 32 for k in (1, 2, 3)), 1.5, p, 1e-6, swap, reduction
    yield elements((3, 4), dtype, 1), elements((4,), dtype, 2), elements((3, 4), dtype, 3)


def cosine_losses(dtype):
    for n, reduction, kind in itertools.product((5, 70), (0, 1, 2), (I64, dtype)):
        y = torch.where(elements((n,), torch.float64, 3) > 0, 1, -1).to(kind)
        yield elements((n, 6), dtype, 1), elements((n, 6), dtype, 2), y, 0.25, reduction
        yield elements((n,), dtype, 1), elements((n,), dtype, 2), y[0], 0.25, reduction
    yield elements((3, 4), dtype, 1), elements((3, 4), dtype, 2), torch.ones(3, 4, dtype=I64)
    yield elements((3,), dtype, 1), elements((3,), dtype, 2), torch.ones(3, dtype=I64)


def distances(dtype):
    for p in (2.0, 1.0, float("inf")):
        yield elements((3, 4), dtype, 1), elements((5, 4), dtype, 2), p, 2
    yield elements((3, 4), dtype, 1), elements((5, 5), dtype, 2)


def pairs(dtype):
    """Of rows of one tensor, row-major as PyTorch's `_pdist_forward` wants it."""
    for shape, p in itertools.product([(0, 3), (1, 3), (2, 0), (2, 1), (5, 4), (40, 17)], (2.0, 0.0, 1.0, float("inf"), 3.0, 0.5)):
        yield elements(shape, dtype, 1), p
    yield elements((5, 4), dtype, 1),
    yield torch.cat([elements((5, 4), dtype, 1)] * 2), 2.0


def all_pairs(dtype):
    yield from pairs(dtype)
    x = elements((6, 5), dtype, 1)
    yield x.t(), 3.0
    yield x[::2, ::2], 1.0
    yield x[:1].expand(4, 5), 2.0
    for wrong in ((x[0],), (x[0, 0],), (x[None],), (x, -1.0), (x, float("nan")), (x[:1], -1.0), (x.long(),), (x.to(torch.complex64),), (x > 0,)):
        yield wrong


def softmaxes(dtype):
    x = elements((3, 4, 5), dtype, 1)
    for dim in (0, -1, 3):
        yield x, dim
    yield x.long(), 1, torch.float64


CALLS = {"rms_norm": rms_norms, "group_norm": group_norms, "batch_norm": batch_norms, "instance_norm": instance_norms, "nll_loss": nll_losses, "nll_loss2d": nll_losses_2d,
         "nll_loss_nd": nll_losses_nd, "cross_entropy_loss": cross_entropies, "triplet_margin_loss": triplets, "cosine_embedding_loss": cosine_losses, "cdist": distances,
         "pdist": all_pairs, "_pdist_forward": pairs,
         "special_softmax": softmaxes, "special_log_softmax": softmaxes}
ROUNDED_ALIKE = ("triplet_margin_loss", "cosine_embedding_loss")  # where PyTorch rounds: terms cancel
HALVES = {"rtol": 1.6e-2, "atol": 1e-3}  # of several calls, each of which rounds as PyTorch's do
COMPILED = [("rms_norm", 4), ("instance_norm", 3), ("nll_loss_nd", 40), ("cross_entropy_loss", 81), ("cosine_embedding_loss", 2)]  # the n-th call, of f32


def again(args):
    """Copies, as running statistics are written to; the same strides."""
    return [v.clone() if isinstance(v, torch.Tensor) else v for v in args]


def make(op, args, named):
    """What comes of a call, and its tensor arguments after it."""
    args = again(args)
    return outcome(op, args[0], args[1:], named), [v for v in args if isinstance(v, torch.Tensor)]


def wide(args):
    return [v.double() if isinstance(v, torch.Tensor) and v.dtype.is_floating_point else v for v in args]


@pytest.mark.parametrize("name", CALLS)
def test_like_torch(name, interp, sync):
    for dtype in FLOATS[:2] if name in ("cdist", "pdist", "_pdist_forward") else FLOATS:
        for k, args in enumerate(CALLS[name](dtype)):
            tally.cases["layers and losses beside PyTorch"] += 1
            named = {"dtype": args[2]} if name == "special_log_softmax" and len(args) > 2 else {}
            args = args[:2] if named else args
            want, seen = make(torch_op(name), args, named)
            got, left = make(interp.op(f"aten::{name}"), args, named)
            if dtype == F32 and (name, k) in COMPILED:
                other, _ = make(sync.op(f"aten::{name}"), args, named)
                assert [bits(r) for r in other] == [bits(r) for r in got]
            if isinstance(want, Exception) or isinstance(got, Exception):
                assert type(got) is type(want), (name, dtype, args, got, want)
                continue
            exact, after = make(torch_op(name), wide(args), named) if dtype.itemsize == 2 and name not in ROUNDED_ALIKE else (want, seen)
            for g, w, e in zip(got, want, exact, strict=True):
                assert (g.dtype, g.shape) == (w.dtype, w.shape), (name, args)
                assert g.numel() == 0 or g.stride() == w.stride(), (name, [getattr(v, "shape", v) for v in args], g.stride(), w.stride())
                torch.testing.assert_close(g, e.to(g.dtype), equal_nan=True, **(HALVES if name == "cross_entropy_loss" and dtype.itemsize == 2 else {}))
            for g, e in zip(left, after, strict=True):
                torch.testing.assert_close(g, e.to(g.dtype), equal_nan=True)


def test_nothing_is_written_for_targets_out_of_range(interp):
    x = elements((3, 4), F32, 1)
    out = torch.full((3,), 7.0)
    for bad in (torch.tensor([0, 4, 1]), torch.tensor([0, 1, -1])):
        with pytest.raises(IndexError, match="out of bounds"):
            interp.op("aten::nll_loss.out")(x, bad, None, 0, out=out)
        assert bool((out == 7).all())
    interp.op("aten::nll_loss.out")(x, torch.tensor([0, 1, 3]), None, 0, out=out)
    torch.testing.assert_close(out, -x[torch.arange(3), torch.tensor([0, 1, 3])])


def test_running_statistics_are_not_written_where_a_call_fails(interp):
    x, mean, var = torch.ones(2, 3, 4), torch.ones(3), torch.ones(3)
    with pytest.raises(RuntimeError):
        interp.op("aten::instance_norm")(x, torch.ones(5), None, mean, var, True, 0.5, 1e-5, False)
    assert mean.tolist() == [1, 1, 1]
    interp.op("aten::instance_norm")(x * 3, None, None, mean, var, True, 0.5, 1e-5, False)
    assert tuples(mean.tolist()) == ([2, 2, 2],)
