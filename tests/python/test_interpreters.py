"""Several interpreters in one process, and memory of Python's that is let go on threads Python knows nothing of.

Each runs in a process of its own: NumPy is loaded by one interpreter of a process only.
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
