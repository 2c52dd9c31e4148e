"""In which contexts a call is made: on one tier or both, and with how many threads.

A sampled run compiles where a class shows two things together for the first time.

A class says what is computed (its operator, and which branch with which arguments), of which dtypes, in which one, and how memory is
reached (along or across, by how many axes, contiguous or strided).  The emitter prints each by itself: an expression, loads and
conversions, loops; and expressions of every dtype are lowered by what the tiers share.  So a sampled run compiles a class where two of these meet for
the first time in any test, as PAIRS says, and makes calls of classes that are compiled already on both tiers in any case: a kernel
takes a compiler a tenth of a second, and one that merges means and squares more than one.  A whole run compiles every class.
"""
from kilnlib import Kiln, at_most
from whole import WHOLE

PAIRS = [("operator", "variant"), ("operator", "types"), ("operator", "reached"), ("computed", "reached")]
COMPUTED = {"f16": "f32", "bf16": "f32"}  # halves are converted where they are loaded and stored


def said(key):
    """What a key says of these, by the words of `explain`.  Overloads of one name fold alike; of operands it counts which kinds there are."""
    lines = dict(line.split(": ", 1) for line in key.splitlines())
    operator, _, overload = lines["operator"].partition(".")
    operands = [operand.split() for operand in lines["operands"].split(", ")]  # "result 0 f32 contig", "self f32 any"
    strides = (frozenset(words[-1] for words in operands if (words[0] == "result") == result) for result in (True, False))
    return {"operator": operator,
            "variant": (overload, *(lines[word] for word in ("branch", "optionals", "items", "exact", "statics"))),
            "computed": COMPUTED.get(lines["common"], lines["common"]),
            "types": (lines["common"], lines["results"], frozenset(words[-2] for words in operands)),
            "reached": (lines["family"], lines["form"], lines["iteration"], *strides)}


def worth(contexts, op, args, named=None):
    """The contexts in which a call is made: the first, and the others if a kernel is worth it."""
    first, *others = contexts
    if WHOLE or not others:
        return contexts
    try:
        key = first.op(op).explain("key", *args, **(named or {}))
    except (RuntimeError, IndexError, TypeError, ValueError):
        return contexts  # refused before anything is compiled
    if "kind: kernel\n" not in key:
        return contexts  # its classes are those of other calls
    known, met = others[0].classes, others[0].pairs
    if key not in known:
        of = said(key)
        fresh = {(a, b, of[a], of[b]) for a, b in PAIRS} - met
        if not fresh:
            return (first,)
        met |= fresh
        known.add(key)
    return contexts


def by_threads(mode, sync):
    """Numbers of threads, each with a context that has them: one of its own, if nothing is compiled, else `sync`, which compiles once for all."""
    if mode == "interp":
        for threads in (1, 2, 3, 8):
            with Kiln("interp", threads=threads) as k:
                yield threads, k
    else:
        for threads in (1, 2, 3, 8) if WHOLE else (1, 3):
            with at_most(threads):
                yield threads, sync
