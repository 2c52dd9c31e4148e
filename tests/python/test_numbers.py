"""Numbers as arguments: NumPy's scalars, subclasses of Python's numbers, tensors without dimensions, and what is no number."""
import decimal
import enum
import fractions

import numpy as np
import pytest
import torch

import kiln

DTYPES = ["bool", "uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64", "complex64", "complex128"]


class Color(enum.IntEnum):
    RED = 2


class Half(float, enum.Enum):
    IT = 0.5


class Index:
    """A number of nobody's."""

    def __init__(self, value):
        self.value = value

    def __index__(self):
        return self.value


# -- NumPy's scalars where a tensor is wanted ----------------------------------------------------------------------------

def test_no_digits_of_a_numpy_scalar_are_lost():
    y = np.linspace(0.1, 0.7, 7)
    for got, want in [(kiln.call("add", y.mean(), y.sum()), y.mean() + y.sum()), (kiln.call("neg", y[3]), -y[3]),
                      (kiln.call("aten::mul.Tensor", y[1], 3), y[1] * 3), (kiln.call("pow", y[2], y[3]), y[2] ** y[3]),
                      (kiln.call("where", np.bool_(True), y[1], y[2]), y[1]), (kiln.call("clamp", y[5], y[1], y[3]), y[3]),
                      (kiln.call("clamp", np.int64(9), min=y[1], max=5), np.float64(5))]:
        assert type(got) is np.ndarray and got.shape == () and got.dtype == np.float64
        np.testing.assert_allclose(got, want, rtol=1e-15)


@pytest.mark.parametrize("name", DTYPES)
def test_a_numpy_scalar_is_an_array_without_dimensions(name):
    """Beside every dtype, with and without dimensions, as PyTorch promotes."""
    scalar, like = np.dtype(name).type(1), torch.tensor(1, dtype=getattr(torch, name))
    for other in DTYPES:
        if "float16" in (name, other) and "complex" in name + other:
            continue  # complex numbers with parts of f16 are not served
        for shape in ((), (2,)):
            a = np.ones(shape, other)
            for got, want in ((kiln.call("mul", a, scalar), torch.mul(torch.from_numpy(a), like)),
                              (kiln.call("mul", scalar, a), torch.mul(like, torch.from_numpy(a))),
                              (kiln.call("mul", kiln.Tensor(a), scalar), torch.mul(torch.from_numpy(a), like)),
                              (kiln.Tensor(a) * scalar, torch.mul(torch.from_numpy(a), like))):
                assert str(got.dtype) == str(want.dtype).removeprefix("torch.") and got.tolist() == want.tolist()
    alone = kiln.call("mul", scalar, scalar)
    assert type(alone) is np.ndarray and alone.shape == () and alone.dtype == scalar.dtype


def test_a_numpy_scalar_decides_the_kind_of_the_result_if_no_tensor_does():
    s = np.float64(1.5)
    for x, kind in ((torch.ones(2), torch.Tensor), (np.ones(2, "f4"), np.ndarray), (kiln.Tensor([1.0, 1.0]), kiln.Tensor)):
        for got in (kiln.call("add", x, s), kiln.call("add", s, x), kiln.call("aten::add.Tensor", s, x)):
            assert type(got) is kind and "float32" in str(got.dtype) and got.tolist() == [2.5, 2.5]
    assert type(s + kiln.Tensor([1.0])) is type(kiln.Tensor([1.0]) + s) is kiln.Tensor
    assert type(kiln.call("add", s, 1)) is type(kiln.call("add", 1, s)) is np.ndarray
    assert (np.float64(3) ** kiln.Tensor([2.0])).tolist() == [9] and (kiln.Tensor([3.0]) ** np.float64(2)).tolist() == [9]


@pytest.mark.parametrize("scalar", [np.longdouble(1), np.clongdouble(1)], ids=repr)
def test_numbers_of_numpy_that_are_not_served(scalar):
    for f in (lambda: kiln.call("neg", scalar), lambda: kiln.call("add", np.ones(2), scalar),
              lambda: kiln.call("my::axpb", np.ones(2), scalar, 0)):
        with pytest.raises(NotImplementedError, match="not served"):
            f()


@pytest.mark.parametrize("scalar", [
    np.timedelta64(3, "ns"), np.datetime64(3, "ns"), np.bytes_(b"a"), np.zeros(1, [("a", "f4")])[0], np.str_("a")], ids=repr)
def test_scalars_of_numpy_that_are_no_numbers(scalar):
    for f in (lambda: kiln.call("neg", scalar), lambda: kiln.call("add", np.ones(2), scalar),
              lambda: kiln.call("my::axpb", np.ones(2), scalar, 0), lambda: kiln.call("aten::add.Tensor", np.ones(2), scalar)):
        with pytest.raises(TypeError):
            f()


def test_a_numpy_scalar_cannot_be_written():
    s = np.float64(1)
    for f in (lambda: kiln.call("neg_", s), lambda: kiln.call("aten::neg_", s), lambda: kiln.call("neg", np.ones(()), out=s)):
        with pytest.raises(TypeError, match=r"must be Tensor(\(a!\))?, not float"):
            f()


def test_a_dimension_is_not_taken_for_a_tensor():
    """max with a number is max.dim and not max.other."""
    values, indices = kiln.call("max", np.array([[1, 4], [3, 2]]), np.int64(0))
    assert values.tolist() == [3, 4] and indices.tolist() == [1, 0]
    values, indices = kiln.call("min", np.array([[1, 4], [3, 2]]), np.int64(0))
    assert values.tolist() == [1, 2] and indices.tolist() == [0, 1]


def test_a_scalar_whose_class_gives_no_array():
    class Odd(np.float64):
        def __array__(self, dtype=None, copy=None):
            return "x"
    with pytest.raises(TypeError, match="argument 'self'.*gives no array"):
        kiln.call("neg", Odd(1))
    assert kiln.call("my::axpb", np.ones(1), Odd(2), 0).tolist() == [2]


# -- where a number is wanted --------------------------------------------------------------------------------------------

def as_number(value):
    """What a Scalar, a float and an int parameter make of it, in float64."""
    x = np.array([1.0, np.nan])
    return (kiln.call("my::axpb", x, value, 0)[0], kiln.call("nan_to_num", x, nan=value)[1],
            kiln.call("aten::add.Tensor", x, x, alpha=value)[0] - 1, kiln.call("mul", x, value)[0])


@pytest.mark.parametrize("value", [
    0.1, 3, np.float64(0.1), np.float32(0.1), np.float16(0.1), np.int8(-3), np.uint32(7), Color.RED, Half.IT, Index(3),
    type("Mine", (float,), {})(0.1), np.array(0.1), torch.tensor(0.1, dtype=torch.float64), torch.tensor(3), kiln.Tensor(3),
    kiln.Tensor(0.1, dtype="f64"), type("Mine", (np.float64,), {})(0.1)], ids=repr)
def test_numbers_have_their_full_value(value):
    want = float(value.value if isinstance(value, (Index, Half)) else value)
    np.testing.assert_allclose(as_number(value), want, rtol=1e-15)


@pytest.mark.parametrize("value", [2, True, Color.RED, Index(2), np.int8(2), np.uint64(2), torch.tensor(2), np.array(2), kiln.Tensor(2)], ids=repr)
def test_whole_numbers(value):
    x = np.array([1.2345])
    want = kiln.call("aten::round.decimals", x, decimals=int(getattr(value, "value", value)))
    assert kiln.call("round", x, decimals=value) == kiln.call("aten::round.decimals", x, decimals=value) == want


@pytest.mark.parametrize("value", [2.0, np.float64(2), torch.tensor(2.0), np.array(2.0), torch.ones(1, dtype=int), 2j, "2", None], ids=repr)
def test_what_is_no_whole_number(value):
    for name in ("round", "aten::round.decimals"):
        with pytest.raises(TypeError, match="'decimals' must be int, not"):
            kiln.call(name, np.ones(1), decimals=value)


@pytest.mark.parametrize("value", [2**63, 2**64, 2**200, -2**70, np.uint64(2**63), Index(2**80)], ids=repr)
def test_a_float_parameter_takes_ints_of_any_size(value):
    got = kiln.call("nan_to_num", np.array([np.nan]), nan=value)
    assert got.tolist() == [float(value.value if isinstance(value, Index) else value)]
    with pytest.raises(OverflowError, match="argument 'nan'"):
        kiln.call("nan_to_num", np.array([np.nan]), nan=2**2000)


@pytest.mark.parametrize("value", [fractions.Fraction(1, 3), decimal.Decimal("1.5"), torch.ones(1), object(), b"1"], ids=repr)
def test_what_is_no_number(value):
    """As PyTorch has it: __float__ alone makes no number, nor does a tensor with dimensions."""
    calls = [lambda: kiln.call("my::axpb", np.ones(1), value, 0), lambda: kiln.call("nan_to_num", np.ones(1), nan=value)]
    if not isinstance(value, torch.Tensor):
        calls += [lambda: kiln.call("add", np.ones(1), value), lambda: kiln.call("aten::add.Tensor", np.ones(1), value),
                  lambda: kiln.Tensor([value])]
    for f in calls:
        with pytest.raises(TypeError, match="must be|expected|is no bool, int"):
            f()


def test_symbolic_ints_of_pytorch():
    from torch.fx.experimental.symbolic_shapes import ShapeEnv
    symbol = ShapeEnv().create_unbacked_symint()
    for f in (lambda: kiln.call("my::axpb", torch.ones(1), symbol, 0), lambda: kiln.call("round", torch.ones(1), decimals=symbol)):
        with pytest.raises(Exception, match="data-dependent"):  # PyTorch's own: the symbol has no value
            f()


# -- arrays that mean more than their elements ----------------------------------------------------------------------------

class Meters(np.ndarray):
    """An array with a unit, as such libraries make them."""

    def __array_ufunc__(self, ufunc, method, *inputs, **kwargs):
        return NotImplemented


MASKED = np.ma.array([1.0, 2.0], mask=[False, True])


@pytest.mark.parametrize("array", [MASKED, MASKED[0:0], np.ones(2).view(Meters), np.ones((), "f4").view(Meters), np.ma.masked], ids=repr)
def test_arrays_whose_meaning_would_be_lost(array):
    plain = np.ones(2)
    for f in (lambda: kiln.call("neg", array), lambda: kiln.call("add", plain, array), lambda: kiln.call("neg", plain, out=array),
              lambda: kiln.call("neg_", array), lambda: kiln.op("aten::add.out")(plain, plain, out=array), lambda: kiln.Tensor(array),
              lambda: kiln.Tensor([array]), lambda: kiln.Tensor([[plain], [array]]), lambda: kiln.Tensor(plain) + array,
              lambda: kiln.call("aten::add.Tensor", plain, [array]), lambda: array + kiln.Tensor(plain),
              lambda: kiln.explain("neg", array, stage="key")):
        with pytest.raises(TypeError, match="would be lost: give numpy.asarray"):
            f()
    with pytest.raises(TypeError, match="aten::neg: argument 'self': arrays of"):
        kiln.call("neg", array)
    assert kiln.call("neg", np.asarray(array)).shape == array.shape


def test_a_masked_number():
    for f in (lambda: kiln.call("add", np.ones(2), 1, alpha=np.ma.masked), lambda: kiln.Tensor([1.0, np.ma.masked])):
        with pytest.raises(TypeError, match="would be lost"):
            f()


@pytest.mark.filterwarnings("ignore:the matrix subclass")
def test_arrays_whose_class_adds_nothing(tmp_path):
    disk = np.memmap(tmp_path / "x", dtype="f4", mode="w+", shape=(2,))
    disk[:] = [1, 2]
    for array in (disk, np.matrix([[1.0, 2.0]]), np.ones(2).view(np.recarray)):
        got = kiln.call("mul", array, array)
        assert type(got) is np.ndarray
        np.testing.assert_array_equal(got, np.multiply(np.asarray(array), np.asarray(array)))
    assert kiln.call("neg_", disk) is disk and disk.tolist() == [-1, -2]
    kept = np.memmap(tmp_path / "x", dtype="f4", mode="r")
    with pytest.raises(ValueError, match="read-only"):
        kiln.call("neg_", kept)


@pytest.mark.parametrize("name", ["add", "mul", "div", "aten::mul.Tensor", "aten::div.Tensor", "gt"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_number_beside_a_tensor_without_dimensions_keeps_its_value(name, dtype):
    """It takes no part in promotion within its kind, and is not rounded or wrapped to the tensor's dtype before that counts."""
    t, short = torch.tensor(1, dtype=getattr(torch, dtype)), name.removeprefix("aten::").partition(".")[0]
    compared = 0
    for number in (300, 2**40, 70000.0, 1e-6, True):
        for args in ((t, number), (number, t)):
            try:
                want = getattr(torch, short)(*args)
            except (RuntimeError, TypeError, NotImplementedError):
                continue
            got = kiln.call(name, *args)
            compared += 1
            assert got.dtype == want.dtype and torch.equal(got, want), (args, got, want)
    assert compared >= (0 if short == "gt" and t.is_complex() else 5)


def test_an_output_decides_nothing_of_a_number():
    out = torch.zeros(3, dtype=torch.float64)
    for name in ("add", "mul", "sub"):
        x = torch.ones(3, dtype=torch.int32)
        assert torch.equal(kiln.call(name, x, 0.1, out=out), getattr(torch, name)(x, 0.1, out=torch.zeros(3, dtype=torch.float64)))
    small, out = torch.tensor(1, dtype=torch.int16), torch.zeros((), dtype=torch.float32)
    assert kiln.call("gt", small, 2**63, out=out).item() == torch.gt(small, 2**63, out=torch.zeros(())).item()


def test_a_bound_that_is_a_number_decides_for_numbers():
    for bound in (torch.tensor(1.0, dtype=torch.float64), torch.tensor(1.0, dtype=torch.bfloat16), torch.tensor(1, dtype=torch.uint8)):
        for args in ((0, bound), (bound, 3)):
            x = torch.ones(2, dtype=torch.int16)
            got, want = kiln.call("clamp", x, *args), torch.clamp(x, *args)
            assert got.dtype == want.dtype and torch.equal(got, want)
