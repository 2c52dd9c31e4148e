"""Steps of optimizers over lists, beside PyTorch's fused CPU kernels: every option, several steps, halves, odd sizes.

PyTorch's vector loop and the loop over what is left of a row round differently in places, so values are compared within a
few units in the last place; tiers and threads give the same bits.  A step that must be left out writes nothing.
"""
import contextlib
import itertools

import pytest
import torch

from compare import tally
from kilnlib import Kiln, at_most
from test_fold import bits
from whole import WHOLE

SIZES = [(1,), (7,), (64,), (33, 5), (), (1000,), (3, 4, 5)]
TOLERANCE = {torch.float64: (1e-12, 1e-13), torch.float32: (2e-6, 1e-5), torch.bfloat16: (3e-2, 3e-2), torch.float16: (4e-3, 4e-3)}


def lists(dtype, seed, positive=False):
    g = torch.Generator().manual_seed(seed)
    out = [torch.randn(s, generator=g, dtype=torch.float64) for s in SIZES]
    return [(x.abs() if positive else x).to(dtype) for x in out]


def adam_state(dtype, amsgrad):
    steps = [torch.tensor(3 + k % 4 / 2) for k in range(len(SIZES))]  # a step may be a fraction
    return [lists(dtype, 1), lists(dtype, 2), lists(dtype, 3), lists(dtype, 4, True), lists(dtype, 5, True) if amsgrad else [], steps]


def copies(state):
    return [[x.clone() for x in xs] for xs in state]


def close(got, want, dtype):
    rtol, atol = TOLERANCE[dtype]
    for g, w in zip(got, want, strict=True):
        torch.testing.assert_close(g, w, rtol=rtol, atol=atol)


@pytest.fixture(scope="module")
def contexts(interp, sync):
    return [interp, sync]


def agree(name, state, named, dtype, contexts):
    tally.cases["steps of optimizers beside PyTorch"] += 1
    want, first = copies(state), None
    native = getattr(torch.ops.aten, name)
    lr = named["lr"]
    (native.tensor_lr if isinstance(lr, torch.Tensor) else native.default)(*want, **named)
    for k in contexts:
        got = copies(state)
        k.op(f"aten::{name}" + (".tensor_lr" if isinstance(lr, torch.Tensor) else ""))(*got, **named)
        for g, w in zip(got, want, strict=True):
            close(g, w, dtype if dtype in TOLERANCE else torch.float32)
        first = first or got
        assert all(bits(a) == bits(b) for x, y in zip(got, first) for a, b in zip(x, y)), name


def adam_options():
    every = list(itertools.product([False, True], [False, True], [0.0, 0.1], [None, 4.0], [None, 0.0, 1.0], [False, True]))
    return every if WHOLE else every[::5]


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("name", ["_fused_adam_", "_fused_adamw_"])
def test_adam(name, dtype, contexts):
    for amsgrad, maximize, decay, scale, found, tensor_lr in adam_options():
        named = {"lr": torch.tensor(0.01) if tensor_lr else 0.01, "beta1": 0.9, "beta2": 0.999, "weight_decay": decay, "eps": 1e-8, "amsgrad": amsgrad,
                 "maximize": maximize, "grad_scale": None if scale is None else torch.tensor(scale), "found_inf": None if found is None else torch.tensor(found)}
        agree(name, adam_state(dtype, amsgrad), named, dtype, contexts)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])  # PyTorch's kernel leaves parameters that are halves as they are
def test_sgd(dtype, contexts):
    every = list(itertools.product([0.0, 0.9], [0.0, 0.1], [0.0, 0.5], [False, True], [False, True], [False, True], [None, 4.0], [None, 1.0], [False, True]))
    for momentum, decay, damp, nesterov, maximize, first, scale, found, tensor_lr in every if WHOLE else every[::11]:
        if nesterov and (damp or not momentum):
            continue
        state = [lists(dtype, 1), lists(dtype, 2), lists(dtype, 3) if momentum else []]
        named = {"weight_decay": decay, "momentum": momentum, "lr": torch.tensor(0.01) if tensor_lr else 0.01, "dampening": damp, "nesterov": nesterov,
                 "maximize": maximize, "is_first_step": first, "grad_scale": None if scale is None else torch.tensor(scale),
                 "found_inf": None if found is None else torch.tensor(found)}
        agree("_fused_sgd_", state, named, dtype, contexts)


ADAM = {"lr": 0.1, "beta1": 0.9, "beta2": 0.99, "weight_decay": 0.0, "eps": 1e-8, "amsgrad": False, "maximize": False}


def test_a_step_that_is_left_out(contexts):
    state = adam_state(torch.float32, False)
    for k in contexts:
        got = copies(state)
        k.op("aten::_fused_adam_")(*got, **ADAM, found_inf=torch.tensor([1.0]))
        assert all(torch.equal(a, b) for x, y in zip(got, state) for a, b in zip(x, y))


def broken(k):
    state = adam_state(torch.float32, False)
    if k == "short":
        state[2].pop()
    elif k == "top":
        state[4] = lists(torch.float32, 6)
    elif k == "dtype":
        state[3][-1] = state[3][-1].double()
    elif k == "shape":
        state[1][-1] = torch.ones(11, 12)
    elif k == "steps":
        state[5][-1] = torch.ones(2)
    return state


@pytest.mark.parametrize("fault", ["short", "top", "dtype", "shape", "steps"])
def test_refused_before_anything_is_written(fault, contexts):
    for k in contexts:
        state = broken(fault)
        before = copies(state)
        with pytest.raises(RuntimeError, match="aten::_fused_adam_: "):
            k.op("aten::_fused_adam_")(*state, **ADAM)
        assert all(torch.equal(a, b) for x, y in zip(state, before) for a, b in zip(x, y))


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("mode", ["sync", "default"])
def test_ten_steps_of_long_tensors(mode, threads, sync):
    g = torch.Generator().manual_seed(7)
    params = [torch.randn(n, generator=g) for n in (1, 70_001, 5, 200_000, 17)]
    state = [params, [torch.zeros_like(p) for p in params], [torch.zeros_like(p) for p in params]]
    mine, want = copies(state), copies(state)
    with Kiln(mode, threads=threads) if mode != "sync" else contextlib.nullcontext(sync) as k, at_most(threads):
        for step in range(10):
            grads = [torch.randn(p.shape, generator=g) for p in params]
            steps = [torch.tensor(float(step + 1)) for _ in params]
            for (p, m, v), op in ((mine, k.op("aten::_fused_adamw_")), (want, torch.ops.aten._fused_adamw_)):
                op(p, [x.clone() for x in grads], m, v, [], steps, **{**ADAM, "weight_decay": 0.05})
    for a, b in zip(mine, want):
        close(a, b, torch.float32)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_bits_where_pytorch_goes_by_vectors(dtype, sync):
    def step(adam, adamw, sgd):
        g = torch.Generator().manual_seed(3)
        xs = [torch.randn(4096, generator=g, dtype=dtype) for _ in range(11)]
        steps, named = [torch.tensor(5.0)], {**ADAM, "weight_decay": 0.1}
        adam([xs[0]], [xs[1]], [xs[2]], [xs[3].abs_()], [], steps, **named)
        adamw([xs[4]], [xs[5]], [xs[6]], [xs[7].abs_()], [], steps, **named)
        sgd([xs[8]], [xs[9]], [xs[10]], weight_decay=0.1, momentum=0.9, lr=0.1, dampening=0.5, nesterov=True, maximize=False, is_first_step=False)
        return xs

    mine, theirs = (step(*(f(name) for name in ("_fused_adam_", "_fused_adamw_", "_fused_sgd_")))
                    for f in (lambda n: sync.op(f"aten::{n}"), lambda n: getattr(torch.ops.aten, n)))
    for k, (a, b) in enumerate(zip(mine, theirs)):
        if k in (0, 4):  # parameters of Adam: Kiln multiplies by what PyTorch divides by
            close([a], [b], dtype)
        else:
            assert bits(a) == bits(b), k


def test_one_group(sync):
    state = adam_state(torch.float32, False)
    sync.op("aten::_fused_adamw_")(*state, **ADAM)
    before = sync.stats()
    sync.op("aten::_fused_adamw_")(*state, **ADAM)
    assert sync.stats()["inner_calls"] - before["inner_calls"] == 2  # tensors with dimensions, and one without
    assert sync.stats()["calls"] - before["calls"] == 1


ROWS = """
compose my::decay_(Tensor(a!)[] xs, Tensor(b!)[] ys, Tensor[] by, bool both) -> () : takes float item by
    for    xs, ys, by
    let    x = xs * by
    when   both
    update xs = x, ys = ys + xs
    when   true
    update xs = x
"""


def test_rows_of_a_user(own):
    own.load(ROWS)
    xs, ys, by = [torch.rand(3), torch.rand(4)], [torch.rand(3), torch.rand(4)], [torch.tensor(2.0), torch.tensor(3.0)]
    want = ([xs[0] * 2, xs[1] * 3], [ys[0] + xs[0], ys[1] + xs[1]])
    own.op("my::decay_")(xs, ys, by, True)
    torch.testing.assert_close((xs, ys), want)
    own.op("my::decay_")(xs, [], by, False)
    torch.testing.assert_close(xs, [want[0][0] * 2, want[0][1] * 3])


@pytest.mark.parametrize("row,message", [
    ("(Tensor(a!)[] xs) -> () : takes float\n    for xs\n    update ys = xs", "'ys' is no list of tensors after 'for'"),
    ("(Tensor[] xs) -> () : takes float\n    for xs\n    update xs = xs + 1", "'xs' is not written to"),
    ("(Tensor(a!)[] xs) -> () : takes float\n    for xs\n    update xs = xs + 1, xs = xs", "'xs' is updated twice"),
    ("(Tensor(a!)[] xs) -> () : takes float\n    for xs\n    update xs = oops", "unknown name 'oops'"),
    ("(Tensor(a!)[] xs, int k) -> () : takes float\n    for xs, k\n    update xs = xs * k", "'k' is not a list"),
])
def test_rows_that_are_refused(row, message, own):
    with pytest.raises(Exception, match=message):
        own.load(f"compose my::f{row}")
