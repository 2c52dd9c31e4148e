"""Every element-wise operator, in every form, against PyTorch; and both tiers against each other.

The operators come from the registry: a new row is tested by being there.
"""
import warnings

import pytest
import torch

import cases
from compare import report, tally, tiers, with_torch
from kilnlib import Kiln

FAMILY = "map"


def torch_op(name):
    packet, _, overload = name.removeprefix("aten::").partition(".")
    return getattr(getattr(torch.ops.aten, packet), overload or "default")


def subjects():
    found = {"functional": [], "inplace": [], "out": []}
    with Kiln("interp") as k:
        for op in k.ops():
            if op.family != FAMILY or not op.served:
                tally.skipped[f"operators of family {op.family}, tested elsewhere or not served"] += 1
                continue
            assert op.schema == str(torch_op(op.name)._schema), "the schema is PyTorch's own"
            found[op.form].append(cases.Subject(op.name, op.row, torch_op(op.name)))
            if found[op.form][-1].avoid:
                tally.skipped[f"values {found[op.form][-1].avoid} for {op.name}: {found[op.form][-1].avoid_why}"] += 1
    return found


SUBJECTS = subjects()


def each(form):
    return pytest.mark.parametrize("s", SUBJECTS[form], ids=lambda s: s.name.removeprefix("aten::"))


def run(made, compare, kind):
    differences = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # resizing an out tensor
        for case in made:
            tally.cases[kind] += 1
            said = compare(case)
            if said:
                differences.append((case, said))
    if differences:
        pytest.fail(report(differences), pytrace=False)


def test_there_are_operators():
    assert len(SUBJECTS["functional"]) > 50 and len(SUBJECTS["inplace"]) > 30 and len(SUBJECTS["out"]) > 40


@each("functional")
def test_functional(s, interp):
    op = interp.op(s.name)
    run(cases.functional(s), lambda c: with_torch(op, s.torch_op, c), "functional, interpreter against PyTorch")


@each("inplace")
def test_inplace(s, interp):
    op = interp.op(s.name)
    run(cases.inplace(s), lambda c: with_torch(op, s.torch_op, c, writes=True),
        "in place, interpreter against PyTorch")


@each("out")
def test_out(s, interp):
    op = interp.op(s.name)
    run(cases.out(s), lambda c: with_torch(op, s.torch_op, c, writes=True), "out=, interpreter against PyTorch")


@each("functional")
def test_tiers(s, interp, sync):
    one, other = interp.op(s.name), sync.op(s.name)
    run(cases.classes(s), lambda c: tiers(one, other, c), "functional, compiled against interpreter")
    stats = sync.stats()
    assert stats["fallbacks"] == stats["compile_failures"] == stats["selftest_failures"] == 0, stats
