"""Objects that torch.fx graphs hold <-> values of Kiln's graphs; see python/csrc/py_graph.h.

Python's own values are converted in C.  What PyTorch adds, what can be imported, and everything else are named here:
functions and classes by module and path where that leads back to the same object, and whatever has no name as a constant
that the bridge keeps.  On the way back, what did not come from an object is for _fxtrust to find or to refuse.
"""
import builtins
import enum
import re
import sys
import types

import torch
from torch.fx.immutable_collections import immutable_dict, immutable_list

from . import _kiln
from ._fxtrust import Refused, Trust

KINDS = _kiln.Graph.kinds()
_NAMED = {torch.dtype: KINDS["dtype"], torch.layout: KINDS["layout"], torch.memory_format: KINDS["memory_format"]}
_OP, _FUNC, _CONST, _DEVICE = (KINDS[kind] for kind in ("op", "func", "const", "device"))


def _looked_up(module, path):
    """What module:path leads to without importing anything; a unique object if nothing."""
    at = sys.modules.get(module)
    for part in path.split(".") if path else ():
        at = getattr(at, part, _looked_up)
    return at


def _places(o):
    """(module, path) pairs under which `o` may be found, the readable ones first."""
    module, name = getattr(o, "__module__", None), getattr(o, "__name__", None)
    path = getattr(o, "__qualname__", name)
    if isinstance(o, types.ModuleType):
        yield name, ""
    if not isinstance(name, str) or not isinstance(path, str):
        return
    if module == "_operator":
        yield "operator", name
    yield "torch", f"Tensor.{name}"
    if isinstance(module, str):
        yield module, path
        yield module, name
    yield "torch", name
    yield "torch", f"ops.higher_order.{name}"


def qualified(o):
    """The "module:path" that leads to `o`, or None."""
    for module, path in _places(o):
        if module and ":" not in module + path and _looked_up(module, path) is o:
            return f"{module}:{path}"
    return None


def operator_name(o):
    """"aten::add.Tensor", or "aten::add" for all overloads, if torch.ops leads back to `o`; else None."""
    packet = o.overloadpacket if isinstance(o, torch._ops.OpOverload) else o
    space, _, name = packet._qualified_op_name.partition("::")
    found = getattr(getattr(torch.ops, space, None), name, None)
    if found is not packet or "." in name:
        return None
    if packet is o:
        return f"{space}::{name}"
    return f"{space}::{name}.{o._overloadname}" if getattr(packet, o._overloadname, None) is o else None


def _is_tuple(kind):
    return isinstance(kind, type) and issubclass(kind, tuple)


def _constant_of_torch(kind, text):
    found = vars(torch).get(text)
    if not isinstance(found, kind):
        raise Refused(f"there is no torch.{kind.__name__} named {text}")
    return found


class Bridge:
    """Names objects for one graph, and gives them back by name."""
    node_type = torch.fx.Node
    types = {kind: KINDS[name] for kind, name in (
        (immutable_list, "list"), (immutable_dict, "dict"), (set, "set"), (frozenset, "frozenset"), (slice, "slice"),
        (range, "range"), (torch.Size, "size"))}

    def __init__(self, constants=None):
        self.constants = dict(constants or {})  # by name
        self._names = {}                        # of constants, by id: self.constants keeps them alive
        self._met = {}                          # operators, functions and their like that describe() has seen, by name
        self.trust = Trust()                    # what else a text may name

    # -- object -> description --

    def describe(self, o):
        kind = type(o)
        if kind in _NAMED:
            return _NAMED[kind], str(o).removeprefix("torch.")
        if kind is torch.device:
            return _DEVICE, str(o)
        if isinstance(o, (torch._ops.OpOverload, torch._ops.OpOverloadPacket)):
            name = operator_name(o)
            if name:
                self._met[name] = o
                return _OP, name
            return self._constant(o)
        if isinstance(o, enum.Enum):
            return self._member(o)
        if isinstance(o, tuple):
            return self._tuple(o)
        if isinstance(o, type) or callable(o) or isinstance(o, types.ModuleType):
            name = qualified(o)
            if name:
                self._met[name] = o
                return _FUNC, name
        return self._constant(o)

    def _constant(self, o):
        name = self._names.get(id(o))
        if name is None:
            base = re.sub(r"\W+", "_", str(getattr(o, "__name__", None) or type(o).__name__), flags=re.ASCII).strip("_")
            name = f"{base or 'object'}_{len(self._names)}"
            while name in self.constants:
                name += "_"
            self._names[id(o)] = name
            self.constants[name] = o
        return _CONST, name

    def _member(self, o):
        kind = type(o)
        named = isinstance(o.name, str) and kind.__members__.get(o.name) is o
        return (KINDS["enum"], (kind, o.name)) if named else self._constant(o)

    def _tuple(self, o):
        kind = type(o)
        fields = getattr(kind, "_fields", None)
        if isinstance(fields, tuple) and len(fields) == len(o):
            return KINDS["namedtuple"], (kind, tuple(fields), *o)
        if hasattr(kind, "n_sequence_fields"):
            return KINDS["structseq"], (kind, *o)
        return KINDS["tuple"], tuple(o)

    # -- and back --

    def build(self, kind, data):
        return self._builders[kind](self, data)

    def _function(self, text):
        return self._met[text] if text in self._met else self.trust.function(text)

    def _operator(self, text):
        return self._met[text] if text in self._met else self.trust.operator(text)

    def _kept(self, name):
        if name not in self.constants:
            raise KeyError(f"the graph uses the constant {name!r}, which is not given")
        return self.constants[name]

    def _named_tuple(self, items):
        kind, fields, *values = items
        if not _is_tuple(kind) or getattr(kind, "_fields", None) != fields:
            raise Refused(f"{kind!r} is no named tuple with the fields {', '.join(fields)}")
        return kind(*values)

    def _struct(self, items):
        kind, *values = items
        if not _is_tuple(kind) or not hasattr(kind, "n_sequence_fields"):
            raise Refused(f"{kind!r} is no structure of PyTorch's")
        return kind(values)

    def _enumerated(self, items):
        kind, name = items
        if not isinstance(kind, enum.EnumMeta) or name not in kind.__members__:
            raise Refused(f"{kind!r} is no enumeration with the member {name}")
        return kind.__members__[name]

    _builders = {
        _FUNC: _function,
        _CONST: _kept,
        _OP: _operator,
        _DEVICE: lambda self, text: torch.device(text),
        **{number: lambda self, text, kind=kind: _constant_of_torch(kind, text) for kind, number in _NAMED.items()},
        KINDS["size"]: lambda self, items: torch.Size(items),
        KINDS["namedtuple"]: _named_tuple,
        KINDS["structseq"]: _struct,
        KINDS["enum"]: _enumerated,
    }


class Printing:
    """A bridge for what printed code needs: also the names that printing itself brings in."""
    _OWN = {"torch:": torch, **{f"builtins:{name}": getattr(builtins, name)
                                for name in ("complex", "frozenset", "getattr", "range", "set", "slice")}}

    def __init__(self, bridge):
        self._bridge = bridge

    def build(self, kind, data):
        return self._OWN[data] if kind == _FUNC and data in self._OWN else self._bridge.build(kind, data)
