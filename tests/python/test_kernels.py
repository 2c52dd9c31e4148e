"""kiln.kernels(): which classes of calls there are, what answers them and what building them took."""
import numpy as np
import pytest

import kiln


@pytest.fixture(autouse=True)
def fresh():
    """A context without classes, before and after a test."""
    before = dict(kiln._settings)
    kiln.configure(mode="interp", max_kernels=1000)
    yield
    kiln._kiln.configure(before)
    kiln._settings.clear()
    kiln._settings.update(before)


def test_nothing_is_listed_before_the_first_call():
    assert kiln.kernels() == []


def test_classes_by_what_answers_them():
    x = np.ones((2, 3), "f4")
    for _ in range(4):
        kiln.call("neg", x)
    kiln.call("layer_norm", x, [3])
    kiln.prepare("exp", x)
    first, *rest = listed = kiln.kernels()
    assert first[:3] == ("aten::exp", "self f32 contig -> f32 contig; in f32", "compiled")
    assert first.build_ms > 0 and first.code_bytes > 0 and first.interp_calls == 0
    assert [(k.operator, k.tier) for k in rest][0] == ("aten::neg", "interp") and rest[0].interp_calls == 4
    assert all(k.operator != "aten::layer_norm" for k in listed)  # a composition, which has no class: its call has one
    assert len(listed) == kiln.stats()["misses"]
    assert all(k.failed_builds == 0 for k in listed)
    assert len({k[:2] for k in listed}) == len(listed)


def test_the_list_prints_as_a_table():
    kiln.call("neg", np.ones(3, "f4"))
    head, line = str(kiln.kernels()).split("\n")
    assert head.split()[:2] == ["operator", "tier"]
    assert line.split()[:2] == ["neg", "interp"] and line.endswith("  self f32 contig -> f32 contig; in f32")
    assert repr(kiln.kernels()[0]).startswith("Kernel(operator='aten::neg', key='self f32 contig")


def test_a_build_that_fails_is_told():
    kiln.configure(mode="sync", cc="/bin/false")
    kiln.call("neg", np.ones(3, "f4"))
    (row,) = kiln.kernels()
    assert row.tier == "interp" and row.failed_builds == 1 and row.interp_calls == 1
