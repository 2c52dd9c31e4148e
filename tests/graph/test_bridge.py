"""kiln.fx within torch.fx: code generators, nested inputs, the line map, copies, annotations, wrapped functions."""
import copy
import inspect
import operator
import pickle
import subprocess
import sys
import traceback
import typing

import pytest
import torch
import torch.fx as fx
from fxlib import compiled, graph_of, interpreted, same

import kiln.fx


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU())
        self.weight = torch.nn.Parameter(torch.ones(4))

    def forward(self, x, scale: float = 2.0, *, bias=None):
        return (self.layers(x) * self.weight).pow(scale)


@fx.wrap
def wrapped(x):
    return x + 1 if x.sum() > 0 else x


def through_kiln(gm):
    gm.graph.set_codegen(kiln.fx.CodeGen(gm.graph._codegen))
    gm.recompile()
    return gm


def test_a_module_prints_through_kiln():
    net = Net()
    gm = fx.symbolic_trace(net)
    before = gm.code
    gm.graph.set_codegen(kiln.fx.CodeGen())
    gm.recompile()
    x = torch.randn(2, 3)
    assert gm.code == kiln.fx.python_code(gm).src != before
    assert same(gm(x), net(x)) and same(gm(x, scale=3.0), net(x, 3.0))
    assert str(inspect.signature(gm.forward)) == "(x, scale: float = 2.0, bias=None)"


def test_the_result_is_torch_fxs_type_with_its_globals():
    code = kiln.fx.python_code(fx.symbolic_trace(Net()))
    assert type(code) is fx.graph.PythonCode and code.globals["torch"] is torch
    assert compiled(code).__name__ == "forward"


def test_copies_keep_printing_through_kiln():
    gm = through_kiln(fx.symbolic_trace(Net()))
    x = torch.randn(2, 3)
    for made in (copy.deepcopy(gm), copy.copy(gm), fx.GraphModule(gm, gm.graph), fx.GraphModule(gm, copy.deepcopy(gm.graph))):
        made.recompile()
        assert isinstance(made.graph._codegen, kiln.fx.CodeGen)
        assert same(made(x), gm(x)) and made.code == gm.code
    assert same(pickle.loads(pickle.dumps(gm))(x), gm(x))
    assert type(pickle.loads(pickle.dumps(gm.graph._codegen))) is kiln.fx.CodeGen


def nested(d, pair):
    a, b = pair
    return {"sum": d["x"] + a, "all": [d["y"] * b, a]}


def nested_module():
    leaf = fx.PH
    return fx.symbolic_trace(nested, concrete_args={"d": {"x": leaf, "y": leaf}, "pair": (leaf, leaf)})


def test_nested_inputs_and_outputs():
    inputs = ({"x": torch.ones(2), "y": torch.full((2,), 3.0)}, (torch.tensor(2.0), torch.tensor(5.0)))
    gm = nested_module()
    want = gm(*inputs)
    assert same(compiled(kiln.fx.python_code(gm))(gm, *inputs), want)
    made = through_kiln(nested_module())
    assert isinstance(made.graph._codegen, fx.graph._PyTreeCodeGen)
    assert same(made(*inputs), want) and same(copy.deepcopy(made)(*inputs), want)
    assert same(fx.Interpreter(made).run(*inputs), want)
    assert same(kiln.fx.normalize(gm, kwargs_only=True)(*inputs), want)


def test_nested_inputs_named_like_what_the_code_uses():
    def odd(torch_, inf):
        return {"r": torch.add(torch_["a"], inf[0]), "inf": float("inf")}
    gm = fx.symbolic_trace(odd, concrete_args={"torch_": {"a": fx.PH}, "inf": (fx.PH,)})
    gm.graph._codegen.pytree_info.orig_args[0] = "torch"
    for node, name in zip(gm.graph.nodes, ("fx_pytree", "pytree")):
        node.name = node.target = name
    made = compiled(kiln.fx.python_code(gm))
    want = {"r": torch.tensor(3.0), "inf": float("inf")}
    assert same(made(gm, {"a": torch.tensor(1.0)}, (torch.tensor(2.0),)), want)


def test_exported_programs():
    class Two(torch.nn.Module):
        def forward(self, x, *, options):
            return {"a": x + options["k"], "b": (x.sum(),)}
    x = torch.randn(2, 3)
    module = torch.export.export(Two(), (x,), {"options": {"k": torch.ones(3)}}).module()
    want = module(x, options={"k": torch.ones(3)})
    made = compiled(kiln.fx.python_code(module))(module, x, options={"k": torch.ones(3)})
    assert same(made, want)


def test_boxed_arguments_are_let_go():
    graph = graph_of(lambda g: g.call_function(torch.add, (g.placeholder("a"), g.placeholder("b"))))
    graph.set_codegen(kiln.fx.CodeGen(fx.graph._BoxedCodeGen()))
    gm = fx.GraphModule(torch.nn.Module(), graph)
    given = [torch.ones(1), torch.ones(1)]
    assert gm.forward(given) == 2 and given == []


def test_code_may_be_transformed():
    gm = through_kiln(fx.symbolic_trace(lambda x: torch.relu(x) + 1))
    seen = []

    def transformer(body):
        seen.extend(body)
        return ["seen.append('ran')\n", *body]
    with gm.graph.on_generate_code(lambda _: transformer):
        gm.recompile()
    gm.forward.__globals__["seen"] = seen
    assert gm(torch.ones(1)) == 2 and seen[-1] == "ran"
    assert set(gm._lineno_map.values()) >= {1, 2, 3}


def test_profiler_marks():
    gm = through_kiln(fx.symbolic_trace(Net()))
    code = gm.graph.python_code("self", record_func=True)
    x = torch.randn(2, 3)
    assert code.src.count("__enter__") == code.src.count("__exit__") == sum(n.op.startswith("call_") for n in gm.graph.nodes) + 1
    assert same(compiled(code)(gm, x), gm(x))


@pytest.mark.parametrize("expanded", [False, True])
def test_the_line_map_leads_to_the_node(expanded):
    def fails(x):
        raise ZeroDivisionError

    def build(g):
        x = g.placeholder("x")
        y = g.call_function(torch.relu, (x,))
        return g.call_function(fails, (y,))
    graph = graph_of(build)
    graph.set_codegen(kiln.fx.CodeGen())
    code = graph.python_code("self", expanded_def=expanded, verbose=expanded)
    with pytest.raises(ZeroDivisionError) as caught:
        compiled(code)(None, torch.ones(1))
    line = [frame.lineno for frame in traceback.extract_tb(caught.value.__traceback__) if frame.filename == "<printed>"][0]
    assert code._lineno_map[line - code._prologue_start] == 2
    lines = code.src.split("\n")
    for offset, node in code._lineno_map.items():
        text = lines[code._prologue_start + offset - 1]
        if node is not None and node < 3:
            assert text.startswith(f"    {list(graph.nodes)[node].name} = ")


def test_verbose_printing_shows_values_and_origins():
    from torch.fx.experimental.proxy_tensor import make_fx
    gm = make_fx(lambda x: torch.add(x, 1).sum())(torch.ones(2, 3))
    for node in gm.graph.nodes:
        node.meta["stack_trace"] = 'File "net.py", line 3, in forward\n    y = f(x)'
    gm.graph.set_codegen(kiln.fx.CodeGen())
    code = gm.graph.python_code("self", verbose=True, include_stride=True, include_device=True)
    assert ' : "f32[2, 3][3, 1]cpu" = ' in code.src and "    # File: net.py:3 in forward, code: y = f(x)\n" in code.src
    assert same(compiled(code)(gm, torch.ones(2, 3)), torch.tensor(12.0))
    assert "f32[2, 3]" in kiln.fx.python_code(gm, verbose=True).src


def test_annotations_and_defaults_are_kept():
    def build(g):
        x = g.placeholder("x", type_expr=typing.List[torch.Tensor])
        y = g.create_node("placeholder", "y", ((1, -0.0, torch.float32),), type_expr=typing.Optional[int])
        z = g.create_node("call_function", operator.getitem, (x, 0), type_expr=torch.Tensor)
        return (z, y)
    graph = graph_of(build)
    list(graph.nodes)[-1].type = typing.Tuple[torch.Tensor, int]
    made = compiled(kiln.fx.python_code(graph))
    assert made.__annotations__ == {"x": typing.List[torch.Tensor], "y": typing.Optional[int], "return": typing.Tuple[torch.Tensor, int]}
    assert same(made(None, [torch.ones(1)]), (torch.ones(1), (1, -0.0, torch.float32)))


def test_star_arguments():
    def total(values, names):
        return sum(values) + sum(names.values())

    def build(g):
        return g.call_function(total, (g.placeholder("*args"), g.placeholder("**kwargs")))
    assert compiled(kiln.fx.python_code(graph_of(build)))(None, 1, 2, a=3, b=4) == 10


def test_printed_modules_can_be_traced_again():
    gm = through_kiln(fx.symbolic_trace(lambda x: torch.clamp(torch.add(x, 1, alpha=2), max=3.0)))
    again = through_kiln(fx.symbolic_trace(gm))
    assert again.code == gm.code and same(again(torch.ones(4)), gm(torch.ones(4)))


def test_wrapped_functions_stay_leaves_when_traced_again():
    gm = through_kiln(fx.symbolic_trace(lambda x: wrapped(x) * 2))
    again = fx.symbolic_trace(gm)
    assert [node.target for node in again.graph.nodes if node.op == "call_function"][0] is wrapped
    assert again(torch.ones(1)) == 4


def test_metadata_and_shared_parameters_survive():
    gm = fx.symbolic_trace(Net())
    for k, node in enumerate(gm.graph.nodes):
        node.meta["mark"] = k
    gm.meta["of the module"] = 1
    made = kiln.fx.from_torch(gm).to_torch()
    assert [node.meta["mark"] for node in made.graph.nodes] == list(range(len(made.graph.nodes)))
    assert made.meta["of the module"] == 1 and made.weight is gm.weight
    assert [(n.op, n.name, n.target) for n in made.graph.nodes] == [(n.op, n.name, n.target) for n in gm.graph.nodes]


def test_operators_of_any_library():
    library = torch.library.Library("kilntest", "DEF")
    library.define("twice(Tensor self, *, int from=2) -> Tensor")
    library.define("scale(Tensor self, float from, float to=3.0, *, bool flag=False) -> Tensor")
    library.impl("twice", lambda x, **kwargs: x * kwargs["from"], "CompositeExplicitAutograd")
    library.impl("scale", lambda x, low, to=3.0, **kwargs: x * (to - low), "CompositeExplicitAutograd")
    graph = graph_of(lambda g: g.call_function(torch.ops.kilntest.twice.default, (g.placeholder("x"),), {"from": 3}))
    gm = kiln.fx.from_torch(graph).to_torch()
    assert gm(torch.ones(1)) == interpreted(graph, None, torch.ones(1)) == 3
    assert kiln.fx.normalize(gm, kwargs_only=True)(torch.ones(1)) == 3
    graph = graph_of(lambda g: g.call_function(torch.ops.kilntest.scale.default, (), {"from": 1.0, "self": g.placeholder("x")}))
    made = kiln.fx.normalize(graph, kwargs_only=True)
    node = list(made.graph.nodes)[1]
    assert node.args[1:] == (1.0,) and node.kwargs == {"to": 3.0, "flag": False} and made(torch.ones(1)) == 2


def test_control_flow_with_graphs_inside():
    from torch.fx.experimental.proxy_tensor import make_fx
    from functorch.experimental.control_flow import cond

    def branch(x):
        return cond(x.sum() > 0, lambda x: x + 1, lambda x: x - 1, (x,))
    for value in (torch.ones(2), -torch.ones(2)):
        gm = make_fx(branch)(value)
        made = through_kiln(copy.deepcopy(gm))
        assert same(made(value), branch(value)) and same(kiln.fx.normalize(gm)(value), branch(value))


def test_kiln_does_not_need_torch():
    code = "import sys; sys.modules['torch'] = None; import kiln; print(kiln.Tensor([1.0]))"
    assert "1." in subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
