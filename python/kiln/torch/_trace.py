"""What torch.compile makes of kiln.call: the operator of PyTorch that has the same name.

A compiler cannot look into kiln.call, which is C.  PyTorch takes a Python function in its place, but by a module that takes
two seconds to import: so the function is registered when something else imports that module.
"""
import importlib.abc
import importlib.util
import sys

import torch

from .. import _kiln

_COMPILER = "torch._dynamo"


def _call(name, /, *args, **kwargs):
    operator = name
    if isinstance(name, str):
        space, colons, rest = name.partition("::")
        base, _, overload = (rest if colons else space).partition(".")
        operator = getattr(getattr(torch.ops, space if colons else "aten"), base, None)
        if operator is None:
            raise NotImplementedError(f"torch.compile cannot trace kiln.call of {name}, which PyTorch does not have: kiln.torch.define makes it one of its operators")
        if overload:
            operator = getattr(operator, overload)
    return operator(*args, **kwargs)


def _register():
    torch.compiler.substitute_in_graph(_kiln.call, skip_signature_check=True)(_call)


class _Await(importlib.abc.MetaPathFinder):
    """Registers after the module was imported, and is then gone."""

    def find_spec(self, name, path, target=None):
        if name != _COMPILER:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        run = spec.loader.exec_module

        def exec_module(module):
            run(module)
            _register()

        spec.loader.exec_module = exec_module
        return spec


def register():
    if _COMPILER in sys.modules:
        _register()
    elif not any(isinstance(finder, _Await) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Await())
