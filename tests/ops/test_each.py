"""Folds that give a value for each element, beside PyTorch: softmax, layer norm and their gradients, and rows of users'.

Each is called with whole tensors and views, over every dimension, of shapes that cross the borders of blocks, with NaN and
infinities, on both tiers and with several threads, which must give the same bits.  PyTorch's f64 judges what is rounded.
"""
import itertools
import random

import pytest
import torch

from compare import tally
from contexts import by_threads, worth
from kilnlib import Kiln
from listed import is_listed
from test_fold import bits, elements, outcome, special, torch_op, tuples, views
from test_views import NAMES as SEEN
from whole import WHOLE

FLOATS = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
REFUSED = [torch.int64, torch.bool, torch.complex64]
SHAPES = [(), (1,), (7,), (4099,), (9001,), (3, 4), (64, 100), (100, 3), (700, 5), (9, 1, 70), (40, 5, 3), (5, 6, 7, 8), (0,), (0, 3), (3, 0)]
COMPILED = [(9001,), (64, 100), (700, 5), (40, 5, 3)]  # shapes that are compiled with every dtype too
NORMS = ["_safe_softmax", "_fused_rms_norm", "native_group_norm", "native_batch_norm", "_native_batch_norm_legit", "_native_batch_norm_legit.no_stats",
         "_native_batch_norm_legit_no_training", "_native_batch_norm_legit_functional", "_batch_norm_with_update", "_batch_norm_with_update_functional",
         "_batch_norm_no_update", "native_batch_norm_backward", "batch_norm_backward", "native_layer_norm_backward", "native_group_norm_backward", "_fused_rms_norm_backward"]  # test_norms.py
SOFTMAX, GRADIENTS = ["_softmax", "_log_softmax"], ["_softmax_backward_data", "_log_softmax_backward_data"]


def gives_each(op):
    """Those with a reduction are losses, those over all dimensions but some test_weights.py's, those with views test_views.py's."""
    elsewhere = "int reduction" in op.schema or "over   but" in op.row or op.name.removeprefix("aten::") in SEEN
    return "finish each" in op.row and op.name.startswith("aten::") and not elsewhere


test_is_listed = is_listed(gives_each, {*SOFTMAX, *GRADIENTS, "native_layer_norm", *NORMS}, "a test of tests/ops/test_each.py or test_norms.py, and NORMS")


def judge(got, want, exact):
    """As near to the f64 result as assert_close asks, and NaN and infinities where PyTorch has them."""
    for g, w, e in zip(got, want, exact, strict=True):
        assert (g.dtype, g.shape, g.stride()) == (w.dtype, w.shape, w.stride())
        torch.testing.assert_close(g, e.to(g.dtype), equal_nan=True)


def agree(name, tensors, args, contexts, rounded=True):
    """Every context gives the same bits and PyTorch's answer, or refuses the call as PyTorch does.  What is not rounded is PyTorch's own."""
    tally.cases["folds for each element"] += 1
    want = outcome(torch_op(name), tensors[0], (*tensors[1:], *args), {})
    first, *others = (outcome(k.op(f"aten::{name}"), tensors[0], (*tensors[1:], *args), {}) for k in worth(contexts, f"aten::{name}", (*tensors, *args)))
    for other in others:
        assert type(other) is type(first)
        assert isinstance(first, Exception) or [bits(r) for r in other] == [bits(r) for r in first]
    if isinstance(want, Exception):
        assert type(first) is type(want), (name, args, first, want)
        return
    assert not isinstance(first, Exception), (name, args, first)
    if not rounded:
        return judge(first, want, want)
    wide = [t.double() if isinstance(t, torch.Tensor) else torch.float64 if isinstance(t, torch.dtype) else t for t in (*tensors, *args)]
    return judge(first, want, tuples(torch_op(name)(*wide)))


def layouts(x):
    yield from views(x)
    yield from itertools.islice(views(special(x, x.dim())), 2)


def calls(shape, dtype, rng):
    """Tensors and dimensions, of which a sampled run takes two."""
    for k, x in enumerate(layouts(elements(shape, dtype, len(shape)))):
        dims = range(-max(x.dim(), 1), max(x.dim(), 1))
        for dim in dims if WHOLE else rng.sample(dims, 2):
            yield k, x, dim


def tiers(shape, dtype, k, interp, sync):
    compiled = WHOLE or (k < 2 and shape in COMPILED) or (k == 0 and dtype == torch.float32)
    return (interp, sync) if compiled else (interp,)


@pytest.mark.parametrize("name", SOFTMAX)
def test_softmax(name, interp, sync):
    rng = random.Random(name)
    for shape, dtype in itertools.product(SHAPES, FLOATS):
        for k, x, dim in calls(shape, dtype, rng):
            agree(name, (x,), (dim, False), tiers(shape, dtype, k, interp, sync))


@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients_of_softmax(name, interp, sync):
    rng = random.Random(name)
    for shape, dtype in itertools.product(SHAPES, FLOATS):
        for k, x, dim in calls(shape, dtype, rng):
            y = torch.softmax(torch.nan_to_num(x.float(), 0, 5, -5), dim).to(dtype)
            y = y.log() if name.startswith("_log") else y
            agree(name, (x, y if k % 2 else y.contiguous()), (dim, dtype), tiers(shape, dtype, k, interp, sync))


def weights(shape, dtype):
    yield None, None
    yield elements(shape, dtype, 8), elements(shape, dtype, 9)
    yield elements(shape, dtype, 8), None
    yield None, torch.stack([elements(shape, dtype, 9)] * 2, -1)[..., 0]


def test_layer_norm(interp, sync):
    for shape, dtype in itertools.product(SHAPES[1:], FLOATS):
        for k, x in enumerate(views(elements(shape, dtype, len(shape)))):
            for n in range(1, len(shape) + 1):
                for weight, bias in weights(shape[-n:], dtype) if WHOLE or k == 0 else itertools.islice(weights(shape[-n:], dtype), 1, 2):
                    agree("native_layer_norm", (x,), (list(shape[-n:]), weight, bias, 1e-5), tiers(shape, dtype, k, interp, sync))


def test_layer_norm_of_several_dtypes(interp):
    for dtype, of_weight, of_bias in itertools.product(FLOATS, [None, *FLOATS], [None, *FLOATS]):
        weight, bias = (t and elements((6,), t, 4) for t in (of_weight, of_bias))
        agree("native_layer_norm", (elements((5, 6), dtype, 3),), ([6], weight, bias, 1e-5), (interp,))


def test_layer_norm_of_shapes_that_do_not_fit(interp):
    x, y = torch.ones(4, 6), torch.ones(6)
    for shape, weight, bias in [([], None, None), ([5], None, None), ([4], None, None), ([2, 4, 6], None, None), ([6], torch.ones(5), None),
                                ([6], torch.ones(1), None), ([4, 6], y, None), ([6], y, torch.ones(6, 1)), ([6], torch.ones(()), None)]:
        want, got = (outcome(op, x, (shape, weight, bias, 1e-5), {}) for op in
                     (torch_op("native_layer_norm"), interp.op("aten::native_layer_norm")))
        assert isinstance(want, Exception) and type(got) is type(want), (shape, got, want)


@pytest.mark.parametrize("name", SOFTMAX)
def test_what_softmax_refuses(name, interp):
    for dtype in REFUSED:
        agree(name, (elements((3, 4), dtype, 1),), (1, False), (interp,))
    for dim in (2, -3):
        agree(name, (torch.ones(3, 4),), (dim, False), (interp,))
    agree(name, (torch.ones(3, 4).half(),), (1, True), (interp,))


@pytest.mark.parametrize("name", SOFTMAX)
def test_results_are_given(name, interp, sync):
    """In rows, transposed, with gaps; in the argument itself; and where they overlap it."""
    x = elements((6, 50), torch.float32, 1)
    for k, dim in itertools.product((interp, sync), (0, 1)):
        want = torch_op(name)(x, dim, False)
        for out in (torch.zeros(6, 50), torch.zeros(50, 6).t(), torch.zeros(6, 50, 3)[..., 1]):
            k.op(f"aten::{name}.out")(x, dim, False, out=out)
            torch.testing.assert_close(out, want)
        same = x.clone()
        k.op(f"aten::{name}.out")(same, dim, False, out=same)
        torch.testing.assert_close(same, want)
        memory = torch.zeros(6, 51)
        memory[:, :50] = x
        k.op(f"aten::{name}.out")(memory[:, :50], dim, False, out=memory[:, 1:])
        torch.testing.assert_close(memory[:, 1:], want)
        with pytest.raises(RuntimeError):
            k.op(f"aten::{name}.out")(x, dim, False, out=torch.zeros(6, 50, dtype=torch.float64))


@pytest.mark.parametrize("mode", ["interp", "sync"])
def test_bits_do_not_depend_on_threads(mode, sync):
    seen = {}
    for threads, k in by_threads(mode, sync):
        for shape, dim in [((300001,), 0), ((5, 100001), 1), ((100001, 5), 0), ((60, 40, 301), 1), ((1024, 768), 0), ((1024, 768), 1)]:
            now = bits(k.op("aten::_softmax")(elements(shape, torch.float32, 3), dim, False))
            assert seen.setdefault((shape, dim), now) == now, (shape, dim, threads)
            tally.cases["folds for each element, several threads"] += 1


def rows_of(n, dtype):
    """Many rows of n elements: whole, with gaps, and of an odd number."""
    x = elements((4096 // n + 37, n + 3), dtype, n)
    return x[:, :n].contiguous(), x[:, 2:n + 2], x[:-1, 1:n + 1].contiguous()


@pytest.mark.parametrize("mode, threads", [("interp", 1), ("sync", 1), ("sync", 3)])
def test_short_rows_are_folded_as_columns_are(mode, threads):
    """Many rows are turned first: the kernel is that of columns, and so are the bits, wherever results belong."""
    with Kiln(mode, threads=threads) as k:
        for dtype, n in [*((torch.float32, n) for n in (2, 3, 7, 8, 10, 17, 63)), (torch.float64, 5), (torch.float64, 16), (torch.bfloat16, 9), (torch.bfloat16, 40)]:
            for x in rows_of(n, dtype):
                down = x.t().contiguous()
                want = k.op("aten::_softmax")(down, 0, False).t()
                gaps = torch.zeros(len(x), n + 1, dtype=dtype)
                for out in (torch.zeros_like(want), gaps[:, 1:], torch.zeros_like(down).t()):
                    k.op("aten::_softmax.out")(x, 1, False, out=out)
                    assert bits(out.contiguous()) == bits(want.contiguous()), (dtype, n, x.stride(), out.stride())
                assert not gaps[:, 0].any()
                same = x.clone()
                k.op("aten::_softmax.out")(same, 1, False, out=same)
                assert bits(same) == bits(want.contiguous())
                assert bits(k.op("aten::sum.dim_IntList")(x, [1])) == bits(k.op("aten::sum.dim_IntList")(down, [0]))
                tally.cases["folds of short rows"] += 1
        assert mode == "interp" or k.stats()["compiles"] <= 8  # of three dtypes each two, and softmax where results lie otherwise


ROWS = """
fold my::center(Tensor x, Tensor weight, int[] dim) -> (Tensor, Tensor mean, Tensor) : takes float
     over   dim keep
     state  s = 0, w = 0
     step   s = s + x * weight, w = w + weight
     merge  s = s + rhs.s, w = w + rhs.w
     finish each x - s / w, s / w, each (x - s / w) * weight / n

fold my::share(Tensor x) -> Tensor : takes real
     state  most = lowest
     step   most = max(most, x)
     merge  most = max(most, rhs.most)
     finish each most - x
"""


@pytest.mark.parametrize("mode", ["interp", "sync"])
def test_rows_of_a_user(mode):
    with Kiln(mode) as k:
        k.load(ROWS)
        for x in (elements((5, 6, 7, 8), torch.float64, 1), elements((5, 6, 7, 8), torch.float64, 2).permute(3, 1, 0, 2)):
            weight = elements(x.shape[-1:], torch.float64, 3).abs()
            for dim in ([0], [1, 3], [0, 2], [-1], [1, 2, 3], [0, 1, 2, 3]):
                out, mean, rest = k.op("my::center")(x, weight, dim)
                w = weight.expand(x.shape)
                want = (x * w).sum(dim, keepdim=True) / w.sum(dim, keepdim=True)
                n = x.numel() // want.numel()
                for got, exact in ((mean, want), (out, x - want), (rest, (x - want) * w / n)):
                    assert got.is_contiguous()
                    torch.testing.assert_close(got, exact)
        y = torch.tensor([[3, -7], [12, 5]], dtype=torch.int16)
        assert k.op("my::share")(y).tolist() == [[9, 19], [0, 7]]


def test_dimensions_in_many_groups_are_refused(own):
    own.load(ROWS)
    x = torch.ones(2, 2, 2, 2, 2, 2)
    with pytest.raises(NotImplementedError, match="groups of dimensions"):
        own.op("my::center")(x, torch.ones(2), [0, 2, 4])


@pytest.mark.parametrize("name, finish", [("my::all_by_all", "idiv(s, s)"), ("my::each_by_all", "each idiv(x, s)"), ("my::rests", "each x % s")])
def test_folds_that_divide_integers_are_refused(name, finish, own):
    """A zero could not be refused before results are written."""
    own.load(f"fold {name}(Tensor x) -> Tensor : takes int\n  state s = 0\n  step s = s + x\n  merge s = s + rhs.s\n  finish {finish}")
    with pytest.raises(NotImplementedError, match="divides integers"):
        own.op(name)(torch.zeros(5, dtype=torch.int32))
