"""Threads that call, enable, disable, define and configure at the same time, each program in a process of its own.

ThreadSanitizer judges them where it is preloaded (tools/py_sanitized.sh tsan): a data race in the library, the module or the
bridge ends the process with an exit status of its own.  Without it, these programs still show crashes and wrong results.
PyTorch's loops must run on their caller's thread, because ThreadSanitizer cannot see the barriers of libgomp.  Races planted
here must be seen.
"""
import os
import subprocess

import pytest

WATCHED = "TSAN_OPTIONS" in os.environ
ROUNDS = 60 if WATCHED else 10
RACED = 66  # the exit status of ThreadSanitizer

# threads(F, ...): runs each function on a thread of its own, over and over, until the first of them has made its rounds.
HEAD = f"""
import sys, threading
import torch, kiln, kiln.torch
torch.set_num_threads(1)
sys.setswitchinterval(1e-5)
def threads(*functions):
    over, wrong, begin = threading.Event(), [], threading.Barrier(len(functions))
    def repeat(f, first):
        begin.wait()
        k = 0
        try:
            while k < {ROUNDS} if first else k < 3 or not over.is_set():
                f(k)
                k += 1
        except BaseException as e:
            wrong.append(e)
            raise
        finally:
            if first: over.set()
    made = [threading.Thread(target=repeat, args=(f, k == 0)) for k, f in enumerate(functions)]
    for t in made: t.start()
    for t in made: t.join()
    assert not wrong, wrong
def refused(f, *args):
    try:
        f(*args)
    except RuntimeError:
        return
    raise AssertionError("no error")
x, y = torch.arange(1.0, 65).reshape(8, 8), torch.ones(8)
"""

CALLS = """
def call(k):
    for n in range(10):
        assert torch.add(x, y)[0, 0] == 2 and torch.sum(x).item() == 2080 and torch.mul(x, 2)[0, 1] == 4
        refused(torch.add, x, torch.ones(3))
def lists(k):
    a = [torch.ones(n) for n in (3, 4, 70)]
    torch._foreach_add_(a, 1)
    assert [t[0].item() for t in torch._foreach_mul(a, a)] == [4, 4, 4]
    out = torch.empty(0)
    assert torch.exp(torch.zeros(5), out=out) is out and out.tolist() == [1] * 5
def gradients(k):
    w = x.clone().requires_grad_()
    torch.sigmoid(w * w).sum().backward()
    assert w.grad.shape == x.shape
def direct(k):
    add = kiln.op("add")
    for n in range(10):
        assert kiln.call("add", x, y)[0, 0] == 2 and add(self=x, other=y)[0, 1] == 3
        refused(kiln.call, "add", x, torch.ones(3))
    assert (kiln.Tensor([1.0, 2.0]) * 3).tolist() == [3, 6]
"""

PROGRAMS = {
    "calls": """
kiln.torch.enable("all")
threads(call, call, lists, gradients, direct)
""",
    "enable and disable": """
def change(k):
    kiln.torch.enable(["add", "mul", "_foreach_add_", "sigmoid_backward"] if k % 2 else ["sum", "add.Tensor", "exp"])
    if k % 3 == 0: kiln.torch.disable()
    with kiln.torch.enabled("all" if k % 50 == 0 else ["mul"]): pass
threads(change, call, lists, gradients)
kiln.torch.disable()
""",
    "first calls": """
kiln.torch.enable("all")
names = ("acos", "asin", "atan", "ceil", "cosh", "digamma", "erfc", "erfinv", "exp2", "expm1", "floor", "frac", "i0", "lgamma", "log10", "log1p",
         "log2", "rsqrt", "sinh", "trunc")
def first(k):
    for name in names:
        assert getattr(torch.ops.aten, name)(x).shape == x.shape
def change(k):
    if k % 2: kiln.torch.disable()
    else: kiln.torch.enable("all")
threads(first, first, first, change)
kiln.torch.enable("all")
first(0)
served = {row.operator.removeprefix("aten::"): row.served for row in kiln.torch.status().rows}
assert all(served[name] for name in names), served
""",
    "configure": """
kiln.torch.enable("all")
def configure(k):
    if k % 5 == 0: kiln.configure(mode=("tiered", "interp", "frozen")[k // 5 % 3])
    kiln.stats()
    kiln.torch.status()
    kiln.trim()
threads(configure, call, lists, direct)
""",
    "compile": """
import tempfile
folder = tempfile.TemporaryDirectory()
kiln.configure(mode="tiered", cache_dir=folder.name)
kiln.torch.enable("all")
names = ("exp", "sin", "cos", "tan", "log", "sqrt", "erf", "neg")
def each(k):
    for name in names: getattr(torch, name)(x)
def wait(k):
    kiln.wait_idle()
threads(each, each, wait, call)
""",
    "rows": """
def load(k):
    kiln.load_ops(f"map my::row{k % 5}(Tensor x) -> Tensor : takes float = x * {k}", replace=True)
    assert kiln.call(f"my::row{k % 5}", x)[0, 0] == k
kiln.load_ops("map my::kept(Tensor x) -> Tensor : takes float = x + 1")
held = kiln.op("my::kept")
def kept(k):
    assert held(x)[0, 0] == 2 == kiln.call("my::kept", x)[0, 0]
threads(load, kept, kept, direct)
""",
    "define and configure": """
kiln.torch.enable(["add", "mul"])
def define(k):
    made = kiln.torch.define("my::f", f"map my::f(Tensor x) -> Tensor : takes float = x * {k % 7 + 1}", replace=True)
    assert made(y)[0] == k % 7 + 1 == kiln.call("my::f", y)[0], k
    kiln.load_ops(f"map my::g(Tensor x) -> Tensor : takes float = x + {k % 5}", replace=True)
    assert kiln.call("my::g", y)[0] == k % 5 + 1, k
def configure(k):
    kiln.configure(mode=("default", "interp")[k % 2])
threads(define, configure)
""",
    "forks": """
import os, time
kiln.torch.enable("all")
def status(k):
    kiln.torch.status()
def change(k):
    if k % 2: kiln.torch.disable()
    else: kiln.torch.enable("all")
    # A fork takes every lock, five for each context, and ThreadSanitizer ends a process in which a thread holds more than 64.
    if k < 8: kiln.configure(mode=("default", "interp")[k % 2])
def fork(k):
    child = os.fork()
    if child == 0:
        kiln.torch.status()
        kiln.torch.enable("all")
        kiln.load_ops("map my::f(Tensor x) -> Tensor : takes float = x + 1")
        os._exit(torch.add(y, y)[0] != 2 or kiln.call("my::f", y)[0] != 2)
    end = time.monotonic() + 60
    while not (ended := os.waitpid(child, os.WNOHANG))[0]:
        if time.monotonic() > end:
            os.kill(child, 9)
            os.waitpid(child, 0)
            raise AssertionError("a child hangs")
        time.sleep(0.001)
    assert ended[1] == 0, ended
threads(fork, status, change)
""",
    "define": """
kept = kiln.torch.define("my::kept", "map my::kept(Tensor x) -> Tensor : takes float = x * x")
def define(k):
    if k % 10 == 0:
        made = kiln.torch.define(f"my::new{k}", f"map my::new{k}(Tensor x) -> Tensor : takes float = x + {k}")
        assert made(x)[0, 0] == 1 + k
def use(k):
    w = x.clone().requires_grad_()
    kept(w).sum().backward()
    assert w.grad[0, 1] == 4 and torch.ops.my.kept(x)[0, 1] == 4 and kiln.call("my::kept", x)[0, 1] == 4
threads(define, use, use, call)
""",
    "threads that end": """
kiln.torch.enable("all")
def short(k):
    made = [threading.Thread(target=f, args=(k,)) for f in (call, lists)]
    for t in made: t.start()
    for t in made: t.join()
def status(k):
    kiln.torch.status()
threads(short, call, status)
""",
}


@pytest.mark.parametrize("what", PROGRAMS)
def test_threads(run_torch, what):
    assert run_torch(HEAD + CALLS + PROGRAMS[what] + "\nprint('end')") == "end\n"


# -- planted races ---------------------------------------------------------------------------------------------------------

watched = pytest.mark.skipif(not WATCHED, reason="nobody looks for races")


@watched
@pytest.mark.parametrize("write", ["torch.add(x, k, out=shared)", "kiln.call('add', x, k, out=shared)"], ids=["bridge", "module"])
def test_planted_in_a_tensor(run_torch, write):
    """Two threads write to one tensor: the library's loops race.  Compiled kernels are not instrumented."""
    said = run_torch(HEAD + f"""
kiln.configure(mode="interp")
kiln.torch.enable("all")
x = torch.ones(1000, 1000)
shared = torch.empty(1000, 1000)
def race(k):
    {write}
threads(race, race)
""", exits=RACED)
    assert "data race" in said and "kiln_interp_run" in said, said


@watched
def test_planted_in_the_bridge(run_torch, tmp_path):
    """The bridge is opened again, without the GIL, while calls use what opening it writes."""
    source, spy = tmp_path / "spy.c", tmp_path / "spy.so"
    source.write_text("const void *seen; const void *kiln_torch_bridge(const void *api) { seen = api; return 0; }")
    subprocess.run(["cc", "-shared", "-fPIC", "-o", spy, source], check=True, env={**os.environ, "LD_PRELOAD": ""})
    said = run_torch(HEAD + CALLS + f"""
import ctypes
from kiln import _kiln
from kiln.torch import _build
kiln.torch.enable("all")
try:
    _kiln.bridge_open({str(spy)!r})
except ImportError:
    api = ctypes.c_void_p.in_dll(ctypes.CDLL({str(spy)!r}), "seen")
again = ctypes.CDLL(str(next(_build.found()))).kiln_torch_bridge
again.restype = ctypes.c_void_p
def open_again(k):
    again(api)
threads(call, open_again)
""", exits=RACED)
    assert "data race" in said and "kiln_torch_bridge" in said, said
