"""Slices scaled by their norms beside PyTorch: renorm and weight norms, over every dimension but one."""
import itertools

import pytest
import torch

from compare import tally
from test_fold import COMPLEX, FLOATS, both_sides, elements, special, torch_op, tuples, views

SHAPES = [(1, 1), (3, 4), (64, 100), (9, 1, 70), (5, 6, 7, 8), (0, 3), (3, 0)]
inf = float("inf")


def agree(name, args, contexts, exact=True):
    """Every context gives the same bits and PyTorch's answer, or refuses the call as PyTorch does.  exact: f64 judges."""
    tally.cases["slices and their norms"] += 1
    sides = both_sides(name, args, contexts)
    if not sides:
        return
    wide = [v.to(torch.complex128 if v.is_complex() else torch.float64) if isinstance(v, torch.Tensor) else v for v in args]
    for g, w, e in zip(*sides, tuples(torch_op(name)(*wide)), strict=True):
        assert (g.dtype, g.shape, g.stride()) == (w.dtype, w.shape, w.stride())
        torch.testing.assert_close(g, e.to(g.dtype) if exact else w, equal_nan=True)


def tiers(shape, k, interp, sync):
    return (interp, sync) if k == 0 and shape in ((64, 100), (9, 1, 70)) else (interp,)


def test_renorm(interp, sync):
    for shape, dtype in itertools.product(SHAPES, FLOATS + COMPLEX):
        for k, x in enumerate(views(elements(shape, dtype, len(shape)))):
            for dim, p in zip(itertools.cycle(range(-len(shape), len(shape))), (2, 1, inf, 3, 0.5, 2.0, 2, 2, True)):
                for most in (1.5, 1e9, 0):
                    agree("renorm", (x, p, dim, most), tiers(shape, k, interp, sync), exact=dtype not in FLOATS[2:])


def test_special_values(interp, sync):
    for dtype, p in itertools.product(FLOATS, (2, 1, inf, 3)):
        agree("renorm", (special(elements((40, 9), dtype, 1), 2), p, 0, 2.5), (interp, sync), exact=False)


@pytest.mark.parametrize("args", [(0, 0, 1), (-1, 0, 1), (2, 0, -1), (2, 2, 1), (2, -3, 1), (1j, 0, 1), (2, 0, 1j)])
def test_what_renorm_refuses(args, interp):
    agree("renorm", (torch.ones(3, 4), *args), (interp,))


def test_tensors_that_renorm_refuses(interp):
    for x in (torch.ones(3), torch.ones(()), torch.ones(3, 4, dtype=torch.int64), torch.ones(3, 4, dtype=torch.bool)):
        agree("renorm", (x, 2, 0, 1), (interp,))


def test_renorm_in_place_and_given(interp, sync):
    x = elements((6, 50), torch.float32, 1)
    want = torch.renorm(x, 2, 0, 3)
    for k in (interp, sync):
        out = torch.zeros(50, 6).t()
        k.op("aten::renorm.out")(x, 2, 0, 3, out=out)
        same = x.clone()
        k.op("aten::renorm_")(same, 2, 0, 3)
        torch.testing.assert_close((out, same), (want, want))


def test_weight_norms(interp, sync):
    for shape, dtype in itertools.product(SHAPES[:5], FLOATS):
        for k, v in enumerate(views(elements(shape, dtype, len(shape)))):
            for dim in (0, len(shape) - 1):
                g = elements([n if d == dim else 1 for d, n in enumerate(shape)], dtype, 3)
                if v.is_contiguous():
                    agree("_weight_norm_interface", (v, g, dim), tiers(shape, k, interp, sync))
                else:  # PyTorch reads memory as if it were
                    op = interp.op("aten::_weight_norm_interface")
                    torch.testing.assert_close(op(v, g, dim), op(v.contiguous(), g, dim))
    agree("_weight_norm_interface", (torch.ones(2, 3, 4), torch.ones(1, 3, 1), 1), (interp,))


def test_gradients_of_weight_norms(interp, sync):
    for shape, dtype in itertools.product(SHAPES[:5], FLOATS):
        for k, v in enumerate(views(elements(shape, dtype, len(shape)))):
            for dim in (0, len(shape) - 1):
                g = elements([n if d == dim else 1 for d, n in enumerate(shape)], dtype, 3)
                norms = torch.ops.aten._weight_norm_interface(v.contiguous(), g, dim)[1]
                args = elements(shape, dtype, 5), v, g, norms, dim
                if v.is_contiguous():
                    agree("_weight_norm_interface_backward", args, tiers(shape, k, interp, sync))
                else:  # PyTorch refuses it
                    op = interp.op("aten::_weight_norm_interface_backward")
                    torch.testing.assert_close(op(*args), op(args[0], v.contiguous(), *args[2:]))
    v, g = torch.ones(3, 4), torch.ones(3, 1)
    for bad in ((v, v, g, g, 1), (v[:2], v, g, g, 0), (v, v, g.double(), g, 0), (v, v, g, g.double(), 0)):
        with pytest.raises((RuntimeError, NotImplementedError)):
            interp.op("aten::_weight_norm_interface_backward")(*bad)
