"""Layers with norms, trained and evaluated with Kiln and without: results, gradients and running statistics are PyTorch's.

Statistics that the forward pass saves are what PyTorch's formula for the backward pass expects, so both passes are compared in turn:
both by Kiln, one of them by PyTorch.
"""
import copy

import pytest
import torch
from torch import nn

import kiln.torch
from compare import tally

LAYERS = {
    "batch norm": lambda: nn.BatchNorm2d(6), "batch norm without weights": lambda: nn.BatchNorm2d(6, affine=False),
    "batch norm without statistics": lambda: nn.BatchNorm2d(6, track_running_stats=False), "batch norm of all calls": lambda: nn.BatchNorm2d(6, momentum=None),
    "instance norm": lambda: nn.InstanceNorm2d(6, affine=True), "group norm": lambda: nn.GroupNorm(3, 6), "group norm without weights": lambda: nn.GroupNorm(2, 6, affine=False),
    "layer norm": lambda: nn.LayerNorm([5, 7]), "layer norm without bias": lambda: nn.LayerNorm(7, bias=False), "rms norm": lambda: nn.RMSNorm(7),
}
FORWARD = ["native_batch_norm", "native_group_norm", "native_layer_norm"]
BACKWARD = [f"{name}_backward" for name in FORWARD]


def inputs(dtype, channels_last, frozen, rounded=None):
    x = torch.randn(4, 6, 5, 7, generator=torch.Generator().manual_seed(3)).to(rounded or dtype).to(dtype)
    x = x.contiguous(memory_format=torch.channels_last) if channels_last else x
    return x if frozen else x.requires_grad_()


def train(layer, dtype, channels_last, frozen, rounded=None):
    """Two passes in training, one in evaluation; what each gives, gradients, statistics.  rounded: what inputs are rounded to first."""
    layer, seen = copy.deepcopy(layer), []
    for mode in (True, True, False):
        x = inputs(dtype, channels_last, frozen, rounded)
        y = layer.train(mode)(x)
        seen.append(y.detach().clone())
        if y.requires_grad:
            (y * y).sum().backward()
            seen += [t.grad.clone() for t in (x, *layer.parameters()) if t.grad is not None]
        seen += [t.clone() for t in layer.buffers()]
    return seen


def judge(got, want, exact):
    """As near to PyTorch as its rounding allows: of halves, no further from f64 than twice as far as PyTorch and one rounding."""
    assert (got.dtype, got.shape, got.stride()) == (want.dtype, want.shape, want.stride())
    if exact is None or got.dtype == torch.int64:
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-4)
        return
    theirs, mine = ((t.double() - exact).abs().max() for t in (want, got))
    assert mine <= 2 * theirs + 2**-8 * exact.abs().max(), (mine, theirs)


@pytest.mark.usefixtures("interpreted")
@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("taken", ["all", FORWARD, BACKWARD], ids=["both", "forward", "backward"])
def test_layers(name, taken):
    for dtype, of_weights in ((torch.float32,) * 2, (torch.float64,) * 2, (torch.bfloat16, torch.float32)):
        layer = LAYERS[name]().to(of_weights)
        if of_weights != dtype and name == "rms norm":
            layer = layer.to(dtype)
        for channels_last in (False, True):
            for frozen in (False, True):
                if channels_last and frozen and "group" in name:
                    continue  # PyTorch's own kernel writes through no pointer
                tally.cases["layers with norms, with Kiln and without"] += 1
                want = train(layer, dtype, channels_last, frozen)
                exact = train(copy.deepcopy(layer).double(), torch.float64, channels_last, frozen, dtype) if dtype == torch.bfloat16 else [None] * len(want)
                with kiln.torch.enabled(taken):
                    got = train(layer, dtype, channels_last, frozen)
                for all_three in zip(got, want, exact, strict=True):
                    judge(*all_three)


def test_they_are_served():
    x = inputs(torch.float32, False, False)
    with kiln.torch.enabled("all"):
        before = {row.operator: row.served for row in kiln.torch.status().rows}
        for layer in (nn.BatchNorm2d(6), nn.GroupNorm(2, 6), nn.LayerNorm(7)):
            layer(x).sum().backward()
        served = {row.operator.removeprefix("aten::") for row in kiln.torch.status().rows if row.served > before.get(row.operator, 0)}
    assert {*FORWARD, *BACKWARD} <= served


def test_gradients_of_gradients():
    """Of batch norm and layer norm: PyTorch's formulas over Kiln's results."""
    for layer in (nn.BatchNorm2d(6).double(), nn.LayerNorm(7).double(), nn.GroupNorm(2, 6).double()):
        x = inputs(torch.float64, False, False)
        with kiln.torch.enabled("all"):
            assert torch.autograd.gradgradcheck(lambda t: copy.deepcopy(layer)(t[:2, :, :2, :]), (x,))
