"""Losses beside PyTorch: for each element, their mean and their sum; and rows that fold or map as an argument says.

Whole tensors, views and tensors that are broadcast, of every dtype, with NaN and infinities, on both tiers and with several
threads, which must give the same bits.  Elements that a loss refuses are found before anything is written.
"""
import itertools
import warnings

import pytest
import torch

from compare import tally
from contexts import by_threads, worth
from kilnlib import Kiln, at_most
from listed import is_listed
from test_fold import COMPLEX, DTYPES, FLOATS, bits, elements, outcome, special, torch_op, tuples, views
from whole import WHOLE

SHAPES = [(), (1,), (7,), (4099,), (3, 4), (64, 100), (9, 1, 70), (5, 6, 7, 8), (0,), (3, 0)]


def probabilities(x):
    """Of x numbers from 0 to 1, both of them here and there."""
    x = x.real if x.is_complex() else x
    return (x.double().abs() * 7).frac().nan_to_num(0).mul(1.2).clamp(0, 1).to(x.dtype)


def pair(x, y):
    return (x, y), {}


def chances(x, y):
    return (probabilities(x), probabilities(y)), {}


def weighed(x, y):
    return (probabilities(x), probabilities(y), y.abs()[-1:] if y.dim() else y.abs()), {}


def logits(x, y):
    return (x, probabilities(y)), {}


def logits_weighed(x, y):
    return (x, probabilities(y), y.abs()), {"pos_weight": x.abs()[-1:] if x.dim() else x.abs()}


def logs(x, y):
    return (x, probabilities(y)), {"log_target": False}


def log_targets(x, y):
    return (x, y), {"log_target": True}


def signs(x, y):
    return (x, torch.where(y.real.double() > 0, 1, -1).to(y.dtype), 1.5), {}


def magnitude(x):
    return x if x.dtype == torch.bool or "uint" in str(x.dtype) else x.abs()


def counts(log_input, full):
    return lambda x, y: ((x if log_input else magnitude(x), magnitude(y), log_input, full, 1e-6), {})


def numbered(name, *values):
    return [lambda x, y, v=v: ((x, y), {name: v}) for v in values]


LOSSES = {
    "mse_loss": [pair], "l1_loss": [pair], "smooth_l1_loss": numbered("beta", 1.0, 0.3, 0.0, 1e40), "huber_loss": numbered("delta", 1.0, 2.5, 1e40),
    "binary_cross_entropy": [chances, weighed], "binary_cross_entropy_with_logits": [logits, logits_weighed],
    "kl_div": [logs, log_targets], "soft_margin_loss": [pair], "hinge_embedding_loss": [signs],
    "poisson_nll_loss": [counts(True, False), counts(True, True), counts(False, True)],
}


FLOATS_ALONE = ("hinge_embedding_loss", "poisson_nll_loss")  # PyTorch makes these of operators that take other dtypes too


def is_loss(op):
    """Those that pick a class are test_nll.py's."""
    picks = "nll_loss_" in op.name or "nll_loss2" in op.name
    return op.family == "fold" and "int reduction" in op.schema and op.name.startswith("aten::") and not picks


test_is_listed = is_listed(is_loss, LOSSES, "LOSSES of tests/ops/test_losses.py")


def close(got, want):
    for g, w in zip(got, want, strict=True):
        assert (g.dtype, g.shape) == (w.dtype, w.shape)
        assert g.numel() == 0 or g.stride() == w.stride()
        torch.testing.assert_close(g, w, equal_nan=True)


def agree(name, args, named, contexts):
    """Every context gives the same bits and PyTorch's answer, or refuses the call as PyTorch does."""
    tally.cases["losses"] += 1
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        want = outcome(torch_op(name), args[0], args[1:], named)
    first, *others = (outcome(k.op(f"aten::{name}"), args[0], args[1:], named) for k in worth(contexts, f"aten::{name}", args, named))
    for other in others:
        assert type(other) is type(first)
        assert isinstance(first, Exception) or [bits(r) for r in other] == [bits(r) for r in first]
    if isinstance(first, Exception) or isinstance(want, Exception):
        assert type(first) is type(want), (name, args, named, first, want)
    else:
        close(first, want)


def subjects(shape, dtype):
    """Pairs of tensors: in every layout of the first, and with special values."""
    x, y = elements(shape, dtype, len(shape)), elements(shape, dtype, len(shape) + 10)
    for k, view in enumerate(views(x)):
        yield view, y if k % 2 == 0 else next(itertools.islice(views(y), 1, None), y)
    yield special(x, 1), special(y, 2)


@pytest.mark.parametrize("name", LOSSES)
def test_like_torch(name, interp, sync):
    takes = FLOATS + (COMPLEX if name in ("l1_loss", "soft_margin_loss") else [])
    for shape, dtype in itertools.product(SHAPES, takes):
        for k, (x, y) in enumerate(subjects(shape, dtype)):
            if dtype.is_complex and k > 3:
                continue  # of infinities and NaN C leaves it open
            for made, reduction in itertools.product(LOSSES[name], (0, 1, 2)):
                args, named = made(x, y)
                compiled = WHOLE or (shape in ((64, 100), (5, 6, 7, 8)) and k < (2 if dtype == torch.float32 else 1))
                tiers = (interp, sync) if compiled else (interp,)
                agree(name, args, {**named, "reduction": reduction}, tiers)


@pytest.mark.parametrize("name", LOSSES)
def test_shapes_that_are_broadcast(name, interp):
    """Also where one does not fit the other; but for cross entropies of probabilities, whose sizes PyTorch squeezes first."""
    some = [(3, 4), (4,), (3, 1), (1, 1), (), (5,), (2, 3, 4)]
    for (a, b), made, reduction in itertools.product(itertools.product(some, some), LOSSES[name], (0, 1, 2)):
        x, y = elements(a, torch.float64, 1), elements(b, torch.float64, 2)
        if name == "binary_cross_entropy" and a != b:
            continue
        args, named = made(x, y)
        agree(name, args, {**named, "reduction": reduction}, (interp,))


@pytest.mark.parametrize("name", LOSSES)
def test_dtypes(name, interp):
    """Each alone.  Two that differ are PyTorch's result, or left to PyTorch."""
    for a, b, reduction in itertools.product(DTYPES, DTYPES, (0, 1, 2)):
        args, named = LOSSES[name][0](elements((3, 4), a, 1), elements((3, 4), b, 2))
        if a == b and (name not in FLOATS_ALONE or a in FLOATS):
            agree(name, args, {**named, "reduction": reduction}, (interp,))
            continue
        mine, theirs = (outcome(op, args[0], args[1:], {**named, "reduction": reduction}) for op in (interp.op(f"aten::{name}"), torch_op(name)))
        if isinstance(mine, Exception):
            assert type(mine) is NotImplementedError or type(mine) is type(theirs), (a, b, mine, theirs)
        else:
            assert not isinstance(theirs, Exception), (a, b, theirs)
            assert mine[0].dtype == theirs[0].dtype
            if bool(torch.isfinite(theirs[0]).all()):  # of complex infinities C leaves it open
                torch.testing.assert_close(mine, theirs, **({"rtol": 2e-3, "atol": 1e-3} if torch.float16 in (a, b) else {}))


@pytest.mark.parametrize("name, named", [("smooth_l1_loss", {"beta": -1.0}), ("huber_loss", {"delta": 0.0}), ("mse_loss", {"reduction": 3}),
                                         ("huber_loss", {"reduction": 3}), ("kl_div", {"reduction": -1}), ("l1_loss", {"reduction": 7})])
def test_numbers_that_losses_refuse_or_ignore(name, named, interp):
    agree(name, (torch.ones(3), torch.zeros(3)), named, (interp,))


def test_weights_that_do_not_fit(interp):
    x = probabilities(elements((3, 4), torch.float32, 1))
    for weight in (torch.ones(5), torch.ones(2, 3, 4), torch.ones(3, 1), torch.ones(()), torch.ones(4).double(), torch.ones(4, dtype=torch.int32),
                   torch.ones(4, dtype=torch.bool), torch.ones(4, dtype=torch.complex64)):
        agree("binary_cross_entropy", (x, x, weight), {}, (interp,))
    for weight in (torch.ones(5), torch.ones(2, 3, 4), torch.ones(3, 1)):
        agree("binary_cross_entropy_with_logits", (x, x, weight), {}, (interp,))
        agree("binary_cross_entropy_with_logits", (x, x), {"pos_weight": weight}, (interp,))


@pytest.mark.parametrize("tier, threads", [("interp", 1), ("sync", 1), ("sync", 3)])
def test_elements_out_of_range_are_found_before_anything_is_written(tier, threads, interp, sync):
    k = {"interp": interp, "sync": sync}[tier]
    with at_most(threads):
        for n, at, bad, reduction in itertools.product((1, 7, 5000, 300001), (0, -1), (1.5, -0.25, float("nan")), (0, 1, 2)):
            x = torch.full((n,), 0.5)
            for args in ((x.clone(), x), (x, x.clone())):
                args[0][at] = bad
                out = torch.full((n,) if reduction == 0 else (), 7.0)
                with pytest.raises(RuntimeError, match="should be between 0 and 1"):
                    k.op("aten::binary_cross_entropy.out")(*args, None, reduction, out=out)
                assert bool((out == 7).all())
                with pytest.raises(RuntimeError, match="should be between 0 and 1"):
                    k.op("aten::binary_cross_entropy")(*args, None, reduction)
                args[0][at] = 0.5
                k.op("aten::binary_cross_entropy.out")(*args, None, reduction, out=out)
                assert not bool((out == 7).any())


@pytest.mark.parametrize("name", [n for n in LOSSES if n not in ("l1_loss", "kl_div", "hinge_embedding_loss", "poisson_nll_loss")])
def test_results_are_given(name, interp):
    """Into results side by side and with gaps."""
    x, y = elements((6, 50), torch.float32, 1), elements((6, 50), torch.float32, 2)
    for made, reduction in itertools.product(LOSSES[name], (0, 1, 2)):
        args, named = made(x, y)
        want = torch_op(name)(*args, **named, reduction=reduction)
        for gaps in (1, 3):
            out = torch.zeros(*want.shape, gaps)[..., 0]
            interp.op(f"aten::{name}.out")(*args, **named, reduction=reduction, out=out)
            torch.testing.assert_close(out, want)


@pytest.mark.parametrize("mode", ["interp", "sync"])
def test_bits_do_not_depend_on_threads(mode, sync):
    seen = {}
    for threads, k in by_threads(mode, sync):
        for name, made, shape, reduction in [("mse_loss", pair, (300001,), 1), ("binary_cross_entropy", weighed, (300001,), 1),
                                             ("binary_cross_entropy", chances, (60, 5001), 2), ("huber_loss", LOSSES["huber_loss"][0], (60, 5001), 0)]:
            args, named = made(elements(shape, torch.float32, 3), elements(shape, torch.float32, 4))
            now = bits(k.op(f"aten::{name}")(*args, **named, reduction=reduction))
            assert seen.setdefault((name, shape, reduction), now) == now, (name, shape, threads)
            tally.cases["losses, several threads"] += 1


# -- rows of users' ------------------------------------------------------------------------------------------------

ROW = """
fold my::energy(Tensor x, int[1] dim, bool sum) -> Tensor : takes real
     over   dim
     check  each x != 3 value : "no three"
     let    e = x * x
     state  s = 0
     step   s = s + e
     merge  s = s + rhs.s
     when   sum
     finish s
     when   true = e

map my::root(Tensor x, Scalar least) -> Tensor : takes float = sqrt(x - least)
    check each x >= least index : "less than the least"
"""


@pytest.mark.parametrize("mode", ["interp", "sync"])
def test_a_row_that_folds_or_maps(mode):
    with Kiln(mode) as k:
        k.load(ROW)
        x = torch.arange(24, dtype=torch.int32).view(2, 3, 4).permute(2, 0, 1) + 4
        assert torch.equal(k.op("my::energy")(x, [1], True), (x * x).sum(1).int())
        whole = k.op("my::energy")(x, [1], False)
        assert torch.equal(whole, x * x) and whole.stride() == (x * x).stride()
        for sum_ in (True, False):
            with pytest.raises(ValueError, match="no three"):
                k.op("my::energy")(x - 2, [1], sum_)
        assert k.op("my::root")(torch.tensor([5.0, 2.0]), 1).tolist() == [2.0, 1.0]
        with pytest.raises(IndexError, match="less than the least"):
            k.op("my::root")(torch.tensor([5.0, float("nan")]), 1)


@pytest.mark.parametrize("row, text", [
    ("fold my::f(Tensor x) -> Tensor = x", "nothing is folded"),
    ("fold my::f(Tensor x, bool b) -> Tensor\n  when b = x\n  when true = -x", "nothing is folded"),
    ("fold my::f(Tensor x, bool b) -> Tensor : takes real\n  state s = 0\n  step s = s + x\n  merge s = s + rhs.s\n  finish s\n  when b = x + s\n  when true", "'s'"),
    ("fold my::f(Tensor x, bool b) -> Tensor : takes real\n  state s = 0\n  step s = s + x\n  merge s = s + rhs.s\n  finish s\n  when b = x\n  finish s\n  when true", "both states and a body"),
    ("map my::f(Tensor x) -> Tensor = x\n  check each y > 0 : \"no\"", "unknown name 'y'"),
    ("map my::f(Tensor x) -> Tensor = x\n  check each x : \"no\"", "bool"),
    ("scan my::f(Tensor x, int dim) -> Tensor : takes real = acc + x from 0\n  over dim\n  check each x > 0 : \"no\"", "maps and folds alone"),
    ("map my::f(Tensor x) -> Tensor = x\n  check covers(x) : \"no\"", "two or three tensors"),
    ("map my::f(Tensor x) -> Tensor = x\n  check covers(x, 1) : \"no\"", "two or three tensors"),
    ("map my::f(Tensor x) -> Tensor = x\n  check numel(1) > 0 : \"no\"", "numel takes a tensor"),
])
def test_what_rows_may_not_say(row, text, own):
    with pytest.raises((RuntimeError, TypeError, ValueError), match=text):
        own.load(row)
