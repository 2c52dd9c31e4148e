"""What the tests of graphs share: running printed code, comparing what it gives, counting."""
import math

import torch
import torch.fx as fx
from torch.fx.immutable_collections import immutable_dict, immutable_list

import kiln.fx

PLAIN = {immutable_list: list, immutable_dict: dict}  # what torch.fx keeps arguments in
counts = []                                     # lines that the run closes with


def same(a, b):
    """Equal in type and value, through containers: floats by sign and bits, any NaN equal to any."""
    if PLAIN.get(type(a), type(a)) is not PLAIN.get(type(b), type(b)):
        return False
    if isinstance(a, torch.Tensor):
        if a.dtype != b.dtype or a.shape != b.shape or a.layout != b.layout or a.device != b.device:
            return False
        if a.layout != torch.strided or a.is_quantized:
            a, b = a.to_dense() if not a.is_quantized else a.dequantize(), b.to_dense() if not b.is_quantized else b.dequantize()
        return bool(torch.equal(a, b)) if not (a.is_floating_point() or a.is_complex()) else _same_floats(a, b)
    if isinstance(a, float):
        return math.isnan(a) and math.isnan(b) or (a == b and math.copysign(1, a) == math.copysign(1, b))
    if isinstance(a, complex):
        return same(a.real, b.real) and same(a.imag, b.imag)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, (set, frozenset)):
        return a == b or len(a) == len(b) and all(map(same, sorted(a, key=repr), sorted(b, key=repr)))
    if isinstance(a, dict):
        return len(a) == len(b) and all(same(p, q) for p, q in zip(a.items(), b.items()))
    if isinstance(a, slice):
        return same((a.start, a.stop, a.step), (b.start, b.stop, b.step))
    return a is b or bool(a == b)


def _same_floats(a, b):
    if a.is_complex():
        return _same_floats(torch.view_as_real(a.resolve_conj()), torch.view_as_real(b.resolve_conj()))
    if a.dtype.itemsize == 1:
        a, b = a.float(), b.float()
    return bool(torch.all((a == b) & (torch.signbit(a) == torch.signbit(b)) | torch.isnan(a) & torch.isnan(b)))


def compiled(code, name="forward"):
    """The function that printed code defines."""
    names = dict(code.globals)
    exec(compile(code.src, "<printed>", "exec", dont_inherit=True), names)
    return names[name]


def interpreted(graph, root, *inputs):
    """What torch.fx's interpreter makes of the graph: the meaning that printed code must have."""
    return fx.Interpreter(root if root is not None else torch.nn.Module(), graph=graph).run(*inputs)


def printed(graph, root, *inputs):
    return compiled(kiln.fx.python_code(graph))(root if root is not None else torch.nn.Module(), *inputs)


def outcome(run, *args):
    """("value", what it gives) or ("raises", the exception's type)."""
    try:
        return "value", run(*args)
    except SyntaxError:
        raise
    except Exception as error:
        return "raises", type(error)


def graph_of(build):
    """A graph that build(graph) fills and whose last value it returns."""
    graph = fx.Graph()
    graph.output(build(graph))
    return graph


def agree(graph, root, *inputs):
    """Asserts that printed code gives what the interpreter gives; returns that."""
    want = interpreted(graph, root, *inputs)
    got = printed(graph, root, *inputs)
    assert same(want, got), f"{kiln.fx.python_code(graph).src}\ninterpreter: {want!r}\nprinted: {got!r}"
    return got
