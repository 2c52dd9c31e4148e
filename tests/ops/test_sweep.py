"""Random calls of every operator, interpreted, against PyTorch: dtypes, sizes, strides, values, the signs of zeros, refusals.

Calls come from drawn.py.  Values are judged as in compare.py; an operator whose elements follow from several elements of its arguments may
also give what PyTorch gives in f64, or for the same tensors in another layout.  Differences that are PyTorch's own are entries of known.py and
known_drawn.py.

KILN_SWEEP_SEED is the seed; the summary of a run prints it.  A sampled run makes the first calls that a whole run makes.
"""
import os
import re
import warnings

import pytest
import torch

import drawn
import known
import shaped
from cases import row_major
from compare import opinions, report, tally, with_torch
from kilnlib import DTYPES, Kiln
from known_drawn import DRAWN
from test_map_diff import torch_op
from whole import WHOLE

SEED = int(os.environ.get("KILN_SWEEP_SEED", "33"))
CALLS = int(os.environ.get("KILN_SWEEP_CALLS", "0")) or (168 if WHOLE else 56)  # of each operator


NOT_FOR_CPUS = ("aten::_fused_rms_norm_backward",)  # of PyTorch's


def subjects():
    with Kiln("interp") as k:
        return [drawn.Drawn(op.name, op.row, torch_op(op.name), torch_op(re.match(r"\w+ +([\w:.]+)", op.row)[1]), op.family)
                for op in k.ops() if op.served and op.name.startswith("aten::") and op.name not in NOT_FOR_CPUS]


SUBJECTS = subjects()


class Spelled:
    """An operator that takes all arguments by position and is called as a Call says.  Gives a tuple: results, then arguments
    that were written and are no results."""

    def __init__(self, op, s, call):
        self.op, self.s, self.call = op, s, call

    def name(self):
        return self.s.name

    def __call__(self, *args, **kwargs):
        call = self.call
        by_name = dict(zip(call.names[call.given:], args[call.given:])) | kwargs
        results = self.op(*args[:call.given], **{n: v for n, v in by_name.items() if n not in call.left_out})
        results = () if results is None else tuple(results) if isinstance(results, (list, tuple)) else (results,)
        values = dict(zip(call.names, args)) | kwargs
        return (*map(as_tensor, results), *(t for a in self.s.written for t in flat(values[a])))


def as_tensor(value):
    return torch.tensor(value) if isinstance(value, bool) else value


def flat(value):
    return value if isinstance(value, list) else [value]


def otherwise(torch_op, case, shape, k):
    """What else PyTorch gives for result k: of tensors that lie one after the other or apart, in f64, and of items of lists by vectors."""
    def ask(wrong):
        for change in (dense, apart, widened, *((repeated,) if "_foreach" in torch_op.name() else ())):
            if not wrong.any():
                return
            try:
                result = recomputed(torch_op, case, change)[k]
            except (RuntimeError, TypeError, IndexError, ValueError):
                continue
            if change is repeated and result.dim():
                result = result[::64].reshape(shape)
            if result.shape == shape:
                yield result[wrong]
    return ask


def changed(change):
    def convert(value):
        if isinstance(value, list):
            return [convert(v) for v in value]
        return change(value) if isinstance(value, torch.Tensor) else value
    return convert


def recomputed(torch_op, case, change):
    """PyTorch's results of the same call with changed tensors; in f64 a dtype that is asked for is f64 too."""
    args, kwargs, _ = case.build(True, False)
    if change not in (dense, apart, repeated):
        args, kwargs = [as_wide(v) for v in args], {n: as_wide(v) for n, v in kwargs.items()}
    return torch_op(*map(change, args), **{n: change(v) for n, v in kwargs.items()})


def as_wide(value):
    return wide(value) if isinstance(value, torch.dtype) else value


@changed
def dense(t):
    return t.clone(memory_format=torch.contiguous_format)


@changed
def apart(t):
    return torch.stack([t, t], -1)[..., 0] if t.dim() else t.clone()


def wide(dtype):
    return torch.float64 if dtype.is_floating_point else torch.complex128 if dtype.is_complex else dtype


@changed
def widened(t):
    return t.to(wide(t.dtype), copy=True)


@changed
def repeated(t):
    return t.flatten().repeat_interleave(64) if t.dim() else t.clone()


def nudged(seed, result):
    """Tensors in f64 whose floats are off by up to a unit in the last place of theirs or the result's: how far results move says what rounding
    may do to them."""
    source = torch.Generator().manual_seed(seed)

    @changed
    def nudge(t):
        wide = widened(t)
        if not t.is_floating_point():
            return wide
        eps = max(torch.finfo(dtype).eps for dtype in (t.dtype, result))
        return wide * (1 + eps * (2 * torch.rand(t.shape, generator=source, dtype=torch.float64) - 1))
    return nudge


def not_much_farther(torch_op, case, expected, k):
    """A judge of rounding: Kiln's result may be four times as far from PyTorch's f64 as PyTorch's own is, or as far as rounded arguments move it."""
    def judge(wrong, actual):
        if not expected.is_floating_point():
            return None
        try:
            exact, *moved = (recomputed(torch_op, case, change)[k] for change in (widened, *(nudged(seed, expected.dtype) for seed in range(4))))
        except (RuntimeError, TypeError, IndexError, ValueError):
            return None
        if exact.shape != expected.shape:
            return None
        off = torch.stack([(t.double() - exact).abs() for t in (expected, *moved)])
        off = off[off.isfinite()]
        return (actual.double() - exact[wrong]).abs() <= 4 * off.max() if off.numel() else None
    return judge


# Of folds and compositions.  What Kiln does not serve a program gets from PyTorch.
EXCUSES = [
    (r"raised NotImplementedError: KILN_E_UNSUP", "calls that Kiln does not serve"),
    (r"raised \w+: .*; PyTorch raised", "calls that are refused with another exception, of operators whose arguments belong together: PyTorch looks at one after the other"),
]


def compared(s, call, op):
    writes = bool(s.written or s.torch_op._schema.is_mutable)
    made = Spelled(op, s, call), Spelled(s.torch_op, s, call), call.case
    if s.each_element:
        return with_torch(*made, writes=writes, ask=opinions, signs=True)
    said = with_torch(*made, writes=writes, ask=otherwise, judge=not_much_farther, signs=not s.shaped or s.shaped is shaped.lists)
    for pattern, why in EXCUSES:
        if said and re.match(pattern, said) and (s.shaped or "serve" in why):
            tally.notes[why] += 1
            return None
    return said


@pytest.mark.parametrize("s", SUBJECTS, ids=lambda s: s.name.removeprefix("aten::"))
def test_sweep(s, interp):
    op, entries, differences = interp.op(s.name), known.Entries(s.name, WHOLE, DRAWN), []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for n in range(CALLS):
            call = drawn.call(s, SEED, n)
            tally.cases[f"random sweep, KILN_SWEEP_SEED={SEED}"] += 1
            said = compared(s, call, op)
            why = said and entries.why(f"{call} {said}")
            if why:
                tally.notes[f"calls known to differ: {why}"] += 1
            elif said:
                differences.append((call.case, f"{said}   ({call}; call {n} of seed {SEED})"))
    if differences:
        pytest.fail(report(differences), pytrace=False)


# -- the sweep itself ------------------------------------------------------------------------------------------------

PLANTED = [  # PyTorch's operator, and a row that is wrong somewhere
    ("relu6", "map wrong::sign(Tensor self) -> Tensor : takes real strides like self = min(max(self, 0), 6)\n    check not is_bool(common) : \"Bool inputs\"\n"),
    ("softplus", "map wrong::default(Tensor self, Scalar beta=2, Scalar threshold=20) -> Tensor : takes float = self * beta > threshold ? self : log1p(exp(self * beta)) / beta\n"),
    ("hypot", "map wrong::nan(Tensor self, Tensor other) -> Tensor : promote(self, other) takes float = isnan(self) ? abs(other) : hypot(self, other)\n"),
    ("mse_loss", "map wrong::reduction(Tensor self, Tensor target, int reduction=1) -> Tensor : promote(self, target) takes float\n    ignore reduction\n    when true = (self - target) * (self - target)\n"),
    ("neg", "map wrong::strides(Tensor self) -> Tensor : takes real complex strides rows = -self\n"),
    ("hardshrink", "map wrong::refusal(Tensor self, Scalar lambd=0.5) -> Tensor : takes real = abs(self) <= lambd ? 0 : self\n"),
]


@pytest.mark.parametrize("name, row", PLANTED, ids=lambda value: value.partition("wrong::")[2].partition("(")[0])
def test_rows_that_are_wrong_are_found(name, row, own):
    own.load(row)
    op = own.op(re.search(r"wrong::\w+", row)[0])
    s = drawn.Drawn(f"aten::{name}", own.op(f"aten::{name}").row, torch_op(name), torch_op(name), own.op(f"aten::{name}").family)
    calls = [drawn.call(s, "planted", n) for n in range(60)]
    right = [call for call in calls if compared(s, call, own.op(f"aten::{name}"))]
    assert not right and any(compared(s, call, op) for call in calls)


def kinds(s, call):
    """What is special about a call."""
    views = call.case.views()
    yield from (f"dtype {v.dtype}" for v in views)
    yield f"fill {call.case.fill}"
    yield "by name alone" if call.given == 0 and call.names else "by position" if call.given == len(call.names) else "both"
    yield from ("defaults left out" for _ in call.left_out)
    yield from ("reduction 3" for n, v in zip(call.names, call.case.args) if n == "reduction" and v == 3)
    yield from ("no dimensions" if not v.sizes else "no elements" if 0 in v.sizes else "elements" for v in views)
    yield from ("rows" if v.strides == row_major(v.sizes) else "other strides" for v in views)
    yield from ("stretched" for v in views if any(stride == 0 and n > 1 for n, stride in zip(v.sizes, v.strides)))
    yield "broadcast" if len({v.sizes for v in views}) > 1 else "one shape"
    yield "shared memory" if len({v.memory for v in views}) < len(views) else "memory of their own"
    yield from ("out= to be resized" for v in views if v.owned)
    yield "PyTorch takes it" if s.answers(call.case) else "PyTorch refuses it"


def test_calls_are_of_every_kind():
    some = SUBJECTS[::12] + [s for s in SUBJECTS if "reduction" in str(s.torch_op._schema)]
    found = {kind for s in some for n in range(12) for kind in kinds(s, drawn.call(s, SEED, n))}
    wanted = {*(f"dtype {t}" for t in DTYPES), *(f"fill {f}" for f in ("random", "special", "wide", "mixed")), "by name alone", "by position", "both", "defaults left out",
              "reduction 3", "no dimensions", "no elements", "elements", "rows", "other strides", "stretched", "broadcast", "one shape", "shared memory", "memory of their own",
              "out= to be resized", "PyTorch takes it", "PyTorch refuses it"}
    assert wanted <= found, wanted - found


def test_known_names_are_of_operators():
    assert {f"aten::{name}" for entry in DRAWN for name in entry[0].split()} <= {s.name for s in SUBJECTS}


def test_calls_are_the_same_for_one_seed_and_others_for_another():
    s = next(s for s in SUBJECTS if s.name == "aten::add.Tensor")
    texts = [[str(drawn.call(s, seed, n)) for n in range(12)] for seed in (SEED, SEED, SEED + 1)]
    assert texts[0] == texts[1] != texts[2]
