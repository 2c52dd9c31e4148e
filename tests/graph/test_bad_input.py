"""Graphs that are broken, odd or huge: a named error, or the right answer, and never a crash."""
import operator

import pytest
import torch
import torch.fx as fx
from fxlib import agree, compiled, graph_of, same

import kiln.fx


def chain(n):
    graph = fx.Graph()
    x = graph.placeholder("x")
    for _ in range(n):
        x = graph.call_function(operator.add, (x, 1))
    graph.output(x)
    return graph


def test_a_node_that_is_used_before_it_is_made():
    graph = chain(3)
    nodes = list(graph.nodes)
    nodes[1].args = (nodes[3], 1)
    for run in (kiln.fx.python_code, kiln.fx.from_torch, kiln.fx.normalize):
        with pytest.raises(ValueError, match="node add: uses node add_2, which comes later, was erased or is of another graph"):
            run(graph)


def test_a_node_that_uses_itself():
    graph = chain(1)
    node = list(graph.nodes)[1]
    node.args = ([{"k": node}], 1)
    with pytest.raises(ValueError, match="node add: uses node add, which"):
        kiln.fx.python_code(graph)


def test_a_node_of_another_graph_and_an_erased_one():
    graph, other = chain(2), chain(2)
    last = list(graph.nodes)[2]
    last.args = (list(other.nodes)[1], 1)
    with pytest.raises(ValueError, match="is of another graph"):
        kiln.fx.python_code(graph)
    graph = chain(2)
    nodes = list(graph.nodes)
    nodes[2].args = (nodes[0], 1)
    graph.erase_node(nodes[1])
    nodes[2].args = (nodes[1], 1)
    with pytest.raises(ValueError, match="was erased"):
        kiln.fx.python_code(graph)


def test_a_node_that_is_listed_twice():
    graph = chain(3)
    nodes = list(graph.nodes)
    from kiln import _kiln
    from kiln._fxbridge import Bridge
    with pytest.raises(ValueError, match="node add: the node is listed twice"):
        _kiln.Graph.from_nodes([nodes[0], nodes[1], nodes[1]], Bridge())


def test_nodes_of_one_name_stay_apart():
    graph = chain(3)
    for node in graph.nodes:
        node.name = "same"
    assert agree(graph, None, 4) == 7


@pytest.mark.parametrize("name", [None, 5, b"bytes", ("a",)])
def test_names_that_are_not_text(name):
    graph = chain(2)
    list(graph.nodes)[1].name = name
    with pytest.raises(TypeError, match="the name is a .*, not a text"):
        kiln.fx.python_code(graph)


@pytest.mark.parametrize("op", ["call_method", "call_module", "get_attr", "placeholder"])
def test_targets_that_are_not_text(op):
    graph = fx.Graph()
    node = graph.create_node(op, "name", (1,) if op == "call_method" else ())
    graph.output(node)
    node.target = 7
    with pytest.raises(TypeError, match="the target is a .*, not a text"):
        kiln.fx.python_code(graph)


def test_keywords_that_are_not_text():
    graph = graph_of(lambda g: g.call_function(len, ((),)))
    node = next(iter(graph.nodes))
    node._kwargs = {5: 1}
    with pytest.raises(TypeError, match="a keyword argument's name is a .*, not a text"):
        kiln.fx.python_code(graph)
    node._kwargs = {"a\0b": 1}
    with pytest.raises(ValueError, match="holds a NUL"):
        kiln.fx.python_code(graph)


def test_an_unknown_kind_of_node():
    graph = chain(1)
    list(graph.nodes)[1].op = "call_nothing"
    with pytest.raises(ValueError, match="no node is of kind 'call_nothing'"):
        kiln.fx.python_code(graph)


def test_a_function_that_cannot_be_called():
    graph = chain(1)
    list(graph.nodes)[1].target = 5
    with pytest.raises(RuntimeError, match="the target of call_function must be"):
        kiln.fx.python_code(graph)


@pytest.mark.parametrize("depth", [100, 10_000, 100_000])
@pytest.mark.parametrize("wrap", [lambda v: (v,), lambda v: [v], lambda v: {"k": v}, lambda v: slice(v)])
def test_values_nested_too_deep(depth, wrap):
    value = None
    for _ in range(depth):
        value = wrap(value)
    graph = graph_of(lambda g: g.call_function(len, ()))
    node = next(iter(graph.nodes))
    node._args = (value,)  # past torch.fx's own walk, which recurses
    with pytest.raises((ValueError, RuntimeError), match="nests more than 90"):
        kiln.fx.python_code(graph)
    while value is not None:  # freed step by step: Python itself would recurse
        value = next(iter(value.values())) if isinstance(value, dict) else value.stop if isinstance(value, slice) else value[0]
        node._args = (value,)


def test_values_that_hold_themselves():
    loop = []
    loop.append(loop)
    graph = graph_of(lambda g: g.call_function(len, ()))
    next(iter(graph.nodes))._args = (loop,)
    with pytest.raises(ValueError, match="or holds itself"):
        kiln.fx.python_code(graph)


def test_names_of_a_megabyte():
    name = "n" * (1 << 20)
    graph = chain(1)
    list(graph.nodes)[1].name = name
    with pytest.raises(RuntimeError, match="name of 1048576 bytes"):
        kiln.fx.python_code(graph)
    value = graph_of(lambda g: g.call_function(str, (name,)))
    assert agree(value, None) == name


def test_a_chain_of_many_nodes():
    graph = chain(20_000)
    assert compiled(kiln.fx.python_code(graph))(None, 0) == 20_000


def test_arguments_that_fit_nothing_name_the_node():
    for build, text in (
            (lambda g: g.call_function(torch.ops.aten.add.Tensor, (g.placeholder("x"),)), "missing a required argument: 'other'"),
            (lambda g: g.call_function(torch.ops.aten.relu.default, (g.placeholder("x"), 1, 2)), "too many positional arguments"),
            (lambda g: g.call_function(torch.ops.aten.relu.default, (g.placeholder("x"),), {"self": 1}), "multiple values for argument 'self'"),
            (lambda g: g.call_function(torch.ops.aten.relu.default, (), {"input": g.placeholder("x")}), "'self'|'input'"),
            (lambda g: g.call_function(torch.nn.functional.relu, (g.placeholder("x"),), {"out": 1}), "unexpected keyword argument 'out'")):
        with pytest.raises(TypeError, match=f"node (relu|add)\\w*: .*({text})"):
            kiln.fx.normalize(graph_of(build))


@pytest.mark.parametrize("text, where", [("", "1:1"), ("kg 2\n", "1:"), ("kg 1\nx = nothing\n", "2:"), ("kg 1\ny = call_function f:g(%z)\n", "2:"),
                                         ("kg 1\nx = placeholder x\nx = placeholder x\n", "3:")])
def test_malformed_text_tells_line_and_column(text, where):
    with pytest.raises(ValueError, match=f"graph:{where}"):
        kiln.fx.Graph.parse(text)


@pytest.mark.parametrize("what", [None, 3, b"kg 1\n", ["kg 1"]])
def test_what_is_no_text(what):
    with pytest.raises(TypeError, match=f"a graph's text must be str, not .*{type(what).__name__}"):
        kiln.fx.Graph.parse(what)


@pytest.mark.parametrize("what", [None, 5, "text", torch.nn.Linear(1, 1)])
def test_what_is_no_graph(what):
    for run in (kiln.fx.python_code, kiln.fx.from_torch, kiln.fx.normalize):
        with pytest.raises(TypeError, match="expected a torch.fx.GraphModule"):
            run(what)


def test_unknown_constants_are_named():
    graph = kiln.fx.from_torch(graph_of(lambda g: g.call_function(torch.add, (torch.ones(1), 1))))
    with pytest.raises(KeyError, match="Tensor_0"):
        kiln.fx.Graph.parse(str(graph)).to_torch()
    assert same(kiln.fx.Graph.parse(str(graph), constants=graph.constants).to_torch()(), torch.tensor([2.0]))


def test_nothing_is_leaked():
    """Objects that a graph held are free when it is gone, after success and after failure."""
    import gc
    import weakref

    class Held:
        pass

    def used_by(build):
        held = Held()
        graph = build(held)
        for run in (kiln.fx.python_code, kiln.fx.from_torch, kiln.fx.normalize):
            try:
                run(graph)
            except ValueError:
                pass
        return weakref.ref(held)

    def broken(held):
        graph = chain(2)
        nodes = list(graph.nodes)
        nodes[1].args = (held, nodes[2])
        return graph

    for build in (lambda held: graph_of(lambda g: g.call_function(str, (held, [held], {"k": held}))), broken):
        gone = used_by(build)
        gc.collect()
        assert gone() is None
    before = len(gc.get_objects())
    for _ in range(200):
        kiln.fx.python_code(chain(5))
    gc.collect()
    assert len(gc.get_objects()) < before + 200
