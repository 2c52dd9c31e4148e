"""What calls of a torch.fx graph call and yield: types of values, signatures, and normalisation by them.

Operators and torch's functions are matched to schemas in C.  Python's own functions, and modules, have a signature that
inspect knows; the binding is C's for both.
"""
import functools
import inspect
import keyword
import operator
import types

import torch
from torch._jit_internal import boolean_dispatched
from torch.utils._dtype_abbrs import dtype_abbrs

from . import _kiln

KWARGS_ONLY = 1
_KIND = {kind: number for number, kind in enumerate((
    inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.VAR_POSITIONAL,
    inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.VAR_KEYWORD))}
# Of a tensor and anything else these yield a tensor.
_ARITHMETIC = {getattr(operator, name) for name in (
    "add and_ floordiv ge getitem gt iadd iand ifloordiv imul invert ior isub itruediv ixor le lshift lt matmul mod mul neg "
    "or_ pos pow rshift sub truediv xor").split()}


@functools.cache
def _schemas():
    return _kiln.Schemas()


# -- what a node yields --

def known_value(node):
    """What an earlier pass noted that the node yields, or None."""
    for key in ("val", "tensor_meta", "example_value"):
        if node.meta.get(key) is not None:
            return node.meta[key]
    return None


def value_text(value):
    """The value's type as Kiln's graphs write it; None if there is no word for it."""
    if isinstance(value, torch.Tensor) or hasattr(value, "dtype") and hasattr(value, "shape"):
        dtype = dtype_abbrs.get(value.dtype) or str(value.dtype).removeprefix("torch.")
        return f"{dtype}[{', '.join(map(str, value.shape))}]"
    for kinds, text in (((bool, torch.SymBool), "bool"), ((int, torch.SymInt), "int"), ((float, torch.SymFloat), "float"),
                        (complex, "complex"), (str, "str")):
        if isinstance(value, kinds):
            return text
    if isinstance(value, (list, tuple)) and value and all(isinstance(item, torch.Tensor) for item in value):
        return "Tensor[]"
    return None


def annotate(graph, nodes, include_stride, include_device, additional_meta):
    """Notes what verbose printing shows: the value of each node, and where it came from where that changes."""
    last = None
    for k, node in enumerate(nodes):
        value = known_value(node)
        text = value_text(value)
        if text and isinstance(value, torch.Tensor):
            text += str(list(value.stride())) if include_stride and value.layout == torch.strided else ""
            text += str(value.device) if include_device else ""
        if text:
            graph.set_meta(k, "val", text)
        parts = [f"{key}: {node.meta[key]}" for key in additional_meta or () if key in node.meta]
        found = torch.fx.graph._parse_stack_trace(node.stack_trace) if node.stack_trace else None
        parts += [found.get_summary_str()] if found else []
        comment = ", ".join(parts)
        if comment != last and node.op not in ("placeholder", "output"):
            last = comment
            if comment:
                graph.set_meta(k, "comment", comment.replace("\0", " ").encode("utf-8", "replace").decode())


@functools.cache
def _yields_tensor(overload):
    """Whether "aten::add.Tensor" returns one tensor."""
    space, _, name = overload.partition("::")
    name, _, overload = name.partition(".")
    packet = getattr(getattr(torch.ops, space), name, None)
    found = getattr(packet, overload or "default", None)
    returns = found._schema.returns if found else ()
    return len(returns) == 1 and isinstance(returns[0].type, torch._C.TensorType)


class _Tensors:
    """Which nodes are known to be tensors.  A parameter without a type is taken to be one, as TorchScript does."""

    def __init__(self, root):
        self._root, self._known = root, set()

    def __contains__(self, node):
        return node in self._known

    def add(self, node, overload):
        value = known_value(node)
        if value is not None:
            known = isinstance(value, torch.Tensor) or hasattr(value, "dtype") and hasattr(value, "shape")
        elif node.type is not None:
            known = isinstance(node.type, type) and issubclass(node.type, torch.Tensor)
        else:
            known = self._is_tensor(node, overload)
        if known:
            self._known.add(node)

    def _is_tensor(self, node, overload):
        if isinstance(overload, str):
            return _yields_tensor(overload)
        if node.op == "placeholder":
            return not node.target.startswith("*") and (not node.args or isinstance(node.args[0], torch.Tensor))
        if node.op == "get_attr":
            return isinstance(_attribute(self._root, node.target), torch.Tensor)
        if node.op == "call_module":
            return _returns_tensor(_attribute(self._root, node.target))
        if node.op == "call_function" and node.target in _ARITHMETIC:
            return any(argument in self._known for argument in node.args if isinstance(argument, torch.fx.Node))
        return False


def _attribute(root, path):
    for part in path.split("."):
        root = getattr(root, part, None)
    return root


# -- signatures --

def _is_nn_module(module):
    return isinstance(module, torch.nn.Module) and type(module).__module__.startswith("torch.nn.")


def _returns_tensor(module):
    return _is_nn_module(module) and inspect.signature(module.forward).return_annotation is torch.Tensor


def _function_signature(function):
    """Of a Python function of torch; None for others and for those that have no single one."""
    if function in boolean_dispatched:
        branches = [inspect.signature(boolean_dispatched[function][branch]) for branch in ("if_true", "if_false")]
        return branches[0] if branches[0].parameters == branches[1].parameters else None
    if not isinstance(function, types.FunctionType) or not (function.__module__ or "").startswith("torch."):
        return None
    return inspect.signature(function)


def signature_of(node, root):
    """How Python would bind the node's arguments, where no schema says; or None."""
    if node.op == "call_module":
        module = _attribute(root, node.target)
        return inspect.signature(module.forward) if _is_nn_module(module) else None
    if node.op == "call_method":
        found = _function_signature(getattr(torch.Tensor, node.target, None))
        if found is None or not found.parameters:
            return None
        first, *rest = found.parameters.values()
        return found.replace(parameters=[first.replace(kind=inspect.Parameter.POSITIONAL_ONLY), *rest])
    return _function_signature(node.target) if node.op == "call_function" else None


def described(signature):
    """The parameters as C takes them: name, kind, default, whether the name is one Python cannot write."""
    return tuple((p.name, _KIND[p.kind], None if p.default is p.empty else (p.default,), False)
                 for p in signature.parameters.values())


def described_schema(schema):
    """The same of an operator's schema; a name that is a keyword makes itself and all before it positional."""
    plain = [p for p in schema.arguments if not p.kwarg_only]
    odd = max((k for k, p in enumerate(plain) if keyword.iskeyword(p.name)), default=-1)
    return tuple((p.name, _KIND[inspect.Parameter.KEYWORD_ONLY if p.kwarg_only else inspect.Parameter.POSITIONAL_OR_KEYWORD],
                  (p.default_value,) if p.has_default_value() else None, k <= odd and not p.kwarg_only)
                 for k, p in enumerate([*plain, *(p for p in schema.arguments if p.kwarg_only)]))


# -- normalisation --

def _normalize_node(graph, bridge, root, k, node, tensors, flags):
    """The overload the node calls, or None."""
    if node.op == "call_method" and not (isinstance(node.args[0], torch.fx.Node) and node.args[0] in tensors):
        return None
    overload = graph.normalize(k, _schemas(), flags) if node.op in ("call_function", "call_method") else None
    if overload is not None:
        return overload
    if node.op == "call_function" and isinstance(node.target, torch._ops.OpOverload):
        graph.bind(k, bridge, described_schema(node.target._schema), flags)  # of a library other than PyTorch's
        return None
    signature = signature_of(node, root)
    if signature is not None:
        graph.bind(k, bridge, described(signature), flags)
    return None


def normalize(graph, bridge, root, nodes, kwargs_only):
    for k, node in enumerate(nodes):
        text = value_text(known_value(node))
        if text:
            graph.set_meta(k, "val", text)
    tensors = _Tensors(root)
    for k, node in enumerate(nodes):
        try:
            overload = _normalize_node(graph, bridge, root, k, node, tensors, KWARGS_ONLY if kwargs_only else 0)
        except TypeError as error:
            told = str(error).startswith("node ")
            raise TypeError(str(error) if told else f"node {node.name}: {error}") from None
        tensors.add(node, overload)
