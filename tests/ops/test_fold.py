"""Folds beside PyTorch, on every tier and with any number of threads.

Every served fold row is called with whole tensors and views (transposed, permuted, with gaps, expanded) of shapes that
cross the borders of its tree, over each dimension, several and all, of every dtype.  Interpreted and compiled results must
have the same bits; PyTorch's must be as near as `torch.testing.assert_close` asks, where PyTorch itself is: what is rounded is
judged by PyTorch's f64, as PyTorch adds in another order.  A row without calls in CALLS fails the first test.
"""
import itertools
import math
import random
import re
import warnings

import numpy as np
import pytest
import torch

from compare import tally
from contexts import by_threads, worth
from kilnlib import Kiln
from listed import is_listed
from whole import WHOLE

inf = math.inf
COMPLEX = [torch.complex64, torch.complex128]
FLOATS = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
OTHERS = [torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool, torch.uint16, torch.uint32, torch.uint64]
DTYPES = FLOATS + OTHERS + COMPLEX
SHAPES = [(), (1,), (7,), (65,), (4099,), (3, 4), (64, 100), (100, 3), (9, 1, 70), (2, 3, 4), (5, 6, 7, 8), (0,), (0, 3), (3, 0)]
TWICE = [(4099,), (64, 100), (9, 1, 70)]  # compiled with a second dtype too
WIDE = {t: torch.complex128 if t.is_complex else torch.float64 for t in FLOATS + COMPLEX}


def elements(shape, dtype, seed):
    rng = np.random.default_rng(seed)
    x = torch.from_numpy(np.asarray(rng.standard_normal(shape) * 3))
    if dtype.is_complex:
        return torch.complex(x, x.flip(0) if x.dim() else x + 1).to(dtype)
    if dtype == torch.bool:
        return x > 0
    if dtype.is_floating_point:
        return x.to(dtype)
    return (x.abs() if "uint" in str(dtype) else x).mul(5).to(dtype)


def special(x, seed):
    """x with equal elements, and, if they are floats, NaN, infinities and both zeros here and there."""
    if x.dtype in (torch.uint16, torch.uint32, torch.uint64):  # which PyTorch cannot fill
        return special(x.to(torch.int64), seed).to(x.dtype)
    rng = np.random.default_rng(seed)
    x = x.clone()
    flat, some = x.view(-1), rng.random(x.numel())
    values = [float("nan"), inf, -inf, 0.0, -0.0, 2.0, 2.0] if x.dtype.is_floating_point else [1, 1, 0]
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


# -- calls: of a tensor of that rank, the arguments after it and the named ones ------------------------------

def dims(rank):
    yield from ([d] for d in range(-rank, rank))
    yield from ([list(d) for d in itertools.combinations(range(rank), 2)] if rank >= 2 else [])
    yield list(range(rank))


def nothing(rank):
    return [((), {})]


def one_dim(rank):
    return [((d,), {}) for d in range(-max(rank, 1), max(rank, 1))] + [((0, True), {})]


def maybe_dim(rank):
    return one_dim(rank) + [((), {}), ((None, True), {})]


def several(rank):
    return [((d,), {}) for d in dims(rank)] + [((d, True), {}) for d in dims(rank)]


def maybe_several(rank):
    return several(rank) + [((None,), {}), (([],), {}), ((None, True), {})]


def named_dim(rank):
    return [((), {"dim": d, "keepdim": k}) for d in [None, *range(-max(rank, 1), max(rank, 1))] for k in (False, True)]


def with_dtype(some, dtypes):
    """The calls, and one of them with each dtype."""
    def calls(rank):
        made = some(rank)
        return made + [(made[-1][0], {"dtype": t}) for t in dtypes]
    return calls


def orders(head, tail):
    """Norms of every class of orders; the order stands first."""
    def calls(rank):
        every = tail(rank)
        return [((p, *every[k % len(every)][0]), every[k % len(every)][1]) for k, p in enumerate(head * (2 if WHOLE else 1))]
    return calls


ORDERS = [2, 0, 1, inf, -inf, 3, 2.5, -1, 0.5, True]
MAYBE_ORDERS = [None, *ORDERS]
ANY_DTYPE = [torch.float64, torch.float16, torch.bool, torch.int32, torch.uint8, torch.complex64]
WIDER = [torch.float64, torch.float32]


def wider(some):
    return lambda rank: [(args, {**named, "dtype": WIDER[k % 2]}) for k, (args, named) in enumerate(some(rank))]


def corrections(rank):
    return [((d,), {"correction": c, "keepdim": k}) for d, c, k in zip(
        itertools.cycle([*dims(rank), None, []]), [None, 0, 1, 2.5, 7, -1, 2, 0.5, 3, 1], itertools.cycle([False, True, False]))]


def unbiased(rank):
    return [((True,), {}), ((False,), {})]


def unbiased_dims(rank):
    return [((d, k % 2 == 0, k % 3 == 0), {}) for k, d in enumerate([*dims(rank), None, []])]


CALLS = {
    "amax": several, "amin": several, "max": nothing, "min": nothing, "max.dim": one_dim, "min.dim": one_dim,
    "argmax": maybe_dim, "argmin": maybe_dim, "aminmax": named_dim,
    "all": nothing, "all.dim": one_dim, "all.dims": maybe_several, "any": nothing, "any.dim": one_dim, "any.dims": maybe_several,
    "count_nonzero": lambda rank: [((), {}), *((a[:1], {}) for a, _ in one_dim(rank))],
    "count_nonzero.dim_IntList": lambda rank: [((d,), {}) for d in [*dims(rank), []]],
    "sum": with_dtype(nothing, ANY_DTYPE), "sum.dim_IntList": with_dtype(maybe_several, ANY_DTYPE),
    "prod": with_dtype(nothing, ANY_DTYPE), "prod.dim_int": with_dtype(one_dim, ANY_DTYPE),
    "mean": with_dtype(nothing, ANY_DTYPE), "mean.dim": with_dtype(maybe_several, ANY_DTYPE),
    "nansum": with_dtype(maybe_several, ANY_DTYPE[:4]), "nanmean": with_dtype(maybe_several, ANY_DTYPE[:2]),
    "logsumexp": several, "special_logsumexp": several,
    "linalg_vector_norm": with_dtype(orders(ORDERS, maybe_several), [torch.float64, torch.complex128, torch.int32]),
    "linalg__powsum": with_dtype(orders(ORDERS, maybe_several), [torch.float64, torch.complex128]),
    "dist": lambda rank: [((torch.tensor(0.5), p), {}) for p in ORDERS], "_is_all_true": nothing, "_is_any_true": nothing, "trace": nothing,
    "norm.Scalar": orders(ORDERS, nothing), "norm.ScalarOpt_dim": orders(MAYBE_ORDERS, several),
    "norm.ScalarOpt_dtype": wider(orders(MAYBE_ORDERS, nothing)),
    "norm.ScalarOpt_dim_dtype": wider(orders(MAYBE_ORDERS, lambda rank: [((d, k), {}) for d in dims(rank) for k in (False, True)])),
}
for each in ("var", "std", "var_mean", "std_mean"):
    CALLS |= {each: unbiased, f"{each}.dim": unbiased_dims, f"{each}.correction": corrections}
NAMES = list(CALLS)
EXACT = ("amax", "amin", "argmax", "argmin", "aminmax", "max", "max.dim", "min", "min.dim")  # choose elements: no rounding
VARIANCES = ("var", "std", "var_mean", "std_mean")


def base(name):
    return name.partition(".")[0]


def torch_op(name):
    base, _, overload = name.partition(".")
    return getattr(getattr(torch.ops.aten, base), overload or "default")


def tuples(r):
    return r if isinstance(r, tuple) else (r,)


def widened(name, x, named):
    """The call's elements and named arguments in f64, so that PyTorch's rounding counts for nothing."""
    named, given = dict(named), named.get("dtype")
    if given in WIDE:
        x, named["dtype"] = x.to(given), WIDE[given]
    if name == "dist":  # integers meet a float
        return x.to(WIDE.get(x.dtype, torch.float64)), named
    return x.to(WIDE.get(x.dtype, x.dtype)), named


def room(name, wide, args, named):
    """What the order of additions may change in a sum or mean: a share of the sum of sizes, for each result."""
    if base(name) not in ("sum", "mean", "nansum", "nanmean") or wide.dtype not in WIDE.values():
        return 0
    return torch_op(name)(wide.abs().nan_to_num(0, 0, 0), *args, **{k: v for k, v in named.items() if k != "dtype"})


def exact_results(name, wide, args, named):
    exact = tuples(torch_op(name)(wide, *args, **named))
    if name.endswith("_mean.correction"):  # its mean of infinities, infinite or NaN, depends on where they stand: that of torch.mean does not
        exact = exact[0], torch.mean(wide, args[0] or list(range(wide.dim())), named.get("keepdim", False))
    return exact


ROUNDING = {torch.float32: 1e-7, torch.complex64: 1e-7, torch.float64: 1e-15, torch.complex128: 1e-15}


def near(name, g, e, share):
    """Element by element: e is the result in f64."""
    rtol, atol = {torch.float16: (1e-3, 1e-5), torch.bfloat16: (1.6e-2, 1e-5)}.get(g.dtype, (1.3e-6, 1e-5))
    if base(name) == "prod":
        rtol = max(rtol, 1e-4)  # of thousands of factors
    if "norm" in name:
        rtol = max(rtol, 5e-6)  # a root of a power
    same = g == e.to(g.dtype)  # also where it overflows
    more = ROUNDING.get(g.dtype, 0) * share
    g, e = g.to(torch.complex128), e.to(g.dtype if g.dtype.is_complex else torch.float64).to(torch.complex128)
    nan = torch.isnan(g) & torch.isnan(e)
    if base(name) in VARIANCES:  # of infinities, or divided by 0: which of NaN and inf it is depends on the last place
        nan = ~torch.isfinite(g) & ~torch.isfinite(e)
    return same | nan | ((g - e).abs() <= rtol * e.abs() + atol + more)


def judge(name, x, args, named, got):
    want = outcome(torch_op(name), x, args, named)
    if refused(want):
        pytest.fail(f"{name} {x.dtype} {tuple(x.shape)} {args} {named}: Kiln gives a result where PyTorch says {want}")
    wide, in_wide = widened(name, x, named)
    exact = exact_results(name, wide, args, in_wide)
    for g, w, e in zip(got, want, exact, strict=True):
        assert (g.dtype, g.shape) == (w.dtype, w.shape)
        assert g.numel() == 0 or g.stride() == w.stride()
        if name in EXACT or g.dtype not in WIDE:
            torch.testing.assert_close(g, w, rtol=0, atol=0, equal_nan=True)
        else:
            ok = near(name, g, e, room(name, wide, args, in_wide))
            if base(name) == "prod":  # what overflowed met a 0, which f64 has room for
                ok = ok | (torch.isnan(g) & torch.isnan(w))
            assert bool(ok.all()), f"{name} {x.dtype} {tuple(x.shape)} {x.stride()} {args} {named}: {g[~ok][:3]}, f64 {e[~ok][:3]}, PyTorch {w[~ok][:3]}"


def outcome(op, x, args, named):
    try:
        return tuples(op(x, *args, **named))
    except (RuntimeError, IndexError, TypeError, ValueError) as e:
        return e


def refused(result):
    return isinstance(result, Exception)


def is_fold(op):
    """Those that give a value for each element are test_each.py's, losses test_losses.py's, those with views test_views.py's; those that other rows call
    (kiln::) are tested with them."""
    return op.served and op.family == "fold" and "finish each" not in op.row and "int reduction" not in op.schema and op.name.startswith(
        "aten::") and not re.search(r"^\s+view\b", op.row, re.M)


ELSEWHERE = ("cosine_similarity", "equal")  # test_views.py; test_equal.py, as it gives no tensor
test_is_listed = is_listed(is_fold, {*NAMES, *ELSEWHERE}, "CALLS of tests/ops/test_fold.py, with what makes its arguments for a rank, and to EXACT there if "
                           "its results are elements or places")


def bits(x):
    """Any NaN is like any other."""
    x = torch.view_as_real(x).contiguous() if x.dtype.is_complex else x
    if x.dtype.is_floating_point:
        x = torch.where(torch.isnan(x), torch.full((), float("nan"), dtype=x.dtype), x)
    return x.view(torch.int16).numpy().tobytes() if x.dtype == torch.bfloat16 else x.numpy().tobytes()


def both_sides(name, args, contexts):
    """(Kiln's results, PyTorch's), the same bits in every context; None, if all refuse the call as PyTorch does."""
    want = outcome(torch_op(name), args[0], args[1:], {})
    first, *others = (outcome(k.op(f"aten::{name}"), args[0], args[1:], {}) for k in worth(contexts, f"aten::{name}", args))
    for other in others:
        assert type(other) is type(first)
        assert isinstance(first, Exception) or [bits(r) for r in other] == [bits(r) for r in first]
    if isinstance(first, Exception) or isinstance(want, Exception):
        assert type(first) is type(want), (name, args, first, want)
        return None
    return first, want


def agree(name, x, args, named, contexts):
    """Every context gives the same, and what PyTorch gives; or refuses the call as PyTorch does."""
    first, *others = (outcome(k.op(f"aten::{name}"), x, args, named) for k in worth(contexts, f"aten::{name}", (x, *args), named))
    tally.cases["folds beside PyTorch"] += 1
    for other in others:
        if isinstance(first, Exception):
            assert type(other) is type(first)
        else:
            assert [bits(r) for r in other] == [bits(r) for r in first]
    if not isinstance(first, Exception):
        return judge(name, x, args, named, first)
    theirs = outcome(torch_op(name), x, args, named)
    assert type(theirs) is type(first) or excused(name, x, named, first, theirs), (name, x.dtype, tuple(x.shape), args, named, first, theirs)


def excused(name, x, named, mine, theirs):
    """A refusal that is not PyTorch's: of a dtype, where PyTorch has nothing to fold and needs no kernel, or finds another fault first."""
    if name == "linalg__powsum" and x.dtype.is_complex and not named["dtype"].is_complex:
        return type(mine) is NotImplementedError  # PyTorch converts what it has added up, not elements
    if isinstance(theirs, Exception):
        return x.numel() < 2 and x.dtype not in FLOATS
    return type(mine) is NotImplementedError and (theirs[0].numel() in (0, x.numel()) or x.numel() == 0)


def subjects(name, shape, dtype):
    """Tensors of a shape and dtype in every layout, without and with special values."""
    x = elements(shape, dtype, len(shape))
    if base(name) == "prod" and dtype not in WIDE:
        x = elements(shape, torch.float64, len(shape)).sign()
        x = (x.abs() if "uint" in str(dtype) else x).to(dtype)
    elif base(name) == "prod":  # thousands of factors, and no overflow in f64
        size = (x.abs() + 1e-3).log2().sub(0.7).div(8).exp2()
        x = (torch.polar(size, size) if dtype.is_complex else size.copysign(x)).to(dtype) if dtype.itemsize > 2 else size.to(dtype)
    yield from views(x)
    if not dtype.is_complex:
        yield from views(special(x, len(shape)))


@pytest.mark.parametrize("name", NAMES)
def test_like_torch(name, interp, sync):
    """Interpreted with every dtype; of shapes that differ most compiled too: all dtypes, or f32 and one that changes with the row.

    A sampled run makes a few calls of a few tensors, more of f32: which dimensions are folded decides the kernel.
    """
    rng = random.Random(name)
    also = rng.choice(DTYPES[1:])
    for shape, dtype in itertools.product(SHAPES, DTYPES):
        if not WHOLE and dtype != torch.float32 and rng.random() < 0.6:
            continue
        compiled = shape in TWICE and (WHOLE or dtype in (torch.float32, also))
        every = list(subjects(name, shape, dtype))
        for x in every if WHOLE else rng.sample(every, min(len(every), 3)):
            some = CALLS[name](x.dim())
            few = 3 if compiled else 2
            for args, named in some if WHOLE or len(some) <= few else rng.sample(some, few):
                agree(name, x, args, named, (interp, sync) if compiled else (interp,))


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


FEW = ["sum.dim_IntList", "amax", "var_mean.correction", "max.dim", "any.dim", "linalg_vector_norm", "prod.dim_int"]  # compiled in a sampled run


def over(name, rank, dim):
    """A call that folds this dimension, or the row's first."""
    some = CALLS[name](rank)
    return next(((args, named) for args, named in some if dim in args or [dim] in args or named.get("dim") == dim), some[0])


@pytest.mark.parametrize("mode", ["interp", "sync"])
def test_bits_do_not_depend_on_threads(mode, sync):
    """A sampled run compiles a few rows, of f32."""
    seen, some = {}, mode == "sync" and not WHOLE
    tensors = [(x, dim) for x, dim in large() if WHOLE or x.dtype == torch.float32]
    for threads, k in by_threads(mode, sync):
        for at, (name, (x, dim)) in enumerate(itertools.product(FEW if some else NAMES, tensors)):
            if not WHOLE and name not in FEW and at % 4:
                continue
            args, named = over(name, x.dim(), dim)
            x = x > 0 if name.startswith("_is_") else x
            x = x.flatten().expand(x.numel(), x.numel()) if name == "trace" else x  # a matrix, x on its diagonal
            now = [bits(r) for r in tuples(k.op(f"aten::{name}")(x, *args, **named))]
            key = tuple(x.shape), dim, x.dtype, name
            assert seen.setdefault(key, now) == now, (key, threads)
            tally.cases["folds with several threads"] += 1


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
def test_any_number_of_columns(dtype, interp, sync):
    """The last vector of columns may have any number of lanes, also where it is one of wider elements than most."""
    for name in NAMES if WHOLE else ["max.dim", "argmin", "aminmax", "count_nonzero.dim_IntList", "sum.dim_IntList", "var_mean.correction"]:
        if name in CALLS and name != "trace" and not name.startswith("_is_"):
            args, named = over(name, 2, 0)
            for columns in range(1, 35):
                agree(name, elements((19, columns), dtype, columns), args, named, (interp, sync))


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

def out_forms(kiln):
    """Each out form of a fold whose calls are listed: that of its row, its name, and the names of what it writes to."""
    ops = [op for op in kiln.ops() if is_fold(op)]
    rows = {op.row: op.name.removeprefix("aten::") for op in ops if op.form == "functional"}
    for op in ops:
        if op.form == "out" and rows[op.row] in CALLS:
            name = op.name.removeprefix("aten::")
            yield rows[op.row], name, [a.name for a in torch_op(name)._schema.arguments if a.is_out]


with Kiln("interp") as every:
    OUT_FORMS = list(out_forms(every))


@pytest.mark.parametrize("row, name, outs", OUT_FORMS, ids=lambda part: part if isinstance(part, str) else "")
def test_out_forms(row, name, outs, interp):
    """Into results of the right dtype, side by side and with gaps, and of other dtypes: as PyTorch does or refuses."""
    for dtype in (torch.float32, torch.float16, torch.int32, torch.bool, torch.uint8, torch.complex64):
        x = elements((4, 5), dtype, 3)
        args, named = CALLS[row](2)[0]
        want = outcome(torch_op(row), x, args, named)
        if refused(want):
            continue
        for gaps in (1, 2):
            given = {o: torch.empty(*t.shape, gaps, dtype=t.dtype)[..., 0] for o, t in zip(outs, want)}
            interp.op(f"aten::{name}")(x, *args, **named, **given)
            judge(row, x, args, named, [t.contiguous() for t in given.values()])
        for other in DTYPES:
            given, theirs = ({o: torch.zeros_like(t, dtype=other if k == 0 else t.dtype) for k, (o, t) in enumerate(zip(outs, want))} for _ in range(2))
            expect(name, x, other, outcome(interp.op(f"aten::{name}"), x, args, {**named, **given}), outcome(torch_op(name), x, args, {**named, **theirs}))
            tally.cases["folds into given results"] += 1


def expect(name, x, other, got, want):
    """Refused together, or both made; LENIENT names what Kiln takes and PyTorch does not."""
    if refused(want) and not refused(got):
        assert any(n in name and f(x.dtype, other) for n, f in LENIENT), (name, x.dtype, other, want)
    elif refused(got) and not refused(want):
        assert any(n in name and f(x.dtype, other) for n, f in STRICT), (name, x.dtype, other, got)
    elif not refused(got):
        for g, w in zip(got, want, strict=True):
            rtol = 1.6e-2 if torch.bfloat16 in (x.dtype, other) else 2e-3 if torch.float16 in (x.dtype, other) else 1e-5
            torch.testing.assert_close(g, w, rtol=rtol, atol=1e-2 if rtol > 1e-5 else 1e-5, equal_nan=True)


LENIENT = [  # PyTorch's kernels do not exist there
    ("mean.dtype_out", lambda x, out: x.is_complex and out.is_floating_point),
    ("nanmean.out", lambda x, out: out.is_complex),
    ("nansum.out", lambda x, out: x.is_floating_point and not (out.is_floating_point or out.is_complex)),
    ("var.", lambda x, out: x.is_floating_point and out.is_complex),
    ("std.", lambda x, out: x.is_floating_point and out.is_complex),
]
STRICT = [  # PyTorch drops imaginary parts there
    ("logsumexp.out", lambda x, out: x.is_complex and out.is_floating_point),
]


DIAGONAL = """
fold my::most(Tensor x) -> (Tensor, Tensor) : takes real -> (same, i64)
     over   diagonal
     check  n > 0 : "nothing on the diagonal"
     state  top = lowest, at: i64 = -1
     step   top = max(top, x), at = x > top ? i : at
     merge  top = max(top, rhs.top), at = rhs.top > top ? rhs.at : at
     finish top, at
"""


def test_diagonals_of_any_matrix(interp, sync):
    for k in (interp, sync):
        k.load(DIAGONAL)
        for x in (elements((70, 300), torch.float64, 1), elements((400, 20), torch.float64, 2)):
            for y in (x, x.t(), x[::3, 1:], x[:, :1].expand(x.shape), x[:1, :1]):
                top, at = k.op("my::most")(y)
                want = y.diagonal().max(0)
                assert (top, at) == (want.values, want.indices)
        with pytest.raises(RuntimeError, match="nothing on the diagonal"):
            k.op("my::most")(torch.ones(0, 3))
        for shape in [(), (3,), (1, 2, 3)]:
            with pytest.raises(RuntimeError, match=f"expected a matrix, but got tensor with dim {len(shape)}"):
                k.op("my::most")(torch.ones(shape))


@pytest.mark.parametrize("row, why", [
    ("fold my::d(Tensor x, Tensor y) -> Tensor = acc + x * y from 0\n  over diagonal", "a diagonal is that of one tensor"),
    ("fold my::d(Tensor x, bool k) -> Tensor = acc + x from 0\n  over diagonal keep k", "a clause"),
    ("fold my::d(Tensor x) -> Tensor : takes float = acc + x from 0\n  over diagonal\n  grad x = grad", "no 'grad' over a diagonal"),
    ("scan my::d(Tensor x) -> Tensor = acc + x from 0\n  over diagonal", "a scan is over one dimension"),
])
def test_diagonals_that_say_nothing_sensible_are_refused(row, why, interp):
    with pytest.raises((RuntimeError, ValueError, TypeError), match=why):
        interp.load(row)


@pytest.mark.parametrize("name, args", [("sum", ()), ("amax", ()), ("any", ()), ("prod.dim_int", (0,)), ("aminmax", ()), ("var_mean", ()),
                                        ("linalg_vector_norm", (1.0,)), ("sum.dim_IntList", ([1],))])
def test_long_axes(name, args, interp, sync):
    """Kernels read more than 8 MB in several places by turns: the bits are the interpreter's, which reads in order."""
    sizes = {torch.float32: [2 << 20, (2 << 20) + 1, 3 * (1 << 20) + 4321], torch.float64: [(1 << 20) + 77], torch.float16: [(4 << 20) + 1025]}
    for dtype, n in ((t, n) for t in sizes for n in sizes[t]):
        x = elements((n,), dtype, 3) * (0 if name == "any" else 1)
        for x in (x, x[1:]):
            if name == "sum.dim_IntList":
                x = torch.stack([x, x.flip(0)])
            ours, theirs = (tuples(k.op(f"aten::{name}")(x, *args)) for k in (sync, interp))
            assert [bits(t) for t in ours] == [bits(t) for t in theirs], (name, dtype, n)
            tally.cases["folds of long axes"] += 1
