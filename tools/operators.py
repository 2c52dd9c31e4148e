#!/usr/bin/env python3
"""Writes docs/OPERATORS.md: every operator that is served, from the registry and by asking it.

    .venv/bin/python tools/operators.py            # after `make python`
    .venv/bin/python tools/operators.py --check    # exit 1 if the file is not what it would write

Which dtypes an operator takes is found by asking for the inference of a call with all tensors of that dtype.
"""
import re
import sys
from collections import Counter
from pathlib import Path

import kiln

TARGET = Path(__file__).resolve().parents[1] / "docs" / "OPERATORS.md"
GROUPS = {"bool": ["bool"], "int": ["uint8", "int8", "int16", "int32", "int64"], "uint": ["uint16", "uint32", "uint64"],
          "half": ["float16", "bfloat16"], "float": ["float32", "float64"], "complex": ["complex64", "complex128"]}
HEAD = """# Operators

Written by `tools/operators.py` from the rows in `ops/`; do not edit.  {functional} operators of PyTorch 2.13's `aten` are served,
{forms} overloads with their in-place (`_`) and `out=` forms.  A row's meaning is PyTorch's; `kiln ops show NAME` prints the row.

Dtypes, with all tensors of the same one: *int* is u8 i8 i16 i32 i64, *uint* u16 u32 u64, *half* f16 bf16, *float* f32 f64,
*complex* c64 c128.

"""


def schema(op):
    """Its own: a name without an overload has those of all overloads, the default one's first."""
    return op.schema.splitlines()[0]


def parameters(schema):
    """(type, name, required) of each parameter."""
    inside = schema[schema.index("(") + 1:schema.rindex(") ->")]
    found = []
    for text in re.split(r", (?![^\[(]*[\])])", inside):
        match = re.fullmatch(r"(\S+) (\w+)(=.*)?", text)
        if match:
            found.append((match[1], match[2], match[3] is None))
    return found


def argument(kind, dtype, elements):
    if kind.startswith("Tensor["):
        return [kiln.Tensor([1], dtype=dtype)]
    if kind.startswith("Tensor"):
        return kiln.Tensor(elements, dtype=dtype)
    if kind.endswith("?") and kind != "Scalar?":
        return None
    kind = kind.removesuffix("?")
    return {"Scalar": 1, "int": 0, "SymInt": 1, "float": 0.5, "bool": False, "str": "none"}.get(kind.partition("[")[0], 1)


def attempts(op, dtype):
    """Arguments to try: required ones alone, or with optional tensors and numbers; one tensor may be a mask, or all matrices; or
    numbers of classes."""
    known = parameters(schema(op))
    for elements, optional in ((1, ()), (1, ("Tensor?", "Scalar?")), ([[1]], ())):
        named = {name: argument(kind, dtype, elements) for kind, name, required in known if required or kind in optional}
        yield named
        tensors = [name for name, value in named.items() if isinstance(value, kiln.Tensor)]
        for name in tensors if len(tensors) > 1 else ():
            yield {**named, name: kiln.Tensor(True)}
    vectors = [(kind, name) for kind, name, required in known if required and kind.startswith("Tensor") and not kind.startswith("Tensor[")]
    if len(vectors) > 1:  # a matrix, and a vector with an element for each of its columns
        yield {**named, **{name: kiln.Tensor([1], dtype=dtype) for kind, name in vectors[1:]}}
    if {"self", "target"} <= {name for _, name, _ in known}:
        named = {name: argument(kind, dtype, 1) for kind, name, required in known if required and not kind.endswith("?")}
        for scores, target in (([[1, 1]], [0]), ([[[[1]], [[1]]]], [[[0]]])):
            yield {**named, "weight": None, "reduction": 1, "self": kiln.Tensor(scores, dtype=dtype), "target": kiln.Tensor(target, dtype="int64")}


def takes(op, dtype):
    for named in attempts(op, dtype):
        try:
            kiln.explain(op.name, stage="plan", **named)
            return True
        except (IndexError, RuntimeError, TypeError, ValueError):  # NotImplementedError is a RuntimeError
            continue
    return False


def dtypes(op):
    words = []
    for group, members in GROUPS.items():
        taken = [name for name in members if takes(op, name)]
        words += [group] if taken == members else [getattr(kiln, name).short for name in taken]
    return " ".join(words)


def text():
    ops = [kiln.op(name).__self__ for name in kiln.ops() if name.startswith("aten::")]  # others are parts of these
    rows = {}
    for op in ops:
        rows.setdefault(op.row, []).append(op)
    functional = [op for op in ops if op.form == "functional"]
    parts = [HEAD.format(functional=len(functional), forms=len(ops))]
    for family, n in sorted(Counter(op.family for op in functional).items()):
        parts.append(f"## {family}: {n}\n\n| operator | dtypes | also as |\n|---|---|---|\n")
        for op in functional:
            if op.family == family:
                also = ", ".join(f"`{o.name.removeprefix('aten::')}`" for o in rows[op.row] if o.form != "functional")
                parts.append(f"| `{schema(op).removeprefix('aten::')}` | {dtypes(op)} | {also} |\n")
        parts.append("\n")
    return "".join(parts).rstrip("\n") + "\n"


if __name__ == "__main__":
    made = text()
    if "--check" in sys.argv[1:]:
        sys.exit(0 if TARGET.read_text() == made else "docs/OPERATORS.md is not up to date: run tools/operators.py")
    TARGET.write_text(made)
