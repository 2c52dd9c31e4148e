"""Results that share memory with arguments: refused as PyTorch does, else as if all had been read first; in every tier, and
by several threads.  See overlaps.py for what is called and what it must give."""
import pytest
import torch

import known
import overlaps
from compare import tally
from kilnlib import Kiln
from test_map_diff import SUBJECTS, run

WRITTEN = [s for s in SUBJECTS["inplace"] + SUBJECTS["out"] if s.tensors]
KINDS = overlaps.kinds(SUBJECTS["inplace"]) + overlaps.kinds(SUBJECTS["out"])
LARGE = [s for s in WRITTEN if s.name in ("aten::add_.Tensor", "aten::neg.out", "aten::addcmul.out")]


def name_of(s):
    return s.name.removeprefix("aten::")


@pytest.fixture(scope="module")
def threads():
    """Two contexts in which a call may use four threads."""
    with pytest.MonkeyPatch.context() as m:
        m.setenv("KILN_THREADS", "4")
        with Kiln("interp") as one, Kiln("sync") as other:
            yield one, other
            tally.classes += other.stats()["compiles"]


def against_torch(s, kiln, cases, kind):
    op = kiln.op(s.name)
    entries = known.Entries(s.name, False)  # whether a difference is still there is for test_map_diff to say
    run(cases, lambda c: overlaps.with_torch(op, s.torch_op, c), f"overlapping, {kind}", entries)


def no_fallback(sync):
    stats = sync.stats()
    assert stats["fallbacks"] == stats["compile_failures"] == stats["selftest_failures"] == 0, stats


@pytest.mark.parametrize("s", WRITTEN, ids=name_of)
def test_every_operator(s, interp):
    against_torch(s, interp, overlaps.some(s, 4), "interpreter against PyTorch")


@pytest.mark.parametrize("s", KINDS, ids=name_of)
def test_every_layout(s, interp, sync):
    against_torch(s, interp, overlaps.every(s, overlaps.SMALL), "interpreter against PyTorch")
    for _ in range(2):  # once more, when what remembers calls has seen each
        against_torch(s, sync, overlaps.every(s, overlaps.SMALL), "compiled against PyTorch")
    no_fallback(sync)


@pytest.mark.parametrize("s", LARGE, ids=name_of)
def test_several_threads(s, threads):
    for kiln, tier in zip(threads, ("interpreter", "compiled")):
        against_torch(s, kiln, overlaps.every(s, overlaps.LARGE), f"{tier} with four threads against PyTorch")
    no_fallback(threads[1])


# -- results of folds that lie on what other results are computed from ------------------------------------------

def on_an_argument():
    """Operator, arguments, and which of them is which result, too."""
    v, g, x, one = torch.tensor([[3., 4.], [6., 8.]]), torch.tensor([[1.], [2.]]), torch.tensor([[1.], [2.]]), torch.tensor([1.])
    yield "_weight_norm_interface.out", (v, g, 0), {"out0": (2, 2), "out1": 1}
    yield "_weight_norm_interface.out", (v, g, 0), {"out0": 0, "out1": (2, 1)}
    for result in ("out0", "out1", "out2"):
        yield "native_layer_norm.out", (x, [1], None, None, 1e-5), {"out0": (2, 1), "out1": (2, 1), "out2": (2, 1), result: 0}
        yield "native_layer_norm.out", (one, [1], None, torch.tensor([7.]), 1e-5), {"out0": (1,), "out1": (1,), "out2": (1,), result: 3}


@pytest.mark.parametrize("mode", ["interp", "sync"])
def test_a_fold_on_what_is_read_for_each_element(mode):
    with Kiln(mode) as kiln:
        for name, args, results in on_an_argument():
            tally.cases["folds on their arguments"] += 1
            results = {k: torch.empty(v) if isinstance(v, tuple) else v for k, v in results.items()}
            expected = kiln.op(name)(*args, **{k: torch.empty(args[v].shape) if isinstance(v, int) else v.clone() for k, v in results.items()})
            for _ in range(3):  # what is remembered, too
                again = [a.clone() if isinstance(a, torch.Tensor) else a for a in args]
                for got, want in zip(kiln.op(name)(*again, **{k: again[v] if isinstance(v, int) else v for k, v in results.items()}), expected):
                    torch.testing.assert_close(got, want, rtol=0, atol=0)
