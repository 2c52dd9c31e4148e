"""kiln.evaluate: values, dtypes, names, numbers, out=, errors and what is kept, beside NumPy and PyTorch."""
import gc
import resource
import threading

import numpy as np
import pytest
import torch

import kiln

rng = np.random.default_rng(7)
REAL = [np.bool_, np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.float16, np.float32, np.float64]
BINARY = ["a + b", "a * b", "a / b", "a - b", "a // b", "a % b", "a < b", "a >= b", "a == b", "a != b", "where(a > b, a, b)", "maximum(a, b)",
          "minimum(a, b)", "arctan2(a, b)", "hypot(a, b)"]


def array(dtype, n=64, low=1, high=50):
    values = rng.integers(low, high, n)
    return (values % 2 == 1) if dtype == np.bool_ else values.astype(dtype)


def numpy_of(formula, **names):
    return eval(formula, {name: getattr(np, name) for name in dir(np)}, names)


def close(got, want):
    want = np.asarray(want)
    assert got.dtype == want.dtype and got.shape == want.shape, (got.dtype, want.dtype, got.shape, want.shape)
    tolerance = {np.dtype("f2"): 3e-3, np.dtype("f4"): 3e-6, np.dtype("c8"): 3e-6}.get(got.dtype, 1e-14)
    np.testing.assert_allclose(got.astype(complex if got.dtype.kind == "c" else float), want.astype(complex if want.dtype.kind == "c" else float),
                               rtol=tolerance, atol=tolerance)


# -- NumPy's values and dtypes ----------------------------------------------------------------------------------------

@pytest.mark.parametrize("formula", BINARY)
def test_two_arrays_are_numpys(formula):
    for first in REAL:
        for second in REAL:
            a, b = array(first), array(second)
            if formula in ("a // b", "a % b"):
                b[b == 0] = 1  # an integer divided by zero raises; test_integers_divided_by_zero
            try:
                with np.errstate(all="ignore"):
                    want = numpy_of(formula, a=a, b=b)
            except TypeError:
                with pytest.raises(TypeError, match="bool"):
                    kiln.evaluate(formula)
                continue
            close(kiln.evaluate(formula), want)


@pytest.mark.parametrize("formula", ["sin(a)", "cos(a)", "tan(a)", "arcsin(1/a)", "arccos(1/a)", "arctan(a)", "sinh(1/a)", "cosh(1/a)", "tanh(a)",
                                     "arcsinh(a)", "arccosh(a + 1)", "arctanh(1/(a + 1))", "log(a)", "log10(a)", "log1p(a)", "log2(a)", "exp(1/a)",
                                     "exp2(1/a)", "expm1(1/a)", "sqrt(a)", "abs(a)", "absolute(-a)", "floor(a)", "ceil(a)", "trunc(a)",
                                     "rint(a)", "square(a)", "isnan(a)", "isinf(a)", "isfinite(a)", "signbit(-a)", "sign(-a)", "real(a)", "conj(a)",
                                     "ones_like(a)", "zeros_like(a)", "fmod(a, 3)", "copysign(a, -2.0)", "-a", "+a", "~(a > 3)", "a**2", "a**3",
                                     "a**4", "a**0.5", "a**-1.5", "2**(1/a)", "power(a, 2)", "(a > 3) & (a < 9) | (a == 20) ^ (a > 40)"])
def test_functions_are_numpys(formula):
    for dtype in [np.int32, np.int64, np.float32, np.float64]:
        a = array(dtype)
        close(kiln.evaluate(formula), numpy_of(formula, a=a))


@pytest.mark.parametrize("number", [True, 3, -2, 2.5, 1 + 2j, np.float32(1.5), np.float64(2.5), np.int8(3), np.uint16(9), np.bool_(True)])
@pytest.mark.parametrize("formula", ["a + c", "c * a", "a / c", "where(a > 3, a, c)", "c*2 + a"])
def test_numbers_are_numpys(formula, number):
    for dtype in [np.bool_, np.int16, np.int64, np.float16, np.float32, np.float64, np.complex64]:
        if dtype == np.complex64 and ">" in formula:
            continue
        a, c = array(dtype), number
        close(kiln.evaluate(formula), numpy_of(formula, a=a, c=c))


def test_numbers_in_the_text_are_numpys():
    for dtype in [np.uint8, np.int16, np.int64, np.float16, np.float32, np.float64]:
        a = array(dtype)
        for formula in ["2*a", "a + 0.5", "a*2*3 + (1 + 1)", "where(a > 3, 1, 2)", "where(a > 3, 1.5, 2)", "a*True", "a > 300", "a == -1", "a*1e3"]:
            if not (formula == "a*1e3" and dtype == np.float16):
                close(kiln.evaluate(formula), numpy_of(formula, a=a))


def test_complex_numbers_are_numpys():
    for dtype in (np.complex64, np.complex128):
        z = (rng.normal(size=32) + 1j * rng.normal(size=32)).astype(dtype)
        x, w = array(np.float32, 32), array(np.float64, 32)
        for formula in ["z*z + x", "abs(z)", "real(z) + imag(z)", "conj(z)*z", "exp(z)", "sin(z)**2", "z == conj(z)", "z*2j + w", "sqrt(z)",
                        "where(x > 3, z, 0)", "complex(real(z), x)" if dtype == np.complex64 else "complex(real(z), w)"]:
            want = (z.real + 1j * (x if dtype == np.complex64 else w)).astype(dtype) if "complex" in formula else numpy_of(formula, z=z, x=x, w=w)
            got = kiln.evaluate(formula)
            assert got.dtype == want.dtype
            np.testing.assert_allclose(got, want, rtol=2e-5 if dtype == np.complex64 else 1e-13)


def test_integers_stay_exact():
    a, b = np.array([2**53 + 1, 16777217, -7]), np.array([1.5, 1.5, 2], np.float32)
    assert kiln.evaluate("(a == 9007199254740993) & (b < 2)").tolist() == [True, False, False]
    i, f = np.array([16777217], np.int32), np.ones(1, np.float32)
    assert kiln.evaluate("where(i == 16777217, f, 0)").tolist() == [1.0]
    assert kiln.evaluate("i + f").dtype == np.float64 and kiln.evaluate("i + f")[0] == 16777218


def test_integers_divided_by_zero():
    a, b = np.arange(3), np.array([1, 0, 1])
    for formula in ("a // b", "a % b", "fmod(a, b)"):
        with pytest.raises(RuntimeError, match=r"(?s)ZeroDivisionError.*in the formula"):
            kiln.evaluate(formula)
    with np.errstate(all="ignore"):
        close(kiln.evaluate("a / b"), a / b)


def test_a_number_that_does_not_fit_is_refused():
    a = array(np.int8)
    for formula, c in [("a + c", 300), ("a + (c + 1)", 127), ("a + (-c)", 200), ("a * (c*c)", 100)]:
        with pytest.raises((RuntimeError, ValueError), match="fit|overflow"):
            kiln.evaluate(formula)
        c = 2
        close(kiln.evaluate(formula), numpy_of(formula, a=a, c=c))
    with pytest.raises(ValueError, match="the number 300 does not fit int8"):
        kiln.evaluate("a + 300")
    n = -1
    with pytest.raises(ValueError, match="negative integer powers"):
        kiln.evaluate("a**n")
    with pytest.raises(ValueError, match="negative integer powers"):
        kiln.evaluate("a**-1")
    n = 2
    close(kiln.evaluate("a**n"), array(np.int8)**2 * 0 + a**2)


def test_powers_of_pythons_ints_are_pythons():
    i, f, n, m = np.arange(1, 4), np.arange(1, 4.0), 3, 4
    for formula in ["i * 2**-1", "i + 10**-1", "i < 2**-1", "i**(2**-1)", "f*(m**-1)", "i*m**-2", "f * 2**n", "i * m**n", "i + (n << m)", "i - (m >> 1)"]:
        close(kiln.evaluate(formula), numpy_of(formula, i=i, f=f, n=n, m=m))
    assert kiln.evaluate("2**-1") == 0.5
    for formula, said in [("f * 2**n", "negative integer powers"), ("f*m**n", "negative integer powers"), ("i*(2**n)", "negative integer powers"),
                          ("f*(m << n)", "negative shift count")]:
        with pytest.raises(ValueError, match=said):
            kiln.evaluate(formula, {"i": i, "f": f, "m": m, "n": -2})


def test_pythons_ints_need_no_more_than_64_bits():
    x, n, k = np.arange(3.0), 100, 2**62
    for formula in ("x*2**n", "x*(k*4)", "x*(k + k)", "x*k**2", "x + (k << 3)", "where(x > 1, k*2, 1)", "x*(-k*2 - 1)"):
        with pytest.raises(ValueError, match="does not fit 64 bits"):
            kiln.evaluate(formula)
    close(kiln.evaluate("x*(k*4 - k*3)"), x * k)
    with pytest.raises(ValueError, match="behind [*][*]: compute it before the formula"):
        kiln.evaluate("x*2**(n & 3)")


def test_large_numbers_in_the_text():
    x, f, i, u = np.arange(3.0), np.ones(3, np.float32), np.arange(-1, 2), np.arange(3, dtype=np.uint64)
    for formula in ["2**1000*x", "2**100*f", "x < 2**1000", "i < 2**100", "2**100 == i", "i != -2**70", "i >= -2**63", "i + -2**63", "u*(2**64 - 1)", "u < 2**64",
                    "u == 2**64 - 1", "u >= -1", "2**70 + 1j*x", "(1 << 80)*x"]:
        close(kiln.evaluate(formula), numpy_of(formula, x=x, f=f, i=i, u=u))
    for formula, said in [("2**1000*i", "the number 1071508607... of 302 digits does not fit int64\n"), ("2**2000*x", "the number 1148130695... of 603 digits does not fit float64"),
                          ("9**9**9*x", "the number is too large\n  9[*][*]9"), ("1e300**2*x", "the number is too large"), ("u + 2**64", "the number 18446744073709551616 does not fit uint64")]:
        with pytest.raises(ValueError, match=said):
            kiln.evaluate(formula)


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.uint32, np.uint64, np.int8, np.int16, np.int32, np.int64])
def test_comparisons_with_pythons_ints_are_by_value(dtype):
    u = np.array([0, 1, 5, np.iinfo(dtype).max], dtype)
    for n in (-2**62, -129, -1, 0, 1, 5, 127, 128, 255, 256, 300, 2**31, 2**33, 2**63 - 1025):
        for formula in ("u < n", "u <= n", "u > n", "u >= n", "u == n", "u != n", "n < u", "n >= u", "n == u", "u < -n", "u == n - 1", "(u < n) & (u > n // 2)",
                        f"u < {n}", f"u == {n}", f"{n} <= u"):
            close(kiln.evaluate(formula), numpy_of(formula, u=u, n=n))
    for formula in ("UPPER < 2**70", "2**70 < UPPER"):
        close(kiln.evaluate(formula, {"UPPER": u}), numpy_of(formula, UPPER=u))
    for formula in ("u + n", "maximum(n, u)", "u*(n - 1)", "u - (n - 3)"):
        close(kiln.evaluate(formula, {"u": u, "n": 3}), numpy_of(formula, u=u, n=3))
        for n in (-2**63 + 5, 300) if dtype == np.uint8 else (-5,) if np.iinfo(dtype).min == 0 else ():
            with pytest.raises(ValueError, match="a number does not fit"):
                kiln.evaluate(formula, {"u": u, "n": n})


def test_powers_of_negative_numbers_are_complex():
    x, a = np.arange(3.0), -8
    for formula in ("(-1)**2.5 + x", "(-8)**0.5*x", "x**0.5 + (-8)**-0.5"):
        np.testing.assert_allclose(kiln.evaluate(formula), numpy_of(formula, x=x), rtol=1e-14)
    with pytest.raises(ValueError, match="(?s)a negative number to a power that is not whole is complex.*in the formula a"):
        kiln.evaluate("a**0.5*x")
    for a in (8, float("nan"), 0.0):
        close(kiln.evaluate("a**0.5*x"), a**0.5 * x)


def test_powers_of_complex_zeros_are_numpys():
    z, w, n, p = np.array([0, 1 + 1j, np.nan, 0]), np.array([0j, 1, 0, 2]), 0, 0.0
    for formula in ("z**0", "z**0.0", "z**0j", "power(z, 0)", "power(z, w)", "z**w", "z**n", "z**p", "real(w)**w", "w**(2 + 0j)", "w**(3 + 0j)"):
        np.testing.assert_allclose(kiln.evaluate(formula), numpy_of(formula, z=z, w=w, n=n, p=p), rtol=1e-14)


def test_small_differences_of_functions():
    b, x, y, z = np.array([True, False, True]), np.array([-3.0, 3, -0.0]), np.array([-1.0, 1.5, -1]), np.array([1.5 - 2.5j, 0.5j, 3])
    i, f = np.arange(3), np.ones((2, 3), np.float32)
    for formula in ["imag(x)", "imag(i)", "imag(b)", "imag(f)*2", "imag(2.5)*x", "b**2", "b**3", "square(b)", "conj(b)", "b**b", "b << b", "b >> b", "fmod(b, b | True)", "b // True", "floor(b)",
                    "rint(z)", "rint(i)", "rint(x/2)", "2**b"]:
        close(kiln.evaluate(formula), numpy_of(formula, b=b, x=x, y=y, z=z, i=i, f=f))
    for formula in ("x % 1.0", "x % -1.0", "x % y", "x % 3", "x % (y*2)"):
        got, want = kiln.evaluate(formula), numpy_of(formula, x=x, y=y)
        close(got, want)
        assert np.signbit(got).tolist() == np.signbit(want).tolist()
    flag = True
    for formula in ("i*-flag", "i + ~flag", "i - (+flag)"):
        close(kiln.evaluate(formula), eval(formula))


# -- PyTorch's -------------------------------------------------------------------------------------------------------

TORCH = [torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.float16, torch.bfloat16, torch.float32, torch.float64]


@pytest.mark.parametrize("formula", ["a + b", "a * b", "a / b", "a < b", "where(a > b, a, b)", "sin(a) + b", "maximum(a, b)", "a*2 + b*0.5"])
def test_tensors_are_pytorchs(formula):
    names = {"where": torch.where, "sin": torch.sin, "maximum": torch.maximum}
    for first in TORCH:
        for second in TORCH:
            a, b = (torch.arange(1, 33) % 7 + 1).to(first), (torch.arange(1, 33) % 5 + 1).to(second)
            for b in (b, b[3]):
                want, got = eval(formula, names, {"a": a, "b": b}), kiln.evaluate(formula)
                assert got.dtype == want.dtype and got.shape == want.shape and isinstance(got, torch.Tensor), (formula, first, second)
                coarse = torch.float16 in (first, second) or torch.bfloat16 in (first, second)
                torch.testing.assert_close(got, want, rtol=2e-2 if coarse else 2e-6, atol=2e-2 if coarse else 1e-6)


def test_numbers_beside_tensors_are_pytorchs():
    for dtype in [torch.bool, torch.int32, torch.float16, torch.float32, torch.float64]:
        for c in (True, 2, 2.5, 1j):
            t = torch.ones(5).to(dtype)
            if dtype != torch.float16 or c != 1j:
                assert kiln.evaluate("t*c").dtype == (t * c).dtype
                torch.testing.assert_close(kiln.evaluate("t*c"), t * c)


def test_the_default_dtype_counts():
    t = torch.arange(4)
    assert kiln.evaluate("sin(t)").dtype == torch.float32
    torch.set_default_dtype(torch.float64)
    try:
        assert kiln.evaluate("sin(t)").dtype == torch.float64
        assert kiln.evaluate("t*0.5").dtype == torch.float64
    finally:
        torch.set_default_dtype(torch.float32)
    assert kiln.evaluate("sin(t)").dtype == torch.float32


def test_results_are_of_the_arguments_kind():
    x, t, k = np.ones(3, np.float32), torch.ones(3), kiln.Tensor([1.0, 1.0, 1.0])
    assert type(kiln.evaluate("x + 1")) is np.ndarray
    assert type(kiln.evaluate("t + 1")) is torch.Tensor
    assert type(kiln.evaluate("k + 1")) is kiln.Tensor
    assert type(kiln.evaluate("t + x")) is torch.Tensor
    assert kiln.evaluate("k + i", {"k": k, "i": np.arange(3)}).dtype == kiln.float32  # by PyTorch's rules
    with pytest.raises(RuntimeError, match="(?s)grad.*in the formula r"):
        kiln.evaluate("r*2", {"r": torch.ones(3, requires_grad=True)})


# -- shapes -----------------------------------------------------------------------------------------------------------

def test_shapes_and_views():
    a, row, column = rng.normal(size=(5, 7)), rng.normal(size=7), rng.normal(size=(5, 1))
    close(kiln.evaluate("a*row + column"), a * row + column)
    b = rng.normal(size=(14, 10))
    for view in (b[::2, ::2].T[:, ::-1], b.T[:5, :7], np.broadcast_to(row, (5, 7)), np.asfortranarray(a)):
        close(kiln.evaluate("view*2 + a"), view * 2 + a)
    empty = np.empty((0, 7))
    close(kiln.evaluate("empty*row"), empty * row)
    swapped = a.astype(">f8")
    close(kiln.evaluate("swapped + 1"), a + 1)
    point = np.array(2.5)
    got = kiln.evaluate("point*2")
    assert got.shape == () and got == 5
    close(kiln.evaluate("point*a"), point * a)
    with pytest.raises(RuntimeError, match="(?s)in the formula a \\+ wrong"):
        kiln.evaluate("a + wrong", {"a": a, "wrong": np.ones(6)})


def test_formulas_of_numbers_alone():
    x, n = 2.0, 3
    for formula in ("x*n", "sin(x) + n", "1 + 2", "2**10", "n/2", "where(x > 1, n, 5)"):
        got, want = kiln.evaluate(formula), np.asarray(numpy_of(formula, x=x, n=n))
        assert got.shape == () and got.dtype == want.dtype
        np.testing.assert_allclose(got, want)


def test_out():
    x, y = rng.normal(size=100).astype(np.float32), rng.normal(size=100)
    out = np.empty(100)
    assert kiln.evaluate("2*x + y", out=out) is out
    close(out, 2 * x + y)
    single = np.empty(100, np.float32)  # of the same kind of number
    assert kiln.evaluate("2*x + y", out=single) is single
    np.testing.assert_allclose(single, 2 * x + y, rtol=1e-5)
    with pytest.raises(RuntimeError, match="(?s)in the formula 2\\*x"):
        kiln.evaluate("2*x", out=np.empty(100, np.int64))
    with pytest.raises((RuntimeError, ValueError)):
        kiln.evaluate("2*x", out=np.empty(99, np.float32))
    kept = x.copy()
    assert kiln.evaluate("x*x - 1", out=x) is x
    np.testing.assert_allclose(x, kept * kept - 1, rtol=1e-6, atol=1e-7)
    shifted = np.arange(10.0)
    with pytest.raises(RuntimeError, match="single memory location"):  # as everywhere in Kiln
        kiln.evaluate("a*1 + 0", {"a": shifted[:-1]}, out=shifted[1:])
    t = torch.empty(100, dtype=torch.float64)
    assert kiln.evaluate("y*2", {"y": torch.from_numpy(y)}, None, t) is t


# -- names --------------------------------------------------------------------------------------------------------------

shared_name = np.arange(3.0)
hidden = np.ones(3)


def test_names_are_the_callers():
    hidden = np.full(3, 5.0)
    assert kiln.evaluate("hidden + shared_name").tolist() == [5, 6, 7]
    assert kiln.evaluate("hidden + shared_name", {"hidden": np.ones(3)}).tolist() == [1, 2, 3]  # and this module's
    assert kiln.evaluate("hidden + shared_name", global_dict={"shared_name": np.zeros(3)}).tolist() == [5, 5, 5]
    assert kiln.evaluate("hidden*2", local_dict={}, global_dict={"hidden": np.zeros(3)}).tolist() == [0, 0, 0]

    def inner():
        return kiln.evaluate("hidden + 1").tolist()  # not its own, nor in its closure: the module's
    assert inner() == [2, 2, 2]

    class Scope:
        own = np.ones(2)
        value = kiln.evaluate("own*3")
        kept = own
    assert Scope.value.tolist() == [3, 3] and Scope.kept is Scope.own
    namespace = {"np": np, "kiln": kiln}
    exec("a = np.ones(2)\nb = kiln.evaluate('a + 1')\nc = a", namespace)
    assert namespace["b"].tolist() == [2, 2]
    assert [kiln.evaluate("item*2") for item in (1.0, 2.0)] == [2, 4]


def test_locals_are_left_alone():
    x = np.ones(3)
    mine = locals()
    kiln.evaluate("x + 1")
    assert mine["x"] is x

    class Watched(np.ndarray):
        pass
    import weakref
    big = np.ones(3).view(Watched)
    alive = weakref.ref(big)
    del mine

    def use(big):
        kiln.evaluate("big + 1")
        del big
        return alive()
    assert use(big) is not None
    del big
    gc.collect()

    def let_go():
        big = np.ones(3).view(Watched)
        alive = weakref.ref(big)
        kiln.evaluate("big + 1")
        del big
        return alive()
    assert let_go() is None


def test_names_that_mean_something_else():
    sin, where, pi, inf, acc, f32, t0, self, out, _x = (np.full(3, float(k + 2)) for k in range(10))
    assert kiln.evaluate("sin(sin) + where(where > 2, pi, inf)").tolist() == (np.sin(sin) + np.where(where > 2, pi, inf)).tolist()
    assert kiln.evaluate("acc + f32*t0 + self - out / _x + sqrt(t0 + 1)**2").tolist() == pytest.approx(
        (acc + f32 * t0 + self - out / _x + np.sqrt(t0 + 1)**2).tolist())
    größe = np.ones(2)
    assert kiln.evaluate("größe*2").tolist() == [2, 2]


def test_mappings_are_asked():
    class Names(dict):
        def __missing__(self, name):
            return np.full(2, float(len(name)))
    assert kiln.evaluate("abc + de", Names()).tolist() == [5, 5]


# -- what is wrong -------------------------------------------------------------------------------------------------------

WRONG = [
    ("2*x + sinn(y)**2", ValueError, "unknown function 'sinn', did you mean 'sin'?\n  2*x + sinn(y)**2\n        ^"),
    ("2*x + missing", NameError, "the name 'missing' has no value: expected one among the caller's local and global variables, or in the dicts that were given\n"
     "  2*x + missing\n        ^"),
    ("2*x +", ValueError, "this is no formula: invalid syntax\n  2*x +\n       ^"),
    ("x && y", ValueError, "this is no formula: invalid syntax; write (a) & (b)\n  x && y\n     ^"),
    ("x || y", ValueError, "this is no formula: invalid syntax; write (a) | (b)\n  x || y\n     ^"),
    ("!b", ValueError, "this is no formula: invalid syntax; write ~a\n  !b\n  ^"),
    ("b ? x : y", ValueError, "this is no formula: invalid syntax; write where(c, a, b)\n  b ? x : y\n    ^"),
    ("sin x", ValueError, "this is no formula: invalid syntax; write f(x) for f x\n  sin x\n      ^"),
    ("2x + 1", ValueError, "this is no formula: invalid decimal literal; write 2*x for 2x\n  2x + 1\n  ^"),
    ("sum(x)", ValueError, "sum takes many elements to one, and a formula is computed element by element: take the sum of what kiln.evaluate returns\n  sum(x)\n  ^"),
    ("x > 0 and y > 0", ValueError, "'and' and 'or' ask for one truth value: write & and | between comparisons in brackets, as (x > 0) & (y > 0)\n"
     "  x > 0 and y > 0\n  ^"),
    ("0 < x < 1", ValueError, "comparisons do not chain: write (a < b) & (b < c)\n  0 < x < 1\n  ^"),
    ("x if b else y", ValueError, "'a if c else b' asks for one truth value: write where(c, a, b)\n  x if b else y\n  ^"),
    ("not b", ValueError, "'not' asks for one truth value: write ~x\n  not b\n  ^"),
    ("x + x[0]", ValueError, "subscripts are not part of a formula: give the view a name before\n  x + x[0]\n      ^"),
    ("x.T", ValueError, "attributes are not part of a formula: give the value a name before\n  x.T\n  ^"),
    ("b - b", TypeError, "- is not of two bool: expected numbers; ^ is 'one of them'\n  b - b\n  ^"),
    ("x & 1", TypeError, "& is not of float64: expected bool or integers; a comparison beside & or | needs brackets, as (x > 0) & (y > 0)\n  x & 1\n  ^"),
    ("np.sin(x)", ValueError, "functions have no prefix: write sin(x)\n  np.sin(x)\n  ^"),
    ("1 + x.hypot(y*2)", ValueError, "functions have no prefix: write hypot(x, y*2)\n  1 + x.hypot(y*2)\n      ^"),
    ("np.cbrt(x)", ValueError, "unknown function 'cbrt'\n  np.cbrt(x)\n  ^"),
    ("x.sum()", ValueError, "sum takes many elements to one, and a formula is computed element by element: take the sum of what kiln.evaluate returns\n  x.sum()\n  ^"),
    ("max(x, y)", ValueError, "max takes many elements to one: write maximum(a, b)\n  max(x, y)\n  ^"),
    ("clip(x, 0, 1)", ValueError, "unknown function 'clip'; write minimum(maximum(x, lowest), highest)\n  clip(x, 0, 1)\n  ^"),
    ("relu(x)", ValueError, "unknown function 'relu'; write maximum(x, 0)\n  relu(x)\n  ^"),
    ("Sin(x)", ValueError, "unknown function 'Sin', did you mean 'sin'?\n  Sin(x)\n  ^"),
    ("print(x)", ValueError, "unknown function 'print'\n  print(x)\n  ^"),
    ("float32(x)", ValueError, "unknown function 'float32'; convert the array before the formula\n  float32(x)\n  ^"),
    ("pi*x", NameError, "the name 'pi' has no value: expected one among the caller's local and global variables, or in the dicts that were given; "
     "write 3.141592653589793\n  pi*x\n  ^"),
    ("x^2", TypeError, "^ is not of float64: expected bool or integers; a power is written **\n  x^2\n  ^"),
    ("x @ y", ValueError, "@ is a matrix product, and a formula is computed element by element\n  x @ y\n  ^"),
    ("x > 0 & y > 0", ValueError, "& and | bind tighter than comparisons: write (a > 0) & (b > 0)\n  x > 0 & y > 0\n  ^"),
    ("lambda q: q", ValueError, "a formula is the expression alone: write what stands behind the colon\n  lambda q: q\n  ^"),
    ("'s'", ValueError, "expected a number\n  's'\n  ^"),
    ("1 << 2.5", ValueError, "unsupported operand type(s) for <<: 'int' and 'float'\n  1 << 2.5\n  ^"),
    ("where(b, x)", ValueError, "where takes 3 arguments, by position\n  where(b, x)\n  ^"),
    ("x + s", TypeError, "'s' is a str: expected an array or tensor of bool, integers, floats or complex numbers, or a number\n  x + s\n      ^"),
    ("x + 'a'", ValueError, "expected a number\n  x + 'a'\n      ^"),
    ("x + erf(z*2)", TypeError, "expected real numbers, found complex ones\n  x + erf(z*2)\n      ^"),
    ("lgamma(z)", TypeError, "expected real numbers, found complex ones\n  lgamma(z)\n  ^"),
    ("nextafter(h, 2)", TypeError, "nextafter is not of float16, which is computed in float32: convert the array before the formula\n  nextafter(h, 2)\n  ^"),
    ("x*2 + 1 % 0", ValueError, "integer modulo by zero\n  x*2 + 1 % 0\n        ^"),
    ("x + w", TypeError, "'w' is an array of <U1: expected an array or tensor of bool, integers, floats or complex numbers, or a number\n  x + w\n      ^"),
]


@pytest.mark.parametrize("formula, kind, message", WRONG, ids=[w[0] for w in WRONG])
def test_errors_show_the_place(formula, kind, message):
    names = {"x": np.ones(3), "y": np.ones(3), "b": np.ones(3, bool), "s": "text", "w": np.array(["a"]), "z": np.ones(3) * 1j, "h": np.ones(3, np.float16)}
    for _ in range(2):
        with pytest.raises(kind) as caught:
            kiln.evaluate(formula, names)
        assert str(caught.value) == "kiln.evaluate: " + message


def test_wrong_arguments():
    with pytest.raises(TypeError, match="expected a formula as str"):
        kiln.evaluate(3)
    with pytest.raises(TypeError, match="has no argument 'optimization'"):
        kiln.evaluate("1 + 1", optimization="none")
    with pytest.raises(TypeError, match="was given 'local_dict' twice"):
        kiln.evaluate("1 + 1", {}, local_dict={})
    for text in ("x" + " + x" * 5000, "(" * 300 + "x" + ")" * 300, "-" * 3000 + "x"):
        with pytest.raises(ValueError, match="kiln.evaluate"):
            kiln.evaluate(text, {"x": np.ones(3)})
    with pytest.raises(ValueError, match="at most 63 names"):
        kiln.evaluate("+".join(f"x{k}" for k in range(70)), {f"x{k}": 1.0 for k in range(70)})
    x = {f"x{k}": np.ones(3) for k in range(24)}
    assert kiln.evaluate("+".join(list(x)[:23]), x).tolist() == [23] * 3
    with pytest.raises(ValueError, match=r"(?s)at most 23 arrays and complex numbers, and this one has 24\n.*\^$"):
        kiln.evaluate("+".join(x), x)


def test_show_prints_the_row(capsys):
    x = np.ones(3, np.float32)
    assert kiln.evaluate("2*x + sin(x)**2", show=True) is not None
    row = capsys.readouterr().out
    assert row.startswith("map kiln::evaluate(Tensor x) -> Tensor : promote(x) takes f32 ") and 'doc "2*x + sin(x)**2"' in row
    kiln.load_ops(row.replace("kiln::evaluate", "shown::row"))  # it is one
    assert kiln.call("shown::row", x).tolist() == kiln.evaluate("2*x + sin(x)**2").tolist()


def test_what_show_prints_to_may_have_the_formula_forgotten(monkeypatch):
    class Writer:
        def write(self, text):
            for k in range(1100):
                kiln.evaluate(f"v*{k} - {k}", {"v": np.ones(2)})
            return len(text)
    y, out = np.ones(300), np.empty(300)
    with monkeypatch.context() as patched:
        patched.setattr("sys.stdout", Writer())
        got = [kiln.evaluate("y*2 + 0.25", show=True), kiln.evaluate("y*2 + 0.5", out=out, show=True), kiln.evaluate("1 + 1", show=True)]
    assert [g.ravel()[0] for g in got] == [2.25, 2.5, 2] and got[1] is out


# -- what is kept ---------------------------------------------------------------------------------------------------------

def test_another_number_is_not_another_kernel():
    kiln.configure(mode="sync")
    try:
        x = np.ones(100)
        kiln.evaluate("x*c + 0.125", {"x": x, "c": 1.0})
        before = kiln.stats()["compiles"]
        for c in range(20):
            assert kiln.evaluate("x*c + 0.125", {"x": x, "c": c + 0.5})[0] == c + 0.625
        assert kiln.stats()["compiles"] == before
    finally:
        kiln.configure(mode="default")


def memory():
    gc.collect()
    return int(open("/proc/self/statm").read().split()[1]) * resource.getpagesize()


def test_old_formulas_are_freed():
    kiln.configure(mode="interp", max_kernels=100)
    try:
        x = np.ones(8)
        for k in range(1200):
            assert kiln.evaluate(f"x*{k} + {k}")[0] == 2 * k
        before = memory()
        for k in range(1200, 2700):
            assert kiln.evaluate(f"x*{k} + {k}")[0] == 2 * k
        grown = memory() - before
        assert grown < 4 << 20, grown
        for k in (0, 5, 2699):
            assert kiln.evaluate(f"x*{k} + {k}")[0] == 2 * k
        for k in range(1500):  # wrong ones are not kept either
            with pytest.raises(ValueError):
                kiln.evaluate(f"x + nothing{k}(x)")
    finally:
        kiln.configure(mode="default", max_kernels=0)


def test_a_formula_outlives_its_context():
    x = np.arange(4.0)
    for mode in ("interp", "sync", "interp", "tiered"):
        assert kiln.evaluate("x*3 + 1").tolist() == [1, 4, 7, 10]
        kiln.configure(mode=mode)
    kiln.load_ops("map some_other::row(Tensor x) -> Tensor : takes f64 = x")
    assert kiln.evaluate("x*3 + 1").tolist() == [1, 4, 7, 10]
    kiln.configure(mode="default")


def test_threads():
    wrong = []

    def work(seed):
        own = np.full(3000 if seed % 2 else 50_000, float(seed))
        for k in range(150):
            got = kiln.evaluate(f"own*{k % 40} + seed")
            if not (got == own * (k % 40) + seed).all():
                wrong.append((seed, k))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
    for t in threads:
        t.start()
    for k in range(20):
        kiln.configure(mode="interp" if k % 2 else "tiered")
    for t in threads:
        t.join()
    kiln.configure(mode="default")
    assert not wrong


def test_code_that_arguments_run_may_do_anything():
    class Nasty(dict):
        def __getitem__(self, name):
            kiln.configure(mode="interp")
            for k in range(3):
                kiln.evaluate(f"v + {k}", {"v": np.ones(2)})
            return np.ones(2)
    for _ in range(5):
        assert kiln.evaluate("p + q*2", Nasty()).tolist() == [3, 3]
    kiln.configure(mode="default")
