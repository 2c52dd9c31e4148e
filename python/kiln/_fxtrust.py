"""What the text of a graph may name and call: PyTorch's operators and functions on tensors, Python's operators, and what the
caller allows.  docs/GRAPH.md gives the rules and their reasons.

Nothing here imports or calls what a text names, unless the caller allows it: names are looked up in the dictionaries of modules
that are imported already, and of classes, so that no __getattr__ runs on the way.
"""
import enum
import functools
import importlib
import operator
import sys
import types

import torch

# Operators that compute, by the library they are registered under, and the few among them that reach files or other machines.
_SPACES = frozenset("aten mkl mkldnn mkldnn_prepacked onednn prim prims quantized _quantized rngprims sparse".split())
_FAR_OPERATORS = frozenset("aten::from_file aten::save prim::rpc_async prim::rpc_remote prim::rpc_sync".split())
# Functions that read files, take memory that is not theirs, or call what they are given.
_FAR_FUNCTIONS = frozenset("from_file from_numpy frombuffer handle_torch_function lobpcg triplet_margin_with_distance_loss".split())
_FAR_METHODS = frozenset("apply_ map_ map2_ module_load numpy register_hook register_post_accumulate_grad_hook share_memory_".split())

_BUILTINS = frozenset((abs, bool, complex, dict, divmod, float, frozenset, getattr, int, len, list, pow, range, round, set, slice, str,
                       sum, tuple))
_OPERATORS = frozenset(getattr(operator, name) for name in operator.__all__
                       if name not in ("attrgetter", "call", "itemgetter", "methodcaller"))
_CLASSES = frozenset((torch.Tensor, torch.nn.Parameter, torch.Size, torch.device, torch.dtype, torch.layout, torch.memory_format,
                      torch.finfo, torch.iinfo, torch.Generator, torch.SymInt, torch.SymFloat, torch.SymBool))
_MORE = "_assert is_tensor pca_lowrank svd_lowrank sym_float sym_int sym_ite sym_max sym_min sym_not sym_sum".split()  # Python functions of torch itself

_ARITHMETIC = "add and floordiv lshift matmul mod mul or pow rshift sub truediv xor divmod".split()
_METHODS = frozenset(
    [name for name in dir(torch.Tensor) if not name.startswith("_") and callable(getattr(torch.Tensor, name)) and name not in _FAR_METHODS]
    + "append copy count extend get index insert items keys numel pop setdefault update values".split()  # of containers
    + [f"__{kind}{name}__" for name in _ARITHMETIC for kind in ("", "r", "i")]
    + [f"__{name}__" for name in ("abs bool complex contains eq float ge getitem gt index int invert le len lt ne neg pos round "
                                  "setitem").split()])


# What every module has beside its layers and tensors: its methods, its tables of hooks, its code.
_OF_ANY_MODULE = frozenset(dir(torch.fx.GraphModule(torch.nn.Module(), torch.fx.Graph())))


class Refused(ValueError):
    """A text names what it may not."""


@functools.cache
def _functions():
    """PyTorch's functions on tensors: those bound to operators in C, and the public Python ones around them."""
    tables = [vars(getattr(torch._C, name)) for name in ("_fft", "_linalg", "_nn", "_special")]
    tables.append({name: getattr(torch._C._VariableFunctions, name) for name in dir(torch._C._VariableFunctions)})
    tables += [{name: o for name, o in vars(module).items() if getattr(o, "__module__", None) == module.__name__}
               for module in (torch.functional, torch.nn.functional)]
    found = {o for table in tables for name, o in table.items()
             if isinstance(o, (types.BuiltinFunctionType, types.FunctionType)) and not name.startswith("_") and name not in _FAR_FUNCTIONS}
    return found | {vars(torch)[name] for name in _MORE}


def _part_of(module, package):
    return module == package or module.startswith(package + ".")


def _is_private(name):
    return name.startswith("__")


def _plain(module, path):
    """What the path leads to through dictionaries alone, without passing another module; None if it leads nowhere."""
    at = sys.modules.get(module)
    for part in path.split("."):
        if isinstance(at, types.ModuleType):
            at = vars(at).get(part)
        elif isinstance(at, type):
            at = next((vars(kind)[part] for kind in at.__mro__ if part in vars(kind)), None)
        else:
            return None
        if isinstance(at, types.ModuleType) or _is_private(part):
            return None
    return at


def _harmless(module, path, o):
    """Whether a text may name the object, and call it if it can be called."""
    if module in ("builtins", "operator", "_operator", "math", "typing"):
        return (o in _BUILTINS if module == "builtins" else
                isinstance(o, (types.BuiltinFunctionType, float)) if module == "math" else
                type(o).__module__ == "typing" if module == "typing" else
                isinstance(o, types.BuiltinFunctionType) and o in _OPERATORS)
    if not _part_of(module, "torch"):
        return False
    owner, _, name = path.rpartition(".")
    if owner in ("Tensor", "TensorBase"):
        return name in _METHODS and _plain(module, owner) in torch.Tensor.__mro__
    if isinstance(o, type):
        return o in _CLASSES or issubclass(o, (tuple, enum.Enum)) and _part_of(str(o.__module__), "torch")
    return isinstance(o, (types.BuiltinFunctionType, types.FunctionType)) and o in _functions()


class Trust:
    """What one conversion may name.  allow: see docs/GRAPH.md."""

    def __init__(self, allow=()):
        if isinstance(allow, str) or not all(isinstance(name, str) for name in allow):
            raise TypeError(f"allow must be a list of names, such as ['package.module'], not {allow!r}")
        self._allow = frozenset(allow)
        self._packages = [name for name in self._allow if name.strip(".*") == name and ":" not in name]
        self._known = {}

    def _allows(self, *names):
        return "*" in self._allow or any(name in self._allow for name in names)

    def _in_package(self, module):
        return "*" in self._allow or any(_part_of(module, package) for package in self._packages)

    # -- objects --

    def function(self, text):
        """The object that "module:path" means."""
        if text not in self._known:
            module, _, path = text.partition(":")
            if self._allows(text) or self._in_package(module):
                self._known[text] = self._imported(text, module, path)
            else:
                found = _plain(module, path)
                if found is None or not _harmless(module, path, found):
                    raise Refused(f"a text may not name {text}; allow=[{text!r}] would let it")
                self._known[text] = found
        return self._known[text]

    def _imported(self, text, module, path):
        at = importlib.import_module(module)
        for part in path.split(".") if path else ():
            at = getattr(at, part)
            if not self._allows(text) and (_is_private(part) or isinstance(at, types.ModuleType)):
                raise Refused(f"{text} leads out of {module}; allow=[{text!r}] would let it")
        defined = getattr(at, "__module__", None)
        if not self._allows(text) and isinstance(defined, str) and not self._in_package(defined):
            raise Refused(f"{text} is defined in {defined}, which is not allowed; allow=[{text!r}] would let it")
        return at

    def operator(self, text):
        """The operator that "space::name" or "space::name.overload" means."""
        space, _, name = text.partition("::")
        name, dot, overload = name.partition(".")
        if not (self._allows(f"{space}::", f"{space}::{name}") or space in _SPACES and f"{space}::{name}" not in _FAR_OPERATORS):
            raise Refused(f"a text may not name the operator {text}; allow=['{space}::{name}'] would let it")
        found = getattr(getattr(torch.ops, space), name, None)
        if isinstance(found, torch._ops.OpOverloadPacket) and dot:
            found = getattr(found, overload, None)
        if not isinstance(found, torch._ops.OpOverload if dot else torch._ops.OpOverloadPacket):
            raise Refused(f"there is no operator {text}")
        return found

    # -- nodes --

    def check(self, op, target, args, kwargs, root):
        """Refuses a node that could call, by name, what is on no list."""
        if op == "call_method" and ("key" in kwargs or target not in _METHODS) and not self._allows(f".{target}"):
            raise Refused(f"a text may not call the method {target!r}{' with a key' if 'key' in kwargs else ''}; "
                          f"allow=['.{target}'] would let it")
        if op == "call_function" and target is getattr:
            self._check_attribute(args, kwargs)
        for part in target.split(".") if op in ("get_attr", "call_module") else ():
            self._check_part(target, part)
        if op == "call_module" and root is not None and not isinstance(_submodule(root, target), torch.nn.Module):
            raise Refused(f"the root has no module {target!r}")

    def _check_part(self, target, part):
        if (_is_private(part) or part in _OF_ANY_MODULE) and not self._allows(f".{part}"):
            raise Refused(f"a text may not name the attribute {target!r}; allow=['.{part}'] would let it")

    def _check_attribute(self, args, kwargs):
        name = args[1] if len(args) in (2, 3) and not kwargs else None
        if type(name) is not str:
            if not self._allows("*"):
                raise Refused("a text may call getattr only with an object and the attribute's name, written out")
        elif name.startswith("_") and not self._allows(f".{name}"):
            raise Refused(f"a text may not name the attribute {name!r}; allow=['.{name}'] would let it")


def _submodule(root, path):
    if isinstance(root, dict):
        return root.get(path)
    for part in path.split("."):
        root = getattr(root, part, None)
    return root
