"""Operators on lists of tensors, beside PyTorch's _foreach_*: every row, in each form, with lists of one kind and of several.

A list may hold tensors that differ in dtype, shape and layout, are broadcast, empty or without dimensions, or share memory.
Results are PyTorch's, or within what Kiln's operator for one tensor differs from PyTorch's: so the bits are compared with
those of the operator for one tensor.  Tiers and threads give the same bits, and a call that fails has written nothing.
"""
import contextlib
import random

import pytest
import torch

from compare import tally
from kilnlib import Kiln, at_most
from test_fold import bits, torch_op
from whole import WHOLE

SHAPES = [(), (1,), (5,), (3, 4), (17,), (2, 3, 4), (300,), (0,), (64, 65), (1, 1)]


def elements(shape, dtype, seed):
    g = torch.Generator().manual_seed(seed)
    x = torch.rand(shape, generator=g, dtype=torch.float64) * 3 + 0.25
    return (x * 3).to(dtype) if not dtype.is_floating_point else x.to(dtype)


def tensors(kind, dtype, seed, n=12):
    rng = random.Random(kind)
    shapes = [rng.choice(SHAPES) for _ in range(n)]
    xs = [elements(s, dtype, seed * 100 + k) for k, s in enumerate(shapes)]
    if kind == "mixed":  # of several dtypes and layouts
        xs = [x.to(rng.choice([torch.float64, torch.float32, dtype])) for x in xs]
        xs = [x.mT.contiguous().mT if x.dim() == 2 and k % 2 else x for k, x in enumerate(xs)]
        xs = [torch.stack([x, x], -1)[..., 0] if k % 5 == 3 else x for k, x in enumerate(xs)]
    return xs


def rows(interp):
    return [op for op in interp.ops() if op.family == "compose" and "call for" in op.row and op.form != "out" and "_fused_" not in op.name]


def arguments(op, kind, dtype):
    """Values for each argument of the schema, by what they are called and are."""
    schema = torch_op(op.name.removeprefix("aten::"))._schema
    args = []
    for k, a in enumerate(schema.arguments):
        t = str(a.type)
        if a.has_default_value() and a.kwarg_only:
            continue
        if t == "List[Tensor]":
            args.append(tensors(kind, dtype, k))
        elif t == "Tensor":
            args.append(torch.tensor(2, dtype=dtype))
        elif "List[" in t:
            args.append([0.5 + j if dtype.is_floating_point else 1 + j % 3 for j in range(12)])
        elif a.has_default_value():
            args.append(a.default_value)
        else:
            args.append(1.5 if dtype.is_floating_point else 2)
    return args


def copies(args):
    def copy(x):  # with the strides it has
        y = torch.empty_strided(x.shape, x.stride(), dtype=x.dtype)
        return y.copy_(x)
    return [[copy(x) if isinstance(x, torch.Tensor) else x for x in a] if isinstance(a, list) else a for a in args]


def outcome(op, args, named, inplace):
    try:
        got = op(*args, **named)
        return args[0] if inplace else got
    except (RuntimeError, IndexError, TypeError, ValueError) as e:
        return e


def agree(op, args, named, contexts):
    name, inplace = op.name.removeprefix("aten::"), op.form == "inplace"
    tally.cases["lists beside PyTorch"] += 1
    mine = copies(args)
    want = outcome(torch_op(name), copies(args), named, inplace)
    first = None
    for k in contexts:
        mine = copies(args)
        got = outcome(k.op(op.name), mine, named, inplace)
        if isinstance(want, Exception):
            assert type(got) is type(want), (name, args, got, want)
            for a, b in zip(args, mine):  # nothing was written
                if isinstance(a, list) and isinstance(a[0], torch.Tensor):
                    assert all(bits(x) == bits(y) for x, y in zip(a, b)), name
            continue
        assert not isinstance(got, Exception), (name, [getattr(x, "dtype", x) for x in args[0]], got)
        assert len(got) == len(want)
        for g, w in zip(got, want):
            assert (g.dtype, g.shape, g.stride()) == (w.dtype, w.shape, w.stride()), (name, g.stride(), w.stride())
            torch.testing.assert_close(g, w, equal_nan=True)
        first = first or got
        assert all(bits(g) == bits(f) for g, f in zip(got, first)), name


@pytest.mark.parametrize("kind", ["alike", "mixed"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.bfloat16])
def test_like_torch(dtype, kind, interp, sync):
    every = rows(interp)
    assert len(every) > 130
    for op in every if WHOLE else random.Random(f"{dtype}{kind}").sample(every, 25):
        agree(op, arguments(op, kind, dtype), {}, [interp, sync])


def test_alpha(interp, sync):
    for name in ("_foreach_add.List", "_foreach_sub_.List"):
        agree(interp.op(f"aten::{name}"), [tensors("alike", torch.float32, 1), tensors("alike", torch.float32, 2)], {"alpha": 0.5}, [interp, sync])
    agree(interp.op("aten::_foreach_add_.Tensor"), [tensors("alike", torch.float32, 1), torch.tensor(1.0)], {"alpha": 3}, [interp, sync])


def test_one_tensor_as_by_its_own_operator(sync):
    xs, ys = tensors("alike", torch.float32, 1, 40), tensors("alike", torch.float32, 2, 40)
    for got, x, y in zip(sync.op("aten::_foreach_div.List")(xs, ys), xs, ys):
        assert bits(got) == bits(sync.op("aten::div.Tensor")(x, y))


def test_outs(interp):
    xs = [torch.rand(3), torch.rand(4, 5)]
    outs = [torch.zeros(3), torch.zeros(4, 5)]
    interp.op("aten::_foreach_mul.Scalar_out")(xs, 2.0, out=outs)
    torch.testing.assert_close(outs, [x * 2 for x in xs])
    with pytest.raises(RuntimeError):
        interp.op("aten::_foreach_mul.Scalar_out")(xs, 2.0, out=outs[:1])


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("mode", ["interp", "sync", "default"])
def test_many_elements_and_threads(mode, threads, sync):
    """Long and short tensors together, which threads share; in the default mode while kernels are being built."""
    xs = [elements((n,), torch.float32, n) for n in (1, 100_003, 5, 64, 250_000, 17, 70_001)]
    ys = [elements((n.numel(),), torch.float32, n.numel() + 1) for n in xs]
    want = [x + 0.5 * y for x, y in zip(xs, ys)]
    with Kiln(mode, threads=threads) if mode != "sync" else contextlib.nullcontext(sync) as k, at_most(threads):
        for _ in range(30):
            mine = [x.clone() for x in xs]
            k.op("aten::_foreach_add_.List")(mine, ys, alpha=0.5)
            assert all(bits(a) == bits(b) for a, b in zip(mine, want))


def test_a_chain_of_items_keeps_its_order(sync):
    """Each item reads what the one before it wrote, whoever runs them."""
    n, items = 60_000, 8
    for threads in (1, 2):
        base = torch.arange(n * (items + 1), dtype=torch.float64)
        want = base.clone()
        xs, ys = [list(b.split(n)[1:]) for b in (base, want)], [list(b.split(n)[:-1]) for b in (base, want)]
        with at_most(threads):
            for _ in range(2):
                sync.op("aten::_foreach_add_.List")(xs[0], ys[0])
                torch._foreach_add_(xs[1], ys[1])
                assert torch.equal(base, want)


@pytest.mark.parametrize("order", ["rising", "falling", "mixed", "by turns"])
def test_shared_memory_is_found_in_any_order_of_addresses(order):
    """Slices of one array are one launch; if two of them have an element in common, each is a call of its own."""
    n, items = 1_000, 60
    places = list(range(items))
    {"rising": lambda: None, "falling": places.reverse, "mixed": lambda: random.Random(1).shuffle(places),
     "by turns": lambda: places.sort(key=lambda k: (k % 3, k if k % 2 else -k))}[order]()
    base = torch.arange(float(n * items))
    with Kiln("sync", threads=2) as k:
        add = k.op("aten::_foreach_add_.List")
        for more in (0, 1):
            xs = [base[p * n:(p + 1) * n + (more if p == 30 else 0)] for p in places]
            ys = [torch.ones(x.numel()) * (j + 1) for j, x in enumerate(xs)]
            want = base.clone()
            for x, y in zip(xs, ys):
                want[x.storage_offset():x.storage_offset() + x.numel()] += y
            before = k.stats()
            add(xs, ys)
            assert torch.equal(base, want)
            inner, calls = (k.stats()[counter] - before[counter] for counter in ("inner_calls", "calls"))
            assert calls == 1 and inner == (items if more else 1)


def test_tensors_that_share_memory(sync):
    """One after the other, as if each were a call of its own."""
    for threads in (1, 2):
        with at_most(threads):
            for make in (lambda b: ([b, b, b], [b.new_ones(b.shape)] * 3),          # the same tensor again
                         lambda b: ([b[1:], b[:-1]], [b[1:].clone(), b[:-1].clone()]),  # of another item, moved
                         lambda b: ([b[:1000], b[1000:2000]], [b[1000:2000], b[:1000]])):
                base = torch.arange(200_000, dtype=torch.float32)
                want = base.clone()
                torch._foreach_add_(*make(want))
                sync.op("aten::_foreach_add_.List")(*make(base))
                assert torch.equal(base, want)


REFUSED = [
    ("_foreach_add.List", lambda: ([], [])),
    ("_foreach_add_.List", lambda: ([torch.ones(2)], [])),
    ("_foreach_add_.List", lambda: ([torch.ones(2), torch.ones(3)], [torch.ones(2)])),
    ("_foreach_mul_.ScalarList", lambda: ([torch.ones(2), torch.ones(3)], [2.0])),
    ("_foreach_add_.List", lambda: ([torch.ones(2), torch.ones(3)], [torch.ones(2), torch.ones(4)])),
    ("_foreach_add_.List", lambda: ([torch.ones(2), torch.ones(3)], [torch.ones(2), torch.ones(5, 3)])),
    ("_foreach_mul_.Scalar", lambda: ([torch.ones(2), torch.ones(2, dtype=torch.int64)], 2.5)),
    ("_foreach_exp_", lambda: ([torch.ones(2), torch.ones(2, dtype=torch.int64)],)),
    ("_foreach_add_.Tensor", lambda: ([torch.ones(2), torch.ones(3)], torch.ones(1))),
    ("_foreach_neg_", lambda: ([torch.ones(2), torch.ones(2, dtype=torch.bool)],)),
    ("_foreach_add_.Scalar", lambda: ([torch.ones(4), torch.ones(1).expand(4)], 1.0)),
]


@pytest.mark.parametrize("name,make", REFUSED, ids=[f"{name}-{k}" for k, (name, _) in enumerate(REFUSED)])
def test_refused_before_anything_is_written(name, make, interp, sync):
    with pytest.raises(Exception) as want:
        torch_op(name)(*make())
    for k in (interp, sync):
        args = make()
        before = [x.clone() for x in args[0]]
        with pytest.raises(type(want.value)) as got:
            k.op(f"aten::{name}")(*args)
        assert f"aten::{name}: " in str(got.value)
        assert all(torch.equal(a, b) for a, b in zip(args[0], before))


def test_what_a_list_costs(sync):
    """Tensors of one class are one group: one launch and one class, whatever their number."""
    xs = [torch.rand(k + 1) for k in range(50)]
    sync.op("aten::_foreach_sqrt_")(xs)
    before = sync.stats()
    sync.op("aten::_foreach_sqrt_")(xs)
    after = sync.stats()
    assert after["calls"] - before["calls"] == after["inner_calls"] - before["inner_calls"] == 1
    assert after["table_hits"] - before["table_hits"] == 1


def test_rows_of_a_user(own):
    own.load("""
map my::twice(Tensor x, float by) -> Tensor : takes float = x * (by + 1)
compose my::each_twice(Tensor[] xs, float[] by) -> Tensor[]
    call for xs, by : my::twice(xs, by)
""")
    xs = [torch.rand(3), torch.rand(4)]
    torch.testing.assert_close(own.op("my::each_twice")(xs, [1.0, 2.0]), [xs[0] * 2, xs[1] * 3])


SIZED = """
map my::by_count(Tensor x) -> Tensor : takes float = x * c
    host c: f64 = numel(x)
compose my::each_by_count(Tensor[] xs) -> Tensor[]
    call for xs : my::by_count(xs)
"""


def test_numbers_that_come_from_sizes_are_each_items_own(own):
    own.load(SIZED)
    xs = [torch.rand(n) for n in (2, 3, 3, 5)]
    for _ in range(2):
        for got, x in zip(own.op("my::each_by_count").call_list(xs), xs, strict=True):
            assert torch.equal(got, x * x.numel())
