"""kiln.evaluate of formulas that are drawn at random, beside NumPy: dtype, shape, values, zeros' signs, and what is refused.

A formula is drawn as text over the names of ARRAYS and NUMBERS, and Python's eval of this text with NumPy's functions says what
it gives.  Kiln may refuse what NumPy computes for the reasons in REFUSED, which docs/PYTHON.md lists, and for no others.
"""
import os
import random
import re

import numpy as np
import pytest

import kiln

SIZE = 7
ROUNDS = 40 if os.environ.get("KILN_TEST_ALL") else 12
REFUSED = {"a number does not fit 64 bits": r".", "ZeroDivisionError|division by zero": r"//|%|fmod", "have no common dtype that is exact": r"[<>=]",
           "negative number to a power": r"\*\*", "to negative integer powers are not served": r"\*\*|power", "negative shift count": r"<<|>>",
           "of Python's int is not served": r"\*\*|<<|>>", "the number is too large": r".",
           "the number .* does not fit int64": r"2\*\*63", "does not fit u?int(8|16|32|64)|cannot be converted to type": r"where|\*\*|<<",  # NumPy's where wraps
           "not of complex numbers|expected (integers or floats|real numbers), found complex": r"[<>%]|//|m[ai][xn]imum"}
COMPLEX = re.compile(r"\b(z|c|w|zero|2j)\b")  # C99 leaves open how products and quotients of complex numbers round
# What Python refuses and Kiln computes: numbers divided by zero, and floats that are too large.
COMPUTED = {ZeroDivisionError: r"/|%|\*\*", OverflowError: r"\*\*|<<"}


def arrays(draw):
    whole = np.array([draw.choice([0, 1, 2, 3, 5, 100, draw.randrange(127)]) for _ in range(SIZE)])
    signed, parts = whole * np.array([draw.choice([-1, 1]) for _ in range(SIZE)]), np.array([draw.choice([0, 0.25, 0.5, 0.75]) for _ in range(SIZE)])
    z = signed + parts + 1j * np.array([draw.choice([-2, -0.5, 0, 0, 1]) for _ in range(SIZE)])
    odd = np.array([draw.choice([0.0, -0.0, 1, -1, -3, np.nan, np.inf, -np.inf]) for _ in range(SIZE)])
    return {"b": whole % 2 == 1, "u8": whole.astype("u1"), "u16": whole.astype("u2"), "u64": whole.astype("u8"), "i8": signed.astype("i1"),
            "i32": signed.astype("i4"), "i64": signed, "f": (signed + parts).astype("f4"), "x": signed + parts, "odd": odd, "zero": z * 0,
            "z": z, "c": z.astype("c8"), "point": np.array(2.5)}


def numbers(draw):
    return {"n": draw.choice([0, 1, 2, 3, -1, -2, 7, 300, -129, 70000, 2**33, 2**62]), "m": draw.choice([1, 3, 4, -3, 255]),
            "p": draw.choice([0.5, -0.5, 2.0, -3.25, 1.0]), "flag": draw.choice([True, False]), "w": draw.choice([1j, 2 - 0.5j, 0j])}


class Formula:
    """Draws a formula; `exact` says whether its value is the same to the bit however it is computed."""

    def __init__(self, draw):
        self.draw, self.exact = draw, True

    def number(self, depth):
        one = self.draw.random()
        if depth == 0 or one < 0.4:
            return self.draw.choice(["n", "m", "p", "n", "m", "0", "1", "2", "3", "(2**63)", "10", "0.5", "1.5", "2.0", "300", "flag", "w", "2j"])
        if one < 0.5:
            return f"(-{self.number(depth - 1)})"
        sign = self.draw.choice(["+", "-", "*", "/", "//", "%", "**", "**", "<<", ">>"])
        if sign == "**":
            self.exact = False
            return f"({self.number(depth - 1)}**{self.draw.choice(['-1', '-2', '0.5', '2', '3', 'm', '(m - 3)', '0', '100'])})"
        if sign in ("<<", ">>"):
            return f"({self.draw.choice(['n', 'm', '5'])} {sign} {self.draw.choice(['m', '3', '70'])})"
        return f"({self.number(depth - 1)} {sign} {self.number(depth - 1)})"

    def operand(self, depth):
        return self.number(2) if self.draw.random() < 0.45 else self.array(depth)

    def pair(self, depth):
        a, b = self.array(depth - 1), self.operand(depth - 1)
        return (a, b) if self.draw.random() < 0.6 else (b, a)

    def array(self, depth):
        kind = self.draw.random()
        if depth == 0 or kind < 0.15:
            return self.draw.choice(["b", "u8", "u8", "u16", "u64", "u64", "i8", "i32", "i64", "f", "x", "odd", "z", "c", "point"])
        if kind < 0.3:
            name = self.draw.choice(["-", "~", "square", "floor", "rint", "conj", "real", "imag", "imag", "isnan", "isfinite", "ones_like", "zeros_like"])
            return f"{name}({self.array(depth - 1)})"
        a, b = self.pair(depth)
        if kind < 0.45:
            return f"({a} {self.draw.choice(['<', '<=', '>', '>=', '==', '!='])} {b})"
        if kind < 0.55:
            return f"{self.draw.choice(['maximum', 'minimum', 'fmod'])}({a}, {b})"
        if kind < 0.6:
            return f"where({self.array(0)} > 1, {a}, {b})"
        sign = self.draw.choice(["+", "-", "*", "/", "//", "%", "%", "**", "**", "&", "|", "^", "<<", ">>"])
        if sign == "**":
            self.exact, a, b = False, self.array(depth - 1), self.draw.choice(["0", "2", "-1", "0.5", "m", "p", "zero", "(u8 % 3)", "(2**-1)", "(n**-1)"])
        return f"({a} {sign} {b})"


def outcome(compute):
    try:
        return compute(), None
    except Exception as error:
        return None, error


def agree(got, want, exact, single):
    assert isinstance(got, np.ndarray) and (got.dtype, got.shape) == (want.dtype, want.shape), (got.dtype, got.shape, want.dtype, want.shape)
    if want.dtype.kind in "biu":
        assert got.tolist() == want.tolist()
        return
    if exact and want.dtype.kind == "f":
        assert np.signbit(got[got == 0]).tolist() == np.signbit(want[got == 0]).tolist(), "the sign of a zero"
        np.testing.assert_array_equal(got, want)
        return
    tolerance = 2e-4 if single else 1e-9
    if want.dtype.kind == "c":  # C99 and NumPy leave open what infinite complex numbers give
        got, want = got[np.isfinite(want)], want[np.isfinite(want)]
    np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance, equal_nan=True)


@pytest.mark.parametrize("seed", range(ROUNDS))
def test_drawn_formulas_are_numpys(seed):
    draw = random.Random(f"formulas {seed}")
    scope = {name: getattr(np, name) for name in dir(np)}
    counted = {"both": 0, "refused by both": 0, "refused": 0}
    kiln.configure(mode="interp")
    try:
        for _ in range(100):
            formula = Formula(draw)
            text, names = formula.array(draw.choice([1, 2, 2, 3])), {**arrays(draw), **numbers(draw)}
            with np.errstate(all="ignore"):
                want, wrong = outcome(lambda: np.asarray(eval(text, scope, dict(names))))
            got, refused = outcome(lambda: kiln.evaluate(text, names))
            said = f"{text} with " + ", ".join(f"{k} = {v!r}" for k, v in names.items() if re.search(rf"\b{k}\b", text)) + f"\nkiln: {got} {refused}\nnumpy: {want} {wrong}"
            try:
                if wrong:
                    assert refused or any(isinstance(wrong, kind) and re.search(where, text) for kind, where in COMPUTED.items())
                    counted["refused by both"] += 1
                elif refused:
                    assert any(re.search(why, str(refused)) and re.search(where, text) for why, where in REFUSED.items())
                    counted["refused"] += 1
                else:
                    agree(got, want, formula.exact and not COMPLEX.search(text), single=re.search(r"\b[fc]\b", text))
                    counted["both"] += 1
            except AssertionError as error:
                raise AssertionError(f"{error}\n{said}") from None
    finally:
        kiln.configure(mode="default")
    assert counted["both"] >= 35 and counted["refused"] <= 25, counted
