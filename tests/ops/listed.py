"""Rows whose calls are listed by hand in a test file, as what their arguments mean does not follow from the row.

Each such row is a test, so that `-k NAME` of a new row fails until its calls are there, and says where.
"""
import pytest

from kilnlib import Kiln


def is_listed(which, names, where):
    """A test for each functional row that `which` picks: that it is among names.  where: what has to be changed if it is not."""
    with Kiln("interp") as k:
        rows = sorted(op.name.removeprefix("aten::") for op in k.ops() if op.served and op.form == "functional" and which(op))
    assert not set(names) - set(rows), f"{set(names) - set(rows)}: there are no such rows any more; take them from {where}"

    @pytest.mark.parametrize("name", rows)
    def test(name):
        assert name in names, f"no test calls {name}: add it to {where}"

    return test
