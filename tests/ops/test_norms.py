"""Norms beside PyTorch: rms norm, safe softmax, and what belongs to them.

Whole tensors and views, shapes that cross the borders of blocks, halves with weights of another dtype, no elements at all; both tiers,
which must give the same bits.  PyTorch's f64 judges what is rounded.
"""
import itertools
import random

import pytest
import torch

from compare import tally
from contexts import by_threads, worth
from kilnlib import Kiln
from test_each import COMPILED, FLOATS, SHAPES, agree, calls, tiers
from test_fold import bits, elements, outcome, torch_op, views
from whole import WHOLE


def few(shape, dtype, k, interp, sync):
    """Fewer compiled classes than of softmax: two shapes of each dtype."""
    return tiers(shape, dtype, k, interp, sync) if WHOLE or shape in COMPILED[1:3] else (interp,)


def test_safe_softmax(interp, sync):
    """In the dtype that is asked for; 0 where all elements are -inf."""
    rng = random.Random("safe")
    for shape, dtype in itertools.product(SHAPES, FLOATS):
        for k, x, dim in calls(shape, dtype, rng):
            agree("_safe_softmax", (x,), (dim,), few(shape, dtype, k, interp, sync))
    x = torch.tensor([[-torch.inf] * 3, [1, -torch.inf, 2], [torch.inf, 1, 2], [torch.nan, 1, 2]])
    for dim, dtype, to in itertools.product((0, 1), (*FLOATS, torch.int64, torch.bool, torch.complex64), (None, *FLOATS, torch.int64)):
        some = x if dtype.is_floating_point or dtype.is_complex else torch.ones(4, 3)
        agree("_safe_softmax", (some.to(dtype),), (dim, to), (interp,))
    agree("_safe_softmax", (x,), (2,), (interp,))


def weights(shape, dtype):
    yield None
    yield elements(shape, dtype, 8)
    yield torch.stack([elements(shape, dtype, 9)] * 2, -1)[..., 0]


def test_rms_norm(interp, sync):
    for shape, dtype in itertools.product(SHAPES[1:], FLOATS):
        for k, x in enumerate(views(elements(shape, dtype, len(shape)))):
            for n in range(1, len(shape) + 1):
                for weight in weights(shape[-n:], dtype) if WHOLE or k == 0 else [None]:
                    agree("_fused_rms_norm", (x,), (list(shape[-n:]), weight, None if n % 2 else 1e-3), few(shape, dtype, k, interp, sync))


def test_rms_norm_of_several_dtypes(interp):
    for dtype, of_weight in itertools.product(FLOATS, FLOATS):
        agree("_fused_rms_norm", (elements((5, 6), dtype, 3),), ([6], elements((6,), of_weight, 4), None), (interp,))
    for dtype in FLOATS:  # what None means as eps shows where all elements are 0
        agree("_fused_rms_norm", (torch.zeros(3, 4, dtype=dtype),), ([4], None, None), (interp,), rounded=False)
    for dtype in (torch.int64, torch.bool):
        agree("_fused_rms_norm", (elements((5, 6), dtype, 3),), ([6], None, None), (interp,))


def test_rms_norm_of_shapes_that_do_not_fit(interp):
    """PyTorch's own form for CPUs looks at no shape; rms_norm, which calls it, does."""
    x = torch.ones(4, 6)
    for shape, weight in [([], None), ([5], None), ([2, 4, 6], None), ([6], torch.ones(5)), ([6], torch.ones(1)), ([4, 6], torch.ones(6))]:
        want, got = outcome(torch.rms_norm, x, (shape, weight), {}), outcome(interp.op("aten::_fused_rms_norm"), x, (shape, weight, None), {})
        assert isinstance(want, Exception) and type(got) is type(want), (shape, got, want)


# -- norms over channels -----------------------------------------------------------------------------------------------------

HALVES = [torch.float16, torch.bfloat16]
BATCHES = [(2, 6, 3, 4), (5, 6), (2, 6, 5), (2, 6, 2, 3, 4), (1, 6, 1, 1), (3, 8, 33, 40), (300, 6), (2, 96, 7, 7)]
EMPTY = [(0, 6, 3, 4), (2, 6, 0, 4), (2, 0, 3, 4)]


def wide(x):
    return x.double() if isinstance(x, torch.Tensor) and x.is_floating_point() else x


def copies(args):
    """Tensors that a call may write to, and no other, are its own: those of one dimension."""
    return [x.clone() if isinstance(x, torch.Tensor) and x.dim() == 1 else x for x in args]


def made(op, args):
    """What a call gives, and what one-dimensional arguments are after it."""
    args = copies(args)
    result = outcome(op, args[0], args[1:], {})
    return result if isinstance(result, Exception) else [*result, *(x for x in args if isinstance(x, torch.Tensor) and x.dim() == 1)]


def near(got, want, exact):
    """dtype, sizes and strides as PyTorch's; elements as near to the f64 result as assert_close asks, or four times as far as PyTorch's."""
    assert (got is None) == (want is None)
    if got is None:
        return
    assert (got.dtype, got.shape, got.stride()) == (want.dtype, want.shape, want.stride())
    try:
        torch.testing.assert_close(got, exact.to(got.dtype), equal_nan=True)
    except AssertionError:
        off, theirs = ((x.double() - exact).abs().nan_to_num(0, 0).max() for x in (got, want))
        assert off <= 4 * theirs and torch.equal(got.isfinite(), want.isfinite()), (off, theirs)


def norm_agrees(name, args, contexts):
    tally.cases["norms over channels"] += 1
    want = made(torch_op(name), args)
    first, *others = (made(k.op(f"aten::{name}"), args) for k in worth(contexts, f"aten::{name}", args))
    for other in others:
        assert type(other) is type(first)
        assert isinstance(first, Exception) or [x is not None and bits(x) for x in other] == [x is not None and bits(x) for x in first]
    if isinstance(want, Exception):
        assert type(first) is type(want), (name, args, first, want)
        return
    assert not isinstance(first, Exception), (name, first)
    for result in zip(first, want, made(torch_op(name), [wide(x) for x in args]), strict=True):
        near(*result)


def formats(x):
    yield x
    if x.dim() in (4, 5):
        last = x.contiguous(memory_format=torch.channels_last if x.dim() == 4 else torch.channels_last_3d)
        yield last
        yield last[..., ::2]
    yield x.transpose(0, 1).contiguous().transpose(0, 1)
    yield x.transpose(-1, -2).contiguous().transpose(-1, -2)
    yield torch.stack([x, x], -1)[..., 0]


def parameters(n, dtype, half):
    """weight, bias, running_mean, running_var: of the input's dtype, or f32 beside a half; some with gaps, some absent."""
    t = torch.float32 if half else dtype
    weight, bias, mean, var = (torch.empty(n, dtype=t).copy_(elements((n,), t, seed)) for seed in range(4))
    yield weight, bias, mean, var.abs() + 0.5
    yield None, None, mean, var.abs() + 0.5
    yield *((torch.stack([x] * 2, -1)[:, 0] if n else x) for x in (weight, bias, mean)), var.abs() + 0.5
    yield None, bias, None, None


def batches():
    for shape, dtype in itertools.product(BATCHES + EMPTY, FLOATS):
        for k, x in enumerate(formats(elements(shape, dtype, len(shape)))):
            for half in (False, True) if dtype in HALVES else (False,):
                yield shape, dtype, k, x, list(parameters(x.shape[1], dtype, half))


def seldom(shape, dtype, k, interp, sync):
    """Compiled: one shape in rows, and f32 with channels last."""
    return (interp, sync) if WHOLE or (shape == BATCHES[0] and (k == 0 or (k == 1 and dtype == torch.float32))) else (interp,)


def test_batch_norm(interp, sync):
    rng = random.Random("batch norm")
    for shape, dtype, k, x, all in batches():
        contexts = seldom(shape, dtype, k, interp, sync)
        for p in all if WHOLE else rng.sample(all, 2):
            norm_agrees("native_batch_norm", [x, *p, True, 0.1, 1e-5], contexts)
            if p[2] is not None:
                norm_agrees("native_batch_norm", [x, *p, False, 0.1, 1e-5], contexts)


def test_other_forms_of_batch_norm(interp, sync):
    rng = random.Random("forms")
    for shape, dtype, k, x, all in batches():
        if not WHOLE and (dtype == torch.bfloat16 or k > 1):
            continue
        contexts = seldom(shape, dtype, k, interp, sync)
        p = rng.choice(all[:3])
        for name, args in [("_native_batch_norm_legit", (*p, True)), ("_native_batch_norm_legit", (*p, False)), ("_native_batch_norm_legit.no_stats", (*p[:2], True)),
                           ("_native_batch_norm_legit_no_training", p), ("_batch_norm_with_update", p), ("_batch_norm_no_update", p),
                           ("_native_batch_norm_legit_functional", (*p, True)), ("_native_batch_norm_legit_functional", (*p, False)),
                           ("_batch_norm_with_update_functional", p)]:
            norm_agrees(name, [x, *args, 0.3, 1e-3], contexts)


def test_batch_norm_of_several_dtypes(interp):
    x = elements((3, 4, 5), torch.float64, 1)
    for of_x, of_weight, of_mean in itertools.product([*FLOATS, torch.int64], [None, *FLOATS], [None, *FLOATS]):
        weight, mean = (t and elements((4,), t, 3).abs() for t in (of_weight, of_mean))
        norm_agrees("native_batch_norm", [x.to(of_x), weight, weight, mean, mean, True, 0.1, 1e-5], (interp,))
    for weight, bias in itertools.product(FLOATS, FLOATS):
        norm_agrees("native_batch_norm", [x.half(), torch.ones(4, dtype=weight), torch.ones(4, dtype=bias), None, None, True, 0.1, 1e-5], (interp,))


def test_batch_norm_without_variance(interp, sync):
    """With eps 0 the inverse of no deviation is 0; of one element there is no variance to learn from."""
    norm_agrees("native_batch_norm", [torch.ones(3, 4), None, None, torch.zeros(4), torch.ones(4), True, 0.1, 0.0], (interp, sync))
    norm_agrees("native_batch_norm", [torch.ones(1, 4), None, None, torch.zeros(4), torch.ones(4), True, 0.1, 1e-5], (interp, sync))


HUGE = ([1e30, 3e30, 7e30], [3e37, 1e37, 5e37], [1e28, -3e28, 7.1e28], [1.0, torch.inf, 2.0], [1.0, torch.nan, 2.0], [-torch.inf, 1.0, 2.0])


def test_norms_of_numbers_whose_squares_are_none(interp, sync):
    """A variance that is too large is infinite, not NaN, and a mean is infinite where an element is, as PyTorch's are."""
    for numbers in HUGE:
        x = torch.tensor(numbers)[:, None]
        args = [x, None, None, torch.zeros(1), torch.ones(1), True, 0.1, 1e-5]
        want = made(torch_op("native_batch_norm"), args)
        for k in (interp, sync):
            torch.testing.assert_close(made(k.op("aten::native_batch_norm"), args), want, equal_nan=True)
    x = torch.tensor([1.0, -2.5, 7.0], dtype=torch.float64) * 2e307
    for k in (interp, sync):
        assert k.op("aten::native_layer_norm")(x, [3], None, None, 1e-5)[2].item() == 0


def test_statistics_of_images_without_elements(interp):
    """They stay as they are; of no images at all they are NaN, as PyTorch's are."""
    for shape in ((3, 8, 0, 5), (0, 8, 4), (2, 8, 3)):
        ours, theirs = ([torch.full((8,), 2.0), torch.ones(8)] for _ in range(2))
        interp.op("aten::instance_norm")(torch.zeros(shape), None, None, *ours, True, 0.3, 1e-5, False)
        torch.instance_norm(torch.zeros(shape), None, None, *theirs, True, 0.3, 1e-5, False)
        torch.testing.assert_close(ours, theirs, equal_nan=True)


def test_what_batch_norm_refuses(interp):
    """Nothing is written where a call fails."""
    x, one = torch.ones(2, 6, 3), torch.ones(6)
    for args in [(torch.ones(6), None, None, None, None), (x, None, None, one, None), (x, None, None, None, one)]:
        norm_agrees("native_batch_norm", [*args, True, 0.1, 1e-5], (interp,))
    op = interp.op("aten::native_batch_norm")
    for weight, bias, mean, var in [(torch.ones(5), None, one, one), (None, torch.ones(7), one, one), (None, None, torch.ones(5), one),
                                    (None, None, one, torch.ones(7)), (None, None, one.double(), one.double()), (None, None, None, None)]:
        mean, var = (t if t is None else t.clone() for t in (mean, var))
        for training in (True, False) if mean is not None else (False,):
            with pytest.raises(RuntimeError):
                op(x, weight, bias, mean, var, training, 0.1, 1e-5)
            assert all(t is None or (t == 1).all() for t in (mean, var))
    both = torch.ones(6)
    with pytest.raises(RuntimeError, match="shares memory"):
        op(x, None, None, both, both, True, 0.1, 1e-5)
    with pytest.raises(RuntimeError, match="shares memory"):
        op(x, None, None, torch.ones(1).expand(6), both, True, 0.1, 1e-5)


MASKS = [[True, True, True], [True, False, False], [False, True, False], [False, False, True], [False, True, True], [False, False, False]]


def test_gradients_of_batch_norm(interp, sync):
    rng = random.Random("batch norm backward")
    for shape, dtype, k, x, all in batches():
        if x.numel() == 0:
            continue
        weight, _, mean, var = rng.choice(all[:3])
        of = dtype if weight is None and mean.dtype == dtype else mean.dtype
        saved, spread = (t.to(of) for t in (x.double().transpose(0, 1).flatten(1).mean(1), x.double().transpose(0, 1).flatten(1).var(1, False).add(1e-5).rsqrt()))
        grad = elements(x.shape, dtype, 7)
        grad = grad if k % 2 else torch.empty_like(x).copy_(grad)
        for mask in rng.sample(MASKS, 2):
            norm_agrees("native_batch_norm_backward", [grad, x, weight, None, None, saved, spread, True, 1e-5, mask], seldom(shape, dtype, k, interp, sync))
            norm_agrees("native_batch_norm_backward", [grad, x, weight, mean, var, None, None, False, 1e-5, mask], seldom(shape, dtype, k, interp, sync))
            none = torch.empty(0, dtype=of)  # what the norm by given statistics saves
            norm_agrees("native_batch_norm_backward", [grad, x, weight, mean, var, none, none, False, 1e-5, mask], (interp,))
            if weight is not None:
                reserve = torch.empty(0, dtype=torch.uint8)
                norm_agrees("batch_norm_backward", [grad, x, weight, None, None, saved, spread, True, 1e-5, mask, reserve], (interp,))


def test_results_of_norms_are_given(interp, sync):
    """In rows, channels last and transposed, which no strides see in the sizes of a group; and resized."""
    x, weight, bias = elements((2, 6, 3, 4), torch.float32, 1), elements((6,), torch.float32, 2), elements((6,), torch.float32, 3)
    for k, training in itertools.product((interp, sync), (True, False)):
        stats = [torch.zeros(6), torch.ones(6)]
        want = torch_op("native_batch_norm")(x, weight, bias, *[t.clone() for t in stats], training, 0.1, 1e-5)
        for out in (torch.zeros(2, 6, 3, 4), torch.zeros(2, 6, 3, 4).contiguous(memory_format=torch.channels_last), torch.zeros(2, 6, 4, 3).transpose(2, 3)):
            small = [torch.zeros(w.shape) for w in want[1:]]
            k.op("aten::native_batch_norm.out")(x, weight, bias, *[t.clone() for t in stats], training, 0.1, 1e-5, out=out, save_mean=small[0], save_invstd=small[1])
            for g, w in zip((out, *small), want, strict=True):
                torch.testing.assert_close(g, w)
        want = torch_op("native_group_norm")(x, weight, bias, 2, 6, 12, 3, 1e-5)
        for out in (torch.zeros(2, 6, 3, 4), torch.zeros(2, 6, 4, 3).transpose(2, 3)):
            small = [torch.zeros(3, 2).t() for _ in want[1:]]
            k.op("aten::native_group_norm.out")(x, weight, bias, 2, 6, 12, 3, 1e-5, out0=out, out1=small[0], out2=small[1])
            for g, w in zip((out, *small), want, strict=True):
                torch.testing.assert_close(g, w)


# -- norms over groups -------------------------------------------------------------------------------------------------------

def test_group_norm(interp, sync):
    for shape, dtype, k, x, all in batches():
        c = x.shape[1]
        size = x.numel() // (x.shape[0] * c) if x.shape[0] * c else 12
        dense = x if k == 1 and x.dim() > 3 else x.contiguous()  # PyTorch takes no other layouts
        for group, p in zip((1, 2, c) if c else (1,), all[:3]):
            norm_agrees("native_group_norm", [dense, *p[:2], x.shape[0], c, size, group, 1e-5], seldom(shape, dtype, k, interp, sync))
            if k > 1 and dtype == torch.float32:  # views give what copies of them do
                a, b = (interp.op("aten::native_group_norm")(t, *p[:2], x.shape[0], c, size, group, 1e-5) for t in (x, dense))
                for got, want in zip(a, b, strict=True):
                    torch.testing.assert_close(got, want, equal_nan=True)


def test_group_norm_of_several_dtypes(interp):
    x = elements((3, 4, 5), torch.float64, 1)
    for of_x, weight, bias in itertools.product([*FLOATS, torch.int64], [None, *FLOATS], [None, *FLOATS]):
        norm_agrees("native_group_norm", [x.to(of_x), weight and torch.ones(4, dtype=weight), bias and torch.ones(4, dtype=bias), 3, 4, 5, 2, 1e-5], (interp,))


def test_what_group_norm_refuses(interp):
    x = torch.ones(2, 6, 3, 4)
    for weight, *numbers in [(None, 2, 6, 12, 4), (None, 2, 6, 12, 0), (None, 2, 6, 11, 3), (torch.ones(5), 2, 6, 12, 3), (torch.ones(6, 1), 2, 6, 12, 3), (None, 2, 6, 12, -2)]:
        norm_agrees("native_group_norm", [x, weight, None, *numbers, 1e-5], (interp,))


# -- gradients of norms over the last dimensions -----------------------------------------------------------------------------

def gradients(shapes=((7,), (3, 4), (64, 100), (700, 5), (5, 6, 7, 8), (0, 3), (3, 0), (2, 9001))):
    """Shapes, how many dimensions are normalized, dtypes of input and weight, layouts of the input."""
    for shape, (dtype, of_weight) in itertools.product(shapes, [(t, t) for t in FLOATS] + [(t, torch.float32) for t in HALVES]):
        for n in range(1, len(shape) + 1):
            for k, x in enumerate(views(elements(shape, dtype, len(shape)))):
                yield list(shape[len(shape) - n:]), dtype, k, x, elements(shape[len(shape) - n:], of_weight, 5)


def rarely(x, k, interp, sync):
    return (interp, sync) if WHOLE or (k == 0 and x.dtype in (torch.float32, torch.float16) and x.shape in COMPILED[1:3]) else (interp,)


def test_gradients_of_layer_norm(interp, sync):
    rng = random.Random("layer norm backward")
    for of, dtype, k, x, weight in gradients():
        mean, rstd = torch_op("native_layer_norm")(x, of, weight, weight, 1e-5)[1:]
        grad = elements(x.shape, dtype, 7)
        grad = grad if k % 2 else torch.empty_like(x).copy_(grad)
        contexts = rarely(x, k, interp, sync)
        for mask in rng.sample(MASKS, 2):
            norm_agrees("native_layer_norm_backward", [grad, x, of, mean, rstd, weight, weight, mask], contexts)
        norm_agrees("native_layer_norm_backward", [grad, x, of, mean.to(dtype), rstd.to(dtype), None, None, rng.choice(MASKS[:3])], contexts)


def rms_gradients(grad, x, of, weight):
    """Of the input and the weight, and the inverse of the root of the mean square, by PyTorch's formula in f64."""
    x, weight = (None if t is None else t.detach().clone().double().requires_grad_() for t in (x, weight))
    y, rstd = torch_op("_fused_rms_norm")(x.detach(), of, weight if weight is None else weight.detach(), 1e-5)
    root = (x.pow(2).mean(tuple(range(-len(of), 0)), keepdim=True) + 1e-5).rsqrt()
    (x * root * (1 if weight is None else weight)).backward(grad.double())
    torch.testing.assert_close(root, rstd)
    return x.grad, None if weight is None else weight.grad, rstd


def test_gradients_of_rms_norm(interp, sync):
    """PyTorch has no kernel for CPUs: what it derives is the judge."""
    for of, dtype, k, x, weight in gradients():
        if 0 in of:
            continue  # PyTorch's mean of nothing has no gradient
        grad = elements(x.shape, dtype, 7)
        for w, mask in ((weight, [True, True]), (None, [True, True]), (weight, [False, True]), (weight, [True, False]), (weight, [False, False])):
            of_x, of_w, rstd = rms_gradients(grad, x, of, w)
            rstd = rstd.to(torch.float64 if dtype == torch.float64 else torch.float32)
            name, args = "aten::_fused_rms_norm_backward", (grad, x, of, rstd, w, mask)
            results = [kiln.op(name)(*args) for kiln in worth(rarely(x, k, interp, sync), name, args)]
            assert all([t is not None and bits(t) for t in r] == [t is not None and bits(t) for t in results[0]] for r in results)
            tally.cases["gradients of rms norm"] += 1
            for got, want, given, t in zip(results[0], (of_x, of_w), (mask[0], mask[1] and w is not None), (x, w), strict=True):
                assert (got is not None) == given
                if given:
                    assert got.dtype == t.dtype and got.shape == t.shape and got.is_contiguous()
                    scale = want.abs().max().item() if want.numel() else 0
                    torch.testing.assert_close(got.double(), want, rtol=0, atol=(scale + 1e-9) * (4e-3 if dtype in HALVES or t.dtype in HALVES else 1e-5))


def test_gradients_are_given(interp, sync):
    """Into tensors of a caller's, with gaps and resized; not where the mask leaves one out."""
    x, w = elements((4, 6), torch.float32, 1), elements((6,), torch.float32, 2)
    mean, rstd = torch_op("native_layer_norm")(x, [6], w, w, 1e-5)[1:]
    want = torch_op("native_layer_norm_backward")(x, x, [6], mean, rstd, w, w, [True] * 3)
    for k in (interp, sync):
        op = k.op("aten::native_layer_norm_backward.out")
        outs = [torch.zeros(6, 4).t(), torch.zeros(6, 2)[:, 0], torch.zeros(6)]
        op(x, x, [6], mean, rstd, w, w, [True] * 3, out0=outs[0], out1=outs[1], out2=outs[2])
        for got, exact in zip(outs, want, strict=True):
            torch.testing.assert_close(got, exact)
        kept = [t.clone() for t in outs]
        for mask in MASKS[1:]:
            with pytest.raises(RuntimeError, match="no result"):
                op(x, x, [6], mean, rstd, w, w, mask, out0=outs[0], out1=outs[1], out2=outs[2])
            assert all(torch.equal(a, b) for a, b in zip(outs, kept, strict=True))
        with pytest.raises(RuntimeError):
            k.op("aten::native_layer_norm_backward")(x, x, [6], mean, rstd, None, None, [True] * 3)
        with pytest.raises(RuntimeError, match="folded"):
            k.op("aten::native_layer_norm_backward")(x, x, [6], x, x, w, w, [True] * 3)


def test_gradients_of_group_norm(interp, sync):
    rng = random.Random("group norm backward")
    for shape, dtype, k, x, all in batches():
        (n, c), weight = x.shape[:2], rng.choice(all[:3])[0]
        size = x.numel() // (n * c) if n * c else 12
        if size == 0:
            continue  # PyTorch's sum of nothing is 0 times the NaN that the deviation of nothing is
        of = all[0][0].dtype  # statistics are f32 beside a weight that is
        dense = x if k == 1 and x.dim() > 3 else x.contiguous()
        grad = torch.empty_like(dense).copy_(elements(x.shape, dtype, 7))
        group = rng.choice((1, 2, c) if c else (1,))
        mean, rstd = (t.to(of) for t in torch_op("native_group_norm")(dense.double(), None, None, n, c, size, group, 1e-5)[1:])
        for mask in rng.sample(MASKS if dense.is_contiguous() else MASKS[:2], 2):  # PyTorch reads through no pointer with channels last and others
            norm_agrees("native_group_norm_backward", [grad, dense, mean, rstd, weight if weight is None else weight.to(of), n, c, size, group, mask],
                        seldom(shape, dtype, k, interp, sync))
        if k > 1 and x.numel() and dtype == torch.float32:  # views give what copies of them do
            a, b = (interp.op("aten::native_group_norm_backward")(grad, t, mean, rstd, all[0][0], n, c, size, group, [True] * 3) for t in (x, dense))
            for got, want in zip(a, b, strict=True):
                torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-4)


# -- threads, and rows of users' -----------------------------------------------------------------------------------------------

@pytest.mark.parametrize("mode", ["interp", "sync"])
def test_bits_of_norms_do_not_depend_on_threads(mode, sync):
    seen = {}
    x, grad = elements((4, 24, 40, 40), torch.float32, 3), elements((4, 24, 40, 40), torch.float32, 4)
    w, wide_w = elements((24,), torch.float32, 5), elements((40,), torch.float32, 6)
    for threads, k in by_threads(mode, sync):
        for last in (False, True):
            a, g = (t.contiguous(memory_format=torch.channels_last) if last else t for t in (x, grad))
            stats = [torch.zeros(24), torch.ones(24)]
            results = {
                "batch": k.op("aten::native_batch_norm")(a, w, w, *stats, True, 0.1, 1e-5),
                "group": k.op("aten::native_group_norm")(a, w, w, 4, 24, 1600, 6, 1e-5)}
            results["statistics"] = stats
            results["of batch"] = k.op("aten::native_batch_norm_backward")(g, a, w, None, None, *results["batch"][1:], True, 1e-5, [True] * 3)
            results["of group"] = k.op("aten::native_group_norm_backward")(g, a, *results["group"][1:], w, 4, 24, 1600, 6, [True] * 3)
            _, mean, rstd = k.op("aten::native_layer_norm")(a, [40], wide_w, wide_w, 1e-5)
            results["of layer"] = k.op("aten::native_layer_norm_backward")(g, a, [40], mean, rstd, wide_w, wide_w, [True] * 3)
            for name, given in results.items():
                now = [bits(t) for t in given]
                assert seen.setdefault((name, last), now) == now, (name, last, threads)
                tally.cases["norms, several threads"] += 1


ROWS = """
fold my::batch_norm(Tensor input, Tensor(a!) mean_so_far, bool training, float momentum) -> (Tensor, Tensor) : promote(input, mean_so_far) takes float -> (input, same) strides format input
     over   dims(0, 2)
     view   input [size(input, 0), size(input, 1), span(input, 2)]
     view   mean_so_far [size(input, 1), 1]
     kept   mean_so_far
     let    mean = s / compute(n)
     when   training
     state  s = 0
     step   s = s + input
     merge  s = s + rhs.s
     finish each input - mean, mean
     writes mean_so_far = momentum * mean + (1 - momentum) * mean_so_far
     when   true
     finish each input - mean_so_far, empty

fold my::sums(Tensor x, int k, bool[2] wanted) -> (Tensor, Tensor, Tensor) : takes float
     over   first(1)
     gives  wanted[0]
     state  s = 0
     step   s = s + x
     merge  s = s + rhs.s
     finish s
     rest   my::pairs

fold my::pairs(Tensor x, int k, bool[2] wanted) -> (Tensor, Tensor) : takes float
     over   dims(0, 2) flat
     view   x [k, size(x, 0) // k, span(x, 1)]
     gives  wanted[1], true
     state  s = 0, most = lowest
     step   s = s + x, most = max(most, x)
     merge  s = s + rhs.s, most = max(most, rhs.most)
     finish s, most
"""


@pytest.mark.parametrize("mode", ["interp", "sync"])
def test_rows_of_a_user(mode):
    with Kiln(mode) as k:
        k.load(ROWS)
        for x in formats(elements((3, 4, 5, 6), torch.float64, 1)):
            seen = torch.ones(4, dtype=torch.float64)
            mean = x.mean((0, 2, 3))
            out, got = k.op("my::batch_norm")(x, seen, True, 0.25)
            torch.testing.assert_close(got, mean)
            torch.testing.assert_close(out, x - mean[:, None, None])
            torch.testing.assert_close(seen, 0.25 * mean + 0.75)
            out, got = k.op("my::batch_norm")(x, seen, False, 0.25)
            torch.testing.assert_close(out, x - seen[:, None, None])
            assert got.shape == (0,)
        for x in (elements((6, 5, 4), torch.float64, 2), elements((4, 5, 6), torch.float64, 2).transpose(0, 2)):
            for wanted in itertools.product((True, False), repeat=2):
                s, pairs, most = k.op("my::sums")(x, 3, list(wanted))
                three = x.reshape(3, 2, 20)
                assert (s is not None, pairs is not None) == wanted
                torch.testing.assert_close(most, three.amax((0, 2)))
                if wanted[0]:
                    torch.testing.assert_close(s, x.sum(0))
                if wanted[1]:
                    torch.testing.assert_close(pairs, three.sum((0, 2)))
        with pytest.raises(RuntimeError, match="do not fit the sizes"):
            k.op("my::sums")(torch.ones(5, 3), 3, [True, True])
        with pytest.raises(RuntimeError, match="division by zero"):
            k.op("my::sums")(torch.ones(5, 3), 0, [True, True])
