"""Losses of torch.nn.functional with all of Kiln enabled and without it: the same values, gradients and refusals."""
import itertools
import warnings

import pytest
import torch
import torch.nn.functional as F

import kiln.torch


def probabilities(x, y, **named):
    return F.binary_cross_entropy(torch.sigmoid(x), y, **named)


LOSSES = [F.mse_loss, F.l1_loss, F.smooth_l1_loss, F.huber_loss, F.soft_margin_loss, F.binary_cross_entropy_with_logits, F.kl_div, probabilities]


def step(loss, shape, target, dtype, **named):
    torch.manual_seed(1)
    x = torch.randn(shape, dtype=dtype, requires_grad=True)
    value = loss(x, target(shape), **named)
    value.sum().backward()
    return value.detach(), x.grad


def counts(names):
    """Of each operator: calls that Kiln has served so far, and calls that it has handed back."""
    rows = {row.operator.removeprefix("aten::"): row for row in kiln.torch.status().rows}
    return {name: (rows[name].served, sum(rows[name].handed_back.values())) for name in names}


def both(loss, shape, target, dtype, served, **named):
    """served: the operators that must have been Kiln's."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        want = step(loss, shape, target, dtype, **named)
        with kiln.torch.enabled("all"):
            before = counts(served)
            got = step(loss, shape, target, dtype, **named)
            after = counts(served)
    for name in served:
        assert after[name][0] > before[name][0] and after[name][1] == before[name][1], name
    torch.testing.assert_close(got, want)


@pytest.mark.usefixtures("interpreted")
@pytest.mark.parametrize("loss", LOSSES, ids=lambda f: f.__name__)
def test_losses(loss):
    for shape, dtype, reduction in itertools.product([(33, 20), (4099,)], (torch.float32, torch.float64), ("none", "mean", "sum")):
        both(loss, shape, lambda s, t=dtype: torch.rand(s, dtype=t), dtype, (), reduction=reduction)


@pytest.mark.usefixtures("interpreted")
@pytest.mark.parametrize("shape, name", [((33, 20), "nll_loss"), ((4, 7, 6, 5), "nll_loss2d"), ((3, 5, 9), "nll_loss2d")])
def test_cross_entropy(shape, name):
    classes = shape[1]
    for reduction, named in itertools.product(("none", "mean", "sum"), [{}, {"weight": torch.rand(classes)}, {"ignore_index": 2}, {"label_smoothing": 0.1}]):
        both(F.cross_entropy, shape, lambda s: torch.randint(0, classes, (s[0], *s[2:])), torch.float32, (f"{name}_forward", f"{name}_backward"),
             reduction=reduction, **named)


@pytest.mark.usefixtures("interpreted")
def test_what_is_refused():
    for call in (lambda: F.nll_loss(torch.rand(3, 4), torch.tensor([1, 2, 9])), lambda: F.binary_cross_entropy(torch.rand(3) + 1, torch.rand(3)),
                 lambda: F.nll_loss(torch.rand(3, 4), torch.tensor([1, 2])), lambda: F.huber_loss(torch.rand(3), torch.rand(3), delta=-1.0)):
        with pytest.raises(Exception) as want:
            call()
        with kiln.torch.enabled("all"), pytest.raises(type(want.value)) as got:
            call()
        assert str(got.value) == str(want.value)
