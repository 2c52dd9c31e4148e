"""Norms beside PyTorch: rms norm, safe softmax, and what belongs to them.

Whole tensors and views, shapes that cross the borders of blocks, halves with weights of another dtype, no elements at all; both tiers,
which must give the same bits.  PyTorch's f64 judges what is rounded.
"""
import itertools
import random

import torch

from test_each import COMPILED, FLOATS, SHAPES, agree, calls, tiers
from test_fold import elements, outcome, views
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
