"""Every element-wise operator, in every form, against PyTorch.

The operators come from the registry: a new row is tested by being there.  Each gets the calls of its covering set
(covering.py), and one of each signature (signature.py), or in a whole run each, those of every combination (cases.py).
"""
import warnings

import pytest
import torch

import cases
import covering
import exact
import known
from compare import report, tally, with_torch
from kilnlib import Kiln
from signature import Groups
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
                tally.notes[f"operators of the family {op.family}, which other files test" if op.served else "operators that are not served"] += 1
                continue
            if op.name.startswith("kiln::"):  # what compositions call, which are compared themselves
                continue
            assert op.name.startswith("aten::"), f"{op.name}: rows of ops/ are PyTorch's operators, which these tests compare them with"
            assert op.schema == str(torch_op(op.name)._schema), "the schema is PyTorch's own"
            subject = cases.Subject(op.name, op.row, torch_op(op.name))
            found[op.form].append(subject)
            if subject.avoid:
                tally.notes[f"operators tested without the values {subject.avoid}: {subject.avoid_why}"] += 1
            if subject.tame:
                tally.notes[f"operators tested in their domain alone: {cases.TAME_WHY}"] += 1
    return found


SUBJECTS = subjects()
GROUPS = {form: Groups(found, known.names()) for form, found in SUBJECTS.items()}


def each(form):
    return pytest.mark.parametrize("s", SUBJECTS[form], ids=lambda s: s.name.removeprefix("aten::"))


RAN = set()  # operators compared with PyTorch


def run(made, compare, kind, entries):
    """Compares every case.  entries: differences that are known."""
    differences = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # resizing an out tensor
        for case in made:
            tally.cases[kind] += 1
            said = compare(case)
            why = entries.why(f"{case} {said}") if said else None
            if why:
                tally.notes[f"calls known to differ: {why}"] += 1
            elif said:
                differences.append((case, said))
    if differences:
        pytest.fail(report(differences), pytrace=False)


def against_torch(s, interp, form, writes):
    op, entries = interp.op(s.name), known.Entries(s.name, WHOLE)
    RAN.add(s.name)

    def compare(case):
        return with_torch(op, s.torch_op, case, writes=writes)
    every = WHOLE or GROUPS[form].speaks(s)
    run(getattr(covering, form)(s), compare, f"{form}, covering set", entries)
    if every:
        run(getattr(cases, form)(s), compare, f"{form}, every combination", entries)
    if every and entries.stale():
        pytest.fail(f"no call differs any more as known.py says: {sorted(entries.stale())}", pytrace=False)


def test_there_are_operators():
    assert len(SUBJECTS["functional"]) > 50 and len(SUBJECTS["inplace"]) > 30 and len(SUBJECTS["out"]) > 40


@each("functional")
def test_functional(s, interp):
    against_torch(s, interp, "functional", writes=False)


@each("inplace")
def test_inplace(s, interp):
    against_torch(s, interp, "inplace", writes=True)


@each("out")
def test_out(s, interp):
    against_torch(s, interp, "out", writes=True)


def test_functional_every_judge_is_asked():
    """A function of exact.py that decides nothing any more is to be deleted.  Only a whole run of all operators can tell."""
    if WHOLE and RAN >= {s.name for s in SUBJECTS["functional"]}:
        assert exact.EXACT.keys() - {exact.packet_of(name) for name in tally.judged} == set()


def test_known_names_are_of_operators(interp):
    """Those of maps, which are tested here, and of routines, which test_op_db.py calls."""
    routines = {op.name for op in interp.ops() if op.family == "extern"}
    assert known.names() <= {s.name for subjects in SUBJECTS.values() for s in subjects} | routines
