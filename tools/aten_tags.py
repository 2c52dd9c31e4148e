#!/usr/bin/env python3
"""Writes ops/aten-tags-2.13.tsv: every overload of PyTorch's aten, with the tags that Kiln counts its coverage by.

    tools/aten_tags.py            writes it, from the PyTorch of this Python
    tools/aten_tags.py --check    says whether it is up to date
"""
import sys
from pathlib import Path

import torch

TARGET = Path(__file__).resolve().parents[1] / "ops" / "aten-tags-2.13.tsv"
TAGS = ("core", "pointwise", "reduction")
HEAD = f"# overload<TAB>tags of PyTorch 2.13: which of {', '.join(TAGS)} it has, and whether such a one is functional\n"


def words(name):
    base, _, overload = name.partition(".")
    op = getattr(getattr(torch.ops.aten, base), overload or "default")
    has = [tag for tag in TAGS if getattr(torch.Tag, tag) in op.tags]
    return has + ["functional"] if has and not op._schema.is_mutable else has


def text():
    names = sorted(n.removeprefix("aten::") for n in torch._C._dispatch_get_all_op_names() if n.startswith("aten::"))
    return HEAD + "".join(f"{name}\t{','.join(words(name))}\n" for name in names)


if __name__ == "__main__":
    if sys.argv[1:] == ["--check"]:
        sys.exit(0 if TARGET.read_text() == text() else f"{TARGET.name} is not what this PyTorch says: run tools/aten_tags.py")
    TARGET.write_text(text())
