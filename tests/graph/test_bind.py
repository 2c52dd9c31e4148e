"""Binding against Python's own: random signatures and calls, by inspect.Signature.bind and by Kiln.

Both must refuse the same calls with the same words, or give every parameter the same value; what Kiln lays out is bound
again by Python, so that a normalised call means what the call meant.
"""
import inspect
import random

import fxlib
from whole import WHOLE
import pytest
import torch.fx as fx

from kiln import _fxcalls, _kiln
from kiln._fxbridge import Bridge

P = inspect.Parameter
NAMES = ["a", "b", "c", "x", "self", "input", "args", "kwargs", "é"]


def random_signature(rng):
    names = rng.sample(NAMES, rng.randrange(7))
    kinds = sorted(rng.choice([P.POSITIONAL_ONLY, P.POSITIONAL_OR_KEYWORD, P.POSITIONAL_OR_KEYWORD, P.VAR_POSITIONAL, P.KEYWORD_ONLY,
                               P.VAR_KEYWORD]) for _ in names)
    kinds = [kind for k, kind in enumerate(kinds) if kind not in (P.VAR_POSITIONAL, P.VAR_KEYWORD) or kind not in kinds[:k]]
    parameters, default_seen = [], False
    for name, kind in zip(names, kinds):
        variadic = kind in (P.VAR_POSITIONAL, P.VAR_KEYWORD)
        with_default = not variadic and (rng.random() < 0.4 or default_seen and kind != P.KEYWORD_ONLY)
        default_seen |= with_default and kind != P.KEYWORD_ONLY
        parameters.append(P(name, kind, default=f"default {name}" if with_default else P.empty))
    return inspect.Signature(parameters)


def random_call(rng, signature):
    known = list(signature.parameters)
    args = tuple(f"arg {k}" for k in range(rng.randrange(5)))
    names = rng.sample(sorted({*known, *rng.sample(NAMES, 2)}), rng.randrange(min(5, len({*known}) + 1)))
    return args, {name: f"kw {name}" for name in names}


def python_bind(signature, args, kwargs):
    try:
        bound = signature.bind(*args, **kwargs)
    except TypeError as error:
        return "refused", str(error)
    bound.apply_defaults()
    return "bound", bound.arguments


def kiln_bind(signature, args, kwargs, flags):
    graph = fx.Graph()
    graph.output(graph.call_function(len, args, kwargs))
    bridge = Bridge()
    converted = _kiln.Graph.from_nodes(graph.nodes, bridge)
    try:
        converted.bind(0, bridge, _fxcalls.described(signature), flags)
    except TypeError as error:
        return "refused", str(error)
    seen = []
    converted.rebuild(bridge, lambda k, op, name, target, args, kwargs, kind: seen.append((args, kwargs)) or name)
    return "bound", seen[0]


def check(seed):
    rng = random.Random(seed)
    signature = random_signature(rng)
    args, kwargs = random_call(rng, signature)
    want = python_bind(signature, args, kwargs)
    for flags in (0, _fxcalls.KWARGS_ONLY):
        got = kiln_bind(signature, args, kwargs, flags)
        assert got[0] == want[0], f"{signature} {args} {kwargs}: {want} against {got}"
        if want[0] == "refused":
            assert want[1] in got[1], f"{signature} {args} {kwargs}: {want[1]!r} against {got[1]!r}"
            continue
        again = python_bind(signature, *got[1])
        assert again == want, f"{signature} {args} {kwargs}: {want} against {again}, laid out as {got[1]}"
        check_layout(signature, args, got[1], flags)
    return want[0]


def check_layout(signature, given, call, flags):
    """Positional are those given so, or with keywords asked for only those that must be."""
    args, kwargs = call
    parameters = signature.parameters.values()
    only = [p for p in parameters if p.kind == P.POSITIONAL_ONLY]
    variadic = [p for p in parameters if p.kind == P.VAR_POSITIONAL]
    spilled = variadic and len(given) > len([p for p in parameters if p.kind in (P.POSITIONAL_ONLY, P.POSITIONAL_OR_KEYWORD)])
    if flags & _fxcalls.KWARGS_ONLY and not spilled:
        assert len(args) <= len(only), f"{signature}: {args} could be given by keyword"
    named = [p.name for p in parameters if p.kind in (P.POSITIONAL_OR_KEYWORD, P.KEYWORD_ONLY)]
    order = [name for name in kwargs if name in named]
    assert order == sorted(order, key=named.index), "in the order of the signature"


def test_random_signatures():
    total = 20_000 if WHOLE else 4_000
    results = [check(seed) for seed in range(total)]
    refused = results.count("refused")
    fxlib.counts.append(f"binding: {total} of {total} as inspect.Signature.bind, {refused} of them refused")
    assert total * 0.1 < refused < total * 0.9


@pytest.mark.parametrize("source, args, kwargs, text", [
    ("(a, b)", (1,), {}, "missing a required argument: 'b'"),
    ("(a)", (1, 2), {}, "too many positional arguments"),
    ("(a)", (1,), {"a": 2}, "multiple values for argument 'a'"),
    ("(a)", (1,), {"z": 2}, "got an unexpected keyword argument 'z'"),
    ("(a, /)", (), {"a": 1}, "'a' parameter is positional only, but was passed as a keyword")])
def test_errors_are_pythons(source, args, kwargs, text):
    signature = inspect.signature(eval(f"lambda {source[1:-1]}: 0"))
    kind, message = kiln_bind(signature, args, kwargs, 0)
    assert kind == "refused" and text in message
    assert python_bind(signature, args, kwargs)[1] == text
