"""Which of PyTorch's element-wise operators are served: all of them, but for those named here with the reason.

aten-tags-2.13.tsv holds the overloads that PyTorch tags as core or pointwise.  An overload tagged pointwise is taken for
element-wise until UNSERVED says why it is not.  The core ones that no row states yet are printed, by name.
"""
from pathlib import Path

import pytest

from compare import tally
from kilnlib import Kiln

UNSERVED = {
    "equal": "not element-wise: one truth value for two tensors",
    "mvlgamma": "not element-wise: a sum over p shifted copies",
    "positive": "not element-wise: a view of its argument",
    "rrelu": "not element-wise: draws random numbers",
}


def overloads():
    lines = (Path(__file__).parent / "aten-tags-2.13.tsv").read_text().splitlines()
    return {name: set(tags.split(",")) for name, tags in (line.split("\t") for line in lines if line[0] != "#")}


@pytest.fixture(scope="module")
def served():
    with Kiln("interp") as k:
        return {op.name.removeprefix("aten::") for op in k.ops() if op.served}


def test_the_list_is_pytorchs():
    tagged = overloads()
    assert sum("core" in tags for tags in tagged.values()) == 193
    assert sum({"pointwise", "functional"} <= tags for tags in tagged.values()) == 241


def test_every_pointwise_overload_is_served_or_named(served):
    pointwise = {name for name, tags in overloads().items() if {"pointwise", "functional"} <= tags}
    tally.cases["overloads that PyTorch tags pointwise: served"] += len(pointwise & served)
    for name in sorted(pointwise - served):
        tally.notes[f"overload not served: {name}: {UNSERVED.get(name)}"] += 1
    assert pointwise - served == set(UNSERVED)


def test_written_forms_are_served_with_their_row(served):
    """An in-place or out overload tagged pointwise is missing only if its functional form is."""
    written = {name for name, tags in overloads().items() if "pointwise" in tags and "functional" not in tags}
    missing = {name for name in written - served if name.split(".")[0].removesuffix("_") not in UNSERVED}
    assert missing == {"polygamma_"}, "its arguments are polygamma's in another order"


def test_core_overloads_that_are_not_served_are_printed(served):
    core = {name for name, tags in overloads().items() if "core" in tags}
    tally.cases["core overloads: served"] += len(core & served)
    tally.notes["core overloads not served: " + " ".join(sorted(core - served))] += 1
    assert len(core & served) > 60
