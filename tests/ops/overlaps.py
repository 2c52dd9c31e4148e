"""Calls whose results share memory with what they read, and what they must give.

Refused where PyTorch refuses: it is asked with the views themselves, but for those with negative strides, which it has none
of and which are copies then.  Else the result is PyTorch's on copies of all arguments, written when it is complete; the
memory around it stays as it was.
"""
from dataclasses import replace

import torch

from cases import View, row_major
from compare import call, compare_errors, difference, precision, same_bits, tally
from kilnlib import Turned, reach
from values import memory, seeded

DTYPES = ("f32", "f32", "f32", "f64", "bf16", "i32", "i64", "u8", "bool", "c64")  # drawn from: most operators take f32


def layouts(n, rows, cols):
    """Name; the view that is written, and the view that an argument is: sizes, strides, offset."""
    half, gap, whole = cols // 2, rows + 11, (rows, cols)
    return [
        ("turned round", ((n,), (1,), 0), ((n,), (-1,), n - 1)),
        ("written backwards", ((n,), (-1,), n - 1), ((n,), (1,), 0)),
        ("backwards, in step", ((n,), (-1,), n - 1), ((n,), (-1,), n - 1)),
        ("moved", ((n,), (1,), 1), ((n,), (1,), 0)),
        ("moved back", ((n,), (1,), 0), ((n,), (1,), 1)),
        ("moved and turned round", ((n,), (1,), 1), ((n,), (-1,), n - 1)),
        ("every other one, moved", ((n,), (2,), 2), ((n,), (2,), 0)),
        ("every other one, and those between", ((n,), (2,), 0), ((n,), (2,), 1)),
        ("every other one, turned round", ((n,), (2,), 0), ((n,), (-2,), 2 * n - 2)),
        ("denser", ((n,), (2,), 0), ((n,), (1,), 0)),
        ("two columns", ((rows,), (cols,), 0), ((rows,), (cols,), 1)),
        ("halves of rows", ((rows, half), (cols, 1), 0), ((rows, half), (cols, 1), half)),
        ("parts of rows", ((rows, half), (cols, 1), 0), ((rows, half), (cols, 1), half - 4)),
        ("part of rows, in step", ((rows, half), (cols, 1), 2), ((rows, half), (cols, 1), 2)),
        ("transposed", ((rows, rows), (rows, 1), 0), ((rows, rows), (1, rows), 0)),
        ("transposed, with gaps", ((rows, rows), (gap, 1), 0), ((rows, rows), (1, gap), 0)),
        ("written transposed, with gaps", ((rows, rows), (1, gap), 0), ((rows, rows), (gap, 1), 0)),
        ("rows turned round", (whole, (cols, 1), 0), (whole, (cols, -1), cols - 1)),
        ("order of rows turned round", (whole, (cols, 1), 0), (whole, (-cols, 1), (rows - 1) * cols)),
        ("a row", (whole, (cols, 1), 0), ((cols,), (1,), 7 * cols)),
        ("a row, expanded", (whole, (cols, 1), 0), (whole, (0, 1), 7 * cols)),
        ("a column", (whole, (cols, 1), 0), ((rows, 1), (cols, 1), 3)),
        ("a column, expanded", (whole, (cols, 1), 0), (whole, (cols, 0), 3)),
        ("0-d", ((n,), (1,), 0), ((), (), n // 2)),
        ("0-d, with gaps", ((n,), (2,), 0), ((), (), n)),
        ("0-d between", ((n,), (2,), 0), ((), (), n + 1)),
    ]


SMALL = layouts(100, 19, 18)
LARGE = layouts(300_000, 600, 598)  # enough for several threads


# -- cases -------------------------------------------------------------------------------------------------

def case_of(s, layout, dtype, rng):
    """The operator s with one argument, or each, as the layout says; the others are alone in memory of their own.  None
    where nothing would have the shape of the result."""
    note, written, shared = layout
    stretched = shared[0] != written[0]
    structure = rng.choice([c for c in s.structures() if s.present(c)])
    k = len(s.present(structure))
    if stretched and k == 1:
        return None
    inside = {rng.randrange(1 if k > 1 and not s.out else 0, k)}
    if rng.random() < 0.3 and not stretched:
        inside = set(range(k))
    tensors = [View(dtype, *shared) if i in inside else View(dtype, written[0], row_major(written[0]), 0, i + 1)
               for i in range(k)]
    if not s.out:
        tensors[0] = View(dtype, *written)
    case = s.case(structure, tensors, s.draw_numbers(structure, rng), note=note)
    given = [(a.name, View(dtype, *written, memory=10 * n)) for n, a in enumerate(s.out)]
    return replace(case, kwargs=case.kwargs + tuple(given))


def some(s, count):
    """A few layouts of the operator."""
    rng = seeded("overlaps", s.name)
    made = (case_of(s, layout, rng.choice(DTYPES), rng) for layout in rng.sample(SMALL, count))
    return [case for case in made if case]


def every(s, of):
    rng = seeded("overlaps", s.name)
    return [case for case in (case_of(s, layout, "f32", rng) for layout in of) if case]


def kinds(subjects):
    """One operator of each kind: as many tensors, and results given alike."""
    found = {}
    for s in subjects:
        found.setdefault((len(s.tensors), len(s.out), "out copied" in s.row, "ZeroDivision" in s.row), s)
    return list(found.values())


# -- what they must give -------------------------------------------------------------------------------------

def places(v):
    """Where in its memory each element of the view is."""
    at = torch.tensor(v.offset)
    for n, step in zip(v.sizes, v.strides):
        at = at[..., None] + torch.arange(n) * step
    return at


def build(case, how):
    """As Case.build.  how: "kiln"; "torch", where views that PyTorch has none of are copies; or "copies", all are."""
    size = {}
    for v in case.views():
        low = v.offset + sum((n - 1) * s for n, s in zip(v.sizes, v.strides) if s < 0)
        size[v.memory] = max(size.get(v.memory, 0), low + reach(v.sizes, v.strides))
    memories = {}
    for v in case.views():
        m = memory(v.dtype, case.fill, v.memory, case.domain, case.avoid)
        memories.setdefault(v.memory, m.repeat(-(-size[v.memory] // len(m))))

    def value(v):
        if not isinstance(v, View):
            return v
        m = memories[v.memory]
        if how == "copies" or (how == "torch" and min(v.strides, default=0) < 0):
            return m[places(v)].clone()
        if how == "kiln" and min(v.strides, default=0) < 0:
            return Turned(m, v.sizes, v.strides, v.offset)
        return m.as_strided(v.sizes, v.strides, v.offset)
    return [value(v) for v in case.args], {n: value(v) for n, v in case.kwargs}, memories


def written_views(torch_op, case):
    names = dict(zip([a.name for a in torch_op._schema.arguments], case.args)) | dict(case.kwargs)
    return [names[a.name] for a in torch_op._schema.arguments if a.alias_info and a.alias_info.is_write]


def with_torch(kiln_op, torch_op, case):
    """The one comparison.  Returns None, or how Kiln differs."""
    expected = call(torch_op, build(case, "torch"))
    if expected.error is None or "ZeroDivisionError" in str(expected.error):  # a divisor may be what PyTorch had just written
        expected = call(torch_op, build(case, "copies"))
    actual = call(kiln_op, build(case, "kiln"), refused_writes=True)
    if expected.error is not None or actual.error is not None:
        return compare_errors(actual.error, expected.error, case)
    by_kiln, untouched = call(kiln_op, build(case, "copies")), build(case, "kiln")[2]
    for v, result, other in zip(written_views(torch_op, case), expected.results, by_kiln.results, strict=True):
        at = places(v)
        got = actual.memories[v.memory][at]
        said = difference(got, result, precision(case, result), [], lambda wrong: ())
        if said and not same_bits(got, other):
            return f"after the call: {said}"
        if said:  # what is more exact is for test_map_diff to judge
            tally.notes["overlapping calls with PyTorch's values within other bounds, and Kiln's own on copies"] += 1
        for m in (actual.memories[v.memory], untouched[v.memory]):
            m[at] = 0
    wrong = [k for k, m in actual.memories.items() if not same_bits(m, untouched[k])]
    return f"memory {wrong[0]} differs outside of the result" if wrong else None

