"""Every element-wise operator, in every form, against PyTorch; and both tiers against each other.

The operators come from the registry: a new row is tested by being there.
"""
import warnings

import pytest
import torch

import cases
import known
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
                tally.notes[f"operators left out: family {op.family}, not served"] += 1
                continue
            assert op.schema == str(torch_op(op.name)._schema), "the schema is PyTorch's own"
            subject = cases.Subject(op.name, op.row, torch_op(op.name))
            found[op.form].append(subject)
            if subject.avoid:
                tally.notes[f"operators tested without the values {subject.avoid}: {subject.avoid_why}"] += 1
            if subject.tame:
                tally.notes[f"operators tested in their domain alone: {cases.TAME_WHY}"] += 1
    return found


SUBJECTS = subjects()


def each(form):
    return pytest.mark.parametrize("s", SUBJECTS[form], ids=lambda s: s.name.removeprefix("aten::"))


MET, RAN = set(), set()  # differences that were met; operators compared with PyTorch


def run(made, compare, kind, entries=()):
    """Compares every case.  entries: differences that are known."""
    differences = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # resizing an out tensor
        for case in made:
            tally.cases[kind] += 1
            said = compare(case)
            why = next((why for pattern, why in entries if said and pattern.search(f"{case} {said}")), None)
            if why:
                MET.add(why)
                tally.notes[f"calls known to differ: {why}"] += 1
            elif said:
                differences.append((case, said))
    if differences:
        pytest.fail(report(differences), pytrace=False)


def test_there_are_operators():
    assert len(SUBJECTS["functional"]) > 50 and len(SUBJECTS["inplace"]) > 30 and len(SUBJECTS["out"]) > 40


@each("functional")
def test_functional(s, interp):
    op = interp.op(s.name)
    RAN.add(s.name)
    run(cases.functional(s), lambda c: with_torch(op, s.torch_op, c), "functional, interpreter against PyTorch",
        known.entries(s.name))


@each("inplace")
def test_inplace(s, interp):
    op = interp.op(s.name)
    RAN.add(s.name)
    run(cases.inplace(s), lambda c: with_torch(op, s.torch_op, c, writes=True),
        "in place, interpreter against PyTorch", known.entries(s.name))


@each("out")
def test_out(s, interp):
    op = interp.op(s.name)
    RAN.add(s.name)
    run(cases.out(s), lambda c: with_torch(op, s.torch_op, c, writes=True), "out=, interpreter against PyTorch",
        known.entries(s.name))


def test_every_known_difference_is_met():
    """An entry that no call meets any more is to be deleted.  Only a run of all operators can tell."""
    missing = {why for names, _, why in known.KNOWN if RAN >= {f"aten::{n}" for n in names.split()}} - MET
    assert not missing


def test_known_names_are_of_operators():
    names = {s.name.removeprefix("aten::") for subjects in SUBJECTS.values() for s in subjects}
    assert {n for entry in known.KNOWN for n in entry[0].split()} <= names


def no_fallback(sync):
    stats = sync.stats()
    assert stats["fallbacks"] == stats["compile_failures"] == stats["selftest_failures"] == 0, stats


@each("functional")
def test_tiers(s, interp, sync):
    one, other = interp.op(s.name), sync.op(s.name)
    run(cases.classes(s), lambda c: tiers(one, other, c), "functional, compiled against interpreter")
    no_fallback(sync)


@pytest.mark.parametrize("s", SUBJECTS["inplace"] + SUBJECTS["out"], ids=lambda s: s.name.removeprefix("aten::"))
def test_tiers_written(s, interp, sync):
    one, other = interp.op(s.name), sync.op(s.name)
    run(cases.written(s), lambda c: tiers(one, other, c, writes=True), "in place and out=, compiled against interpreter")
    no_fallback(sync)
