"""Random graphs, printed, run and compared with torch.fx's interpreter: no wrong value, no SyntaxError.

10,000 seeds with KILN_TEST_ALL, else every tenth of them.  Each graph is also taken through the text form, through a
GraphModule and through both normalisations, and must mean the same.
"""
import copy

import fxlib
import kiln.fx
import pytest
from fxlib import compiled, interpreted, outcome, same
from randgraph import ROOT, Maker
from whole import WHOLE

SEEDS = range(0, 10_000, 1 if WHOLE else 10)


def alike(want, got):
    return want[0] == got[0] and same(want[1], got[1])


def fresh(inputs):
    return copy.deepcopy(inputs)


def ways(graph):
    """(name, function of root and inputs) for everything that must mean what the graph means."""
    yield "printed", lambda *inputs: compiled(kiln.fx.python_code(graph))(ROOT, *inputs)
    converted = kiln.fx.from_torch(graph)
    text = str(converted)
    parsed = kiln.fx.Graph.parse(text, ROOT, converted.constants)
    assert str(parsed) == text, "the text form is a fixed point"
    yield "parsed", lambda *inputs: compiled(parsed.python_code(allow=["*"]))(ROOT, *inputs)
    module = converted.to_torch(ROOT)
    yield "module", module.forward
    yield "rebuilt", lambda *inputs: interpreted(module.graph, ROOT, *inputs)
    yield "normalised", lambda *inputs: kiln.fx.normalize(module).forward(*inputs)
    yield "kwargs only", lambda *inputs: kiln.fx.normalize(module, kwargs_only=True).forward(*inputs)


def check(seed):
    """What went wrong, and whether the graph gives a value."""
    made = Maker(seed)
    want = outcome(interpreted, made.graph, ROOT, *fresh(made.inputs))
    for name, run in ways(made.graph):
        got = outcome(run, *fresh(made.inputs))
        refused = want[0] == "raises" and got[0] == "raises"  # which call complains first may differ
        if not refused and not alike(want, got):
            return f"seed {seed}, {name}: {want} became {got}\n{kiln.fx.python_code(made.graph).src}", True
    return None, want[0] == "value"


def test_the_sweep_finds_what_torch_fx_gets_wrong():
    """Printed by torch.fx itself, a good part of the same graphs fails: the comparison can tell."""
    wrong = 0
    for seed in range(100):
        made = Maker(seed)
        want = outcome(interpreted, made.graph, ROOT, *fresh(made.inputs))
        try:
            got = outcome(lambda *inputs: compiled(made.graph.python_code("self"))(ROOT, *inputs), *fresh(made.inputs))
        except SyntaxError:
            got = ("SyntaxError", None)
        wrong += want[0] == "value" and not alike(want, got)
    assert wrong > 20


@pytest.mark.filterwarnings("error::SyntaxWarning")
def test_random_graphs():
    failures, values = [], 0
    for seed in SEEDS:
        try:
            wrong, value = check(seed)
        except Exception as error:
            wrong, value = f"seed {seed}: {type(error).__name__}: {error}", True
        values += value
        if wrong:
            failures.append(wrong)
    fxlib.counts.append(f"random graphs: {len(SEEDS) - len(failures)} of {len(SEEDS)} mean the same, {values} of them give a value")
    assert not failures, f"{len(failures)} wrong:\n" + "\n".join(failures[:10])
    assert values > 0.8 * len(SEEDS)
