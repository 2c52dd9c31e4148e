"""What kiln.torch.status() says of calls that were handed back and of kernels; what enable() takes without kernels.

Compilers are scripts.  run_torch forks the processes that have no compiler.
"""
import re
import warnings

import pytest
import torch

import kiln
import kiln.torch


def reasons(code, which="all"):
    """{operator: {why: how many calls}}: the calls in code() that Kiln handed back to PyTorch."""
    before = {row.operator: row.handed_back for row in kiln.torch.status().rows}
    with kiln.torch.enabled(which):
        code()
        rows = kiln.torch.status().rows
    found = {}
    for row in rows:
        more = {why: n - before.get(row.operator, {}).get(why, 0) for why, n in row.handed_back.items()}
        found |= {row.operator: {why: n for why, n in more.items() if n}} if any(more.values()) else {}
    return found


class Wrapped(torch.Tensor):
    """A subclass whose calls reach the CPU's kernels only where __torch_dispatch__ is switched off."""

    @staticmethod
    def __torch_dispatch__(func, types, args=(), kwargs=None):
        raise AssertionError


def below_dispatch(call):
    wrapped = torch.Tensor._make_subclass(Wrapped, torch.ones(3))
    with torch._C._DisableTorchDispatch():
        call(X, wrapped)


def float64_by_default(code):
    torch.set_default_dtype(torch.float64)
    try:
        return code()
    finally:
        torch.set_default_dtype(torch.float32)


def inference_tensor():
    with torch.inference_mode():
        return torch.ones(3)


X = torch.ones(2, 3)


@pytest.mark.parametrize("name, code, why", [
    ("clone", lambda: (X + 1j).conj().clone(), "argument 'self' is a conjugate or negative view"),
    ("add.Tensor", lambda: below_dispatch(torch.ops.aten.add.Tensor), "argument 'other' is of a subclass with __torch_dispatch__"),
    ("_to_copy", lambda: X.to(torch.float8_e5m2), "argument 'dtype' names or holds a dtype that Kiln does not have"),
    ("_to_copy", lambda: X.to(torch.float8_e5m2).to(torch.float32), "argument 'self' names or holds a dtype that Kiln does not have"),
    ("exp", lambda: float64_by_default(lambda: torch.exp(torch.ones(3, dtype=torch.int64))),
     "torch.set_default_dtype is not float32, and no floating tensor decides the result's dtype"),
    ("_foreach_add_.Scalar", lambda: torch._foreach_add_([inference_tensor()], 1),
     "a tensor made in inference mode would be written outside of it, which PyTorch refuses"),
    # The text is of the first call that was refused, which another test may have made.
    ("sub.Tensor", lambda: torch.sub(X, torch.ones(5)), re.compile(r"Kiln does not serve this combination: aten::sub\.Tensor: argument 'other': "
     r"The size of tensor a \(\d+\) must match the size of tensor b \(\d+\) at non-singleton dimension \d+"))])
def test_reasons(name, code, why):
    def twice():
        for _ in range(2):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                try:
                    code()
                except (RuntimeError, NotImplementedError):
                    pass
    found = reasons(twice)
    is_same = why.fullmatch if isinstance(why, re.Pattern) else why.__eq__
    said = {text: n for text, n in found.get(f"aten::{name}", {}).items() if is_same(text)}
    assert list(said.values()) == [2], found
    with kiln.torch.enabled([name]):
        twice()
        assert f" handed back: {next(iter(said))}\n" in str(kiln.torch.status())


def test_refusals_of_one_operator_are_one_reason():
    """The first text is an example: no text is made for the calls after it."""
    def refused(*sizes):
        with pytest.raises(RuntimeError):
            torch.mul(torch.ones(sizes[0]), torch.ones(sizes[1]))
    reasons(lambda: refused(2, 3))
    found = reasons(lambda: [refused(4, 5), refused(6, 7)])
    (text, n), = found["aten::mul.Tensor"].items()
    assert n == 2 and "Kiln does not serve this combination: aten::mul.Tensor: " in text


# -- how far calls run by kernels --------------------------------------------------------------------------

def test_work():
    kiln.configure(mode="interp")
    try:
        with kiln.torch.enabled(["cos"]):
            for _ in range(3):
                torch.cos(X)
            work = kiln.torch.status().work
        assert (work.compiled, work.interpreted, work.built, work.waiting, work.failed, work.problem) == (0, 3, 0, 0, 0, None)
        kiln.configure(mode="sync")
        with kiln.torch.enabled(["cos"]):
            for _ in range(3):
                torch.cos(X)
            status = kiln.torch.status()
        work = status.work
        assert (work.compiled, work.interpreted, work.built, work.waiting, work.failed, work.problem) == (3, 0, 1, 0, 0, None)
        assert "3 calls by kernels (100 %), 0 interpreted; 1 kernels built, 0 on their way, 0 builds failed" in str(status)
    finally:
        kiln.configure(mode="default")


# -- where no kernels are built ------------------------------------------------------------------------------------------

START = """if True:
    import os, sys, warnings, torch
    os.environ.pop("KILN_MODE", None)
    {before}
    import kiln, kiln.torch
    taken = lambda: sorted(row.operator for row in kiln.torch.status().rows if row.taken)
    warnings.simplefilter("always")
    heard = warnings.catch_warnings(record=True)
    said = heard.__enter__()
"""


def marked():
    """The operators of default.txt: (all that fit, those that are no slower when they are interpreted)."""
    kiln.torch.enable()
    every = {row.operator for row in kiln.torch.status().rows if row.taken}
    kiln.torch.disable()
    quick = kiln.torch._default(interpreted=True)
    return every, quick


def test_the_second_column():
    every, quick = marked()
    assert quick < every and len(quick) > 100
    text = (kiln.torch.Path(kiln.torch.__file__).parent / "default.txt").read_text()
    assert all(re.fullmatch(r"[\w.]+( interpreted)?", line) for line in text.splitlines() if not line.startswith("#"))


def test_without_a_compiler(run_torch):
    every, quick = marked()
    said = run_torch(START.format(before='path = os.environ["PATH"]; os.environ["PATH"] = "/nonexistent"') + """
    for _ in range(2):
        kiln.torch.enable()
    print(*taken())
    print([str(w.message) for w in said if w.category is RuntimeWarning], said[0].filename)
    print(kiln.torch.status().work.problem)
    with kiln.torch.enabled(["add.Tensor"]):
        print(taken())
    os.environ["PATH"] = path
    kiln.configure(cc="cc")
    kiln.torch.enable()
    print(*taken())
    print(kiln.torch.status().work.problem, len(said))
    """)
    lines = said.splitlines()
    assert set(lines[0].split()) == quick
    assert "there is no compiler that works (no gcc, cc or clang in PATH)" in lines[1]
    assert f"takes only the {len(quick)} operators" in lines[1] and "Install gcc or clang" in lines[1]
    assert lines[1].count("Kiln builds no kernels") == 1 and "__init__" not in lines[1] and "_compiler" not in lines[1]
    assert lines[2] == "there is no compiler that works (no gcc, cc or clang in PATH)"
    assert lines[3] == "['aten::add.Tensor']"
    assert set(lines[4].split()) == every
    assert lines[5] == "None 1"


def test_no_compiler_is_wanted(run_torch):
    every, _ = marked()
    for mode in ("interp", "frozen"):
        said = run_torch(START.format(before=f'os.environ["PATH"] = "/nonexistent"; os.environ["KILN_MODE"] = "{mode}"') + """
    kiln.torch.enable()
    print(*taken())
    print(said, kiln.torch.status().work.problem)
    """).splitlines()
        assert set(said[0].split()) == every and said[1] == "[] None"


@pytest.fixture
def compiler(tmp_path):
    """A compiler that works until the file `armed` is there, and fails from then on.

    It fails when Kiln asks with -### which programs it would run, so Kiln starts this script for each build.
    """
    script = tmp_path / "compiler"
    script.write_text(f'''#!/bin/sh
        case "$*" in *-\\#\\#\\#*) exit 1; esac
        if [ -e {tmp_path}/armed ]; then echo "the disk is full" >&2; exit 1; fi
        exec gcc "$@"
        ''')
    script.chmod(0o755)
    return script


@pytest.mark.parametrize("which", ["default", "all"])
def test_builds_that_fail_later(run_torch, compiler, which):
    every, quick = marked()
    said = run_torch(START.format(before=f'os.environ["KILN_CC"] = "{compiler}"; os.environ["KILN_MODE"] = "sync"') + f"""
    kiln.torch.enable("{which}")
    before = set(taken())
    x = torch.randn(4, 5)
    torch.exp(x)
    print(kiln.stats()["compiles"], set(taken()) == before, len(said))
    open("{compiler.parent}/armed", "w").close()
    answers = [(torch.sin(x), "sin"), (torch.cos(x), "cos")]
    print(set(taken()) == before, len(said))
    answers += [(torch.tanh(x), "tanh"), (torch.sqrt(x), "sqrt")]
    print(*taken())
    kiln.torch.disable()
    print(all(torch.allclose(a, getattr(torch, name)(x), equal_nan=True) for a, name in answers))
    print([str(w.message) for w in said])
    kiln.torch.enable("{which}")
    print(set(taken()) == before, kiln.torch.status().work.problem, kiln.torch.status().work.failed)
    """)
    lines = said.splitlines()
    assert lines[0] == "1 True 0" and lines[1] == "True 0", said
    assert lines[3] == "True"
    assert lines[4].count("Kiln builds no kernels: 3 builds in a row have failed (") == 1 and "the disk is full" in lines[4]
    if which == "default":
        assert set(lines[2].split()) == quick
        assert f"takes only the {len(quick)} operators" in lines[4]
    else:
        assert set(lines[2].split()) > every
        assert "operators that were asked for may be slower" in lines[4]
    assert lines[5].startswith("True None"), "enable() gives the compiler another chance"


def test_builds_that_fail_in_the_background(run_torch, compiler):
    """The thread that builds runs no Python.  The main thread is told of failures between two Python instructions."""
    said = run_torch(START.format(before=f'os.environ["KILN_CC"] = "{compiler}"') + f"""
    kiln.torch.enable()
    before = set(taken())
    kiln.show_config()
    open("{compiler.parent}/armed", "w").close()
    x = torch.zeros(512, 512)
    for k, name in enumerate(["sum", "amax", "softmax", "var"]):
        for _ in range(5000):
            getattr(torch, name)(x, 1)
            kiln.wait_idle()
            if kiln.stats()["compile_failures"] > k or len(said):
                break
    print(set(taken()) < before, len(said), said[0].message)
    """)
    assert said.startswith("True 1 Kiln builds no kernels: 3 builds in a row have failed ("), said
