"""The bits of results: for each operator and dtype a digest of calls in several layouts, equal to the one kept in bits.txt.

The other tests compare with PyTorch, within tolerances.  This one notices that a change of Kiln's own has moved a bit: the order of a sum, a
rounding, a stride of a result.  Digests are the same on both tiers and on every processor with fused multiply-add, because bits of results
follow from values, shapes and layouts alone.  Whoever changes bits on purpose makes the file anew, with KILN_BLESS=1, and says in the commit why
they changed.
"""
import hashlib
import os
import warnings
from pathlib import Path

import pytest
import torch

import drawn
from kilnlib import SHORT
from test_sweep import SUBJECTS, Spelled
from values import seeded
from whole import WHOLE

FILE = Path(__file__).with_name("bits.txt")
LAYOUTS = ("dense", "dense", "turned", "any", "any")  # of the calls of one dtype, see Draw.strides
BLESS = os.environ.get("KILN_BLESS") == "1"
pytestmark = pytest.mark.skipif(" fma " not in Path("/proc/cpuinfo").read_text(), reason="without fused multiply-add Kiln rounds otherwise")
COMPILED = SUBJECTS if WHOLE else SUBJECTS[::40]  # a kernel for each class takes long


def kept():
    """operator -> dtype -> digest"""
    lines = (line.split() for line in FILE.read_text().splitlines()) if FILE.exists() else ()
    return {name: dict(word.split(":") for word in words) for name, *words in lines}


def calls(s, dtype):
    for n, layout in enumerate(LAYOUTS):
        rng = seeded("bits", s.name, dtype, n)
        d = drawn.Draw(s, rng, [dtype])
        d.dtype, d.alike, d.fault, d.layout, d.shape = dtype, True, "none", layout, drawn.drawn_shape(rng)
        yield drawn.spelled(s, drawn.with_out(s, d, s.inputs_of(d)), rng)


def bytes_of(t):
    """Dtype, sizes, strides and elements in order; every NaN is one NaN."""
    if t is None:
        return b"none"
    head = f"{SHORT.get(t.dtype, t.dtype)}{list(t.shape)}{list(t.stride())}".encode()
    t = torch.view_as_real(t.resolve_conj()) if t.is_complex() else t
    t = torch.where(t.isnan(), torch.full_like(t, float("nan")), t) if t.is_floating_point() else t
    return head + t.contiguous().view(-1).view(torch.uint8).numpy().tobytes()


def digest(s, op, dtype):
    """Of all calls.  A call that Kiln refuses counts as refused, whatever the error says."""
    all_bytes = hashlib.sha256()
    for call in calls(s, dtype):
        args, kwargs, _ = call.case.build(True, True)
        try:
            found = [bytes_of(t) for t in Spelled(op, s, call)(*args, **kwargs)]
        except (RuntimeError, TypeError, IndexError, ValueError):
            found = [b"refused"]
        for each in found:
            all_bytes.update(each)
    return all_bytes.hexdigest()[:8]


def digests(k, s):
    op = k.op(s.name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return {dtype: digest(s, op, dtype) for dtype in s.taken}


KEPT = kept()
MADE = {}


@pytest.fixture(scope="module", autouse=True)
def bless():
    yield
    if BLESS:
        words = {name: " ".join(f"{dtype}:{value}" for dtype, value in found.items()) for name, found in sorted(MADE.items())}
        FILE.write_text("".join(f"{name} {text}\n" for name, text in words.items()))


@pytest.mark.parametrize("s", SUBJECTS, ids=lambda s: s.name.removeprefix("aten::"))
def test_bits_are_those_kept(s, interp):
    MADE[s.name] = digests(interp, s)
    assert BLESS or MADE[s.name] == KEPT.get(s.name)


@pytest.mark.parametrize("s", COMPILED, ids=lambda s: s.name.removeprefix("aten::"))
def test_bits_of_kernels_are_those_kept(s, sync):
    assert digests(sync, s) == (MADE if BLESS else KEPT).get(s.name)


def test_a_bit_that_moved_is_noticed(own):
    """Two sums of one value: the second one adds in another order."""
    own.load("fold bits::backwards(Tensor self) -> Tensor : takes float\n    state  s = 0\n    step   s = self + s * 1.0000001\n    merge  s = rhs.s + s\n    finish s")
    s = next(s for s in SUBJECTS if s.name == "aten::sum")
    op = own.op("bits::backwards")
    assert digest(s, lambda x, **_: op(x), "f32") != KEPT[s.name]["f32"]
