"""The suite tests itself: a planted fault must be found by the very comparison the other tests use."""
import itertools

import pytest
import torch

import cases
from compare import call, report, same_bits, tiers, with_torch
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


def name_of(row):
    return row.split()[1].split("(")[0]


@pytest.fixture(scope="module")
def planted():
    with Kiln("interp") as k:
        k.load("\n".join([RIGHT, *WRONG]))
        yield k


def differences(kiln, row):
    op = kiln.op(name_of(row))
    subject = cases.Subject(op.name, op.row, SILU)
    found = ((case, with_torch(op, SILU, case)) for case in cases.functional(subject))
    return [(case, said) for case, said in found if said]


def test_a_right_row_is_found_right(planted):
    found = differences(planted, RIGHT)
    assert not found, report(found)


@pytest.mark.parametrize("row", WRONG, ids=name_of)
def test_a_wrong_row_is_found_wrong(planted, row):
    assert differences(planted, row)


def test_a_wrong_body_is_shown_with_the_call_and_the_value(planted):
    text = report(differences(planted, WRONG[0]))
    assert "planted::sign(f16[" in text and "PyTorch's" in text


def test_one_bit_between_tiers_is_found():
    case = next(cases.functional(cases.Subject("aten::silu", RIGHT, SILU)))
    case = cases.replace(case, args=(cases.View("f32", (8,), (1,)),))

    def one_bit_off(x):
        result = SILU(x)
        result.view(torch.int32)[3] ^= 1
        return result
    assert tiers(SILU, SILU, case) is None
    assert "bit for bit" in tiers(SILU, one_bit_off, case)


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
