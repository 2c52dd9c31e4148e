"""Random rows: seeded, well-typed expressions over every primitive, as rows that nobody wrote by hand.

Each row has a few results, each a random tree over tensors of several dtypes, numbers, casts and `let` names, some in
branches.  Whatever a row is, the interpreter and the compiled kernel must give the same bits, rounding to nearest, upward
and towards zero, and where subnormal numbers are zeros.  (Downward 1 - 1 is -0, but a compiler that finds two such constants
by itself, such as f32(a == a), says 0 whatever its flags; rows that ship are compared downward too, by test_tiers.c.)  Where PyTorch has every operation of a tree, the tree is also evaluated by it, one
tensor operation per node: of operations that round once the bits must be PyTorch's, and an elementary function may stand
at the root, within a few units in the last place.

A whole run (tests/whole.py) makes thirty times as many rows.
"""
import ctypes
import os
import random
import re
from dataclasses import dataclass
from typing import Callable

import numpy
import pytest
import torch

from compare import same_bits, tally
from kilnlib import DTYPES, ROOT, SHORT, Kiln, last_tier
from whole import WHOLE

ROWS = 2400 if WHOLE else 80
RESULTS = 5  # of a row
SIZES = (77, 5)
BOOL, F32, F64 = torch.bool, torch.float32, torch.float64
INTS = [DTYPES[t] for t in ("u8", "i8", "i16", "i32", "i64")]
COMPUTED = [BOOL, *INTS, F32, F64]
WIDE = [torch.uint16, torch.uint32, torch.uint64]  # PyTorch computes next to nothing in them
HALVES = [torch.float16, torch.bfloat16]


def kind(t):
    return "B" if t == BOOL else "F" if t.is_floating_point else "I"


def computed_in(t):
    return F32 if t in HALVES else t


# -- expressions ------------------------------------------------------------------------------------------------------------

@dataclass
class Expr:
    """Text of a row, its type, and what PyTorch makes of it: a function of the tensors, or None."""
    text: str
    type: torch.dtype
    value: Callable | None


def primitives():
    """Name -> (arity, rule, kinds of operands, trait), from the table that Kiln itself is made of."""
    text = (ROOT / "src" / "expr" / "prims.def").read_text()
    found = re.findall(r"^P\(\w+, +(\w+), +(\d), (\w+), +(\w+), +(\w+), +\"", text, flags=re.M)
    return {name: (int(arity), rule, kinds, trait) for name, arity, rule, kinds, trait in found}


PRIMS = primitives()
SIGNS = {"add": "+", "sub": "-", "mul": "*", "div": "/", "floordiv": "//", "mod": "%", "and": "&", "or": "|", "xor": "^",
         "shl": "<<", "shr": ">>", "eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}


def _sqrt(x):
    """Rounded once, as NumPy's is; that of PyTorch's vectors may be a unit off."""
    with numpy.errstate(invalid="ignore"):
        return torch.from_numpy(numpy.sqrt(x.contiguous().numpy()))


# PyTorch's operations with the same meaning.
MEANS = {
    "add": torch.add, "sub": torch.sub, "mul": torch.mul, "div": torch.div, "neg": torch.neg, "abs": torch.abs,
    "idiv": lambda x, y: torch.div(x, y, rounding_mode="trunc"), "floordiv": lambda x, y: torch.div(x, y, rounding_mode="floor"),
    "rem": torch.fmod, "mod": torch.remainder, "sign": torch.sign, "copysign": torch.copysign, "nextafter": torch.nextafter,
    "gcd": torch.gcd, "and": torch.bitwise_and, "or": torch.bitwise_or, "xor": torch.bitwise_xor, "not": torch.bitwise_not,
    "shl": torch.bitwise_left_shift, "shr": torch.bitwise_right_shift, "eq": torch.eq, "ne": torch.ne, "lt": torch.lt,
    "le": torch.le, "gt": torch.gt, "ge": torch.ge, "isnan": torch.isnan, "isinf": torch.isinf, "signbit": torch.signbit,
    "floor": torch.floor, "ceil": torch.ceil, "trunc": torch.trunc, "round": torch.round, "sqrt": _sqrt,
    "mantissa": lambda x: torch.frexp(x)[0], "exponent": lambda x: torch.frexp(x)[1], "pow": torch.pow,
    "max": torch.maximum, "min": torch.minimum, "select": torch.where,
}
# Not judged on floats: which of 0 and -0 is the larger, powers, which are not rounded once, and remainders, of which
# PyTorch's vectors and single elements make different things where the quotient overflows.
NOT_OF_FLOATS = {"max", "min", "pow", "rem", "mod", "floordiv"}
NEAR = {name: getattr(torch, name) for name in
        ("exp", "log", "tanh", "sigmoid", "erf", "sin", "cos", "exp2", "expm1", "log1p", "log2", "log10", "tan", "asin", "acos",
         "atan", "sinh", "cosh", "asinh", "acosh", "atanh", "erfc", "rsqrt")}


class Maker:
    """Makes expressions of one row.  judged: only such as PyTorch can evaluate."""

    def __init__(self, r, leaves, judged):
        self.r, self.leaves, self.judged = r, leaves, judged
        names = [n for n in PRIMS if not judged or n in MEANS]
        self.plain = [n for n in names if PRIMS[n][3] != "SPECIAL"]
        self.special = [n for n in names if PRIMS[n][3] == "SPECIAL"]

    def literal(self, t):
        """A number that every type of its kind holds."""
        k = self.r.choice([0, 1, 1, 2, 3, 7, 100]) if kind(t) == "I" else self.r.choice([0, 1, -1, 0.5, 2, -0.25, 1.5, 96])
        return Expr(f"({k})", t, lambda env: torch.full_like(next(iter(env.values())), k, dtype=t))

    def cast(self, e, t):
        value = None
        if e.value and not (kind(e.type) == "F" and kind(t) == "I"):  # what does not fit an integer has no meaning
            def value(env):
                return e.value(env).to(t)
        return Expr(f"{SHORT[t]}({e.text})", t, value)

    def of_kind(self, e, kinds):
        """e, or a cast of it to a type of one of the kinds."""
        if kind(e.type) in kinds:
            return e
        if "F" in kinds:
            return self.cast(e, self.r.choice([F32, F64]))
        if "I" in kinds and kind(e.type) == "F" and self.judged:
            e = self.number("lt", [e, self.literal(e.type)])
        return self.cast(e, self.r.choice(INTS) if "I" in kinds else BOOL)

    def tree(self, depth):
        if depth == 0 or self.r.random() < 0.08:
            return self.r.choice(self.leaves)
        if self.r.random() < 0.12:
            e = self.tree(depth - 1)
            to = [t for t in COMPUTED if not (self.judged and kind(e.type) == "F" and kind(t) == "I")]
            return self.cast(e, self.r.choice(to))
        name = self.r.choice(self.special if self.special and self.r.random() < 0.04 else self.plain)
        return self.apply(name, depth)

    def apply(self, name, depth):
        arity, rule, kinds, _ = PRIMS[name]
        if rule == "SELECT":
            condition = self.tree(depth - 1)
            return self.select(condition, *self.alike([self.tree(depth - 1), self.tree(depth - 1)]))
        operands = [self.of_kind(self.tree(depth - 1), kinds) for _ in range(arity)]
        if arity > 1 and self.r.random() < 0.2 and kind(operands[0].type) != "B":
            operands[1] = self.literal(operands[0].type)
        return self.number(name, self.tamed(name, operands))

    def alike(self, operands):
        """Operands that have a common type: the wide unsigned ones meet floats and themselves only."""
        if len({e.type for e in operands}) > 1:
            operands = [self.cast(e, self.r.choice([F32, F64])) if e.type in WIDE else e for e in operands]
        return operands

    def tamed(self, name, operands):
        """Without what has no meaning: divisors of zero, the sign of NaN, powers out of all bounds."""
        operands = self.alike(operands)
        if PRIMS[name][3] == "DIVIDES" and kind(self.common(operands)) not in PRIMS[name][2]:
            operands = [self.cast(e, INTS[-1]) for e in operands]
        last = operands[-1]
        if PRIMS[name][3] == "DIVIDES" and self.common(operands) in INTS + WIDE:
            operands[-1] = self.number("add", [self.number("and", [last, Expr("(7)", last.type, _full(7, last.type))]),
                                               Expr("(1)", last.type, _full(1, last.type))]) \
                if kind(last.type) == "I" else Expr("(3)", operands[0].type, _full(3, operands[0].type))
        if name == "pow" and kind(self.common(operands)) == "I":
            operands[-1] = Expr("(3)", operands[0].type, _full(3, operands[0].type))
        if name in ("signbit", "copysign") and kind(last.type) == "F":
            operands[-1] = self.select(self.number("isnan", [last]), self.literal(last.type), last)
        return operands

    @staticmethod
    def common(operands):
        t = operands[0].type
        for e in operands[1:]:
            t = torch.promote_types(t, e.type)
        return t

    def select(self, condition, x, y):
        t = self.common([x, y])
        value = None
        if condition.value and x.value and y.value:
            def value(env):
                return torch.where(condition.value(env).to(BOOL), x.value(env).to(t), y.value(env).to(t))
        return Expr(f"({condition.text} ? {x.text} : {y.text})", t, value)

    def number(self, name, operands):
        _, rule, kinds, _ = PRIMS[name]
        t = self.common(operands)
        if kind(t) not in kinds:  # two operands met at a bool, or at a float
            operands = [self.cast(e, INTS[-1] if "I" in kinds else F64) for e in operands]
            t = self.common(operands)
        means = MEANS.get(name)
        value = None
        if means and all(e.value for e in operands) and not (name in NOT_OF_FLOATS and kind(t) == "F"):
            def value(env):
                return means(*[e.value(env).to(t) for e in operands])
        if name in SIGNS and self.r.random() < 0.7:
            text = "(" + f" {SIGNS[name]} ".join(e.text for e in operands) + ")"
        elif name in ("and", "or", "xor", "not"):
            text = f"(~{operands[0].text})" if name == "not" else f"({operands[0].text} {SIGNS[name]} {operands[1].text})"
        else:
            text = f"{name}({', '.join(e.text for e in operands)})"
        return Expr(text, {"CMP": BOOL, "PRED": BOOL, "TOINT": torch.int32}.get(rule, t), value)


def _full(k, t):
    return lambda env: torch.full_like(next(iter(env.values())), k, dtype=t)


# -- rows -------------------------------------------------------------------------------------------------------------------

@dataclass
class Row:
    name: str
    text: str
    dtypes: dict  # argument -> dtype
    flag: bool
    results: list  # Expr per result
    near: list  # per result: None, or an elementary function that stands around it
    layout: str


def make_row(n):
    r = random.Random(n)
    judged = n % 2 == 0
    types = [BOOL, *INTS, *HALVES, F32, F64] + ([] if judged else WIDE)
    dtypes = {"a": r.choice(types), "b": r.choice(types), "c": r.choice([F32, F64, torch.int32, BOOL])}
    leaves = [Expr(k, computed_in(t), None if t in WIDE else lambda env, k=k, t=t: env[k].to(computed_in(t)))
              for k, t in dtypes.items()]
    maker = Maker(r, leaves, judged)
    shared = maker.tree(2)
    maker.leaves = leaves + [Expr("shared", shared.type, shared.value)]
    results = [maker.tree(r.randint(2, 5)) for _ in range(RESULTS)]
    near = [r.choice(list(NEAR)) if judged and r.random() < 0.3 else None for _ in results]
    bodies = []
    for k, e in enumerate(results):
        if near[k]:
            results[k] = e = e if e.type == F32 else maker.cast(e, F32)  # its exact value is then known, in f64
        bodies.append(f"{near[k]}({e.text})" if near[k] else e.text)
    # A result may be of the type of its body, or of the common one where that is computed in it.
    kept = [r.random() < 0.5 and e.type == computed_in(dtypes["a"]) for e in results]
    takes = " ".join(f"takes {k}: {SHORT[dtypes[k]]}" for k in "bc")
    rets = ", ".join("same" if k else SHORT[e.type] for k, e in zip(kept, results))
    head = (f"map random::row{n}(Tensor a, Tensor b, Tensor c, bool flag) -> ({', '.join(['Tensor'] * RESULTS)}) : promote(a) "
            f"takes {SHORT[dtypes['a']]} {takes} -> ({rets})")
    body = " = " + ", ".join(bodies)
    flag = r.random() < 0.5
    if r.random() < 0.5:  # two branches, of which the other one is not taken
        other = " = " + ", ".join(maker.cast(maker.tree(2), e.type).text for e in results)
        body = "\n    when flag" + (body if flag else other) + "\n    when not flag" + (other if flag else body)
    let = f"\n    let shared = {shared.text}" if "shared" in body else ""
    unused = [k for k in [*dtypes, "flag"] if not re.search(rf"\b{k}\b", body + let)]
    text = head + body + let + (f"\n    ignore {', '.join(unused)}\n" if unused else "\n")
    results = [Expr(e.text, dtypes["a"] if same else e.type, e.value) for e, same in zip(results, kept)]
    return Row(f"random::row{n}", text, dtypes, flag, results, near, r.choice(["dense", "dense", "strided", "broadcast"]))


# -- tensors ----------------------------------------------------------------------------------------------------------------

FLOATS = [0.0, -0.0, 1.0, -1.0, 0.5, 1.5, 2.5, -2.5, 3.0, 7.25, 100.0, -65504.0, 1e-8, 3e-39, -1e-310, 1e22, 3.4e38, -1.7e308,
          float("inf"), float("-inf"), float("nan"), 0.1, 1 / 3, -0.7]


def draw(r, t, n):
    if t == BOOL:
        return torch.tensor([r.random() < 0.5 for _ in range(n)])
    if t.is_floating_point:
        return torch.tensor([r.choice(FLOATS) if r.random() < 0.4 else r.uniform(-20, 20) for _ in range(n)], dtype=F64).to(t)
    low, high = torch.iinfo(t).min, torch.iinfo(t).max
    edge = [low, high, low + 1, high - 1, 0, 1]
    numbers = [r.choice(edge) if r.random() < 0.2 else r.randint(max(low, -20), 20) for _ in range(n)]
    return torch.tensor(numbers, dtype=t)


def tensors(r, row, n):
    made = {k: draw(r, t, 2 * n) for k, t in row.dtypes.items()}
    if row.layout == "strided":
        return {k: t[::2] for k, t in made.items()}
    if row.layout == "broadcast":
        return {k: t[:1].expand(n) if k == "b" else t[:n] for k, t in made.items()}
    return {k: t[:n].clone() for k, t in made.items()}


# -- environments -----------------------------------------------------------------------------------------------------------

LIBM = ctypes.CDLL("libm.so.6")
MODES = {"upward": 0x800, "towards zero": 0xC00} if os.uname().machine == "x86_64" else {}


class Environment:
    """A rounding mode, or subnormal numbers as zeros, for the calls of a `with`."""

    def __init__(self, name):
        self.name = name

    def __enter__(self):
        if self.name == "flushing":
            torch.set_flush_denormal(True)
        else:
            assert LIBM.fesetround(MODES.get(self.name, 0)) == 0

    def __exit__(self, *unused):
        torch.set_flush_denormal(False)
        LIBM.fesetround(0)


# -- tests ------------------------------------------------------------------------------------------------------------------

@pytest.fixture(scope="module")
def rows(interp, sync):
    made = [make_row(n) for n in range(ROWS)]
    text = "".join(row.text for row in made)
    interp.load(text)
    sync.load(text)
    return made


def test_tiers_agree_on_random_rows(rows, interp, sync):
    names = ["nearest", *MODES, "flushing"]
    for at, row in enumerate(rows):
        slow, fast = interp.op(row.name), sync.op(row.name)
        turn = at % len(names)  # any environment may be the one that the class is made in
        for n in SIZES:
            args = tensors(random.Random(f"{row.name} {n}"), row, n)
            for name in names[turn:] + names[:turn]:
                with Environment(name):
                    want, got = slow(**args, flag=row.flag), fast(**args, flag=row.flag)
                assert last_tier() == "compiled"
                for k, (x, y) in enumerate(zip(want, got)):
                    assert same_bits(x, y), f"result {k}, {name}: {x} interpreted, {y} compiled, of {args}\n{row.text}"
                tally.cases["random rows"] += len(want)


def wrong(got, exact, near):
    """Which elements are not what they must be."""
    if not near:
        return [] if same_bits(got, exact) else (got != exact).nonzero().flatten().tolist() or ["a sign"]
    ideal = NEAR[near](exact.to(F64)).to(got.dtype)
    step = (torch.nextafter(ideal, torch.full_like(ideal, float("inf"))) - ideal).abs().to(F64)
    far = ((got.to(F64) - ideal.to(F64)).abs() > 4 * step) | (got.isnan() != ideal.isnan())
    return (far & (got != ideal) & ~(got.isnan() & ideal.isnan())).nonzero().flatten().tolist()


def test_random_rows_mean_what_pytorch_means(rows, interp):
    judged = 0
    for row in rows:
        args = tensors(random.Random(f"{row.name} torch"), row, SIZES[0])
        results = interp.op(row.name)(**args, flag=row.flag)
        for k, (e, near) in enumerate(zip(row.results, row.near)):
            if not e.value:
                continue
            exact = e.value(args).expand(SIZES[0])
            exact = exact.to(e.type) if not near else exact
            bad = wrong(results[k], exact.contiguous(), near)
            assert not bad, f"result {k} at {bad[:5]}: {results[k]}, PyTorch's {exact}, of {args}\n{row.text}"
            judged += 1
    assert judged > ROWS
    tally.cases["results of random rows against PyTorch"] += judged


def test_results_of_other_tensors_are_seen_to_be_wrong(rows, interp):
    seen = judged = 0
    for row in rows:
        args, others = (tensors(random.Random(f"{row.name} {seed}"), row, SIZES[0]) for seed in ("torch", "other"))
        results = interp.op(row.name)(**args, flag=row.flag)
        for result, e, near in zip(results, row.results, row.near):
            if e.value and not near:
                judged += 1
                seen += bool(wrong(result, e.value(others).expand(SIZES[0]).to(e.type).contiguous(), near))
    assert seen > 0.7 * judged > 0


@pytest.mark.parametrize("mode", ["interp", "sync"])
def test_constants_do_not_depend_on_the_mode_of_the_first_call(mode):
    third = "map random::third(Tensor a) -> Tensor : promote(a) takes f64 -> f64 = a * (1.0 / 3.0)\n"
    a = torch.arange(9, dtype=F64)
    for name in MODES:
        with Kiln(mode) as k:
            k.load(third)
            with Environment(name):
                k.op("random::third")(a)
            assert same_bits(k.op("random::third")(a), a * (1.0 / 3.0)), name


def test_rows_are_of_every_primitive(rows):
    """What is drawn covers the table; of special functions, which are long to compile, a whole run does."""
    text = "".join(row.text for row in rows)
    used = {name for name in PRIMS if re.search(rf"\b{name}\(", text) or name in ("select", "and", "or", "xor", "not")}
    missing = {n for n, p in PRIMS.items() if n not in used and (p[3] != "SPECIAL" or ROWS > 1000)}
    assert not missing
