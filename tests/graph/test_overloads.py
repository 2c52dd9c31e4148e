"""Every ATen overload that PyTorch's dispatcher lists: normalised, printed and run, its arguments bind as they did.

The printed call is run with a stand-in for torch that records it; what it recorded is bound against the overload's own
schema, by rules written here, and must give each parameter the value it had.
"""
import fxlib
from whole import WHOLE
import torch
import torch.fx as fx

import kiln.fx

EXPECTED = 3110
OVERLOADS = sorted(name for name in torch._C._dispatch_get_all_op_names() if name.startswith("aten::"))


def overload(name):
    packet, _, which = name.removeprefix("aten::").partition(".")
    return getattr(getattr(torch.ops.aten, packet), which or "default")


class Recorder:
    """Stands for torch: remembers the call that is made of some attribute of it."""

    def __init__(self, path=(), calls=None):
        self.path, self.calls = path, [] if calls is None else calls

    def __getattr__(self, name):
        return Recorder((*self.path, name), self.calls)

    def __call__(self, /, *args, **kwargs):
        self.calls.append((self.path, args, kwargs))
        return "result"


def bound(schema, args, kwargs):
    """Parameter -> value, defaults filled in, as the dispatcher binds; AssertionError if it would refuse."""
    parameters = schema.arguments
    positional = [p for p in parameters if not p.kwarg_only]
    assert len(args) <= len(positional), "too many"
    values = dict(zip(range(len(positional)), args))
    for name, value in kwargs.items():
        index = [k for k, p in enumerate(parameters) if p.name == name]
        assert len(index) == 1, f"{name} names {len(index)} parameters"
        assert index[0] not in values, f"{name} is given twice"
        values[index[0]] = value
    for k, p in enumerate(parameters):
        if k not in values:
            assert p.has_default_value(), f"{p.name} is missing"
            values[k] = p.default_value
    return [values[k] for k in range(len(parameters))]


def ways(schema):
    """How a call may be given: (positional, by keyword) as lists of parameter indices."""
    every = range(len(schema.arguments))
    keyword_only = [k for k in every if schema.arguments[k].kwarg_only]
    plain = [k for k in every if k not in keyword_only]
    required = [k for k in every if not schema.arguments[k].has_default_value()]
    yield plain, keyword_only
    yield [], [*plain, *keyword_only]
    yield [], required
    if not WHOLE:
        return
    yield [], list(reversed([*plain, *keyword_only]))
    half = len(plain) // 2
    yield plain[:half], [*plain[half:], *keyword_only]
    leading = [k for k in plain if k in required and all(j in required for j in plain[:k])]
    yield leading, [k for k in required if k not in leading]


def call_graph(op, positional, named):
    graph = fx.Graph()
    nodes = {k: graph.placeholder(f"p{k}") for k in sorted([*positional, *named])}
    names = [p.name for p in op._schema.arguments]
    graph.output(graph.call_function(op, tuple(nodes[k] for k in positional), {names[k]: nodes[k] for k in named}))
    return graph, sorted(nodes)


def recorded(op, code, given):
    """The one call that printed code makes, with the parameters' numbers for values."""
    torch_here = Recorder()
    names = {name: torch_here if value is torch else value for name, value in code.globals.items()}
    exec(compile(code.src, "<printed>", "exec"), names)
    assert names["forward"](None, *(f"value {k}" for k in given)) == "result"
    (path, args, kwargs), = torch_here.calls
    assert path == ("ops", "aten", op.overloadpacket.__name__, op._overloadname)
    return args, kwargs


def check(name, kwargs_only):
    op = overload(name)
    schema = op._schema
    for positional, named in ways(schema):
        if len({p.name for p in schema.arguments}) != len(schema.arguments) and named:
            continue
        graph, given = call_graph(op, positional, named)
        values = {k: f"value {k}" for k in given}
        want = bound(schema, [values[k] for k in positional], {schema.arguments[k].name: values[k] for k in named})
        made = kiln.fx.normalize(graph, kwargs_only)
        for code in (kiln.fx.python_code(graph), kiln.fx.python_code(made))[kwargs_only:]:
            got = bound(schema, *recorded(op, code, given))
            assert fxlib.same(want, got), f"{want} became {got}\n{code.src}"
        _, args, kwargs = fx_call(made)
        if kwargs_only:
            keyword_like = [k for k, p in enumerate(schema.arguments) if p.name in ("from",)]
            assert len(args) <= max(keyword_like, default=-1) + 1, f"{args} could be given by keyword"
        assert len(args) + len(kwargs) == len(schema.arguments), "every parameter is there"


def fx_call(gm):
    node = next(node for node in gm.graph.nodes if node.op == "call_function")
    return node.target, node.args, node.kwargs


def sweep(kwargs_only):
    failures = []
    for name in OVERLOADS:
        try:
            check(name, kwargs_only)
        except Exception as error:
            failures.append(f"{name}: {type(error).__name__}: {error}")
    fxlib.counts.append(f"overloads, {'kwargs only' if kwargs_only else 'as given'}: "
                        f"{len(OVERLOADS) - len(failures)} of {len(OVERLOADS)} bind as they did")
    assert not failures, f"{len(failures)} fail:\n" + "\n".join(failures[:20])
    assert len(OVERLOADS) == EXPECTED


def test_as_given():
    sweep(False)


def test_kwargs_only():
    sweep(True)


def test_a_wrong_binding_would_be_found():
    """The recorder and the binder of this file do tell a dropped, moved or renamed argument."""
    schema = torch.ops.aten.add.Tensor._schema
    want = bound(schema, ["a", "b"], {"alpha": 3})
    assert want == ["a", "b", 3] and bound(schema, ["a"], {"other": "b"}) == ["a", "b", 1]
    for args, kwargs in ((["a", "b"], {}), (["b", "a"], {"alpha": 3})):
        assert bound(schema, args, kwargs) != want
    for args, kwargs in ((["a"], {"input": "b"}), (["a", "b", 3], {}), (["a", "b"], {"self": "a"}), ([], {})):
        try:
            bound(schema, args, kwargs)
        except AssertionError:
            continue
        raise RuntimeError("bound although it must not")
