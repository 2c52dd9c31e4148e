"""python -m kiln.fx: one call, normalised to keywords and printed by torch.fx and by Kiln, and what Python says to each."""
import torch
import torch.fx as fx
from torch.fx.operator_schemas import normalize_function

from . import fx as kiln_fx


def _statement(source):
    return next(line.strip() for line in source.split("\n") if "=" in line)


def _says(run):
    try:
        value = run(torch.zeros(1000))
    except SyntaxError as error:
        return f"SyntaxError: {error.msg}"
    return f"runs: {value.numel()} numbers between {value.min():.2f} and {value.max():.2f}"


def _by_torch(graph):
    node = next(node for node in graph.nodes if node.op == "call_function")
    node.args, node.kwargs = normalize_function(node.target, node.args, node.kwargs, normalize_to_only_use_kwargs=True)
    return graph.python_code("self").src, lambda x: fx.GraphModule(torch.nn.Module(), graph)(x)


def _by_kiln(graph):
    made = kiln_fx.normalize(graph, kwargs_only=True)
    return made.code, made


def main():
    for name, normalised in (("torch.fx", _by_torch), ("kiln.fx", _by_kiln)):
        graph = fx.Graph()
        graph.output(graph.call_function(torch.ops.aten.uniform_.default, (graph.placeholder("x"), 0.25, 0.5)))
        source, run = normalised(graph)
        print(f"{name:<8}  {_statement(source)}\n          {_says(run)}")
