"""What a text may name and call.  A text that names anything else is refused, with its line and what would let it, before a thing
of it was imported, made or called; and what a graph made from a text can call when it is run is on the same lists."""
import collections
import enum
import os
import sys
import types

import pytest
import torch
import torch.fx as fx
from fxlib import graph_of, same

import kiln.fx
from kiln import _fxbridge

RAN = []  # what a text got to run


def bang(*args, **kwargs):
    RAN.append((args, kwargs))
    return 1


class Trap(tuple):
    """Not a named tuple, although it is a tuple: making one is seen."""

    def __new__(cls, *args):
        bang(*args)
        return super().__new__(cls, args)


class Colour(enum.Enum):
    RED = 1


Pair = collections.namedtuple("Pair", "a b")


@pytest.fixture(autouse=True)
def nothing_runs(tmp_path, monkeypatch):
    RAN.clear()
    (tmp_path / "kiln_canary.py").write_text("import test_trust\ntest_trust.bang('imported')\ndef f(*a): return 'f'\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "kiln_canary", raising=False)


def parsed(*lines, root=None, constants=None):
    return kiln.fx.Graph.parse("\n".join(["# a comment", "kg 1", "x = placeholder x", "", *lines]) + "\n", root, constants)


def refused(text, *lines, root=None, constants=None, allow=()):
    """Both ways out of the text refuse it, and name line 5, where the offending node is."""
    for leave in (kiln.fx.Graph.to_torch, kiln.fx.Graph.python_code):
        with pytest.raises(ValueError) as caught:
            leave(parsed(*lines, "output = output(%x)", root=root, constants=constants), allow=allow)
        assert str(caught.value).startswith("graph:5: ") and text in str(caught.value), str(caught.value)
    assert not RAN and "kiln_canary" not in sys.modules


# -- what is named --

FAR = """os:system posix:system subprocess:run sys:modules kiln_canary:f kiln_canary: test_trust:bang test_trust:Trap
builtins:eval builtins:exec builtins:__import__ builtins:open builtins:compile builtins:setattr builtins:vars builtins:type builtins:max
builtins:breakpoint builtins:globals builtins:object builtins:map builtins:sorted builtins:print
operator:attrgetter operator:methodcaller operator:itemgetter operator:__add__ _operator:attrgetter math:__loader__ typing:get_type_hints
torch:os.system torch:sys.modules torch:sys torch:builtins.eval torch:importlib.import_module torch:ctypes.CDLL torch:torch torch: torch.nn:
torch:load torch:save torch.serialization:load torch.hub:load torch.hub:load_state_dict_from_url torch.jit:load torch.jit._script:script
torch:compile torch.package:PackageImporter torch.utils.cpp_extension:load_inline torch.utils.collect_env:run torch:from_file
torch:ops.load_library torch:classes.load_library torch.ops:load_library torch:ops.aten.add torch:ops.higher_order.cond torch:_C torch._C:_jit_clear_class_registry
torch.fx.graph_module:_forward_from_src torch.fx.graph_module:_exec_with_source torch.fx:Interpreter torch.fx.graph_module:os.system
torch.nn:Linear torch.multiprocessing:spawn torch.testing:assert_close torch:hub.load torch:lobpcg torch:frombuffer
torch.nn.functional:handle_torch_function torch.nn.functional:boolean_dispatch torch.nn.functional:triplet_margin_with_distance_loss
torch.nn.functional:warnings.warn torch.nn.functional:math torch.overrides:handle_torch_function torch.functional:F.relu
torch:Tensor.numpy torch:Tensor.apply_ torch:Tensor.register_hook torch:Tensor.__reduce_ex__ torch:Tensor.__class__ torch._C:TensorBase.map_
torch:add.__self__ torch:Tensor.add.__objclass__ torch.nn.functional:relu.__globals__ torch.autograd.function:Function.apply
torch.return_types:sys torch.distributed:init_process_group""".split()


@pytest.mark.parametrize("name", FAR)
def test_what_a_text_may_not_name(name):
    value = f'func("{name}")'
    for line in (f"y = call_function {value}(%x)", f"y = call_function operator:add(%x, [{{1: ({value},)}}])", f"y : {value} = get_attr w",
                 f"y = placeholder y({value})", f'y = call_function operator:add(%x, namedtuple({value}, cmd="id"))',
                 f'y = call_function operator:add(%x, structseq({value}, "id"))',
                 f'y = call_function operator:add(%x, enum({value}, "system"))'):
        refused(f"a text may not name {name}; allow=['{name}'] would let it", line)


@pytest.mark.parametrize("name", ["aten::from_file", "aten::save", "prim::rpc_sync", "c10d::send", "load_library::__call__",
                                  "import_module::x", "__class__::x", "loaded_libraries::add", "nowhere::f", "profiler::_record_function_enter"])
def test_operators_that_reach_out(name):
    refused(f"a text may not name the operator {name}; allow=['{name}'] would let it", f'y = call_function op("{name}")(%x)')


@pytest.mark.parametrize("name", ["aten::nothing", "aten::__class__", "aten::add.nothing", "aten::add.overloads", "aten::add.__call__",
                                  "aten::add.__class__", "prims::__dict__"])
def test_operators_that_are_none(name):
    refused(f"there is no operator {name}", f'y = call_function op("{name}")(%x)')


@pytest.mark.parametrize("value", ["dtype(os)", "dtype(load)", "dtype(add)", "layout(float32)", "memory_format(sys)", "dtype(__dict__)"])
def test_constants_of_torch_are_what_they_say(value):
    kind, _, name = value[:-1].partition("(")
    refused(f"there is no torch.{kind} named {name}", f"y = call_function operator:add(%x, {value})")


@pytest.mark.parametrize("value, text", [
    ('namedtuple(torch:add, cmd="id")', "is no named tuple with the fields cmd"),
    ('namedtuple(torch:Size, cmd="id")', "is no named tuple with the fields cmd"),
    ('namedtuple(const(bang), cmd="id")', "is no named tuple with the fields cmd"),
    ('namedtuple(const(Trap), cmd="id")', "is no named tuple with the fields cmd"),
    ("namedtuple(const(Pair), b=1, a=2)", "is no named tuple with the fields b, a"),
    ("structseq(const(bang), 1)", "is no structure of PyTorch's"), ("structseq(const(Pair), 1, 2)", "is no structure of PyTorch's"),
    ('enum(const(bang), "RED")', "is no enumeration with the member RED"), ('enum(const(Colour), "mro")', "is no enumeration with the member mro")])
def test_types_are_what_they_say(value, text):
    refused(text, f"y = call_function operator:add(%x, {value})", constants={"bang": bang, "Trap": Trap, "Pair": Pair, "Colour": Colour})


# -- what is called when the graph is run --

@pytest.mark.parametrize("line, text", [
    ('y = call_function builtins:getattr(%x, "__class__")', "the attribute '__class__'; allow=['.__class__'] would let it"),
    ('y = call_function builtins:getattr(%x, "_backward_hooks", None)', "the attribute '_backward_hooks'"),
    ("y = call_function builtins:getattr(%x, %x)", "only with an object and the attribute's name, written out"),
    ("y = call_function builtins:getattr(%x)", "only with an object and the attribute's name, written out"),
    ('y = call_function builtins:getattr(%x, name="__class__")', "only with an object and the attribute's name, written out"),
    *((f'y = call_method "{name}"(%x, 1)', f"may not call the method '{name}'; allow=['.{name}'] would let it") for name in (
        "__reduce__", "__reduce_ex__", "__class__", "__call__", "__getattribute__", "__setattr__", "__init_subclass__", "__subclasses__",
        "__globals__", "numpy", "apply_", "map_", "register_hook", "system", "tofile", "load", "to_folder", "format", "a b", "_make_subclass")),
    ("y = call_method sort(%x, key=%x)", "may not call the method 'sort' with a key"),
    *((f'y = get_attr "{target}"', f"may not name the attribute '{target}'") for target in (
        "__class__", "__class__.__bases__", "forward.__globals__", "layer.__dict__", "_modules", "layer._forward_hooks", "to_folder", "apply")),
    *((f"y = call_module {target}(%x)", f"may not name the attribute '{target}'") for target in ("to_folder", "apply", "layer.register_forward_hook")),
    *((f"y = call_module {target}(%x)", f"the root has no module '{target}'") for target in ("nothing", "layer.weight", "method"))])
def test_what_a_text_may_not_call(line, text):
    root = torch.nn.Module()
    root.layer, root.method = torch.nn.Linear(1, 1), bang
    refused(text, line, root=root)


def test_no_module_is_called_without_a_root():
    with pytest.raises(ValueError, match="graph:5: the root has no module 'layer'"):
        parsed("y = call_module layer(%x)").to_torch()


# -- what may be named --

def test_functions_of_tensors_need_no_leave():
    """All that PyTorch lets be overridden for tensors and that Kiln's texts have a name for, but for a few that are named."""
    functions = {f for functions in torch.overrides.get_overridable_functions().values() for f in functions if callable(f)}
    names = {_fxbridge.qualified(f) for f in functions} - {None}
    public = {name for name in names if not name.rpartition(":")[2].rpartition(".")[2].startswith("_")}
    taken = set()
    for name in public:
        try:
            parsed(f"y = call_function {name}(%x)").to_torch()
            taken.add(name)
        except ValueError:
            pass
    assert public - taken == {
        "torch._lobpcg:lobpcg", "torch:Tensor.apply_", "torch:Tensor.map_", "torch:Tensor.map2_", "torch:Tensor.module_load", "torch:Tensor.numpy",
        "torch:Tensor.register_hook", "torch:Tensor.register_post_accumulate_grad_hook", "torch:Tensor.share_memory_",
        "torch.nn.functional:triplet_margin_with_distance_loss", "torch.amp.autocast_mode:autocast"}
    assert len(taken) > 900


def test_a_graph_of_everyday_comes_back():
    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer, self.scale = torch.nn.Linear(3, 4), torch.nn.Parameter(torch.ones(4))

        def forward(self, x, y: float = 2.0):
            z = torch.nn.functional.gelu(self.layer(x)) * self.scale + y
            z = torch.cat([z, -z], dim=1).max(dim=1).values.view(-1, 1).to(torch.float64)
            return torch.clamp(z, max=1.0).T, z.shape[0], z.sum().neg()
    net = Net()
    graph = kiln.fx.from_torch(fx.symbolic_trace(net))
    back = kiln.fx.Graph.parse(str(graph), net, graph.constants)
    x = torch.randn(2, 3)
    assert same(back.to_torch()(x), net(x))
    made = back.python_code()
    names = dict(made.globals)
    exec(made.src, names)
    assert same(names["forward"](net, x), net(x))


def test_types_of_torch():
    made = parsed('y = call_function builtins:list(%x)', "z = call_function builtins:tuple((%y, structseq(torch.return_types:max, 1, 2), size(1, 2),"
                  ' enum(torch.amp.grad_scaler:OptState, "READY"), dtype(float32), layout(strided), memory_format(channels_last), math:pi))',
                  "output = output(%z)").to_torch()
    got = made([7])
    assert got[0] == [7] and got[1] == torch.return_types.max((1, 2)) and got[2] == (1, 2) and got[3] is torch.amp.grad_scaler.OptState.READY


# -- allow --

def test_allowing():
    line = "y = call_function kiln_canary:f(%x)"
    assert parsed(line, "output = output(%y)").to_torch(allow=["kiln_canary"])(1) == "f"
    assert RAN == [(("imported",), {})]
    RAN.clear()
    for allow in (["kiln_canary:f"], ["*"], {"kiln_canary"}):
        assert parsed(line, "output = output(%y)").to_torch(allow=allow)(1) == "f"
    assert parsed("y = call_function test_trust:bang(%x, namedtuple(test_trust:Pair, a=1, b=2), enum(test_trust:Colour, \"RED\"))",
                  "output = output(%y)").to_torch(allow=["test_trust"])(1) == 1
    assert RAN.pop() == ((1, Pair(1, 2), Colour.RED), {})
    graph = parsed("y = call_method numpy(%x)", 'z = call_function builtins:getattr(%y, "__class__")', "output = output(%z)")
    assert graph.to_torch(allow=[".numpy", ".__class__"])(torch.ones(1)).__name__ == "ndarray"
    refusing = pytest.raises(ValueError, match="graph:5: .*numpy")
    with refusing:
        graph.to_torch()  # what was allowed once is not allowed for good


def test_allowing_operators():
    library = torch.library.Library("kilntrust", "DEF")
    library.define("one(Tensor x) -> Tensor")
    library.define("two(Tensor x) -> Tensor")
    library.impl("one", lambda x: x + 1, "CompositeExplicitAutograd")
    line = "y = call_function kilntrust::one.default(%x)"
    refused("allow=['kilntrust::one'] would let it", line)
    refused("allow=['kilntrust::one'] would let it", line, allow=["kilntrust::two", "kilntrust", "kilntrust:one"])
    for allow in (["kilntrust::"], ["kilntrust::one"], ["*"]):
        assert parsed(line, "output = output(%y)").to_torch(allow=allow)(torch.ones(1)) == 2


@pytest.mark.parametrize("name, allow, text", [
    ("test_trust:os.system", ["test_trust"], "test_trust:os.system leads out of test_trust"),
    ("test_trust:os", ["test_trust"], "test_trust:os leads out of test_trust"),
    ("test_trust:bang.__globals__", ["test_trust"], "test_trust:bang.__globals__ leads out of test_trust"),
    ("test_trust:graph_of", ["test_trust"], "test_trust:graph_of is defined in fxlib, which is not allowed"),
    ("torch:os.system", ["torch"], "torch:os.system leads out of torch"), ("torch:builtins.eval", ["torch"], "leads out of torch"),
    ("os:system", ["os.path", "system", "o", "os:", ".system", "os::"], "a text may not name os:system"),
    ("os:system", ["os"], "os:system is defined in posix, which is not allowed")])
def test_what_is_allowed_is_no_way_out(name, allow, text):
    refused(text, f"y = call_function {name}(%x)", allow=allow)


@pytest.mark.parametrize("allow", ["torch", b"torch", 3, None, [3]])
def test_allow_is_a_list(allow):
    with pytest.raises(TypeError):
        parsed("output = output(%x)").to_torch(allow=allow)


def test_graphs_of_objects_are_not_asked():
    def local(x):
        return x + Pair(1, 2).b
    graph = graph_of(lambda g: g.call_function(local, (g.call_method("__class__", (g.placeholder("x"),)),)))
    next(node for node in graph.nodes if node.op == "call_method").target = "__neg__"
    assert kiln.fx.from_torch(graph).to_torch()(1) == 1
    graph = graph_of(lambda g: g.call_function(os.path.join, (g.placeholder("x"), "b")))
    assert kiln.fx.from_torch(graph).to_torch()("a") == "a/b"
    assert isinstance(kiln.fx.from_torch(graph).python_code().globals["torch"], types.ModuleType)
