"""Which of PyTorch's operators are served: every reduction, and all that are element-wise but for those named here with the reason.

ops/aten-tags-2.13.tsv holds PyTorch's overloads with their tags.  An overload tagged pointwise is taken for
element-wise until UNSERVED says why it is not.  The core ones that no row states yet are printed, by name.
"""
import json
import subprocess
import sys
from pathlib import Path

import pytest

from compare import tally
from kilnlib import LIBRARY, Kiln

UNSERVED = {
    "mvlgamma": "not element-wise: a sum over p shifted copies",
    "positive": "not element-wise: a view of its argument",
    "rrelu": "not element-wise: draws random numbers",
}


ROOT = Path(__file__).parents[2]


def overloads():
    lines = (ROOT / "ops" / "aten-tags-2.13.tsv").read_text().splitlines()
    return {name: set(tags.split(",")) for name, tags in (line.split("\t") for line in lines if line[0] != "#")}


@pytest.fixture(scope="module")
def served():
    with Kiln("interp") as k:
        return {op.name.removeprefix("aten::") for op in k.ops() if op.served}


def test_the_list_is_pytorchs():
    subprocess.run([sys.executable, ROOT / "tools" / "aten_tags.py", "--check"], check=True)
    tagged = overloads()
    assert sum("reduction" in tags for tags in tagged.values()) == 71
    assert sum("core" in tags for tags in tagged.values()) == 193
    assert sum({"pointwise", "functional"} <= tags for tags in tagged.values()) == 241


def test_every_pointwise_overload_is_served_or_named(served):
    pointwise = {name for name, tags in overloads().items() if {"pointwise", "functional"} <= tags}
    tally.cases["overloads that PyTorch tags pointwise: served"] += len(pointwise & served)
    for name in sorted(pointwise - served):
        tally.notes[f"overload not served: {name}: {UNSERVED.get(name)}"] += 1
    assert pointwise - served == set(UNSERVED)


def test_every_reduction_is_served(served):
    reductions = {name for name, tags in overloads().items() if "reduction" in tags}
    tally.cases["overloads that PyTorch tags reduction: served"] += len(reductions & served)
    assert reductions <= served


def test_the_command_counts_the_same(served):
    said = json.loads(subprocess.run([Path(LIBRARY).parent / "kiln", "ops", "--coverage", "--json"], check=True, capture_output=True).stdout)
    for group in ("core", "pointwise", "reduction", "all"):
        names = {name for name, tags in overloads().items() if group == "all" or group in tags}
        assert said[group] == {"served": len(names & served), "of": len(names), "missing": sorted(names - served)}


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
