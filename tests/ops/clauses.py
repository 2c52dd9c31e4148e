"""Which clause of a row (docs/OPS.md) to look at for a difference from PyTorch: text of the difference -> advice, for those who add a row.

The first pattern that is found decides.  Advice names clauses between backquotes, or says that there is none.  Knows no operator.
"""
import re

ADVICE = [
    (r"had written to memory|memory \d+ differs after the call",
     "no clause: Kiln must not write there, whatever the row says; this is a fault of the library"),
    (r"is given by one of the two alone",
     "`gives`, the condition for a result that the call does not always have"),
    (r"some elements of the input tensor and the written-to tensor.*; PyTorch (returned|raised)",
     "`out copied`, if PyTorch computes aside and copies, so that out= may overlap inputs; there is no clause for in-place forms"),
    (r"more than one element of the written-to tensor.*; PyTorch (returned|raised)",
     "no clause: Kiln never writes to a tensor whose elements share memory; add an entry to tests/ops/known.py"),
    (r"(can't be cast|expected .* out|dtype .* of out|result type).*; PyTorch returned|returned, but PyTorch raised .*(can't be cast|[Ee]xpected out|to have (scalar )?type|dtype)",
     "`out converts`, `out exact`, `out copied` or `out decides`, which say what out= and in-place forms may write to; else `takes`"),
    (r"not implemented for .*; PyTorch returned",
     "`takes`, and the body for what it adds; where PyTorch takes the dtype for some calls alone, as for empty tensors, a `check ... unsupported` with that "
     "condition (`numel`) beside it"),
    (r"returned, but PyTorch raised \w+: .*not implemented for",
     "`takes`, which lets too many dtypes in; or `check ... unsupported`, if it depends on more than a dtype"),
    (r"returned, but PyTorch raised",
     "`check`, with the condition and PyTorch's message; `check each` for values of elements. There is no clause for what no condition can ask, such as the "
     "values behind strides: then an entry of tests/ops/known.py, with the reason"),
    (r"raised .*; PyTorch raised",
     "the word of `check` before the message (`index`, `value`, `type`, `unsupported`), which decides the kind of exception, and the order of checks"),
    (r"raised .*; PyTorch returned",
     "`check` and `takes`, one of which refuses the call; for numbers that do not fit a dtype `promote` (`number x` must fit, x is converted like an element)"),
    (r"is (\w+)(\[[^]]*\]) strides=\S.*, PyTorch's is \1\2 strides=",
     "`strides` (`rows`, `like x`, `format x`, `channels_last`, or what meets in PyTorch's iterators in brackets)"),
    (r"is (\w+)\[[^]]*\] .*PyTorch's is \1\[",
     "sizes: `over` and `keep` of a fold, `view`, `lack`, `finish each`; of a map there is no clause: they follow from what its tensors are broadcast to"),
    (r"is \w+\[.*PyTorch's is \w+\[",
     "the dtype of results: `->`; or the common dtype: `promote`, `to_float`, `to_double`, `sum_dtype`, `to(ARG)`"),
    (r"at (\[.*)?: .*, PyTorch's .*\(\d+ of \d+ differ\)",
     "the body; for the last places `compute(x)`, `common(x)` (where it rounds) and `wide` states. No clause makes a wrong value right: if mpmath finds PyTorch "
     "wrong, tests/ops/exact.py judges, else an entry of tests/ops/known.py gives the reason"),
]


def advice(said):
    """One line for one difference."""
    return next((text for pattern, text in ADVICE if re.search(pattern, said)), "no clause is known for this; docs/OPS.md lists them all")
