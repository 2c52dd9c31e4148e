"""torch.fx graphs through Kiln: arguments normalised and Python printed without a change of meaning.

    >>> gm = torch.fx.symbolic_trace(lambda x: torch.add(x, 1, alpha=2))
    >>> print(kiln.fx.python_code(gm).src)                 # as gm.graph.python_code("self"), but right
    >>> kiln.fx.normalize(gm, kwargs_only=True).code       # a new GraphModule
    >>> gm.graph.set_codegen(kiln.fx.CodeGen()); gm.recompile()

from_torch() gives the graph itself, with its text form; docs/GRAPH.md has the rules of both.
"""
import ast
import copy

from . import _kiln

if not _kiln.in_main_interpreter:  # PyTorch crashes in others
    raise ImportError("kiln.fx cannot be imported in a subinterpreter: PyTorch works in the main interpreter only")

import torch  # noqa: E402
from torch.fx.graph import PythonCode  # noqa: E402

from . import _fxcalls  # noqa: E402
from ._fxbridge import Bridge, Printing  # noqa: E402
from ._fxtrust import Refused, Trust  # noqa: E402

__all__ = ["CodeGen", "Graph", "from_torch", "normalize", "python_code"]

_COUNTER = "# COUNTER: "  # torch.fx's mark of the node that the next lines belong to; body transformers keep it


def _graph_of(gm):
    if isinstance(gm, torch.fx.GraphModule):
        return gm.graph
    if isinstance(gm, torch.fx.Graph):
        return gm
    raise TypeError(f"expected a torch.fx.GraphModule or torch.fx.Graph, not {type(gm).__name__}")


# -- printing --

class _Result(tuple):
    """A returned expression as code generators take it: its repr, or its items' str within a call."""

    def __new__(cls, text):
        made = super().__new__(cls, [f"*{text}"])
        made.text = text
        return made

    def __repr__(self):
        return self.text


def _own_convention(codegen):
    """Whether the code generator takes arguments or gives results in a way of its own."""
    plain = torch.fx.graph.CodeGen
    return type(codegen).gen_fn_def is not plain.gen_fn_def or type(codegen).generate_output is not plain.generate_output


def _taken(codegen, graph_nodes, record_func):
    """Names that the code a generator puts around the statements uses."""
    names = {name for name, _ in codegen.additional_globals()}
    if _own_convention(codegen):
        info = getattr(codegen, "pytree_info", None)
        parameters = {node.target for node in graph_nodes if node.op == "placeholder"}
        names |= {"fx_pytree", "pytree", "args_list", "args_iter"} | set(info.orig_args if info else ()) - parameters
        names |= set(getattr(codegen, "tree_leaf_names", ()))
    if record_func:
        names |= {"_rf"} | {f"_rf_{k}" for k, _ in enumerate(graph_nodes)}
    return tuple(sorted(names - {"self"}))


def _recorded(k, node, statement):
    """The statement between the lines by which torch's profiler learns of its node."""
    enter = "torch._C._profiler._RecordFunctionFast('## %s ##'); %s.__enter__()\n"
    leave = "%s.__exit__(None, None, None)\n"
    if node.op == "output":
        return leave % "_rf" + statement
    name = f"_rf_{k}"
    return f"{name} = {enter % (k, name)}{statement}{leave % name}" if node.op.startswith("call_") else statement


def _body(codegen, source, lines, nodes, record_func):
    """(header, statements without indentation) of printed source, with torch.fx's marks between the statements."""
    head, *rest = source.split("\n")
    body = []
    if record_func:
        body.append("_rf = torch._C._profiler._RecordFunctionFast('## ENTER_GRAPH_PLACEHOLDER_KEY ##'); _rf.__enter__()\n")
    for number, line in enumerate(rest[:-1], 1):
        statement = line[4:] + "\n"
        if number not in lines:
            body.append(statement)
            continue
        k = lines[number]
        node = nodes[k]
        if node.op == "output" and _own_convention(codegen):
            result = _Result(statement[len("return "):-1])
            statement = codegen._call_method_with_signature_check(
                codegen.generate_output, result, descs=None, repr_fn=lambda _: result.text) + "\n"
        body.append(f"{_COUNTER}{k}\n")
        body.append(_recorded(k, node, statement) if record_func else statement)
    return head, body


def _prologue(codegen, head, expanded_def):
    """The function's header as the code generator writes it."""
    if not _own_convention(codegen) and not expanded_def:
        return head
    function = ast.parse(head + " pass").body[0]
    spec = function.args
    result = f" -> {ast.unparse(function.returns)}" if function.returns else ""
    if _own_convention(codegen):
        parameters = [parameter.arg for parameter in spec.args[1:]]
    else:
        defaults = [None] * (len(spec.args) - len(spec.defaults)) + spec.defaults
        parameters = [ast.unparse(ast.arguments([], [arg], None, [], [], None, [default] if default else []))
                      for arg, default in zip(spec.args[1:], defaults[1:])]
        for star, arg in (("*", spec.vararg), ("**", spec.kwarg)):
            parameters += [star + ast.unparse(arg)] if arg else []
    return codegen._call_method_with_signature_check(
        codegen.gen_fn_def, parameters, result, expanded_def=expanded_def)


def _assembled(codegen, source, lines, nodes, expanded_def, record_func):
    """(source, line map) of a function around whose statements the code generator has something to say."""
    head, body = _body(codegen, source, lines, nodes, record_func)
    if codegen._body_transformer:
        body = codegen._body_transformer(body)
    prologue = _prologue(codegen, head, expanded_def)
    first = prologue.count("\n") + 1
    written, line_map, current = [], {}, None
    for line in "".join(body).rstrip("\n").split("\n"):
        if line.startswith(_COUNTER):
            current = int(line[len(_COUNTER):])
            continue
        line_map[len(written) + first] = current
        written.append("    " + line)
    return "\n".join([prologue, *written]) + "\n", line_map


def _generate(codegen, nodes, *, root_module="self", verbose=False, include_stride=False, include_device=False,
              expanded_def=False, record_func=False, additional_meta=None):
    bridge = Bridge()
    graph = _kiln.Graph.from_nodes(nodes, bridge)
    special = _own_convention(codegen) or codegen._body_transformer or expanded_def or record_func
    listed = list(nodes) if special or verbose else ()
    if verbose:
        _fxcalls.annotate(graph, listed, include_stride, include_device, additional_meta)
    taken = _taken(codegen, listed, record_func) if special else ()
    source, names, line_map = graph.python(Printing(bridge), codegen._func_name, root_module, bool(verbose), taken)
    if special:
        source, line_map = _assembled(codegen, source, line_map, listed, expanded_def, record_func)
    found = {"torch": torch, **dict(names), **dict(codegen.additional_globals())}
    if _own_convention(codegen):
        found |= {"fx_pytree": torch.fx._pytree, "pytree": torch.utils._pytree}
    wrapped = {id(node.target) for node in nodes if node.meta and node.meta.get("is_wrapped")}
    wraps = "\n".join(f'torch.fx.wrap("{name}")' for name, value in names if id(value) in wrapped)
    return PythonCode(f"\n{wraps}\n\n{source}", found, _lineno_map=line_map, _prologue_start=wraps.count("\n") + 4)


def python_code(gm, *, root_module="self", verbose=False):
    """Python source that, run, means what the graph means: `.src` and `.globals`, as torch.fx's Graph.python_code.

    gm: a GraphModule or Graph; how its code generator takes arguments and gives results is kept.
    """
    graph = _graph_of(gm)
    return _generate(graph._codegen, graph.nodes, root_module=root_module, verbose=verbose)


class CodeGen(torch.fx.graph.CodeGen):
    """Makes a GraphModule print through Kiln: gm.graph.set_codegen(kiln.fx.CodeGen()), then gm.recompile().

    CodeGen(other) also takes arguments and gives results as the code generator `other` does, for graphs whose inputs
    are nested: gm.graph.set_codegen(kiln.fx.CodeGen(gm.graph._codegen)).
    """
    _classes = {}  # by the class of `other`

    def __new__(cls, other=None):
        if other is None or isinstance(other, cls):
            return super().__new__(cls if other is None else type(other))
        return super().__new__(_with_convention(type(other)))

    def __init__(self, other=None):
        torch.fx.graph.CodeGen.__init__(self)
        if other is not None:
            self.__dict__.update(other.__dict__)

    def __reduce__(self):
        return _restored, (self._base, self.__dict__)

    _base = None

    def _gen_python_code(self, nodes, root_module, namespace, *, verbose=False, include_stride=False,
                         include_device=False, colored=False, expanded_def=False, record_func=False,
                         additional_meta=None):
        return _generate(self, nodes, root_module=root_module, verbose=verbose, include_stride=include_stride,
                         include_device=include_device, expanded_def=expanded_def, record_func=record_func,
                         additional_meta=additional_meta)


def _with_convention(base):
    if base is torch.fx.graph.CodeGen:
        return CodeGen
    if base not in CodeGen._classes:
        CodeGen._classes[base] = type(f"{base.__name__.lstrip('_')}_kiln", (CodeGen, base), {"_base": base})
    return CodeGen._classes[base]


def _restored(base, state):
    made = object.__new__(_with_convention(base or torch.fx.graph.CodeGen))
    made.__dict__.update(state)
    return made


# -- graphs --

class Graph:
    """A graph of Kiln's, with the module its attributes belong to and the objects that have no name."""

    def __init__(self, graph, bridge, root=None, metas=(), codegen=None, text=None):
        self._graph, self._bridge, self._root, self._metas = graph, bridge, root, metas
        self._codegen = codegen or torch.fx.graph.CodeGen()
        self._text = text  # that the graph was parsed from; None if it was made from objects

    @classmethod
    def parse(cls, text, root=None, constants=None):
        """The graph of a .kg text.  constants: what the text calls by name and cannot be imported."""
        return cls(_kiln.Graph.parse(text), Bridge(constants), root, text=text)

    @property
    def constants(self):
        """Objects of the graph that have no text, such as tensors, by name."""
        return dict(self._bridge.constants)

    def __len__(self):
        return len(self._graph)

    def __str__(self):
        return self._graph.text()

    def python_code(self, *, root_module="self", verbose=False, allow=()):
        """As kiln.fx.python_code, with plain arguments and results.  allow: as of to_torch()."""
        if self._text is not None:
            self._rebuild(lambda *node: None, self._root, allow)
        source, names, line_map = self._graph.python(Printing(self._bridge), "forward", root_module, bool(verbose), ())
        return PythonCode(f"\n\n\n{source}", {"torch": torch, **dict(names)}, _lineno_map=line_map, _prologue_start=4)

    def to_torch(self, root=None, *, allow=()):
        """A new torch.fx.GraphModule, printed through Kiln, that shares the module's parameters.

        Of a graph that was parsed, allow says what the text may name beside PyTorch's and Python's operators: "package.module"
        for what is defined there, "module:name" for one thing, "library::" or "library::name" for operators, ".name" for a method
        or an attribute, "*" for anything, as in code of one's own.  ValueError: it names something else, or what is not there.
        """
        graph = torch.fx.Graph()

        def make(k, op, name, target, args, kwargs, kind):
            node = graph.create_node(op, target, args, kwargs, name=name, type_expr=kind)
            if k < len(self._metas):
                node.meta = copy.copy(self._metas[k])
            return node

        root = root if root is not None else self._root if self._root is not None else torch.nn.Module()
        self._rebuild(make, root, allow)
        graph.set_codegen(CodeGen(copy.deepcopy(self._codegen)))
        made = torch.fx.GraphModule(root, graph, type(root).__name__)
        made.meta = copy.copy(getattr(root, "meta", {}))
        return made

    def _rebuild(self, make, root, allow):
        """Calls make for every node with the objects of its values, which the caller's objects or `allow` must let a text name."""
        trust = self._bridge.trust = Trust(allow)
        done = 0

        def checked(k, op, name, target, args, kwargs, kind):
            nonlocal done
            if self._text is not None:
                trust.check(op, target, args, kwargs, root)
            done += 1
            return make(k, op, name, target, args, kwargs, kind)

        try:
            self._graph.rebuild(self._bridge, checked)
        except Refused as refused:
            place = f"graph:{_line_of_node(self._text, done)}: " if self._text is not None else ""
            raise ValueError(f"{place}{refused}") from None


def _line_of_node(text, k):
    """The line that node k, counted from 0, has in the text: the header and each node have one, others are blank or comments."""
    bare = [line.strip(" \t\r") for line in text.split("\n")]
    return [number for number, line in enumerate(bare, 1) if line and line[0] != "#"][k + 1]


def from_torch(gm):
    """The graph of a torch.fx.GraphModule or Graph; str() of it is the .kg text."""
    graph = _graph_of(gm)
    bridge = Bridge()
    converted = _kiln.Graph.from_nodes(graph.nodes, bridge)
    root = gm if isinstance(gm, torch.nn.Module) else graph.owning_module
    return Graph(converted, bridge, root, [node.meta for node in graph.nodes], graph._codegen)


def normalize(gm, kwargs_only=False):
    """A new GraphModule whose calls follow the signatures of what they call; `gm` stays as it is.

    Arguments are bound as Python would bind them and laid out in the signature's order with defaults filled in; what was
    given by position stays so, unless kwargs_only asks for keywords, and what can only be positional always does.
    Calls of operators, functions of torch, methods of tensors and modules of torch.nn are normalised, others are left.
    TypeError: the arguments of a call do not fit.
    """
    made = from_torch(gm)
    _fxcalls.normalize(made._graph, made._bridge, made._root, list(_graph_of(gm).nodes), bool(kwargs_only))
    return made.to_torch()


if __name__ == "__main__":
    from kiln import _fxdemo
    _fxdemo.main()
