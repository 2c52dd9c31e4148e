"""The suite tests itself: a planted fault must be found by the very comparison the other tests use."""
import itertools
import re
from pathlib import Path

import pytest
import torch

import cases
import clauses
import covering
from compare import call, report, same_bits, with_torch
from kilnlib import Kiln

SILU = torch.ops.aten.silu.default

RIGHT = "map planted::right(Tensor self) -> Tensor : takes float complex = self / (1 + exp(-self))"
WRONG = [
    "map planted::sign(Tensor self) -> Tensor : takes float = self / (1 + exp(self))",
    "map planted::dtype(Tensor self) -> Tensor : takes float -> f64 = self / (1 + exp(-self))",
    "map planted::takes(Tensor self) -> Tensor : to_float = self / (1 + exp(-self))",
    "map planted::nearly(Tensor self) -> Tensor : takes float = self / (1.0001 + exp(-self))",
    "map planted::narrow(Tensor self) -> Tensor : takes f32 f64 = self / (1 + exp(-self))",
]


MANY = 100  # differences are enough


def name_of(row):
    return row.split()[1].split("(")[0]


@pytest.fixture(scope="module")
def planted():
    with Kiln("interp") as k:
        k.load("\n".join([RIGHT, *WRONG]))
        yield k


def differences(kiln, row, torch_op=SILU, made=covering.functional):
    op = kiln.op(name_of(row))
    subject = cases.Subject(op.name, op.row, torch_op)
    found = ((case, with_torch(op, torch_op, case)) for case in made(subject))
    return list(itertools.islice(((case, said) for case, said in found if said), MANY))


SETS = pytest.mark.parametrize("made", [covering.functional, cases.functional], ids=["covering", "every"])


@SETS
def test_a_right_row_is_found_right(planted, made):
    found = differences(planted, RIGHT, made=made)
    assert not found, report(found)


@SETS
@pytest.mark.parametrize("row", WRONG, ids=name_of)
def test_a_wrong_row_is_found_wrong(planted, row, made):
    assert differences(planted, row, made=made)


def test_a_wrong_body_is_shown_with_the_call_and_the_value(planted):
    text = report(differences(planted, WRONG[0]))
    assert "planted::sign(f16[" in text and "PyTorch's" in text


HYPOT = torch.ops.aten.hypot.default
BINARY = "(Tensor self, Tensor other) -> Tensor : promote(self, other) takes float"
STRIDES = [f"map planted::{name}{BINARY} strides {rule} = hypot(self, other)" for name, rule in (
    ("rows", "rows"), ("rows_of_first", "(rows self, other)"), ("rows_of_second", "(self, rows other)"))]


def test_the_covering_set_finds_strides_that_are_wrong_for_a_broadcast():
    right = f"map planted::hypot{BINARY} = hypot(self, other)"
    with Kiln("interp") as kiln:
        kiln.load("\n".join([right, *STRIDES]))
        assert not differences(kiln, right, HYPOT)
        for row in STRIDES:
            found = differences(kiln, row, HYPOT)
            assert any("strides=" in said and len({v.sizes for v in case.views()}) > 1 for case, said in found), row


def test_every_value_of_an_axis_is_in_the_covering_set():
    row = "map add.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor : promote(self, other) takes all complex"
    s = cases.Subject("aten::add.Tensor", row, torch.ops.aten.add.Tensor)
    made = list(covering.functional(s))
    for place in (0, 1):
        assert {case.args[place].dtype for case in made} == set(cases.DTYPES)
    assert {case.note for case in made} == {layout[0] for layout in cases.layouts(2)}
    assert {repr(dict(case.kwargs)["alpha"]) for case in made} >= set(map(repr, cases.NUMBERS))
    for t in set(cases.DTYPES) - {"u16", "u32", "u64"}:
        dense = {case.fill for case in made if case.note == "long" and all(v.dtype == t for v in case.views())}
        assert dense == {"random", "special", "wide"}


def test_any_nan_equals_any_nan_and_zeros_differ_in_bits():
    nans = torch.tensor([0x7FC00000, -0x400000, 0x7F800001], dtype=torch.int32).view(torch.float32)
    assert same_bits(nans, nans.flip(0))
    assert not same_bits(torch.tensor([0.0]), torch.tensor([-0.0]))


def test_writing_before_refusing_is_found():
    case = cases.Case("aten::silu_", (cases.View("f32", (8,), (1,)),))

    def writes_then_raises(x):
        x[5] = 1
        raise RuntimeError("no")
    assert isinstance(call(writes_then_raises, case.build(True, True), refused_writes=True).error, AssertionError)


def test_writing_beside_the_result_is_found():
    case = cases.Case("aten::silu_", (cases.View("f32", (8,), (2,)),))

    def writes_one_too_many(x):
        x.as_strided((1,), (1,), 1)[0] = 99
        return torch.ops.aten.silu_.default(x)
    assert with_torch(torch.ops.aten.silu_.default, torch.ops.aten.silu_.default, case, writes=True) is None
    assert "memory" in with_torch(writes_one_too_many, torch.ops.aten.silu_.default, case, writes=True)


def test_cases_are_the_same_in_every_run():
    subject = cases.Subject("aten::add.Tensor", "map add.Tensor", torch.ops.aten.add.Tensor)
    first, second = ([str(c) for c in itertools.islice(cases.functional(subject), 3000)] for _ in range(2))
    assert first == second and len(set(first)) > 2000


NEG = "(Tensor self) -> Tensor : takes"
MISSING = [  # a row, the operator that it should be, and the clause to look at first
    (f"map planted::no_strides{NEG} real complex out copied = -self", torch.ops.aten._neg_view_copy.default, "`strides`"),
    (f"map planted::no_takes{NEG} f32 strides rows = -self", torch.ops.aten._neg_view_copy.default, "`takes`"),
    (f"map planted::no_check{NEG} all = self", torch.ops.aten.neg.default, "`check`, with the condition"),
    (f"map planted::no_ret{NEG} real = self", torch.ops.aten.isnan.default, "the dtype of results: `->`"),
    (f"map planted::no_body{NEG} float = self * 1.01", torch.ops.aten.exp.default, "the body"),
]


@pytest.mark.parametrize("row, torch_op, clause", MISSING, ids=[name_of(row) for row, _, _ in MISSING])
def test_a_difference_names_the_clause_that_is_missing(row, torch_op, clause):
    with Kiln("interp") as kiln:
        kiln.load(row)
        text = report(differences(kiln, row, torch_op))
        assert f"look at: {clause}" in text, text


@pytest.mark.parametrize("said, clause", [
    ("raised RuntimeError: argument 'out': some elements of the input tensor and the written-to tensor refer to a single memor; PyTorch returned", "`out copied`"),
    ("memory 0 differs after the call: something outside of the result was written", "no clause"),
    ("returned, but PyTorch raised IndexError: Dimension out of range", "`check`"),
    ("raised TypeError: x; PyTorch raised IndexError: y", "the word of `check`"),
    ("result 0: is f32[3] strides=(1,), PyTorch's is f32[1, 3] strides=(3, 1)", "sizes: `over`"),
    ("something that nobody has thought of", "no clause is known"),
])
def test_advice(said, clause):
    assert clauses.advice(said).startswith(clause)


def test_advice_names_clauses_that_exist():
    """Every word between backquotes stands in docs/OPS.md."""
    page = (Path(__file__).resolve().parents[2] / "docs/OPS.md").read_text()
    for _, text in clauses.ADVICE:
        for word in re.findall(r"`([^`]+)`", text):
            assert re.search(rf"\b{re.escape(word.split()[0].split('(')[0])}\b" if word[0].isalpha() else re.escape(word), page), word
