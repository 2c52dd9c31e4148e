"""Rows of one signature are inferred alike: Kiln itself is asked.

signature.py compares texts.  Here each row of a group gets calls of the covering set of the row that speaks for the
group, others than its neighbours get.  What Kiln infers of each (branch, dtypes, shape, strides, loops, class) must be the
same but for names, or the call must be refused by both.  So a signature that leaves out something inference depends on is
found: rows are planted in groups that they do not belong to.
"""
import functools
import re

import pytest
import torch

import cases
import covering
from compare import tally
from kilnlib import Kiln
from signature import Groups, signature
from test_map_diff import GROUPS
from values import seeded
from whole import WHOLE

OWN = re.compile(r"^(operator|row): .*\n", flags=re.M)  # lines that are of the row, not of its inference
CALLS = 10**6 if WHOLE else 40  # of each row


def calls(s):
    """Those of the covering set that differ in more than values."""
    return list({cases.replace(case, fill="random"): None for case in covering.functional(s)})


def inferred(op, s, case):
    """What Kiln infers of the call, arguments by position; or what kind of refusal it is."""
    args, kwargs, _ = cases.replace(case, op=s.name).build(False, True)
    try:
        text = "".join(op.explain(stage, *args, **kwargs) for stage in ("plan", "key"))
    except (RuntimeError, TypeError, IndexError, ValueError) as e:
        return type(e).__name__
    names = {a.name: f"${k}" for k, a in enumerate(s.arguments)}
    return re.sub(r"\b(" + "|".join(names) + r")\b", lambda found: names[found[0]], OWN.sub("", text))


def renamed(case, speaker, s):
    """The speaker's call as one of s: keyword-only arguments go by the names they have there."""
    names = dict(zip([a.name for a in speaker.inputs], [a.name for a in s.inputs]))
    return cases.replace(case, kwargs=tuple((names[n], v) for n, v in case.kwargs))


def unlike(kiln, group, speaker, count):
    """The first call, of `count` drawn for each row, of which one infers something else than the speaker does, or None."""
    made = calls(speaker)
    expected = functools.cache(lambda case: inferred(kiln.op(speaker.name), speaker, case))
    for s in group:
        for case in seeded("alike", s.name).sample(made, min(count, len(made))):
            tally.cases["inference, rows of a group"] += 1
            said = inferred(kiln.op(s.name), s, renamed(case, speaker, s))
            if said != expected(case):
                return f"{s.name} infers {case} otherwise than {speaker.name}:\n{said}\n-- and not --\n{expected(case)}"
    return None


def groups():
    """The rows that speak for others, each with those."""
    found = GROUPS["functional"]
    for group in found.members.values():
        speaker = next(s for s in group if found.speaks(s))
        if len(group) > 1:
            yield pytest.param(speaker, [s for s in group if s is not speaker], id=speaker.name.removeprefix("aten::"))


@pytest.mark.parametrize("speaker, others", list(groups()))
def test_rows_of_a_group_are_inferred_alike(speaker, others, interp):
    said = unlike(interp, others, speaker, CALLS)
    assert said is None, said


def test_there_are_fewer_groups_than_rows():
    members = GROUPS["functional"].members
    rows = sum(map(len, members.values()))
    tally.notes[f"signatures of {rows} rows, one row of each tested in every combination"] += len(members)
    assert len(members) < 0.6 * rows


# -- what must be told apart -------------------------------------------------------------------------------

MUL = torch.ops.aten.mul.Tensor
HEAD = "(Tensor self, Tensor other) -> Tensor : promote(self, other) takes real"
SPEAKER = f"map planted::speaker{HEAD} = self * other"
ALIKE = [  # another body, other words, other names
    f"map planted::body{HEAD} = self + other\n    domain 0 1\n    doc \"a sum\"",
    "map planted::names(Tensor a, Tensor b) -> Tensor : promote(a, b) takes real = c  # a comment\n    let c = b - a",
]
UNLIKE = [
    f"map planted::strides{HEAD} strides like self = self * other",
    f"map planted::rows{HEAD} strides (self, rows other) = self * other",
    f"map planted::result{HEAD} -> bool = self < other",
    f"map planted::float{HEAD} to_float = self * other",
    f"map planted::check{HEAD} = self * other\n    check dtype(self) == dtype(other) : \"no\"",
    f"map planted::branch{HEAD}\n    when is_float(common) = self * other\n    when not is_float(common) = self + other",
    f"map planted::exact{HEAD} = self * compute(other)",
    "map planted::takes(Tensor self, Tensor other) -> Tensor : promote(self, other) takes float = self * other",
    "map planted::order(Tensor self, Tensor other) -> Tensor : promote(other, self) takes real = self * other",
    "map planted::alone(Tensor self, Tensor other) -> Tensor : promote(self) takes real takes other: real = self * compute(other)",
]


def planted(rows):
    """A context with the rows, and a subject for each."""
    kiln = Kiln("interp")
    kiln.load("\n".join(rows))
    ops = [kiln.op(row.split()[1].split("(")[0]) for row in rows]
    return kiln, [cases.Subject(op.name, op.row, MUL) for op in ops]


@pytest.mark.parametrize("row", ALIKE)
def test_bodies_and_names_are_no_part_of_a_signature(row):
    kiln, (speaker, other) = planted([SPEAKER, row])
    with kiln:
        assert signature(speaker.row) == signature(other.row)
        assert Groups([speaker, other]).speakers == {speaker.name: speaker.name, other.name: speaker.name}


@pytest.mark.parametrize("row", UNLIKE, ids=lambda row: row.split()[1].split("(")[0])
def test_a_row_in_a_wrong_group_is_found(row):
    """The signature tells the row from the speaker; were it blind, the check above would notice."""
    kiln, (speaker, other) = planted([SPEAKER, row])
    with kiln:
        assert signature(speaker.row) != signature(other.row)
        assert len(Groups([speaker, other]).members) == 2
        blind = Groups([speaker, other], signature_of=lambda s: "equal")
        (group,) = blind.members.values()
        assert unlike(kiln, group[1:], group[0], 10**6)
