"""Names without an overload: the one that PyTorch would call for such arguments."""
import re
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch

import kiln

T = torch.tensor([1.5, -2.0, 3.0])
I = torch.tensor([4, 5, 6])


@pytest.mark.parametrize("name, args, kwargs", [
    ("add", (T, 2), {}), ("add", (T, T), {}), ("add", (T, T), {"alpha": 2}), ("add", (T, 2, ), {"alpha": 3}), ("add", (2, T), {}),
    ("sub", (I, 1.5), {}), ("mul", (I, True), {}), ("div", (I, I), {}), ("div", (I, 2), {"rounding_mode": "floor"}),
    ("div", (T, T), {"rounding_mode": None}), ("pow", (T, 2), {}), ("pow", (2, T), {}), ("pow", (I, I), {}), ("clamp", (T, 0), {}),
    ("clamp", (T,), {"min": T, "max": I}), ("clamp", (T,), {"max": 1}), ("lt", (T, 1), {}), ("lt", (T, I), {}), ("neg", (T,), {}),
    ("where", (T > 0, T, I), {}), ("bitwise_and", (I, 1), {}), ("bitwise_and", (1, I), {}), ("frexp", (T,), {}),
    ("xlogy", (T.abs(), 2), {}), ("xlogy", (2, T.abs()), {}), ("remainder", (T, 2), {}), ("remainder", (7, I), {})])
def test_as_pytorch_chooses(name, args, kwargs):
    want = getattr(torch, name)(*args, **kwargs)
    got = kiln.call(name, *args, **kwargs)
    many = lambda x: x if isinstance(x, tuple) else (x,)
    for g, w in zip(many(got), many(want), strict=True):
        assert g.dtype == w.dtype and torch.equal(g, w)
    arrays = [a.numpy() if isinstance(a, torch.Tensor) else a for a in args]
    assert many(kiln.op(name)(*arrays, **{k: np.asarray(v) if isinstance(v, torch.Tensor) else v for k, v in kwargs.items()}))[0] \
        .tolist() == many(want)[0].tolist()
    if isinstance(want, torch.Tensor):
        out = torch.empty_like(want)
        assert kiln.call(name, *args, **kwargs, out=out) is out and torch.equal(out, want)
    with pytest.raises((TypeError, RuntimeError)):
        kiln.call(name, *args, **kwargs, nope=1)


def test_in_place():
    x = T.clone()
    assert kiln.call("add_", x, 1) is x and torch.equal(x, T + 1)
    assert kiln.call("add_", x, T) is x and torch.equal(x, T + 1 + T)


def test_no_argument_by_position():
    """A short name may have no default overload, and a call may give every argument by its keyword, or none at all."""
    names = {name.removeprefix("aten::").partition(".")[0] for name in kiln.ops() if name.startswith("aten::")}
    assert len(names) > 500
    for name in sorted(names):
        with pytest.raises((TypeError, ValueError, RuntimeError), match=name):
            kiln.op(name)()
        with pytest.raises((TypeError, ValueError, RuntimeError)):
            kiln.call(name)
    assert torch.equal(kiln.call("add", self=T, other=T), T + T)
    assert torch.equal(kiln.op("add")(self=T, other=2, alpha=3), T + 6)
    assert torch.equal(kiln.op("where")(condition=T > 0, self=T, other=I), torch.where(T > 0, T, I))
    assert torch.equal(kiln.call("max", self=T), T.max())


# -- as PyTorch's functions choose ----------------------------------------------------------------------------------

def functions():
    """Name -> PyTorch's function, for every operator of several overloads that is one."""
    overloads = Counter(name.removeprefix("aten::").split(".")[0] for name in kiln.ops() if name.startswith("aten::"))
    found = {}
    for name in (name for name, n in overloads.items() if n > 1):
        f = getattr(torch, name, None) or getattr(torch.special, name.removeprefix("special_"), None)
        if callable(f):
            found[name] = f
    return found


def outcome(f, *args, **kwargs):
    try:
        return f(*args, **kwargs)
    except Exception as error:
        return error


def alike(a, b):
    if isinstance(a, Exception) or isinstance(b, Exception):
        return isinstance(a, Exception) and isinstance(b, Exception)
    if isinstance(a, tuple):
        return isinstance(b, tuple) and len(a) == len(b) and all(map(alike, a, b))
    exact = not (a.is_floating_point() or a.is_complex())
    return a.dtype == b.dtype and a.shape == b.shape and (torch.equal(a, b) if exact else torch.allclose(a, b, equal_nan=True))


NOT_SERVED = {"where"}  # what PyTorch means by some of these calls: where of a condition alone
FOLDS = set(re.findall(r"^fold (\w+)", (Path(__file__).parents[2] / "ops" / "fold.ops").read_text(), re.M))  # results are smaller than `out`, which is PyTorch's to resize
COMPUTED_ASIDE = {"special_ndtr"}  # by PyTorch, which so takes an output that overlaps
OTHER_DEFAULTS = {"binary_cross_entropy_with_logits"}  # torch.* reduces nothing, where the operator's schema says the mean


def call_with(f, dtype, pattern, out):
    """f on memory of its own: tensors where `pattern` has T, else a number; out: a dtype, "overlap" or None."""
    y = torch.arange(1, 5).to(dtype)
    args = [y[:-1] if letter == "T" else 2 for letter in pattern]
    if out is None:
        return outcome(f, *args)
    return outcome(f, *args, out=y[1:] if out == "overlap" else torch.zeros(3, dtype=out))


@pytest.mark.filterwarnings("ignore:An output with one or more elements was resized")
def test_every_operator_with_numbers_and_outputs():
    different, compared = [], 0
    for name, f in functions().items():
        for dtype in (torch.float32, torch.int64):
            for pattern in ("T", "TN", "NT", "TT"):
                for out in (None, torch.float64, torch.float32, torch.int64, torch.complex64, "overlap"):
                    want = call_with(f, dtype, pattern, out)
                    if isinstance(want, TypeError):  # no such call of torch; Kiln may take it
                        continue
                    got = call_with(lambda *args, **kwargs: kiln.call(name, *args, **kwargs), dtype, pattern, out)
                    known = name in NOT_SERVED and isinstance(got, TypeError) or name in COMPUTED_ASIDE and out == "overlap"
                    known = known or name in FOLDS and out is not None and ("cannot be resized" in str(got) or "single memory location" in str(got))
                    known = known or name in OTHER_DEFAULTS
                    compared += 1
                    if not known and not alike(want, got):
                        different.append((name, dtype, pattern, out, want, got))
    assert not different and compared > 3000


def test_a_number_is_no_dimension():
    """max(x, 0) is max.dim, and min(x, 0) min.dim: neither is the maximum or minimum with 0."""
    for name in ("max", "min"):
        assert all(torch.equal(a, b) for a, b in zip(kiln.call(name, T, 0), getattr(torch, name)(T, 0), strict=True))
        assert torch.equal(kiln.call(name, T, -T), getattr(torch, name)(T, -T))


# -- ints from 2^63 up ----------------------------------------------------------------------------------------------

U = torch.tensor([1, 7], dtype=torch.uint64)


@pytest.mark.parametrize("name, args", [
    ("mul", (U, 2**63 + 1)), ("mul", (2**64 - 1, U)), ("bitwise_or", (U, 2**63)), ("bitwise_and", (2**64 - 2, U)), ("eq", (U, 2**63)),
    ("div", (U, 2**63)), ("div", (2**64 - 1, U)), ("mul", (U[0], 2**63)), ("mul", (T, 2**63)), ("mul", (2**63, T.double())),
    ("div", (T, 2**64 - 1)), ("add", (T, T, 2**63)), ("clamp", (T, 2**63)), ("mul", (torch.tensor(2j), 2**63)),
    ("mul", (2**63, torch.tensor(2j))), ("ne", (2 * U, 2**64 - 1)), ("mul", (I, 2**63 + 1)), ("bitwise_or", (I, 2**64 - 1))])
def test_wide_ints(name, args):
    keywords = {"alpha": args[2]} if len(args) > 2 else {}
    want, got = getattr(torch, name)(*args[:2], **keywords), kiln.call(name, *args[:2], **keywords)
    assert got.dtype == want.dtype and torch.equal(got, want)


def test_wide_ints_in_tensors():
    big = torch.tensor(2**63, dtype=torch.uint64)
    assert torch.equal(kiln.call("mul", T, big), torch.mul(T, big))
    assert torch.equal(kiln.call("mul.Scalar", T, big), torch.mul(T, 2**63))  # not a negative number
    assert kiln.call("mul.Scalar", U.numpy(), big).tolist() == torch.mul(U, 2**63).tolist()
    with pytest.raises(OverflowError, match="round.decimals: argument 'decimals': .*does not fit"):
        kiln.call("round.decimals", T, decimals=big)


def test_wide_ints_of_numpy():
    got = kiln.call("mul", U.numpy(), np.uint64(2**63 + 1))
    assert got.dtype == np.uint64 and got.tolist() == [2**63 + 1, (7 * (2**63 + 1)) % 2**64]


@pytest.mark.parametrize("name, args, error, text", [
    ("add", (U, 2**63), NotImplementedError, "add.Scalar: .*not implemented for 'u64'"),
    ("mul", (U, 2**64), OverflowError, "mul.Scalar: argument 'other': .*64 bits"),
    ("pow", (I, 2**63), RuntimeError, "pow.Tensor_Scalar: the exponent cannot be converted"),
    ("clamp", (I, 2**63), RuntimeError, "clamp: argument 'min': value cannot be converted to type i64 without overflow"),
    ("mul.Tensor", (T > 0, 2**63), RuntimeError, "mul.Tensor: Promotion for uint16, uint32, uint64"),
    ("round", (T,), OverflowError, "round.decimals: argument 'decimals'")])
def test_wide_ints_that_are_refused(name, args, error, text):
    with pytest.raises(error, match=text):
        kiln.call(name, *args, **({"decimals": 2**63} if name == "round" else {}))


# -- outputs ---------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("name", ["frexp", "aten::frexp"])
@pytest.mark.parametrize("kind", [tuple, list])
def test_several_outputs(name, kind):
    m, e = torch.empty(3), torch.empty(3, dtype=torch.int32)
    got = kiln.call(name, T, out=kind((m, e)))
    assert got[0] is m and got[1] is e and torch.equal(m, torch.frexp(T)[0]) and torch.equal(e, torch.frexp(T)[1])
    for wrong in ((m,), (m, e, m), (), m, [m] * 100):
        with pytest.raises(TypeError, match="aten::frexp: argument 'out' must be a tuple of 2 tensors"):
            kiln.call(name, T, out=wrong)
    with pytest.raises(TypeError, match="aten::frexp.Tensor_out: argument 'exponent' must be Tensor"):
        kiln.call(name, T, out=(m, "e"))


def test_no_output():
    for name, args, kwargs in (("add", (T, 2), {}), ("exp", (T,), {}), ("aten::exp", (T,), {}), ("add", (T, T), {"alpha": 2})):
        f = getattr(torch, name.removeprefix("aten::"))
        assert torch.equal(kiln.call(name, *args, out=None, **kwargs), f(*args, **kwargs))
        assert torch.equal(kiln.op(name)(*args, **kwargs, out=None), f(*args, **kwargs))
        assert kiln.explain(name, *args, **kwargs, out=None, stage="bind") == kiln.explain(name, *args, **kwargs, stage="bind")
    assert torch.equal(kiln.call("frexp", T, out=None)[0], torch.frexp(T)[0])
    with pytest.raises(TypeError, match="'out'"):
        kiln.call("add.Tensor", T, T, out=None)  # an overload has the arguments of its schema


# -- what is said where none fits ------------------------------------------------------------------------------------

MAKE_TENSOR = "; kiln.Tensor(...) or numpy.array(...) makes a tensor of a list"


@pytest.mark.parametrize("name, args, kwargs, lines", [
    ("add", (T,), {}, ["Scalar: argument 'other' (Scalar) is missing", "Tensor: argument 'other' (Tensor) is missing"]),
    ("add", (T, T), {"alpha": "a"}, ["Scalar: argument 'other' must be Scalar, not Tensor", "Tensor: argument 'alpha' must be Scalar, not str"]),
    ("add", (T, T), {"foo": 1}, ["Scalar: has no argument 'foo'", "Tensor: has no argument 'foo'"]),
    ("add", (T, T, T), {}, ["Scalar: argument 'other' must be Scalar, not Tensor", "Tensor: takes 2 positional arguments; 'alpha' must be given by name"]),
    ("add", (T, 2), {"self": T}, ["Scalar: argument 'self' was given twice", "Tensor: argument 'self' was given twice"]),
    ("add", (T, 2), {"out": 5}, ["Scalar_out: argument 'out' must be Tensor, not int", "out: argument 'out' must be Tensor, not int"]),
    ("add", (T, T, T, T), {}, ["Scalar: takes 3 positional arguments, but 4 were given", "Tensor: takes 2 positional arguments, but 4 were given"]),
    ("add", (T, [T]), {}, ["Scalar: argument 'other' must be Scalar, not list", "Tensor: argument 'other' must be Tensor, not list" + MAKE_TENSOR]),
    ("add", (None, T), {}, ["Scalar: argument 'self' must be Tensor, not None", "Tensor: argument 'self' must be Tensor, not None"]),
    ("round", (T,), {"decimals": 1.5}, [": has no argument 'decimals'", "decimals: argument 'decimals' must be int, not float"])])
def test_none_fits(name, args, kwargs, lines):
    with pytest.raises(TypeError) as caught:
        kiln.call(name, *args, **kwargs)
    first, *rest = str(caught.value).split("\n")
    assert first == f"aten::{name}: no overload fits these arguments"
    assert rest == [f"  aten::{name}{line if line[0] == ':' else '.' + line}" for line in lines]


def test_the_only_one_that_could_be_meant_says_what_is_wrong():
    for args, kwargs, text in [((T, T), {}, "aten::neg: takes 1"), ((T,), {"out": 5}, "aten::neg.out: argument 'out'"),
                               ((T,), {"foo": 5}, "aten::neg: has no argument 'foo'"), ((), {}, "aten::neg: argument 'self'")]:
        for name in ("neg", "aten::neg"):
            with pytest.raises(TypeError, match=text):
                kiln.call(name, *args, **kwargs)
    with pytest.raises(TypeError, match="no overload fits"):
        kiln.call("add", *[T] * 10_000)


def test_the_operator_of_a_short_name():
    op = kiln.op("add").__self__
    assert op.name == "aten::add" and "aten::add.Tensor(" in op.schema and "aten::add.out(" in op.schema and "add" in repr(op)
    assert op.family == "map" and kiln.op("add").__doc__ == op.schema
    assert "add.Scalar" in kiln.explain("add", T, 2, stage="schema")
    for name in ("nope", "aten::nope", "my::nope", "", "x" * 1000, "add::"):
        with pytest.raises(NotImplementedError):
            kiln.op(name)


def test_a_name_space_changes_nothing():
    long, short, out = kiln.op("aten::exp"), kiln.op("exp"), torch.empty(3)
    assert long.__name__ == short.__name__ == "aten::exp" and long.__doc__ == short.__doc__
    assert long.__doc__.startswith("aten::exp(") and long.__self__.form == "functional"
    assert long(T, out=out) is out and torch.equal(out, kiln.call("aten::exp", T)) and torch.equal(out, short(T))
    for x in (T, T.numpy(), kiln.Tensor(T)):
        for _ in range(3):
            assert long(x).tolist() == long(self=x).tolist() == short(x).tolist()


def test_overloads_loaded_later():
    kiln.load_ops("map my::late.Tensor(Tensor self, Tensor other) -> Tensor : promote(self, other) = self + other")
    late = kiln.op("my::late")
    assert late(T, T).tolist() == (T + T).tolist()
    kiln.load_ops("map my::late.Scalar(Tensor self, Scalar other) -> Tensor : promote(self, other) = self * other")
    late = kiln.op("my::late")
    assert late(T, T).tolist() == (T + T).tolist() and kiln.call("my::late", T, 3).tolist() == (T * 3).tolist()
    kiln.load_ops("map my::late.three(Tensor self, Tensor a, Tensor b) -> Tensor : promote(self, a, b) = self + a + b")
    assert late(T, T, T).tolist() == (T * 3).tolist()


def test_an_argument_may_change_the_overloads_it_is_compared_with():
    row = "map my::sly.{0}(Tensor self, Scalar other{1}) -> Tensor : promote(self, other{2}) = self + other{3}"
    rows = [row.format("one", "", "", ""), row.format("two", ", Scalar b", ", b", " + b"),
            row.format("three", ", Scalar b, Scalar c", ", b, c", " + b + c")]
    kiln.load_ops("\n".join(rows[:2]))
    sly = kiln.op("my::sly")

    class Sly:
        def __init__(self, tensor):
            self.tensor = tensor

        def __dlpack__(self, **kwargs):
            return self.tensor.__dlpack__(**kwargs)

        @property
        def ndim(self):
            if rows[2:]:
                kiln.load_ops(rows.pop())
            assert sly(T, 1, 2, 3).tolist() == (T + 6).tolist()  # makes the set anew
            return 0

    assert sly(T, Sly(torch.tensor(2.0))).tolist() == (T + 2).tolist() and len(rows) == 2


def test_any_number_of_arguments():
    for name in ("add", "frexp"):
        for n in (60, 63, 64, 65, 66, 300):
            for out in (None, (), (T, T), [T] * 5):
                with pytest.raises(TypeError):
                    kiln.call(name, *[T] * n, out=out)


def test_ctrl_c_while_an_argument_is_asked():
    class Asked(np.ndarray):
        @property
        def ndim(self):
            raise KeyboardInterrupt
    with pytest.raises(KeyboardInterrupt):
        kiln.call("add", T.numpy(), 1, alpha=np.ones(()).view(Asked))


class Two(int):
    pass


# What one place of a program may call an operator with, one after the other: a choice is remembered by kinds and keywords.
OTHERS = [T, 2, 2, True, 2.5, T, np.float32(2), Two(2), torch.tensor(2), torch.tensor(2), 2 ** 62, T.numpy(), kiln.Tensor(T), 1.5]


@pytest.mark.parametrize("first", [T, T.numpy(), kiln.Tensor(T)], ids=["torch", "numpy", "kiln"])
def test_one_place_with_arguments_of_many_kinds(first):
    add, power, out = kiln.op("add"), kiln.op("pow"), torch.empty(3)
    for k, other in enumerate(OTHERS * 3):
        plain = torch.as_tensor(other.numpy()) if isinstance(other, kiln.Tensor) else other if isinstance(other, torch.Tensor) else \
            torch.from_numpy(other) if isinstance(other, np.ndarray) else getattr(other, "item", lambda o=other: o)()
        want, wanted = T + plain, T ** plain
        target = (out, None, kiln.Tensor(out))[k % 3]
        got = add(first, other, out=target)
        assert (got is target) == (target is not None) and got.tolist() == want.tolist() == add(first, other=other).tolist()
        np.testing.assert_allclose(np.asarray(power(first, other)), wanted.numpy(), rtol=1e-6)
        assert add(first, other, alpha=2).tolist() == torch.add(T, plain, alpha=2).tolist()
    for wrong in (2 ** 70, "2", [2], None, object()):
        with pytest.raises((TypeError, OverflowError, RuntimeError)):
            add(first, wrong)


def test_one_place_with_outputs_of_many_kinds():
    frexp, m, e = kiln.op("frexp"), torch.empty(3), torch.empty(3, dtype=torch.int32)
    for _ in range(3):
        for out in ((m, e), None, [m, e]):
            assert torch.equal(frexp(T, out=out)[0], torch.frexp(T)[0])
        with pytest.raises(TypeError, match="must be a tuple of 2"):
            frexp(T, out=m)


def test_what_a_list_begins_with_tells_the_overload():
    """In turn, so that what was chosen last is no excuse."""
    add, xs = kiln.op("_foreach_add"), [torch.zeros(2), torch.zeros(3)]
    for _ in range(2):
        assert [r.tolist() for r in add(xs, [1.0, 2.0])] == [[1, 1], [2, 2, 2]]
        assert [r.tolist() for r in add(xs, [torch.ones(2), torch.ones(3)])] == [[1, 1], [1, 1, 1]]
        assert [r.tolist() for r in add(xs, 3)] == [[3, 3], [3, 3, 3]]
        assert [r.tolist() for r in add(tuple(xs), (1, 2))] == [[1, 1], [2, 2, 2]]


def test_a_list_call_that_waits_for_a_compiler_writes_each_item_once():
    """The second item is strided, and a call of its own: its class is compiled when that of the first is there."""
    kiln.configure(mode="sync")
    try:
        a, b = torch.zeros(2), torch.zeros(6, 8)[:, ::2]
        kiln.call("_foreach_add_", [a], 1.0)
        kiln.call("_foreach_add_", [a, b], 1.0)
        assert a.tolist() == [2, 2] and b.tolist() == [[1] * 4] * 6
    finally:
        kiln.configure()
