"""Every element-wise operator, in every form, against PyTorch; and both tiers against each other.

The operators come from the registry: a new row is tested by being there.
"""
import warnings

import pytest
import torch

import cases
import exact
import known
from compare import report, tally, tiers, with_torch
from kilnlib import Kiln
from whole import WHOLE

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


RAN = set()  # operators compared with PyTorch


def run(made, compare, kind, entries=None):
    """Compares every case.  entries: differences that are known, each of which must be met."""
    differences = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # resizing an out tensor
        for case in made:
            tally.cases[kind] += 1
            said = compare(case)
            why = entries.why(f"{case} {said}") if said and entries else None
            if why:
                tally.notes[f"calls known to differ: {why}"] += 1
            elif said:
                differences.append((case, said))
    if differences:
        pytest.fail(report(differences), pytrace=False)
    if entries and entries.stale():
        pytest.fail(f"no call differs any more as known.py says: {sorted(entries.stale())}", pytrace=False)


def against_torch(s, interp, made, kind, writes):
    op = interp.op(s.name)
    RAN.add(s.name)
    run(made(s), lambda c: with_torch(op, s.torch_op, c, writes=writes), f"{kind}, interpreter against PyTorch",
        known.Entries(s.name, WHOLE))


def test_there_are_operators():
    assert len(SUBJECTS["functional"]) > 50 and len(SUBJECTS["inplace"]) > 30 and len(SUBJECTS["out"]) > 40


@each("functional")
def test_functional(s, interp):
    against_torch(s, interp, cases.functional, "functional", writes=False)


@each("inplace")
def test_inplace(s, interp):
    against_torch(s, interp, cases.inplace, "in place", writes=True)


@each("out")
def test_out(s, interp):
    against_torch(s, interp, cases.out, "out=", writes=True)


def test_functional_every_judge_is_asked():
    """A function of exact.py that decides nothing any more is to be deleted.  Only a run of all operators can tell."""
    if RAN >= {s.name for s in SUBJECTS["functional"]}:
        assert exact.EXACT.keys() - {exact.packet_of(name) for name in tally.judged} == set()


def test_known_names_are_of_operators():
    names = {s.name.removeprefix("aten::") for subjects in SUBJECTS.values() for s in subjects}
    assert {n.removesuffix("*") for entry in known.KNOWN for n in entry[0].split()} <= names


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
