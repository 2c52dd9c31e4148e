"""Folds beside PyTorch, on every tier and with any number of threads.

Every served fold row is called with whole tensors and views (transposed, permuted, with gaps, expanded) of shapes that
cross the borders of its tree, over each dimension, several and all.  Interpreted and compiled results must have the
same bits; PyTorch's must be as near as `torch.testing.assert_close` asks, where PyTorch itself is: sums are judged by
f64, as PyTorch adds in another order.
"""
import itertools
import random

import numpy as np
import pytest
import torch

from compare import tally
from kilnlib import Kiln
from whole import WHOLE

COMPLEX = [torch.complex64, torch.complex128]
REAL = [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int32, torch.int64, torch.uint8, torch.bool]
SHAPES = [(), (1,), (7,), (65,), (4099,), (3, 4), (64, 100), (100, 3), (9, 1, 70), (2, 3, 4), (5, 6, 7, 8), (0,), (0, 3), (3, 0)]
TWICE = [(4099,), (64, 100), (9, 1, 70)]  # compiled with a second dtype too
EXACT = ("amax", "argmax", "aminmax", "max.dim")  # choose elements: no rounding


def elements(shape, dtype, seed):
    rng = np.random.default_rng(seed)
    x = torch.from_numpy(np.asarray(rng.standard_normal(shape) * 3))
    if dtype.is_complex:
        return torch.complex(x, x.flip(0) if x.dim() else x + 1).to(dtype)
    if dtype == torch.bool:
        return x > 0
    return (x * 5).to(dtype) if not dtype.is_floating_point else x.to(dtype)


def special(x, seed):
    """x with equal elements, and, if they are floats, NaN, infinities and both zeros here and there."""
    rng = np.random.default_rng(seed)
    x = x.clone()
    flat, some = x.view(-1), rng.random(x.numel())
    values = [float("nan"), float("inf"), -float("inf"), 0.0, -0.0, 2.0, 2.0] if x.dtype.is_floating_point else [1, 1, 0]
    for k, value in enumerate(values):
        flat[torch.from_numpy(some * 4 * len(values) // 1 == k)] = value
    return x


def views(x):
    """x in other layouts: the same elements."""
    yield x
    if x.dim() >= 2:
        yield x.transpose(0, 1).contiguous().transpose(0, 1)
    if x.dim() == 3:
        yield x.permute(2, 0, 1).contiguous().permute(1, 2, 0)
    if x.dim() >= 1:
        yield torch.stack([x, x], -1)[..., 0]
        yield x[:1].expand(x.shape) if x.shape[0] > 0 else x


def dims(rank):
    yield from ([d] for d in range(-rank, rank))
    yield from ([list(d) for d in itertools.combinations(range(rank), 2)] if rank >= 2 else [])
    yield list(range(rank))


def calls(name, x):
    """Arguments after self, and named ones."""
    rank = x.dim()
    if name == "sum":
        return [((), {}), ((), {"dtype": torch.float64}), ((), {"dtype": torch.bool}), ((), {"dtype": torch.complex64})]
    if name in ("argmax", "aminmax", "max.dim"):
        one = [((d,), {}) for d in range(-max(rank, 1), max(rank, 1))] + [((0, True), {})]
        if name == "aminmax":
            one = [((), {"dim": a[0], "keepdim": len(a) > 1}) for a, _ in one] + [((), {})]
        return one + ([((), {})] if name == "argmax" else [])
    some = [((d,), {}) for d in dims(rank)] + [((d,), {"keepdim": True}) for d in dims(rank)]
    if name == "sum.dim_IntList":
        some += [((None,), {}), (([],), {}), (([0] if rank else [],), {"dtype": torch.float64})]
    if name == "var_mean.correction":
        some += [((None,), {}), ((None,), {"correction": 0}), ((None,), {"correction": 2.5})]
    return some


def torch_op(name):
    base, _, overload = name.partition(".")
    return getattr(getattr(torch.ops.aten, base), overload or "default")


def tuples(r):
    return r if isinstance(r, tuple) else (r,)


def room(name, wide, args, named):
    """What the order of additions may change in a sum: a share of the sum of sizes, for each result."""
    if not name.startswith("sum") or not (wide.dtype.is_floating_point or wide.dtype.is_complex):
        return 0
    return torch_op(name)(wide.abs().nan_to_num(0, 0, 0), *args, **{k: v for k, v in named.items() if k != "dtype"})


def judge(name, x, args, named, got):
    want = tuples(torch_op(name)(x, *args, **named))
    wide = x.double() if x.dtype.is_floating_point else x.to(torch.complex128) if x.dtype.is_complex else x
    exact = tuples(torch_op(name)(wide, *args, **named))
    if name == "var_mean.correction":  # its mean of infinities, infinite or NaN, depends on where they stand: that of torch.mean does not
        exact = exact[0], torch.mean(wide, args[0] or list(range(x.dim())), named.get("keepdim", False))
    for g, w, e in zip(got, want, exact, strict=True):
        assert (g.dtype, g.shape) == (w.dtype, w.shape)
        assert g.numel() == 0 or g.stride() == w.stride()
        if name in EXACT or not (g.dtype.is_floating_point or g.dtype.is_complex):
            torch.testing.assert_close(g, w, rtol=0, atol=0, equal_nan=True)
            continue
        share = room(name, wide, args, named)
        more = {torch.float32: 1e-7, torch.complex64: 1e-7, torch.float64: 1e-15, torch.complex128: 1e-15}.get(g.dtype, 0) * share
        rtol, atol = {torch.float16: (1e-3, 1e-5), torch.bfloat16: (1.6e-2, 1e-5)}.get(g.dtype, (1.3e-6, 1e-5))
        g, e = g.to(torch.complex128), e.to(g.dtype if g.dtype.is_complex else torch.float64).to(torch.complex128)
        near = (g - e).abs() <= rtol * e.abs() + atol + more
        alike = (g == e) | (torch.isnan(g) & (torch.isnan(e) | (torch.isinf(e) & (name == "var_mean.correction"))))
        assert bool((near | alike).all()), (name, x.dtype, tuple(x.shape), x.stride(), args, named)


def outcome(op, x, args, named):
    try:
        return tuples(op(x, *args, **named))
    except (RuntimeError, IndexError, TypeError, ValueError) as e:
        return e


NAMES = ["sum", "sum.dim_IntList", "amax", "var_mean.correction", "max.dim", "argmax", "aminmax", "logsumexp"]


def test_every_fold_that_is_served_is_tested(interp):
    rows = {op.name.removeprefix("aten::") for op in interp.ops() if op.served and op.family == "fold" and op.form == "functional"}
    assert rows == set(NAMES)


def bits(x):
    """Any NaN is like any other."""
    x = torch.view_as_real(x).contiguous() if x.dtype.is_complex else x
    if x.dtype.is_floating_point:
        x = torch.where(torch.isnan(x), torch.full((), float("nan"), dtype=x.dtype), x)
    return x.view(torch.int16).numpy().tobytes() if x.dtype == torch.bfloat16 else x.numpy().tobytes()


def agree(name, x, args, named, contexts):
    """Every context gives the same, and what PyTorch gives; or refuses the call as PyTorch does."""
    first, *others = (outcome(k.op(f"aten::{name}"), x, args, named) for k in contexts)
    tally.cases["folds beside PyTorch"] += 1
    for other in others:
        if isinstance(first, Exception):
            assert type(other) is type(first)
        else:
            assert [bits(r) for r in other] == [bits(r) for r in first]
    if not isinstance(first, Exception):
        return judge(name, x, args, named, first)
    with pytest.raises(type(first)):
        torch_op(name)(x, *args, **named)


@pytest.mark.parametrize("name", NAMES)
def test_like_torch(name, interp, sync):
    """Interpreted with every dtype; compiled too: all of them, or f32 and, of shapes that differ most, one that changes with the row.

    A sampled run makes two calls of each tensor, four of f32: which dimensions are folded decides the kernel.
    """
    rng = random.Random(name)
    also = rng.choice(REAL[1:])
    for shape in SHAPES:
        for dtype in REAL + COMPLEX if name.startswith("sum") else REAL:
            compiled = WHOLE or dtype == torch.float32 or (dtype == also and shape in TWICE)
            x = elements(shape, dtype, len(shape))
            for x in itertools.chain(views(x), views(special(x, len(shape))) if not dtype.is_complex else ()):
                some = calls(name, x)
                few = 4 if dtype == torch.float32 else 2
                for args, named in some if WHOLE or len(some) <= few else rng.sample(some, few):
                    agree(name, x, args, named, (interp, sync) if compiled and not dtype.is_complex else (interp,))


@pytest.mark.parametrize("name, bad, error", [
    ("sum.dim_IntList", [2], IndexError), ("sum.dim_IntList", [-3], IndexError), ("sum.dim_IntList", [0, 0], RuntimeError),
    ("amax", [0, -2], RuntimeError), ("var_mean.correction", [5], IndexError)])
def test_wrong_dimensions_are_refused_as_in_torch(name, bad, error, interp):
    x = torch.ones(3, 4)
    for op in (torch_op(name), interp.op(f"aten::{name}")):
        with pytest.raises(error):
            op(x, bad)


def test_what_has_no_identity_is_refused_over_nothing(interp):
    for name, args in (("amax", ([0],)), ("max.dim", (0,)), ("argmax", (0,))):
        with pytest.raises(IndexError):
            torch_op(name)(torch.ones(0, 3), *args)
        with pytest.raises(IndexError):
            interp.op(f"aten::{name}")(torch.ones(0, 3), *args)


def large():
    """Tensors that threads share, and a dimension of each."""
    for shape, dim in [((1500000,), 0), ((5, 300001), 1), ((300001, 5), 0), ((60, 40, 301), 1), ((2048, 768), 0), ((2048, 768), 1), ((4096, 21, 3, 16), 0)]:
        x = elements(shape, torch.float64, 3)
        for x in (x.float(), x):
            yield x[:, :20, :2, ::2] if x.dim() == 4 else x, dim  # dimensions that do not merge, none in rows


@pytest.mark.parametrize("mode", ["interp", "sync"])
def test_bits_do_not_depend_on_threads(mode):
    """Each context compiles anew: a sampled run does so for two numbers of threads, and f32."""
    seen, some = {}, mode == "sync" and not WHOLE
    tensors = [(x, dim) for x, dim in large() if not some or x.dtype == torch.float32]
    for threads in (1, 3) if some else (1, 2, 3, 8):
        with Kiln(mode, threads=threads) as k:
            for x, dim in tensors:
                for name in ("sum.dim_IntList", "amax", "var_mean.correction", "max.dim"):
                    for over in [dim] if name == "max.dim" else [[dim], list(range(x.dim()))]:
                        now = [bits(r) for r in tuples(k.op(f"aten::{name}")(x, over))]
                        key = tuple(x.shape), x.dtype, name, str(over)
                        assert seen.setdefault(key, now) == now, (key, threads)
                        tally.cases["folds with several threads"] += 1


def test_many_dimensions_are_copied_first(interp, sync):
    """Rank 64, every other dimension folded: more groups than a kernel has axes."""
    shape = [2 if d % 8 == 0 else 1 for d in range(64)]
    x = elements(shape, torch.float32, 1)
    shape = [2, 3] * 3 + [1] * 58
    for x in (x, elements(shape, torch.float32, 2)):
        over = list(range(0, 64, 2))
        want = x.double().sum(over)
        for k in (interp, sync):
            got = k.op("aten::sum.dim_IntList")(x, over)
            assert got.shape == want.shape
            torch.testing.assert_close(got.double(), want, rtol=1e-5, atol=1e-5)


def test_results_are_given(interp, sync):
    x = elements((6, 50), torch.float32, 1)
    for k in (interp, sync):
        out = torch.empty(6)
        k.op("aten::sum.IntList_out")(x, [1], out=out)
        torch.testing.assert_close(out, x.sum(1))
        wide = torch.zeros(6, 3)[:, 1]
        k.op("aten::sum.IntList_out")(x, [1], out=wide)
        torch.testing.assert_close(wide, x.sum(1))
        inside = elements((6, 50), torch.float32, 1)  # the result is a column of what is read
        want = inside.sum(1)
        k.op("aten::sum.IntList_out")(inside, [1], out=inside[:, 7])
        torch.testing.assert_close(inside[:, 7], want)
