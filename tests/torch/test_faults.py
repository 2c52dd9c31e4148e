"""What goes wrong around kiln.torch: wrong names, wrong bridges, no compilers, threads that come and go, processes that end.

Whatever happens, the program's own answers stay right, the error says what to do, and disable() leaves PyTorch's dispatcher as
it was.  Where a fault needs a process of its own, run_torch forks one.
"""
import os
import re
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import torch

import kiln
import kiln.torch
from kiln.torch import _build
from outcome import differ, outcome
from sanitized import SANITIZED


def taken():
    return {row.operator for row in kiln.torch.status().rows if row.taken}


# -- names ---------------------------------------------------------------------------------------------------------------

def test_again_and_again():
    kiln.torch.disable()
    kiln.torch.enable(["add"])
    once = taken()
    kiln.torch.enable(["add"])
    assert taken() == once and "aten::add.Tensor" in once
    kiln.torch.enable(["mul.Tensor", "sin.default", "aten::exp"])
    assert taken() == {"aten::mul.Tensor", "aten::sin", "aten::exp", "aten::exp.out"}
    kiln.torch.enable([])
    assert not taken()
    kiln.torch.disable()
    kiln.torch.disable()
    assert not taken()


def test_nesting_restores():
    with kiln.torch.enabled(["add"]):
        outer = taken()
        with kiln.torch.enabled("all"):
            assert len(taken()) > 100
            with pytest.raises(KeyError), kiln.torch.enabled([]):
                assert not taken()
                raise KeyError
            assert len(taken()) > 100
        assert taken() == outer
        with pytest.raises(ValueError), kiln.torch.enabled(["nonsense"]):
            pass
        assert taken() == outer
    assert not taken()


@pytest.mark.parametrize("which, error, said", [
    (["ad"], ValueError, "Kiln serves no operator 'ad'; did you mean add"),
    (["add.Tensr"], ValueError, "did you mean add.Tensor"),
    (["zzzz"], ValueError, "Kiln serves no operator 'zzzz'$"),
    (["square"], ValueError, "square cannot be taken: PyTorch computes it, and its gradient, by other operators"),
    ("add", ValueError, "which must be 'default', 'all' or a list of names, not 'add'"),
    (None, TypeError, "which must be 'default', 'all' or a list of names, not None"),
    ([3], TypeError, "an operator's name must be str, not 3")])
def test_wrong_names(which, error, said):
    with kiln.torch.enabled(["sin"]):
        before = taken()
        with pytest.raises(error, match=said):
            kiln.torch.enable(which)
        assert taken() == before


def test_inside_a_trace():
    def function(x):
        kiln.torch.enable("all")
        return x + 1
    with pytest.raises(RuntimeError, match="cannot be called inside a trace"):
        torch.jit.trace(function, (torch.ones(2),))
    assert not taken()
    with kiln.torch.enabled([]):  # torch.compile leaves the function to Python
        assert torch.compile(function, backend="eager")(torch.ones(2)).tolist() == [2, 2]


def test_the_dispatcher_is_as_it_was():
    with kiln.torch.enabled("all"):
        names = sorted(taken())
    before = [torch._C._dispatch_dump(name) for name in names]
    tables = [torch._C._dispatch_dump_table(name) for name in names]
    with kiln.torch.enabled("all"):
        assert "CPU: kiln" in torch._C._dispatch_dump("aten::add.Tensor")
    assert [torch._C._dispatch_dump(name) for name in names] == before
    assert [torch._C._dispatch_dump_table(name) for name in names] == tables


def test_other_overrides():
    """Kernels that somebody else registers, before and after Kiln's, get the calls that they would get."""
    library = torch.library.Library("aten", "IMPL")
    try:
        with kiln.torch.enabled(["neg"]):
            assert torch.neg(torch.ones(1)).item() == -1
        library.impl("neg", lambda x: x * 0 + 5, "CPU")
        assert torch.neg(torch.ones(1)).item() == 5
        with kiln.torch.enabled(["neg"]):
            assert torch.neg(torch.ones(1)).item() == -1
            assert torch.ops.aten.neg(torch.ones(1).to(torch.float8_e5m2).float()).item() == -1
            assert torch.neg(torch.ones(1, dtype=torch.complex32)).real.float().item() == 5, "handed back to the newest kernel"
        assert torch.neg(torch.ones(1)).item() == 5
    finally:
        library._destroy()
    assert torch.neg(torch.ones(1)).item() == -1


# -- errors of calls -----------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("code", [
    lambda: torch.add(torch.ones(3), torch.ones(4)), lambda: torch.ones(3).add_(torch.ones(2, 3)),
    lambda: torch.ones(3, dtype=torch.int32).add_(0.5), lambda: torch.sum(torch.ones(3), 4), lambda: torch.exp("x"),
    lambda: torch.bitwise_not(torch.ones(2)), lambda: torch.add(torch.ones(2), torch.ones(2), alpha=1j),
    lambda: torch.add(torch.ones(2, dtype=torch.bool), True, alpha=2.5), lambda: torch.div(torch.ones(2), 2, rounding_mode="up"),
    lambda: torch.ones(3).requires_grad_().add_(1), lambda: torch.neg(torch.ones(2) > 0), lambda: torch.clamp(torch.ones(2)),
    lambda: torch.exp(torch.ones(2), out=torch.ones(2, dtype=torch.int64)), lambda: torch.amax(torch.empty(0, 2), 0),
    lambda: torch.polygamma(-1, torch.ones(2)), lambda: torch.ops.aten.add.Tensor(torch.ones(2)),
    lambda: torch.sum(torch.ones(2, 2), (0, 0)), lambda: torch.add(torch.ones(2), 2**70)])
def test_errors_are_pytorchs(code):
    native = outcome(code)
    with kiln.torch.enabled("all"):
        ours = outcome(code)
    assert native.error is not None
    assert differ(ours, native) is None


# -- bridges and compilers -----------------------------------------------------------------------------------------------

PLACES = """if True:
    import os, shutil, sys, torch
    from pathlib import Path
    import kiln, kiln.torch
    from kiln.torch import _build
    bridge, beside = _build.HERE / _build.name(), Path({beside!r})
    beside.mkdir(exist_ok=True)
    _build.HERE, kiln.torch._loaded = beside, False  # where the module looks first
    os.environ["KILN_CACHE_DIR"] = {cache!r}
    def refused(*said):
        try:
            kiln.torch.enable("all")
        except RuntimeError as error:
            assert all(part in str(error) for part in said), error
            assert torch.ones(2).add(1).tolist() == [2, 2]
        else:
            raise AssertionError("it was loaded")
    REBUILD = "run  python -m kiln.torch build"
"""


@pytest.fixture
def places(run_torch, tmp_path):
    """Runs code where the module's own folder and the cache folder are empty."""
    def run(code, exits=0):
        head = PLACES.format(beside=str(tmp_path / "beside"), cache=str(tmp_path / "cache"))
        return run_torch(f"{head}{code}", exits)
    return run


def test_no_bridge(places):
    places("""
    refused("there is no bridge for PyTorch " + torch.__version__, REBUILD)
    """)


def test_bridge_of_another_version(places):
    places("""
    (beside / _build.name()).write_text("not a shared object")
    refused("cannot load", _build.name(), REBUILD)
    shutil.copy(kiln._kiln.__file__, beside / _build.name())  # a shared object, and no bridge
    refused("is no bridge of this version of Kiln", REBUILD)
    real, torch.__version__ = torch.__version__, "2.99.1+cpu"
    shutil.copy(bridge, beside / _build.name())
    refused("was built for PyTorch " + real.split("+")[0], "this is 2.99.1", REBUILD)
    torch.__version__ = "2.9.1"
    refused("needs PyTorch 2.10 or later, and this is 2.9.1")
    """)


def test_rebuilding_helps(places):
    """A bridge beside the module that is refused does not hide the one that the advice builds."""
    places("""
    (beside / _build.name()).write_text("left by another version")
    _build.folder().mkdir(parents=True, mode=0o700)
    shutil.copy(bridge, _build.folder())
    kiln.torch.enable("all")
    assert torch.ones(2).add(1).tolist() == [2, 2]
    assert any(row.served for row in kiln.torch.status().rows)
    """)


def test_bridge_that_others_could_write(places):
    places("""
    folder = _build.folder()
    folder.mkdir(parents=True)
    shutil.copy(bridge, folder)
    for path, mode in ((folder, 0o777), (folder, 0o770), (folder / _build.name(), 0o666)):
        before = path.stat().st_mode
        path.chmod(mode)
        refused(str(path), "can be written by others")
        path.chmod(before)
    kiln.torch.enable("all")
    """)


MAIN = """
    import runpy
    sys.argv = ["kiln.torch", "build"]
    runpy.run_module("kiln.torch", run_name="__main__")
"""


def test_build(places, tmp_path):
    """The whole way but for the compiler, which would take long: this one copies what was compiled before."""
    compiler = tmp_path / "compiler"
    compiler.write_text(f"#!/bin/sh\nfor last; do :; done\ncp {_build.HERE / _build.name()} \"$last\"\n")
    compiler.chmod(0o755)
    said = places(f"""
    os.environ["CXX"] = "{compiler} -DX='a b'"
    {MAIN}
    folder = _build.folder()
    assert [path.name for path in folder.iterdir()] == [_build.name()]
    assert folder.stat().st_mode & 0o777 == 0o700
    kiln.torch.enable("all")
    """)
    assert said.strip().endswith(_build.name())


def test_build_without_a_compiler(places):
    said = places(f"""
    os.environ["PATH"] = ""
    os.environ.pop("CXX", None)
    {MAIN}
    """, exits=1)
    assert said == "kiln.torch: there is no C++ compiler: install g++, or name one in CXX\n"


def test_build_that_fails(places):
    said = places(f"""
    os.environ["CXX"] = "false"
    try:
        {MAIN.strip().replace(chr(10), chr(10) + '    ')}
    finally:
        print([path.name for path in _build.folder().iterdir()])
    """, exits=1)
    assert "kiln.torch: the C++ compiler failed" in said and said.startswith("[]")


def test_folder_that_cannot_be_written(places, tmp_path):
    (tmp_path / "cache").write_text("a file where a folder should be")
    said = places(MAIN, exits=1)
    assert re.fullmatch(r"kiln.torch: cannot write into .*/cache/torch: .*\n", said), said


def test_without_torch():
    code = """if True:
        import sys
        sys.modules["torch"] = None
        import kiln
        assert "aten::add.Tensor" in kiln.ops()
        try:
            import kiln.torch
        except ModuleNotFoundError as error:
            print(error.name)
    """
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=100)
    assert (done.returncode, done.stdout.strip()) == (0, "torch"), done.stderr


def test_no_compiler_for_kernels(run_torch):
    run_torch("""if True:
        import os
        os.environ["KILN_CC"] = "/nonexistent"
        import torch, kiln, kiln.torch
        want = torch.arange(1000.0).exp().add(1)
        kiln.torch.enable("all")
        for _ in range(100):
            torch.testing.assert_close(torch.arange(1000.0).exp().add(1), want)
        assert {r.operator: r.served for r in kiln.torch.status().rows}["aten::exp"] == 100
    """)


# -- changes while operators are taken -------------------------------------------------------------------------------------

def test_configure():
    x = torch.ones(5)
    with kiln.torch.enabled("all"):
        before = taken()
        for mode in ("sync", "interp", "tiered"):
            kiln.configure(mode=mode)
            assert torch.add(x, 1).tolist() == [2] * 5
            assert kiln.last_tier() == ("compiled" if mode == "sync" else "interp")
        assert taken() == before
    kiln.configure(mode="default")


def test_rows_that_change(run_torch):
    run_torch("""if True:
        import torch, kiln, kiln.torch
        def taken():
            return {row.operator for row in kiln.torch.status().rows if row.taken}
        x = torch.ones(2)
        assert "aten::zero" not in kiln.ops()
        kiln.load_ops("map zero(Tensor self) -> Tensor : takes real = self + 6")
        kiln.torch.enable(["zero", "sin"])
        assert torch.ops.aten.zero(x).tolist() == [7, 7]
        kiln.load_ops("map zero(Tensor self) -> Tensor : takes real = self + 8", replace=True)
        assert torch.ops.aten.zero(x).tolist() == [9, 9]
        kiln.torch.enable(["sin"])
        kiln.load_ops("map zero(Tensor self) -> Tensor : takes real = self + 1", replace=True)
        assert torch.ops.aten.zero(x).tolist() == [0, 0]
        kiln.torch.enable(["zero"])
        assert torch.ops.aten.zero(x).tolist() == [2, 2] and "aten::zero" in taken() and "aten::sin" not in taken()
        kiln.configure(mode="sync")
        assert torch.ops.aten.zero(x).tolist() == [2, 2]
        kiln.torch.disable()
        assert torch.ops.aten.zero(x).tolist() == [0, 0]
    """)


STRESS = """if True:
    import ctypes, random, sys, threading, time
    import torch, kiln, kiln.torch
    {before}
    from kiln import _kiln
    torch.set_num_threads(1)
    sys.setswitchinterval(1e-5)
    x, ends, wrong, calls = torch.randn(8, 8), time.monotonic() + {seconds}, [], []
    want, error = torch.add(x, x), ""
    def call():
        n = 0
        while time.monotonic() < ends:
            for _ in range(50):
                if not torch.equal(torch.add(x, x), want):
                    wrong.append("another sum")
                try:
                    torch.add(x, torch.ones(3))
                    wrong.append("no error")
                except RuntimeError as e:
                    if "must match the size" not in str(e):
                        wrong.append(str(e))
            n += 100
        calls.append(n)
    def change():
        k = 0
        while time.monotonic() < ends:
            kiln.torch.enable(["add.Tensor", "mul.Tensor"])
            for _ in range(200):
                _kiln.bridge_drop("aten::add.Tensor")
                _kiln.bridge_take("aten::add.Tensor")
            if k % 8 == 0:
                kiln.configure(mode=random.choice(["tiered", "interp"]))
            kiln.torch.status()
            kiln.torch.disable()
            k += 1
        calls.append(k)
    threads = [threading.Thread(target=f) for f in (call, call, call, change)]
    for t in threads: t.start()
    for t in threads: t.join()
    assert not wrong, wrong[:3]
    assert len(calls) == 4 and all(calls), calls
    assert "CPU: kiln" not in torch._C._dispatch_dump("aten::add.Tensor")
"""


@pytest.mark.parametrize("before", ["", "ctypes.CDLL(None).mallopt(-6, 170)  # M_PERTURB: freed memory is overwritten"])
def test_threads_that_call_while_others_change(run_torch, before):
    assert run_torch(STRESS.format(before=before, seconds=3)) == ""


def test_threads_that_end():
    """Threads by the hundred leave nothing behind, and what they counted stays."""
    def resident():
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def run(n):
        for _ in range(n):
            thread = threading.Thread(target=lambda: torch.exp(x))
            thread.start()
            thread.join()
    x = torch.ones(3)
    with kiln.torch.enabled(["exp"]):
        def served():
            return {row.operator: row.served for row in kiln.torch.status().rows}["aten::exp"]
        run(20)
        before, counted = resident(), served()
        run(1000)
        assert served() == counted + 1000
        assert resident() - before < 12 << 20


def test_thread_that_dies_in_a_call():
    def die():
        torch.add(torch.ones(3), torch.ones(4))
    with kiln.torch.enabled("all"):
        seen = []
        before, threading.excepthook = threading.excepthook, lambda args: seen.append(args.exc_type)
        try:
            threads = [threading.Thread(target=die) for _ in range(8)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        finally:
            threading.excepthook = before
        assert seen == [RuntimeError] * 8
        assert torch.add(torch.ones(3), 1).tolist() == [2] * 3


@pytest.mark.skipif(not SANITIZED, reason="nobody looks at accesses")
def test_planted_use_after_free(run_torch):
    """The bridge is given a table of functions in memory that was freed: AddressSanitizer must see the bridge read it."""
    said = run_torch("""if True:
        import ctypes, torch, kiln, kiln.torch
        from kiln.torch import _build
        kiln.torch.enable(["neg"])
        libc, bridge = ctypes.CDLL(None), ctypes.CDLL(str(next(_build.found())))
        libc.malloc.restype, bridge.kiln_torch_bridge.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
        libc.free.argtypes = [ctypes.c_void_p]
        freed = libc.malloc(1000)
        libc.free(freed)
        bridge.kiln_torch_bridge(freed)
        torch.neg(torch.ones(3))
    """, exits=1)
    assert "heap-use-after-free" in said and re.search("#0 .*torch_bridge.cpp", said), said


# -- the end ---------------------------------------------------------------------------------------------------------------

def test_end_while_kernels_are_compiled(run_torch, tmp_path):
    said = run_torch(f"""if True:
        import os
        os.environ["KILN_CACHE_DIR"] = {str(tmp_path)!r}
        import torch, kiln, kiln.torch
        kiln.configure(mode="tiered")
        kiln.torch.enable("all")
        x = torch.arange(1.0, 9.0)
        kept = [getattr(torch, name)(x) for name in ("exp", "sin", "cos", "tan", "log", "sqrt", "erf", "lgamma", "digamma")]
    """)
    assert said == ""


def test_end_by_an_exception(run_torch):
    said = run_torch("""if True:
        import torch, kiln, kiln.torch
        with kiln.torch.enabled("all"):
            kept = torch.exp(torch.ones(3))
            torch.add(kept, torch.ones(4))
    """, exits=1)
    assert said.rstrip().split("\n")[-1].startswith("RuntimeError: The size of tensor a (3) must match")


def test_enable_imports_little():
    """Beyond PyTorch itself: what define() needs of it would take longer than all the rest."""
    code = ("import sys, torch; before = set(sys.modules); import kiln.torch; kiln.torch.enable(); "
            "print(*sorted({name.partition('.')[0] for name in set(sys.modules) - before}))")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=100, check=True)
    assert "kiln" in done.stdout.split() and not {"sympy", "torch"} & set(done.stdout.split())
