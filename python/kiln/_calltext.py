"""Calls as text: 'add.Tensor(f32[4,8], f32[8], alpha=2)' -> operator name, arguments, named arguments.

A tensor is dtype[sizes], optionally :strides=(..); its elements are zeros, since a stage's text does not
depend on them.
"""
import ast
import re

from . import _kiln

_TENSOR = re.compile(r"\b([a-z]+\d*)\[([\d\s,]*)\](?::strides=\(([-\d\s,]*)\))?(?::fill=[\w.+-]+)?")
_WORDS = {"true": True, "false": False, "none": None}


def _zeros(dtype, sizes, strides):
    shape = [int(n) for n in sizes.split(",") if n.strip()]
    steps = None if strides is None else [int(n) for n in strides.split(",") if n.strip()]
    return _kiln.zeros(shape, dtype, steps)


def _value(node):
    if isinstance(node, ast.Name) and node.id.lower() in _WORDS:
        return _WORDS[node.id.lower()]
    if isinstance(node, (ast.List, ast.Tuple)):
        return [_value(item) for item in node.elts]
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "__tensor":
        return _zeros(*[ast.literal_eval(item) for item in node.args])
    try:
        return ast.literal_eval(node)
    except ValueError:
        raise ValueError(f"cannot read argument {ast.unparse(node)!r}") from None


def parse(text):
    """(name, args, kwargs) of a call written as text."""
    name, paren, rest = text.strip().partition("(")
    rest = _TENSOR.sub(lambda m: f"__tensor({m[1]!r}, {m[2]!r}, {m[3]!r})", rest)
    try:
        call = ast.parse(f"f({rest}" if paren else "f()", mode="eval").body
    except SyntaxError as error:
        raise ValueError(f"cannot read the call {text!r}: {error.msg}") from None
    if not isinstance(call, ast.Call) or any(word.arg is None for word in call.keywords):
        raise ValueError(f"cannot read the call {text!r}: expected NAME(ARGUMENTS)")
    return name.strip(), [_value(arg) for arg in call.args], {word.arg: _value(word.value) for word in call.keywords}
