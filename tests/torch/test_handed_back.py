"""Calls that PyTorch refuses, or answers with other values, strides or sizes than Kiln would: a program sees PyTorch's answer.

Each case is run with Kiln and without it, interpreted and compiled, with the result, its strides and the error compared by outcome.py.
A row says by `check torch` which calls it hands back.  A direct call of Kiln's does not look at these checks: `SERVED` holds that it
still answers.  Cases that PyTorch answers by reading memory it should not read are left out.
"""
import pytest
import torch

import kiln
import kiln.torch
from compare import tally
from outcome import differ, outcome

aten = torch.ops.aten
G = torch.Generator().manual_seed(3)


def rand(*sizes):
    return torch.rand(*sizes, generator=G)


def turned(t):
    """The same elements, with the first dimension nearest in memory."""
    return t.transpose(0, -1).contiguous().transpose(0, -1)


def gaps(t):
    """The same elements, with gaps in memory between rows."""
    return torch.cat([t, t], -1)[..., :t.shape[-1]]


X, Y, Z = rand(2, 3), rand(2, 3), rand(2, 3, 4)
IMAGE, LABELS = rand(2, 5, 3, 4), torch.randint(0, 5, (2, 3, 4), generator=G)
U16 = torch.arange(6).to(torch.uint16)
WEIGHT, NORMS = rand(4, 1), rand(4, 1) + 1
V, GRAD_W = rand(4, 5), rand(4, 5)
CHANNELS, NOTHING = rand(5), rand(4, 6, 0)
ONE, STEP = torch.ones(()), dict(weight_decay=0.0, lr=0.1, dampening=0.0, nesterov=False, maximize=False, is_first_step=False)


def sgd(dtype=torch.float32, momentum=0.9, scale=torch.float32, buffers=True):
    params = [X.clone()]
    aten._fused_sgd_(params, [Y.to(dtype)], [torch.zeros(2, 3)] if buffers else [], momentum=momentum, grad_scale=ONE.to(scale), **STEP)
    return params


def adam(name, dtype=torch.float32, steps=torch.float32, found=torch.float32):
    params = [X.clone()]
    getattr(aten, name)(params, [Y.to(dtype)], [X * 0], [X * 0], [], [ONE.to(steps)], lr=0.1, beta1=0.9, beta2=0.99, weight_decay=0.0,
                        eps=1e-8, amsgrad=False, maximize=False, found_inf=(ONE * 0).to(found))
    return params


def group_norm(x):
    return torch.native_group_norm(x, None, None, 2, 4, 15, 2, 1e-5)


def batch_norm(**other):
    given = {"weight": CHANNELS, "bias": CHANNELS, "running_mean": CHANNELS.clone(), "running_var": CHANNELS.clone(), **other}
    return torch.native_batch_norm(V, *given.values(), True, 0.1, 1e-5)


def expanded(*sizes):
    """Memory of one element."""
    return torch.zeros(1).expand(sizes)


CASES = {
    "full_like pinned": lambda: torch.full_like(X, 1.0, pin_memory=True),
    "full_like not pinned": lambda: torch.full_like(X, 1.0, pin_memory=False),
    "full_like sparse": lambda: torch.full_like(X, 0.0, layout=torch.sparse_coo),
    "full_like channels last": lambda: torch.full_like(IMAGE, 1.0, memory_format=torch.channels_last),
    "full_like channels last of a matrix": lambda: torch.full_like(X, 1.0, memory_format=torch.channels_last),
    "_to_copy pinned": lambda: aten._to_copy(X, pin_memory=True),
    "_to_copy channels last": lambda: aten._to_copy(IMAGE, memory_format=torch.channels_last),
    "ones_like pinned": lambda: torch.ones_like(X, pin_memory=True),
    "softmax.int_out of overlapping elements": lambda: aten.softmax.int_out(X, 1, out=expanded(2, 3)),
    "log_softmax.int_out of overlapping elements": lambda: aten.log_softmax.int_out(X, 0, None, out=expanded(2, 3)),
    "_pdist_forward.out of overlapping elements": lambda: aten._pdist_forward.out(V, 2.0, out=expanded(6)),
    "add.out of overlapping elements": lambda: torch.add(X, Y, out=expanded(2, 3)),
    "sum.out of overlapping elements": lambda: torch.sum(X, 0, out=expanded(3)),
    "cumsum.out of overlapping elements": lambda: torch.cumsum(X, 0, out=expanded(2, 3)),
    "_foreach_add.out of overlapping elements": lambda: aten._foreach_add.List_out([X], [Y], out=[expanded(2, 3)]),
    "_foreach_exp.out of another dtype": lambda: aten._foreach_exp.out([X, Y], out=[torch.empty(2, 3, dtype=torch.float64)] * 2),
    "_foreach_add.out of another dtype": lambda: aten._foreach_add.List_out([X], [Y], out=[torch.empty(2, 3, dtype=torch.float64)]),
    "_foreach_norm of a truth value": lambda: aten._foreach_norm.Scalar([X], True),
    "renorm.out of another dtype": lambda: torch.renorm(X, 2, 0, 1.0, out=torch.empty(2, 3, dtype=torch.float64)),
    "_conj_physical of u16": lambda: aten._conj_physical(U16),
    "conj_physical.out of u16": lambda: torch.conj_physical(U16, out=torch.empty_like(U16)),
    "conj_physical_ of u16": lambda: U16.clone().conj_physical_(),
    "logical_not.out of u64": lambda: torch.logical_not(X, out=torch.empty(2, 3, dtype=torch.uint64)),
    "logical_not.out of i64": lambda: torch.logical_not(X, out=torch.empty(2, 3, dtype=torch.int64)),
    "nansum.out of i32": lambda: torch.nansum(X, 0, out=torch.empty(3, dtype=torch.int32)),
    "nansum.out of i32, of integers": lambda: torch.nansum(LABELS, 0, out=torch.empty(3, 4, dtype=torch.int32)),
    "logsumexp of no dimensions": lambda: torch.logsumexp(X, []),
    "binary_cross_entropy.out": lambda: torch._C._nn.binary_cross_entropy(X, Y, out=torch.empty(())),
    "soft_margin_loss of reduction 3": lambda: aten.soft_margin_loss(X, Y, 3),
    "_fused_sgd_ of a bf16 gradient": lambda: sgd(torch.bfloat16),
    "_fused_sgd_ of an f64 gradient": lambda: sgd(torch.float64),
    "_fused_sgd_ with an f64 scale": lambda: sgd(scale=torch.float64),
    "_fused_sgd_ with buffers without momentum": lambda: sgd(momentum=0.0),
    "_fused_sgd_ without momentum": lambda: sgd(momentum=0.0, buffers=False),
    "_fused_adam_ of a bf16 gradient": lambda: adam("_fused_adam_", torch.bfloat16),
    "_fused_adam_ with f64 steps": lambda: adam("_fused_adam_", steps=torch.float64),
    "_fused_adamw_ of an f16 gradient": lambda: adam("_fused_adamw_", torch.float16),
    "_fused_adamw_ with a found_inf of integers": lambda: adam("_fused_adamw_", found=torch.int64),
    "native_group_norm": lambda: group_norm(rand_of(2, 4, 3, 5)),
    "native_group_norm with gaps": lambda: group_norm(gaps(rand_of(2, 4, 3, 5))),
    "native_group_norm channels last": lambda: group_norm(rand_of(2, 4, 3, 5).contiguous(memory_format=torch.channels_last)),
    "native_group_norm_backward with a matrix of weights":
        lambda: aten.native_group_norm_backward(V, V, V[:, :1].clone(), V[:, 1:2].clone(), CHANNELS.reshape(1, 5), 4, 5, 1, 1, [True] * 3),
    "native_group_norm_backward over no positions":
        lambda: aten.native_group_norm_backward(NOTHING, NOTHING, *torch.native_group_norm(NOTHING, None, None, 4, 6, 0, 2, 1e-5)[1:], torch.ones(6), 4, 6, 0, 2, [True] * 3),
    "native_batch_norm with a matrix of weights": lambda: batch_norm(weight=CHANNELS.reshape(5, 1)),
    "native_batch_norm with a matrix of statistics": lambda: batch_norm(running_var=CHANNELS.reshape(5, 1)),
    "native_layer_norm_backward with integer weights":
        lambda: aten.native_layer_norm_backward(V, V, [5], V[:, :1].clone(), V[:, 1:2].clone(), torch.arange(5), CHANNELS, [True] * 3),
    "_softmax_backward_data of other sizes": lambda: aten._softmax_backward_data(X, Y[:1], 0, torch.float32),
    "_log_softmax_backward_data of other sizes": lambda: aten._log_softmax_backward_data(X, Y[:1], 0, torch.float32),
    "log_sigmoid_forward into a buffer with gaps":
        lambda: aten.log_sigmoid_forward.output(X, output=torch.empty(2, 3), buffer=gaps(X)),
    "_masked_softmax": lambda: torch._masked_softmax(Z, Z > 0.5),
    "_masked_softmax turned": lambda: torch._masked_softmax(turned(Z), Z > 0.5).stride(),
    "_pdist_forward turned": lambda: aten._pdist_forward(turned(V), 2.0),
    "_pdist_forward": lambda: aten._pdist_forward(V, 2.0),
    "nll_loss2d_backward channels last":
        lambda: aten.nll_loss2d_backward(ONE, IMAGE.contiguous(memory_format=torch.channels_last), LABELS, CHANNELS, 1, -100, ONE),
    "nll_loss2d_backward into memory with gaps":
        lambda: aten.nll_loss2d_backward.grad_input(ONE, IMAGE, LABELS, CHANNELS, 1, -100, ONE, grad_input=gaps(IMAGE)),
    "nll_loss2d_backward": lambda: aten.nll_loss2d_backward(ONE, IMAGE, LABELS, CHANNELS, 1, -100, ONE),
    "_weight_norm_interface_backward turned": lambda: aten._weight_norm_interface_backward(GRAD_W, turned(V), WEIGHT, NORMS, 0),
    "_weight_norm_interface_backward of a strided g": lambda: aten._weight_norm_interface_backward(GRAD_W, V, gaps(WEIGHT), NORMS, 0),
    "_weight_norm_interface_backward of strided norms": lambda: aten._weight_norm_interface_backward(GRAD_W, V, WEIGHT, gaps(NORMS), 0),
    "_weight_norm_interface_backward": lambda: aten._weight_norm_interface_backward(GRAD_W, V, WEIGHT, NORMS, 0),
    "_cdist_backward of an empty batch, broadcast":
        lambda: aten._cdist_backward(rand(0, 3, 4), rand(1, 3, 5), rand(0, 4, 5), 2.0, rand(0, 3, 4)),
    "_cdist_backward of an empty batch": lambda: aten._cdist_backward(rand(0, 3, 4), rand(0, 3, 5), rand(0, 4, 5), 2.0, rand(0, 3, 4)),
}

# What Kiln answers itself when it is called directly: these calls have a numeric answer.
SERVED = {
    "native_group_norm": lambda: kiln.call("native_group_norm", gaps(rand_of(2, 4, 3, 5)), None, None, 2, 4, 15, 2, 1e-5)[0],
    "_pdist_forward": lambda: kiln.call("_pdist_forward", turned(V), 2.0),
    "nll_loss2d_backward": lambda: kiln.call("nll_loss2d_backward", ONE, IMAGE.contiguous(memory_format=torch.channels_last), LABELS,
                                             CHANNELS, 1, -100, ONE),
    "_weight_norm_interface_backward": lambda: kiln.call("_weight_norm_interface_backward", GRAD_W, turned(V), WEIGHT, NORMS, 0)[0],
    "logical_not": lambda: kiln.call("logical_not", X, out=torch.empty(2, 3, dtype=torch.uint64)),
    "full_like": lambda: kiln.call("full_like", X, 1.0, pin_memory=True),
}
AS_SERVED = {
    "native_group_norm": lambda: group_norm(rand_of(2, 4, 3, 5))[0],
    "_pdist_forward": lambda: aten._pdist_forward(V, 2.0),
    "nll_loss2d_backward": lambda: aten.nll_loss2d_backward(ONE, IMAGE, LABELS, CHANNELS, 1, -100, ONE),
    "_weight_norm_interface_backward": lambda: aten._weight_norm_interface_backward(GRAD_W, V, WEIGHT, NORMS, 0)[0],
    "logical_not": lambda: torch.logical_not(X).to(torch.uint64),
    "full_like": lambda: torch.full_like(X, 1.0),
}


def rand_of(*sizes):
    return torch.rand(*sizes, generator=torch.Generator().manual_seed(4))


@pytest.mark.parametrize("mode", ["interp", "sync"])
@pytest.mark.parametrize("case", CASES)
def test_the_answer_is_pytorchs(case, mode):
    native = outcome(CASES[case])
    kiln.configure(mode=mode)
    try:
        with kiln.torch.enabled("all"):
            kilns = [outcome(CASES[case]) for _ in range(3)]
    finally:
        kiln.configure(mode="default")
    tally.cases["calls that PyTorch refuses or lays out otherwise"] += 1
    assert [differ(ours, native) for ours in kilns] == [None] * 3


@pytest.mark.parametrize("name", SERVED)
def test_a_direct_call_keeps_its_answer(name):
    for _ in range(2):
        torch.testing.assert_close(SERVED[name](), AS_SERVED[name]())


@pytest.mark.parametrize("name", ["softmax.int_out", "log_softmax.int_out", "_pdist_forward.out"])
def test_direct_calls_refuse_overlapping_results(name):
    args = (V, 2.0) if "pdist" in name else (V, 1)
    into = expanded(6) if "pdist" in name else expanded(4, 5)
    with pytest.raises(RuntimeError, match="more than one element of the written-to tensor refers to a single memory location"):
        kiln.call(name, *args, out=into)


def test_a_layout_that_follows_another():
    """What a call remembers of the last one must not hide how the tensors lie that this one writes to."""
    def call(buffer):
        return aten.log_sigmoid_forward.output(X, output=torch.empty(2, 3), buffer=buffer())
    buffers = [lambda: torch.empty(2, 3), lambda: gaps(torch.zeros(2, 3)), lambda: torch.empty(2, 3), lambda: turned(torch.zeros(2, 3))]
    native = [outcome(call, buffer) for buffer in buffers]
    for mode in ("interp", "sync"):
        kiln.configure(mode=mode)
        try:
            with kiln.torch.enabled("all"):
                kilns = [outcome(call, buffer) for buffer in buffers * 2]
        finally:
            kiln.configure(mode="default")
        assert [differ(ours, theirs) for ours, theirs in zip(kilns, native * 2)] == [None] * 8


def test_what_is_contiguous_is_served():
    """The conditions are no wider than what PyTorch refuses: a plain call is still Kiln's."""
    calls = {"aten::native_group_norm": lambda: group_norm(rand_of(2, 4, 3, 5)), "aten::_pdist_forward": lambda: aten._pdist_forward(V, 2.0),
             "aten::full_like": lambda: torch.full_like(X, 1.0), "aten::_fused_sgd_": sgd, "aten::_fused_adam_": lambda: adam("_fused_adam_"),
             "aten::native_batch_norm": batch_norm, "aten::_masked_softmax": lambda: torch._masked_softmax(Z, Z > 0.5),
             "aten::nll_loss2d_backward": lambda: aten.nll_loss2d_backward(ONE, IMAGE, LABELS, CHANNELS, 1, -100, ONE),
             "aten::log_sigmoid_forward": lambda: aten.log_sigmoid_forward(X), "aten::logsumexp": lambda: torch.logsumexp(X, [0])}
    with kiln.torch.enabled("all"):
        for name, call in calls.items():
            before = {row.operator: row.served for row in kiln.torch.status().rows}
            call()
            after = {row.operator: row.served for row in kiln.torch.status().rows}
            assert after[name] == before.get(name, 0) + 1, name
