"""Runs a Python block, given on standard input, and compares what its lines give: `# => TEXT` stands behind a line whose value, or printed text,
is TEXT, and `# => raises ERROR: TEXT` behind one that raises.

The block runs in a process of its own, so that one block cannot help another.  Prints each difference; exits 1 if there is one.
"""
import ast
import contextlib
import io
import re
import sys

from blocks import difference

MARK = re.compile(r"#\s*=> (.*)$")


class Raised(str):
    """What was raised, as a document writes it."""


def given_or_raised(statement, names, raises):
    try:
        if isinstance(statement, ast.Expr):
            return eval(compile(ast.Expression(statement.value), "block", "eval"), names)
        return exec(compile(ast.Module([statement], []), "block", "exec"), names)
    except Exception as error:
        if not raises:
            raise
        return Raised(f"raises {type(error).__name__}: {error}")


def run(code):
    lines, names, wrong = code.split("\n"), {"__name__": "__main__"}, 0
    for statement in ast.parse(code).body:
        mark = MARK.search(lines[statement.end_lineno - 1])
        text = ast.get_source_segment(code, statement)
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed) if mark else contextlib.nullcontext():
            value = given_or_raised(statement, names, mark and mark.group(1).startswith("raises "))
        if mark:
            got = printed.getvalue().strip() or (value if isinstance(value, Raised) else repr(value))
            told = difference(mark.group(1), got)
            if told:
                print(f"{text}\n{told}")
                wrong = 1
    return wrong


sys.exit(run(sys.stdin.read()))
