"""What "the same as PyTorch" means: one call, made by both, and a text that says how they differ.

The same: both raise, and the same kind of exception; or both return, and every result has the same dtype, sizes and
strides, and values that torch.testing.assert_close accepts with its default tolerances (integers and truth values
exactly, any NaN for any NaN).  Whatever memory the arguments look at must end up the same too, and a call that Kiln
refuses must leave it as it was.

PyTorch does not always agree with itself: its vectors and its loop over single elements round differently, and which of
them computes an element depends on the layout.  An element is right if it is what either gives, or if mpmath says so for an
operator of exact.py.  Such calls are counted.  Of complex numbers, where an infinity or NaN is near, the two often give
answers that have nothing to do with each other: then C99's Annex G decides (exact.py), and where it says nothing, an element
that is not finite and on which PyTorch's one-element and 64-element results differ has no right answer, and is counted too.
"""
import re
from collections import Counter
from dataclasses import dataclass, field

import torch

import clauses
import exact
from kilnlib import DTYPES, SHORT

TOLERANCE = {torch.float16: (1e-3, 1e-5), torch.bfloat16: (1.6e-2, 1e-5), torch.float32: (1.3e-6, 1e-5),
             torch.float64: (1e-7, 1e-7), torch.complex64: (1.3e-6, 1e-5), torch.complex128: (1e-7, 1e-7)}  # torch.testing.assert_close's own
BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


@dataclass
class Tally:
    """What a run did, for the summary at its end."""
    cases: Counter = field(default_factory=Counter)  # by kind of test
    classes: int = 0
    notes: Counter = field(default_factory=Counter)  # what was left out or let pass, by reason
    unserved: Counter = field(default_factory=Counter)  # overloads that op_db ran and Kiln does not serve
    judged: set = field(default_factory=set)  # operators of which mpmath found Kiln right and PyTorch wrong


tally = Tally()


@dataclass
class Outcome:
    error: Exception | None
    results: tuple
    memories: dict


def call(op, built, refused_writes=False):
    """Makes a call of what Case.build gave.  refused_writes: whether one that is refused must have written nothing."""
    args, kwargs, memories = built
    before = {k: m.clone() for k, m in memories.items()} if refused_writes else {}
    try:
        results = op(*args, **kwargs)
    except (RuntimeError, TypeError, IndexError, ValueError) as e:  # NotImplementedError is a RuntimeError
        for k, m in before.items():
            if not same_bits(m, memories[k]):
                e = AssertionError(f"refused the call ({e}), but had written to memory {k}")
        return Outcome(e, (), memories)
    results = results if isinstance(results, tuple) else (results,)
    return Outcome(None, results, memories)


def same_bits(a, b):
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    if a.is_complex():
        return same_bits(torch.view_as_real(a), torch.view_as_real(b))
    bits = BITS[a.element_size()]
    if torch.equal(a.view(bits), b.view(bits)):
        return True
    if not a.is_floating_point():
        return False
    return bool(((a.view(bits) == b.view(bits)) | (a.isnan() & b.isnan())).all())


def with_strides_of(actual, expected):
    """The result, with the other's strides where they differ only in dimensions of one or of no elements, where they mean nothing."""
    alike = actual.shape == expected.shape and all(n < 2 or a == b for n, a, b in zip(actual.shape, actual.stride(), expected.stride()))
    return actual.as_strided(expected.shape, expected.stride()) if alike or actual.numel() == 0 and actual.shape == expected.shape else actual


def other_zero(actual, expected):
    """Which elements are zeros of different signs.  Those in complex numbers follow from the order of sums and products, which nothing fixes."""
    if actual.is_complex():
        return torch.zeros(actual.shape, dtype=torch.bool)
    return (actual == 0) & (expected == 0) & (actual.signbit() != expected.signbit())


def close(actual, expected, dtype, signs=False):
    """Which elements are close enough for something computed in dtype.  signs: zeros must have the same sign."""
    if signs:
        return close(actual, expected, dtype) & ~other_zero(actual, expected)
    if dtype not in TOLERANCE:
        return actual == expected
    rtol, atol = TOLERANCE[dtype]
    near = torch.isclose(actual, expected, rtol=rtol, atol=atol, equal_nan=True)
    if actual.is_complex():  # with a part that is not finite the distance says nothing
        both = [torch.isclose(part(actual), part(expected), rtol=rtol, atol=atol, equal_nan=True)
                for part in (torch.real, torch.imag)]
        near |= both[0] & both[1]
    return near


def precision(case, result):
    """The dtype whose tolerance applies: the result's, or what a written result was computed in if that is coarser.
    Integers are computed in f32 where the result is floating."""
    if not (result.is_floating_point() or result.is_complex()):
        return result.dtype
    used = [DTYPES[v.dtype] for v in case.views()]
    return max([t if t in TOLERANCE else torch.float32 for t in used] + [result.dtype], key=TOLERANCE.__getitem__)


def describe(t):
    return f"{SHORT.get(t.dtype, t.dtype)}{list(t.shape)} strides={tuple(t.stride())}"


def is_complex(result, inputs):
    return result.is_complex() or any(isinstance(t, torch.Tensor) and t.is_complex() for t in inputs)


def disputed(actual, one, other, dtype):
    """Which elements, none of them finite, PyTorch itself gives two values for."""
    return ~close(one, other, dtype) & ~(actual.isfinite() & one.isfinite() & other.isfinite())


def difference(actual, expected, dtype, inputs, opinions, judge=None, signs=False):
    """Says how two results differ, with the elements that went in where they differ first; None if they do not.
    opinions: what else PyTorch says of the elements; judge: which of them are right without its saying so; signs: whether
    zeros must have the same sign, which a judge does not know."""
    if actual.dtype != expected.dtype or actual.shape != expected.shape or actual.stride() != expected.stride():
        return f"is {describe(actual)}, PyTorch's is {describe(expected)}"
    if same_bits(actual, expected):
        return None
    wrong = ~close(actual, expected, dtype, signs)
    if not wrong.any():
        return None
    said = []  # what PyTorch gives for the elements that are wrong, in its two ways
    for other in opinions(wrong):
        other = other.to(actual.dtype)
        still = ~close(actual[wrong], other, dtype, signs)
        said = [one[still] for one in (*said, other)]
        wrong[wrong.clone()] = still
    if not wrong.any():
        tally.notes["calls for which PyTorch's own value depends on the layout"] += 1
        return None
    far = ~close(actual[wrong], expected[wrong], dtype)
    if judge and (right := judge(wrong, actual[wrong])) is not None and (right := right & far).any():
        tally.notes["calls of which mpmath or C99 says that Kiln is right and PyTorch is not"] += 1
        said = [one[~right] for one in said]
        wrong[wrong.clone()] = ~right
    if is_complex(expected, inputs) and len(said) == 2 and (open_ := disputed(actual[wrong], *said, dtype)).any():
        tally.notes["calls with elements on which PyTorch's vectors and single elements disagree (complex)"] += 1
        wrong[wrong.clone()] = ~open_
    if not wrong.any():
        return None
    at = tuple(int(i) for i in wrong.nonzero()[0]) if wrong.dim() else ()
    went_in = []
    for t in inputs:
        if isinstance(t, torch.Tensor):
            try:
                went_in.append(repr(t.expand(actual.shape)[at].item()))
            except RuntimeError:
                went_in.append("?")
    where = f"at {list(at)}, from {', '.join(went_in)}" if inputs else f"at {list(at)}"
    return (f"{SHORT[actual.dtype]} {where}: {actual[at].item()!r}, PyTorch's {expected[at].item()!r} "
            f"({int(wrong.sum())} of {wrong.numel()} differ)")


NEW = ("u16", "u32", "u64", "c64", "c128")  # dtypes for which PyTorch says in no fixed order why it refuses a call


def compare_errors(kiln, torch_, case):
    if isinstance(kiln, AssertionError):
        return str(kiln)
    if "complex numbers with parts of f16 are not served" in str(kiln):  # PyTorch has them and hardly supports them
        tally.notes["calls that would need complex numbers of two halves"] += 1
        return None
    if kiln is None:
        return f"returned, but PyTorch raised {type(torch_).__name__}: {first_line(torch_)}"
    if torch_ is None:
        return f"raised {type(kiln).__name__}: {first_line(kiln)}; PyTorch returned"
    if type(kiln) is not type(torch_):
        new = any(v.dtype in NEW for v in case.views()) or any(isinstance(v, complex) for v in case.values())
        if new and (isinstance(kiln, NotImplementedError) or isinstance(torch_, NotImplementedError)):
            tally.notes["calls that are wrong in two ways, of which PyTorch and Kiln report another one first"] += 1
            return None
        return (f"raised {type(kiln).__name__}: {first_line(kiln)}; PyTorch raised {type(torch_).__name__}: "
                f"{first_line(torch_)}")
    return None


def first_line(e):
    return str(e).split("\n")[0][:160]


def by_vectors(op, args, kwargs):
    def widen(t):
        return t.repeat_interleave(64) if isinstance(t, torch.Tensor) and t.dim() else t
    results = op(*[widen(t) for t in args], **{n: widen(t) for n, t in kwargs.items()})
    return [r[::64] for r in (results if isinstance(results, tuple) else (results,))]


def one_by_one(op, args, kwargs):
    def one(t, k):
        return t[k:k + 1].clone() if isinstance(t, torch.Tensor) and t.dim() else t
    count = max(t.numel() for t in args if isinstance(t, torch.Tensor))
    each = [op(*[one(t, k) for t in args], **{n: one(t, k) for n, t in kwargs.items()}) for k in range(count)]
    each = [r if isinstance(r, tuple) else (r,) for r in each]
    return [torch.cat(results) for results in zip(*each)]


def opinions(torch_op, case, shape, k):
    """PyTorch's k-th result, asked again where it is still wrong: by vectors, then one by one."""
    def ask(wrong):
        for how in (by_vectors, one_by_one):
            if not wrong.any():
                return
            args, kwargs, _ = case.build(True, False)

            def chosen(t):  # beside tensors with dimensions, one without must stay as it is
                if not isinstance(t, torch.Tensor) or (t.dim() == 0 and wrong.dim()):
                    return t
                return t.expand(shape)[wrong]
            outs = {n: torch.empty(0, dtype=v.dtype) for n, v in kwargs.items() if isinstance(v, torch.Tensor)}
            try:
                yield how(torch_op, [chosen(t) for t in args], {**kwargs, **outs})[k]
            except RuntimeError:  # only what has dimensions can be asked for again
                continue
    return ask


def by_mpmath(name, case, dtype):
    """The judge for difference()."""
    if exact.function_of(name) is None or dtype not in TOLERANCE:
        return None

    def judge(wrong, actual):
        args, kwargs, _ = case.build(True, False)
        right = exact.right(name, args, kwargs, wrong, actual, TOLERANCE[dtype])
        if right is not None and right.any():
            tally.judged.add(name)
        return right
    return judge


def with_torch(kiln_op, torch_op, case, writes=False, ask=opinions, judge=None, signs=False):
    """The one comparison with PyTorch.  Returns None, or how Kiln differs.  ask: makes what else PyTorch may say of a result; judge: makes the judge
    of one, if it is not mpmath; then strides need agree only where they mean something; signs: whether zeros must have the same sign."""
    built = case.build(writes, False)
    expected = call(torch_op, built)
    actual = call(kiln_op, case.build(True, True), refused_writes=True) if writes else call(kiln_op, built)
    if expected.error is not None or actual.error is not None:
        return compare_errors(actual.error, expected.error, case)
    inputs = [] if writes else built[0]
    for k, (a, e) in enumerate(zip(actual.results, expected.results, strict=True)):
        if a is None or e is None:  # a result that the call does not ask for
            said = None if a is e else "is given by one of the two alone"
        else:
            dtype = precision(case, e) if writes else e.dtype
            a = with_strides_of(a, e) if judge else a
            said = difference(a, e, dtype, inputs, ask(torch_op, case, e.shape, k),
                              judge(torch_op, case, e, k) if judge else by_mpmath(torch_op.name(), case, dtype), signs)
        if said:
            return f"result {k}: {said}"
    return beside(case, actual, expected) if writes else None


def beside(case, actual, expected):
    """Memory that the written tensors do not cover must be the same."""
    for v in case.views():
        for outcome in (actual, expected):
            if not v.owned:
                outcome.memories[v.memory].as_strided(v.sizes, v.strides, v.offset).zero_()
    for k, m in actual.memories.items():
        if not same_bits(m, expected.memories[k]):
            return f"memory {k} differs after the call: something outside of the result was written"
    return None


def report(differences):
    """Many differences as a text short enough to read: one of each kind, with its count, dtypes and the clause to look at."""
    groups = {}
    for case, said in differences:
        kind = re.sub(r"\b(bool|[uifc]\d+|bf16)\b|-?\d[\d.e+-]*|\[.*?\]|\(.*?\)|\b(nan|inf)\b", "", said)
        groups.setdefault(kind, []).append((case, said))
    lines = [f"{len(differences)} calls differ, in {len(groups)} ways; the first of each:"]
    for found in list(groups.values())[:12]:
        case, said = found[0]
        dtypes = sorted({",".join(v.dtype for v in c.views()) for c, _ in found})
        lines.append(f"  {case}\n      {said}\n      {len(found)} calls, of {' '.join(dtypes[:12])}\n      look at: {clauses.advice(said)}")
    return "\n".join(lines)
