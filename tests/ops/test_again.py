"""Norms and losses called again: what a thread remembers of one call must not answer another.

Rows that ask sizes, compute numbers of the call, check elements, or leave out a result are remembered for one layout; so are
compositions, and rows of which another operator gives some results.  Calls that differ in one thing each take turns, several
times over, and every answer is PyTorch's; calls like the last are slot hits, and so are all that they make.
"""
import itertools
import random

import torch

from compare import tally
from kilnlib import Kiln, at_most, threads_in_use
from whole import WHOLE
from test_fold import bits, outcome, torch_op


def turns():
    """Operator -> calls that differ in sizes, numbers, lists, or in what is there."""
    torch.manual_seed(5)
    x, y, w, b = torch.randn(6, 8), torch.randn(4, 8), torch.rand(8), torch.rand(8)
    z = torch.randn(40, 20)  # many short rows
    target, other = torch.randint(0, 8, (6,)), torch.randint(0, 8, (6,))
    wrong = target.clone()
    wrong[3] = 8
    _, mean, rstd = torch.native_layer_norm(x, [8], w, b, 1e-5)
    back = (torch.randn(6, 8), x, [8], mean, rstd, w, b)
    batch = (torch.randn(6, 8), x, w, b, w, w, b)
    image, (_, of_group, off) = x.view(2, 4, 6), torch.native_group_norm(x.view(2, 4, 6), None, None, 2, 4, 6, 2, 1e-5)
    groups = (y.view(-1)[:24].repeat(2).view(2, 4, 6), image, of_group, off)
    return {
        "native_layer_norm": [(x, [8], w, b, 1e-5), (y, [8], w, b, 1e-5), (x, [8], w, b, 0.5), (x, [8], None, b, 1e-5), (x, [6, 8], None, None, 1e-5),
                              (x, [7], w, b, 1e-5), (x.t().contiguous().t(), [8], w, b, 1e-5)],
        "_fused_rms_norm": [(x, [8], w, 1e-5), (y, [8], w, 1e-5), (x, [8], w, 0.25), (x, [8], w, None)],
        "nll_loss_forward": [(x, target, None, 1, -100), (x, other, None, 1, -100), (x, target, None, 1, int(target[0])), (x, wrong, None, 1, -100),
                             (x, target, w, 1, -100), (x, target, None, 0, -100), (x, target[:5], None, 1, -100)],
        "native_layer_norm_backward": [(*back, [True, True, True]), (*back, [True, False, False]), (*back, [False, True, True]), (*back, [True, True, False])],
        "native_batch_norm_backward": [(*batch, True, 1e-5, [True] * 3), (*batch, False, 1e-5, [True] * 3), (*batch, False, 0.5, [True] * 3), (*batch, True, 1e-5, [True, False, True])],
        "native_group_norm_backward": [(*groups, w[:4], 2, 4, 6, 2, [True] * 3), (*groups, b[:4], 2, 4, 6, 2, [True] * 3), (*groups, w[:4], 2, 4, 6, 2, [True, False, True]),
                                       (*groups, w[:4], 2, 4, 6, 2, [False, True, False]), (*groups, None, 2, 4, 6, 2, [True, False, False]), (*groups, w[:4], 2, 4, 6, 4, [True] * 3),
                                       (*groups, w, 1, 8, 6, 4, [True] * 3)],
        "huber_loss_backward": [(x, x, x * 2, 1, 0.5), (x, x, x * 2, 1, 0.1), (x, x, x * 2, 0, 0.5), (y, y, y * 2, 1, 0.5)],
        "_softmax": [(z, 1, False), (z[:16], 1, False), (z * 2, 1, False), (z, 0, False)],
        "softmax.int": [(x, 0), (x, 1), (x, 1, torch.float64), (y, 1), (x.t(), 1), (x, 2)],
        "layer_norm": [(x, [8], w, b, 1e-5), (x, [8], w, b, 0.5), (x, [8], None, b), (y, [8], w, b, 1e-5), (x, [6, 8]), (x, [7], w)],
        "cross_entropy_loss": [(x, target), (x, other), (x, target, w), (x, target, None, 2), (x, target, None, 0), (x, target, None, 1, int(target[0])), (x, wrong),
                               (x, target, None, 1, -100, 0.5), (x, target, None, 1, -100, 0.25), (x, torch.rand(6, 8)), (x.view(2, 8, 3), torch.randint(0, 8, (2, 3)))],
        "margin_ranking_loss": [(x, x * 2, w, 0.5, 1), (x, x * 2, w, 0.25, 1), (x, x * 2, w, 0.5, 2), (x, x * 2, w, 0.5, 0), (x, y, w, 0.5, 0)],
        "group_norm": [(image, 2, w[:4], b[:4]), (image, 4, w[:4], b[:4]), (image, 2, None, None, 0.5), (image, 3), (x.view(1, 8, 6), 2, w, b)],
        "mse_loss": [(x, x * 2, 1), (x, x * 2, 2), (x, x * 2, 0), (y, y * 2, 1), (x, y, 1)],
    }


def agree(name, got, want):
    assert isinstance(got, Exception) == isinstance(want, Exception), (name, got, want)
    for a, b in zip(got, want, strict=True) if not isinstance(got, Exception) else ():
        assert (a is None) == (b is None), name
        if b is not None:
            torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)


def test_calls_that_differ_in_one_thing():
    with Kiln("sync") as k:
        for name, calls in turns().items():
            op, first = k.op(f"aten::{name}"), {}
            for which in [*range(len(calls)), *range(len(calls)), *(at for at in range(len(calls)) for _ in range(4)), *range(len(calls))]:
                x, *rest = calls[which]
                got = outcome(op, x, rest, {})
                tally.cases["calls again"] += 1
                if which not in first:
                    agree(name, got, outcome(torch_op(name), x, rest, {}))
                    first[which] = got
                assert isinstance(got, Exception) or [r if r is None else bits(r) for r in got] == [
                    r if r is None else bits(r) for r in first[which]], (name, which)


def test_calls_like_the_last_are_slot_hits():
    with Kiln("sync") as k:
        for name, (call, *_) in turns().items():
            op = k.op(f"aten::{name}")
            for _ in range(3):
                op(*call)
            before = k.stats()
            for _ in range(10):
                op(*call)
            hits, calls = (k.stats()[counter] - before[counter] for counter in ("slot_hits", "calls"))
            assert hits == calls == 10, name


def test_a_call_is_counted_once():
    """Whatever calls it makes: on the general path, by a memo, and when an inner call fails; and interpreted if one of them is."""
    for mode in ("sync", "interp"):
        with Kiln(mode) as k:
            for name, calls in turns().items():
                op = k.op(f"aten::{name}")
                before, answered, interpreted = k.stats(), 0, set()
                for x, *rest in (call for call in calls for _ in range(2)):
                    was = k.stats()["interp_calls"]
                    answered += not isinstance(outcome(op, x, rest, {}), Exception)
                    interpreted.add(k.stats()["interp_calls"] - was)
                counted = {counter: k.stats()[counter] - before[counter] for counter in ("calls", "slot_hits", "table_hits", "interp_calls")}
                assert counted["calls"] == answered, (name, counted)
                assert counted["slot_hits"] <= counted["calls"] and interpreted <= {0, 1}, (name, counted)
                assert mode == "interp" or not counted["interp_calls"], name


def wide(ntensors, nnumbers):
    """A map of many arguments, and a fold of as many."""
    tensors, numbers = [f"x{i}" for i in range(ntensors)], [f"k{i}" for i in range(nnumbers)]
    given = ", ".join([f"Tensor {t}" for t in tensors] + [f"Scalar {k}" for k in numbers])
    body = " + ".join(tensors[nnumbers:] + [f"{t} * {k}" for t, k in zip(tensors, numbers)])
    return (f"map my::wide({given}) -> Tensor : takes float = {body}\n"
            f"fold my::widest({given}) -> Tensor : takes float = acc + ({body}) from 0\n    over last(1)\n")


def test_wide_calls_are_remembered(own):
    """Fused rows have many arguments: 24 values, of which 19 are tensors, beside a result.  Flat, of one layout, and where a row is broadcast."""
    ntensors, nnumbers = 19, 5
    own.load(wide(ntensors, nnumbers))
    full, row = [torch.full((4, 6), float(i)) for i in range(ntensors)], torch.arange(6.0)
    layouts = {"flat": full, "turned": [t.t().contiguous().t() for t in full], "broadcast": [*full[:-1], row]}
    for title, tensors in layouts.items():
        want = sum(t * (k + 1 if k < nnumbers else 1) for k, t in enumerate(tensors))
        for name, total in ("wide", want), ("widest", want.sum(1)):
            op, numbers = own.op(f"my::{name}"), range(1, nnumbers + 1)
            for _ in range(12):  # a flat memo in a slot gives way to another one after eight calls that it does not hold
                assert torch.equal(op(*tensors, *numbers), total), (title, name)
            before = own.stats()
            for _ in range(10):
                assert torch.equal(op(*tensors, *numbers), total), (title, name)
            assert own.stats()["slot_hits"] - before["slot_hits"] == 10, (title, name)


def test_lists_of_other_kinds_are_refused():
    """A list of integers that may be any is still a list of integers: the bits of a float, or of the address of a text, are no dimension."""
    x = torch.arange(12.0).reshape(3, 4)
    with Kiln("interp") as k:
        for name, *before in (("sum.dim_IntList",), ("mean.dim",), ("amax",), ("linalg_vector_norm", 2)):
            op = k.op(f"aten::{name}")
            for dims in ([0], [1], [0, 1]):
                assert not isinstance(outcome(op, x, (*before, dims), {}), Exception)
            for dims in ([5e-324], [0.0], [0, None], ["a"], [x], [1j], [0, 2**63]):
                assert isinstance(outcome(op, x, (*before, dims), {}), TypeError), (name, dims)


def gradients_of_norms(k):
    """Calls of rows with a `rest`, of every dtype of the argument and the statistics, with a weight and without."""
    group, layer = k.op("aten::native_group_norm_backward"), k.op("aten::native_layer_norm_backward")
    for dtype, of in itertools.product((torch.float32, torch.float64, torch.bfloat16, torch.float16), (torch.float32, None)):
        of = of if of and dtype != torch.float64 else dtype
        for weight in True, False:
            mask = [True] * 3 if weight else [True, False, False]
            x, mean, ones = torch.randn(2, 4, 3).to(dtype), torch.zeros(2, 2, dtype=of), torch.ones(4, dtype=of) if weight else None
            yield group, {"grad_out": x, "input": x * 2, "mean": mean, "rstd": mean + 1, "weight": ones, "N": 2, "C": 4, "HxW": 3, "group": 2, "output_mask": mask}
            x, mean, ones = torch.randn(6, 8).to(dtype), torch.zeros(6, 1, dtype=of), torch.ones(8, dtype=of) if weight else None
            yield layer, {"grad_out": x, "input": x * 2, "normalized_shape": [8], "mean": mean, "rstd": mean + 1, "weight": ones, "bias": ones, "output_mask": mask}


def test_calls_whose_memos_are_taken_by_calls_that_they_make():
    """Of other operators come enough calls to fill all places for recipes, so that a call within a call takes the memo of the call around it.
    Which ones do depends on where operators lie in memory, and so on the process."""
    some, dtypes = random.Random(1), [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int32, torch.int64, torch.int16, torch.int8, torch.uint8]
    ones = [torch.ones(2, dtype=t) for t in dtypes]
    with Kiln("interp") as k:
        others = [k.op(f"aten::{n}") for n in ("add.Tensor", "mul.Tensor", "sub.Tensor", "maximum", "div.Tensor", "eq.Tensor", "ne.Tensor", "lt.Tensor", "le.Tensor")]
        calls, first = list(gradients_of_norms(k)), {}
        for _ in range(1000):
            which = some.randrange(len(calls))
            op, named = calls[which]
            given = some.choice((0, len(named)))
            for _ in range(some.choice((1, 3, 4))):
                for _ in range(some.choice((0, 0, 5, 40))):
                    some.choice(others)(some.choice(ones), some.choice(ones))
                got = op(*list(named.values())[:given], **dict(list(named.items())[given:]))
                assert all(a is b or torch.equal(a, b) for a, b in zip(got, first.setdefault(which, got), strict=True)), op.name


def test_compositions_that_write_are_not_remembered():
    """One that fails is made again, which would write twice."""
    with Kiln("sync") as k:
        ours, theirs = ([torch.zeros(4), torch.ones(4)] for _ in range(2))
        for seed in range(6):
            x = torch.randn(2, 4, 6, generator=torch.Generator().manual_seed(seed))
            for op, statistics in ((k.op("aten::instance_norm"), ours), (torch_op("instance_norm"), theirs)):
                op(x, None, None, *statistics, True, 0.25, 1e-5, False)
            torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


def batch_norm(op, x, mean, var):
    return outcome(op, x, (torch.ones(8), torch.zeros(8), mean, var, True, 0.25, 1e-5), {})


def test_statistics_are_written_by_every_call():
    """Beside fresh ones each time, which is remembered, come calls whose statistics share memory: these are refused and write nothing."""
    with Kiln("sync") as k:
        op, hits = k.op("aten::native_batch_norm"), 0
        ours, theirs = ([torch.zeros(8), torch.ones(8)] for _ in range(2))
        for seed in range(8):
            x = torch.randn(6, 8, generator=torch.Generator().manual_seed(seed))
            both = torch.rand(12)
            before, was = k.stats()["slot_hits"], both.clone()
            agree("native_batch_norm", batch_norm(op, x, *ours), batch_norm(torch_op("native_batch_norm"), x, *theirs))
            hits += k.stats()["slot_hits"] - before
            torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)
            for mean, var in ((both[:8], both[4:]), (both[:8], both[:8]), (x[0], ours[1])):
                kept = x.clone(), ours[1].clone()
                assert isinstance(batch_norm(op, x, mean, var), Exception)
                assert torch.equal(both, was) and torch.equal(x, kept[0]) and torch.equal(ours[1], kept[1])
        assert hits >= 6


def test_what_is_written_fits():
    """Statistics of another number of elements would be written past their end, or several values to one."""
    mean, var = torch.rand(2, 3), torch.rand(2, 3)
    with Kiln("interp") as k:
        op = k.op("kiln::instance_statistics")
        for sizes in ((3,), (1, 3)):
            assert not isinstance(outcome(op, mean, (var, torch.zeros(sizes), torch.ones(sizes), 0.1), {}), Exception)
        for sizes in ((), (1,), (0, 3), (2, 3), (3, 1), (0,), (2, 1)):
            written = torch.zeros(sizes)
            assert isinstance(outcome(op, mean, (var, written, torch.ones(3), 0.1), {}), Exception), sizes
            assert not written.any()


def test_calls_have_threads(sync):
    """What these tests say of several threads means nothing if PyTorch, on whose threads Kiln's loops run, had one."""
    assert threads_in_use(sync) == ("PyTorch's", 8 if WHOLE else 3)
    with at_most(2):
        assert threads_in_use(sync) == ("PyTorch's", 2)
    assert torch.get_num_threads() == 1


def test_folds_that_threads_share_now_and_then():
    """A fold is shared among threads until its time is known, and then perhaps no longer: one kernel does not stand for the other."""
    with at_most(2), Kiln("sync") as k:
        for n, dtype in itertools.product((30000, 50000, 70000, 150000), (torch.bfloat16, torch.float32, torch.uint8)):
            x, out = torch.ones(n, dtype=dtype), torch.empty((), dtype=torch.float32 if dtype.is_floating_point else torch.int64)
            for name, named in [("sum", {}), ("sum.IntList_out", {"dtype": out.dtype, "out": out}), ("amax", {})]:
                args = (x, None) if name == "sum.IntList_out" else (x, []) if name == "amax" else (x,)
                want = torch_op(name)(*args, **named)
                for _ in range(150):
                    tally.cases["folds that threads share now and then"] += 1
                    assert k.op(name)(*args, **named) == want
