"""Names, strings, comments and annotations of a text stay what they are in printed Python: none of them becomes code.

Texts that would be code if a quote, a line end or a name slipped through are put wherever a text may stand.  The printed source
must parse to one plain statement per node, and may use no name but those of its parameters, its nodes and its globals."""
import ast
import builtins
import json
import random

import pytest

from kiln import _kiln

CODE = "__import__('builtins').RAN.append(1)"
ENDS = ["\n", "\r", "\r\n", "\x0b", "\x0c", "\x1c", "\x85", "\u2028", "\u2029", ";", "\n    ", "\n\t", "\\\n", "\\", "'", '"', "'''", '"""', "\\'", '\\"',
        "{", "}", "(", ")", "]", ",", ":", "=", "#", "\ufeff", "\ud800", "\udc0a", "\u00ad", "\\x0a", "\\u000a", "\\N{LINE FEED}", "%s", "", " ", "ﬀ", "é"]
TEXTS = [f"{a}{b}{CODE}{c}{d}" for a, b, c, d in zip(ENDS, ENDS[7:] + ENDS[:7], ENDS[13:] + ENDS[:13], ENDS[19:] + ENDS[:19])] + [
    CODE, f"x = {CODE}", f"x)\n{CODE}\n(", "# coding: utf-7\n+AAo-" + CODE, "-*- coding: unicode_escape -*-\\n" + CODE, f"x: {CODE}", f"*{CODE}", f"f'{{{CODE}}}'",
    "__debug__", "None", "True", "print", "exec", "eval", "x\n", "\nx", "lambda: 0", "torch", "self", "yield", "__class__", "*", "**"]


def quoted(text):
    """A string of the .kg grammar, with only ASCII in it."""
    return json.dumps(text).replace("\\b", "\\x08").replace("\\f", "\\x0c") if "\x00" not in text else '""'


class Bridge:
    """Makes nothing: a global is what the text calls it."""

    def build(self, kind, data):
        return data


def lines_of(pick):
    """A graph with hostile texts in every place that takes one; pick() gives the next."""
    q = lambda: quoted(pick())  # noqa: E731
    dotless = lambda: quoted(pick().replace(".", "_").replace(":", "_") or "_")  # noqa: E731
    yield f"p0 : {q()} = placeholder {q()}({q()})"
    yield f"p1 = placeholder {quoted('*' + pick().replace('*', ''))}"
    for k, value in enumerate((q(), f"b{quoted(pick().encode('ascii', 'replace').decode())}", f"device({q()})", f"const({q()})",
                               f"func({quoted('m' + dotless()[1:-1] + ':f')})", f"[{q()}, ({q()},), {{{q()}: {q()}}}, set({q()}), slice({q()}, None, %p0)]",
                               f"namedtuple(const({q()}), {q()}={q()})", f"structseq(const({q()}), {q()})", f"enum(const({q()}), {q()})")):
        yield (f"n{k} : {q()} = call_function const({q()})({value}, {quoted('k' + pick())}={value}) "
               f"{{comment={q()}, val={q()}, {quoted('z' + pick())}={q()}}}")
    yield f"{quoted('m' + pick())} = call_method {q()}(%p0, {q()})"
    yield f"{quoted('a' + pick())} = get_attr {q()} {{comment={q()}}}"
    yield f"{quoted('c' + pick())} = call_module {q()}(%p1)"
    yield f"g = call_function builtins:getattr(%p0, {q()})"
    yield f"i = call_function operator:getitem(%g, ({q()}, slice({q()}, {q()}, None)))"
    yield f"j = call_function operator:iadd(%g, {q()})"
    yield f"k = call_function operator:setitem(%g, {q()}, {q()})"
    yield f"output : {q()} = output(({q()}, %g)) {{comment={q()}}}"


STATEMENTS = (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Return, ast.Pass)
EXPRESSIONS = (ast.Name, ast.Constant, ast.Call, ast.keyword, ast.Attribute, ast.Subscript, ast.Slice, ast.Tuple, ast.List, ast.Dict, ast.Set,
               ast.BinOp, ast.UnaryOp, ast.Compare, ast.Starred, ast.expr_context, ast.operator, ast.unaryop, ast.cmpop)


def check(source, names, count):
    module = ast.parse(source)
    function, = module.body
    assert type(function) is ast.FunctionDef and function.name == "forward" and not function.decorator_list
    parameters = {a.arg for a in ast.walk(function.args) if isinstance(a, ast.arg)}
    known = parameters | {name for name, _ in names} | {"getattr", "torch", "set", "slice", "complex", "frozenset", "range"}
    given = 0
    for statement in function.body:
        assert isinstance(statement, STATEMENTS), ast.dump(statement)
        freed = isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Constant) and statement.value.value is None
        given += not freed
        for node in ast.walk(statement):
            assert node is statement or isinstance(node, EXPRESSIONS), ast.dump(node)
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
                assert node.id in known, f"{node.id} is used, but is no node, parameter or global"
        known |= {node.id for node in ast.walk(statement) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    assert count <= given <= count + 1  # an in-place operator takes two


@pytest.mark.parametrize("verbose", [False, True])
def test_texts_do_not_become_code(verbose, monkeypatch):
    monkeypatch.setattr(builtins, "RAN", [], raising=False)
    printed = 0
    for seed in range(600):  # each text everywhere, then mixtures
        chosen = random.Random(seed)
        texts = TEXTS[seed:seed + 1] or TEXTS
        lines = list(lines_of(lambda: chosen.choice(texts)))
        try:
            graph = _kiln.Graph.parse("\n".join(["kg 1", *lines]) + "\n")
            source, names, _ = graph.python(Bridge(), "forward", "self", verbose, ())
        except (ValueError, RuntimeError):
            continue  # names that are taken, or hold a NUL: refused, which is as good
        check(source, names, len(lines) - 2)
        compile(source, "<printed>", "exec")
        printed += 1
    assert printed > 300 and not builtins.RAN


@pytest.mark.parametrize("body", ["x = 1;  import os", "x = __import__('os')", "x = torch.add(p, 1);  os.system(x)", "x = [y for y in p]",
                                  "x = 1\n    RAN = lambda: 0", "f'{p}'"])
def test_the_check_sees_code(body):
    with pytest.raises(AssertionError):
        check(f"def forward(self, p):\n    {body}\n    return p\n", [], body.count("\n") + 2)


@pytest.mark.parametrize("line, text", [
    ('"a\\x00b" = get_attr w', "NUL"), ('x = call_function m:f("k\\x00"=1)', "NUL"), ('x = get_attr "a\\x00"', "NUL"),
    ('x = call_function const("a\\x00")()', "NUL"), ('x = get_attr w {comment="a\\x00"}', "NUL"), ('x = call_function m:f(device("\\x00"))', "NUL"),
    ('x = call_function m:f(dtype("float32\\n"))', "is not a name"), ('x = call_function m:f(dtype("float32()"))', "is not a name"),
    ('x = call_function m:f(layout("a b"))', "is not a name"), ('x = call_function m:f(memory_format("a.b"))', "is not a name"),
    ('x = call_function op("aten::a:b")()', "is not an operator"), ('x = call_function func("a")()', "is not a function"), ("x = call_function m:f(1_0)", "is not an integer"),
    ("x = call_function m:f(0x)", "is not an integer")])
def test_texts_that_cannot_be_names(line, text):
    with pytest.raises(ValueError, match=text):
        _kiln.Graph.parse(f"kg 1\n{line}\n")
