"""Several interpreters in one process, and memory of Python's that is let go on threads Python knows nothing of.

Each test runs in a process of its own: NumPy is loaded by one interpreter of a process only.  An interpreter with a GIL of
its own (Python 3.12 and later) must refuse Kiln by an ImportError; every other interpreter must serve it.
"""
import pytest

# sub(CODE): runs it in another interpreter, which then ends.
START = """
import _xxsubinterpreters as interpreters
def sub(code):
    it = interpreters.create(isolated=False)
    interpreters.run_string(it, "import warnings\\nwarnings.simplefilter('ignore')\\n" + code)
    interpreters.destroy(it)
"""

# Arrays that say when they are gone.
WATCHED = """
import gc, weakref, numpy as np, kiln
class Array(np.ndarray): pass
def watched(n=3):
    a = np.ones(n).view(Array)
    return a, weakref.ref(a)
"""

INSIDE = {
    "a tensor": """
a, ref = watched()
t = kiln.Tensor(a)
del a
assert ref() is not None and (t + 1).tolist() == [2, 2, 2]
del t
assert ref() is None""",
    "views": """
a, ref = watched()
t = kiln.Tensor(a)[1:][:1]
del a
gc.collect()
assert ref() is not None and t.tolist() == [1]
del t
assert ref() is None""",
    "another library's view": """
a, ref = watched()
t = np.from_dlpack(kiln.Tensor(a))
del a
assert ref() is not None and t.tolist() == [1, 1, 1]
del t
kiln.Tensor([1.0])  # whatever comes next
assert ref() is None""",
    "a capsule nobody used": """
a, ref = watched()
for version in (None, (1, 0)):
    capsule = kiln.Tensor(a).__dlpack__(max_version=version)
    del capsule
del a
kiln.Tensor([1.0])
assert ref() is None""",
    "in lists": """
a, ref = watched()
assert kiln.Tensor([a, a]).shape == (2, 3)
del a
kiln.Tensor([1.0])
assert ref() is None""",
    "calls": """
a, ref = watched()
assert kiln.call("add", a, np.float64(1)).tolist() == [2, 2, 2] and kiln.call("neg_", a) is a
assert kiln.call("neg", a, out=np.empty(3)).tolist() == [1, 1, 1] and (kiln.Tensor(a) * a).numpy().tolist() == [1, 1, 1]
del a
assert ref() is None""",
    "threads": """
import threading
def work():
    for _ in range(200):
        a, ref = watched(10_000)
        t = kiln.Tensor(a)
        del a
        assert kiln.call("exp", t).numpy()[-1] > 2
        del t
        assert ref() is None
    done.append(1)
done = []
threads = [threading.Thread(target=work) for _ in range(3)]
for t in threads: t.start()
for t in threads: t.join()
assert len(done) == 3""",
    "what is left at the end": """
kept = [kiln.Tensor(watched()[0]), np.from_dlpack(kiln.Tensor(watched()[0])), kiln.op("neg")]
cycle = [kiln.Tensor(watched()[0])]
cycle.append(cycle)
np.kept = kept""",
}


@pytest.mark.parametrize("what", INSIDE)
def test_in_a_second_interpreter(run_python, what):
    assert run_python(START + f"sub({WATCHED + INSIDE[what]!r})\nprint('end')") == "end\n"


@pytest.mark.parametrize("what", INSIDE)
def test_in_the_first_interpreter(run_python, what):
    assert run_python(WATCHED + INSIDE[what] + "\nprint('end')") == "end\n"


def test_interpreters_take_turns(run_python):
    """Each has its own module, context and settings; memory that one lets go is not dropped by another."""
    assert run_python(START + """
import kiln
kiln.configure(mode="interp")
code = '''
import kiln
t = kiln.Tensor([1.0, 2.0])
for k in range(50): t = t + 1
assert t.tolist() == [51, 52] and kiln.stats()["calls"] == 50
'''
first = interpreters.create(isolated=False)
interpreters.run_string(first, '''
import warnings
warnings.simplefilter("ignore")
import numpy as np, kiln
kept = np.from_dlpack(kiln.Tensor(np.ones(3)))
''')
for _ in range(3):
    sub(code)
    x = kiln.Tensor([1.0]) + 1
    assert x.item() == 2
    interpreters.run_string(first, "del kept; kept = np.from_dlpack(kiln.Tensor(np.ones(3)))")
    x = x + 1
interpreters.run_string(first, "x = kiln.Tensor(kept); assert (x + x).tolist() == [2, 2, 2]")
interpreters.destroy(first)
assert kiln.call("neg", x).tolist() == [-3]
print("end")
""") == "end\n"


# -- Kiln alone: no interpreter has NumPy or PyTorch ---------------------------------------------------------------------

# sub(CODE): runs it in another interpreter, which then ends; the same in parts: create, run, end.  ISOLATED: of which kind.
# An isolated interpreter of Python 3.12 or later has a GIL of its own; one of Python 3.11 may not fork.
ANY_KIND = """
import sys
try:
    import _interpreters as interpreters
    def create(): return interpreters.create("isolated" if ISOLATED else "legacy")
except ImportError:
    import _xxsubinterpreters as interpreters
    def create(): return interpreters.create(isolated=ISOLATED)
OWN_GIL = ISOLATED and sys.version_info >= (3, 12)
def run(it, code):
    error = interpreters.run_string(it, "import warnings\\nwarnings.simplefilter('ignore')\\n" + code)
    assert error is None, error
end = interpreters.destroy
def sub(code):
    it = create()
    run(it, code)
    end(it)
"""

ALONE = {
    "calls": """
import sys, kiln
t = kiln.Tensor([[1.0, 2.0], [3.0, 4.0]])
assert (t + t).tolist() == [[2, 4], [6, 8]] and kiln.call("sum", t, [0]).tolist() == [4, 6] and kiln.op("neg")(t)[0].tolist() == [-1, -2]
assert kiln.call("add", self=t, other=t, alpha=2)[1].tolist() == [9, 12]
out = kiln.Tensor([0.0, 0.0])
assert kiln.call("mul", t[0], 3, out=out) is out and out.tolist() == [3, 6]
assert not {"torch", "numpy"} & set(sys.modules)""",
    "rows": """
import kiln
kiln.load_ops("map my::twice(Tensor x) -> Tensor : takes float = x + x")
t = kiln.Tensor([1.0, 2.0])
held = kiln.op("my::twice")
assert held(t).tolist() == [2, 4]
kiln.load_ops("map my::twice(Tensor x) -> Tensor : takes float = x + x + x", replace=True)
assert kiln.call("my::twice", t).tolist() == [3, 6] and held(t).tolist() == [3, 6]
kiln.configure(mode="interp")
assert held(t).tolist() == [3, 6]""",
    "errors": """
import kiln
t, u = kiln.Tensor([1.0, 2.0]), kiln.Tensor([1.0, 2.0, 3.0])
for error, name, args in ((NotImplementedError, "no_such_operator", ()), (TypeError, "add", ()), (RuntimeError, "add", (t, u)),
                          (TypeError, "exp", ("x",)), (IndexError, "sum", (t, [7]))):
    try:
        kiln.call(name, *args)
    except error as e:
        assert str(e)
    else:
        raise AssertionError(name)
try:
    kiln.load_ops("nonsense")
except RuntimeError as e:
    assert str(e)
else:
    raise AssertionError("nonsense was loaded")""",
    "an exception that is kept": """
import kiln
kept = kiln.Tensor([1.0]) + 1
try:
    kiln.call("add", kept)
except TypeError as e:
    error = e  # its frame holds the module, and the module holds it""",
    "compiled code": """
import kiln
t = kiln.Tensor([1.0, 2.0])
for mode in ("sync", "tiered"):
    kiln.configure(mode=mode)
    for k in range(100):
        assert 2.7 < kiln.call("exp", t)[0].item() < 2.8
kiln.wait_idle()""",
    "compilers that run when it ends": """
import kiln
kiln.configure(mode="tiered")
kept = [kiln.call(name, kiln.Tensor([0.5])) for name in ("exp", "sin", "cos", "tan", "log", "sqrt", "erf") for _ in range(20)]""",
}

REFUSED = """
try:
    import kiln
except ImportError as e:
    assert "does not support loading in subinterpreters" in str(e), e
else:
    raise AssertionError("kiln was imported")
"""

kinds = pytest.mark.parametrize("isolated", [False, True], ids=["legacy", "isolated"])


@kinds
@pytest.mark.parametrize("what", ALONE)
def test_alone(run_python, what, isolated):
    """Before the main interpreter has Kiln, twice, and while it has."""
    assert run_python(f"ISOLATED = {isolated}\n{ANY_KIND}" + f"""
code = {REFUSED!r} if OWN_GIL else {ALONE[what]!r}
sub(code)
sub(code)
import kiln
x = kiln.Tensor([1.0]) + 1
sub(code)
assert (x + 1).tolist() == [3] and not {{"torch", "numpy"}} & set(sys.modules)
print("end")
""") == "end\n"


ENDING = """
import threading, time, kiln
t, over, wrong = kiln.Tensor([1.0, 2.0]), threading.Event(), []
def call():
    while not over.is_set():
        if (t + 1).tolist() != [2, 3]: wrong.append(1)
        time.sleep(0.0002)  # in Python 3.11 no interpreter asks another one for the GIL, so it must be free for a while
thread = threading.Thread(target=call, daemon=True)
thread.start()
BEGIN = '''
import kiln
kiln.load_ops("map my::own(Tensor x) -> Tensor : takes float = x + {k}")
kept = [kiln.Tensor([1.0, 2.0]), kiln.op("my::own")]
kept.append(kept[1](kept[0]))
'''
GO_ON = '''
assert kept[1](kept[0]).tolist() == [1 + {k}, 2 + {k}] == kept[2].tolist()
for n in range(20): kiln.call("neg", kept[0])
'''
alive = {}
for k in range(6):
    alive[k] = create()
    run(alive[k], BEGIN.format(k=k))
for ending in (3, 0, 5, 1):
    end(alive.pop(ending))
    for k, it in alive.items(): run(it, GO_ON.format(k=k))
over.set()
thread.join()
for it in alive.values(): end(it)
assert not wrong and (t + t).tolist() == [2, 4]
try:
    kiln.call("my::own", t)
except NotImplementedError:
    print("end")
"""


@kinds
def test_ends_while_others_go_on(run_python, isolated):
    """Interpreters end in another order than they began, while a thread of the main one calls all the time; none sees rows of another."""
    program = f"if OWN_GIL:\n    sub({REFUSED!r})\n    print('end')\n    sys.exit()\n{ENDING}"
    assert run_python(f"ISOLATED = {isolated}\n{ANY_KIND}{program}") == "end\n"


def test_interpreters_left_at_the_end(run_python):
    assert run_python(f"ISOLATED = False\n{ANY_KIND}" + f"""
import kiln
for k in range(3):
    run(create(), {ALONE["compilers that run when it ends"]!r})
print("end")
""") == "end\n"


@pytest.mark.parametrize("name", ["torch", "fx"])
@pytest.mark.parametrize("before", ["", "import torch, kiln.torch"], ids=["alone", "beside PyTorch in the main one"])
def test_pytorch_is_refused(run_python, name, before):
    """PyTorch itself crashes in a second interpreter."""
    assert run_python(f"{START}{before}\nsub('''" + f"""
import kiln
for load in (lambda: __import__("kiln.{name}"), lambda: kiln.{name}):
    try:
        load()
    except ImportError as error:
        assert str(error) == "kiln.{name} cannot be imported in a subinterpreter: PyTorch works in the main interpreter only", error
    else:
        raise AssertionError("imported")
assert kiln.call("neg", kiln.Tensor([1.0])).tolist() == [-1]
''')
print("end")
""") == "end\n"


def test_settings_of_another_interpreter_are_not_pytorchs(run_torch):
    """What the main interpreter took and defined stays as it is when another one configures Kiln and loads rows."""
    assert run_torch(START + """
import torch, kiln, kiln.torch
kiln.torch.enable(["add"])
square = kiln.torch.define("my::square", "map my::square(Tensor x) -> Tensor : takes float = x * x")
kiln.configure(mode="interp")
sub('''
import kiln
kiln.configure(mode="frozen")
kiln.load_ops("map my::other(Tensor x) -> Tensor : takes float = x + x")
assert kiln.call("my::other", kiln.Tensor([1.0])).tolist() == [2]
''')
before = kiln.stats()["calls"]
assert torch.add(torch.ones(2), 1).tolist() == [2, 2] and square(torch.tensor([3.0])).tolist() == [9]
assert kiln.stats()["calls"] == before + 2
print("end")
""") == "end\n"


# let_go(tensor): the last reference to its memory goes on a thread that has not got the GIL, as a C library's would.
WITHOUT = WATCHED + """
import ctypes, threading
class Managed(ctypes.Structure):
    _fields_ = [("version", ctypes.c_uint64), ("context", ctypes.c_void_p), ("deleter", ctypes.CFUNCTYPE(None, ctypes.c_void_p))]
take = ctypes.pythonapi.PyCapsule_GetPointer
take.restype, take.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
rename = ctypes.pythonapi.PyCapsule_SetName
rename.argtypes = [ctypes.py_object, ctypes.c_char_p]
USED = b"used_dltensor_versioned"
ctypes.pythonapi.Py_IncRef(ctypes.py_object(USED))  # a capsule keeps its name's address, and may go after this name has
def let_go(capsule):
    address = take(capsule, b"dltensor_versioned")
    rename(capsule, USED)
    thread = threading.Thread(target=Managed.from_address(address).deleter, args=(address,))  # ctypes gives up the GIL
    thread.start()
    thread.join()
"""


def test_memory_let_go_without_the_gil(run_python):
    """It is dropped soon, whether Kiln is used again or not."""
    assert run_python(WITHOUT + """
for _ in range(100):  # more than Python remembers to call
    a, ref = watched()
    capsule = kiln.Tensor(a).__dlpack__(max_version=(1, 0))
    del a
    assert ref() is not None
    let_go(capsule)
    for _ in range(3): pass
    assert ref() is None
print("end")
""") == "end\n"


def test_memory_let_go_after_the_end(run_python):
    run_python(WITHOUT + """
import atexit
capsules = [kiln.Tensor(watched()[0]).__dlpack__(max_version=(1, 0)) for _ in range(3)]
atexit.register(lambda: let_go(capsules.pop()))
class Late:
    def __del__(self, let_go=let_go, capsules=capsules): capsules.pop()
np.late = Late()
""")


def test_a_log_is_given_in_the_main_interpreter(run_python):
    run_python(START + """
import kiln, numpy as np
said = []
kiln.configure(mode="sync", log=lambda *message: said.append(message))
sub('''
import kiln
try:
    kiln.configure(log=print)
except RuntimeError as error:
    assert str(error) == "a log is given in the main interpreter only"
else:
    raise AssertionError
kiln.configure(mode="sync")
kiln.call("neg", kiln.Tensor([1.0]))
''')
kiln.wait_idle()
assert [m[0] for m in said] == [3, 2]
""")
