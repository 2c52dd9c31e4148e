"""Python code that runs while a call's arguments are converted: it frees their memory, changes them, or calls Kiln again.

What would crash runs in an interpreter of its own.
"""
import numpy as np
import pytest
import torch

import kiln

# N elements: memory that the system takes back at once.  `victims` are tensors and how to free their memory; `freeing` is
# called by the code of another argument.
START = """
import gc, threading, weakref
import numpy as np
import torch
import kiln

N = 400000
ones = torch.ones(N)
freeing = lambda: None

def resized(array):
    return array, lambda: array.resize(0, refcheck=False)

def victims():
    v = torch.ones(N)
    yield v, lambda: v.untyped_storage().resize_(0)
    w = torch.ones(N)
    yield w, lambda: w.set_(torch.ones(0))
    yield resized(np.ones(N, np.float32))
    yield resized(np.ones((1, 1, 1, 1, N), np.float32))
    yield resized(np.ones((2, N), np.float32, order="F").T)
    yield resized(np.ones(N, np.longlong))

class Pack:
    def __dlpack__(self, **kwargs):
        freeing()
        return ones.__dlpack__(**kwargs)

def each(call):
    # refused, or the victim is the empty tensor that it has become
    global freeing
    for victim, freeing in victims():
        try:
            out = call(victim)
        except (NotImplementedError, RuntimeError, TypeError, ValueError):
            continue
        assert tuple(out.shape) == (0,), out.shape
"""

# What stands beside the victim `v`.
BESIDE = {
    "dlpack": """
each(lambda v: kiln.call("add.Tensor", v, Pack()))
each(lambda v: kiln.call("add", v, Pack()))
each(lambda v: kiln.op("aten::add.out")(out=v, self=ones, other=Pack()))
each(lambda v: kiln.call("addcmul", v, v, Pack()))
""",
    "index": """
class Index:
    def __index__(self):
        freeing()
        return 2
each(lambda v: kiln.call("add.Tensor", v, ones, alpha=Index()))
each(lambda v: kiln.call("add", v, ones, alpha=Index()))
each(lambda v: kiln.call("pow.Tensor_Scalar", v, Index()))
""",
    "numpy scalar": """
class Number(np.float32):
    def item(self):
        freeing()
        return 2.0
    def __array__(self, dtype=None, copy=None):
        freeing()
        return np.array(2.0)
each(lambda v: kiln.call("add.Tensor", v, Number(2)))
each(lambda v: kiln.call("add.Tensor", v, ones, alpha=Number(2)))
""",
    "new type": """
class Meta(type):
    def __getattr__(cls, name):
        freeing()
        raise AttributeError(name)
for k in range(40):
    each(lambda v: kiln.call("add.Tensor", v, ones, alpha=Meta("New", (), {"__index__": lambda self: 2})()))
""",
    "torch method": """
class Sub(torch.Tensor):
    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        freeing()
        return super().__torch_function__(function, types, args, kwargs or {})
each(lambda v: kiln.call("add.Tensor", v, torch._neg_view(torch.ones(N)).as_subclass(Sub)))
""",
    "torch dispatch": """
class Sizes(torch.Tensor):
    __torch_function__ = torch._C._disabled_torch_function_impl
    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        freeing()
        name = function._schema.name
        return N if "numel" in name else 1 if name.endswith("dim") else (N,) if "size" in name else (1,) if "stride" in name else True
sizes = torch.Tensor._make_subclass(Sizes, torch.ones(N), False, dispatch_sizes_strides_policy="sizes")
assert (kiln.call("neg", sizes).as_subclass(torch.Tensor) == -1).all()
each(lambda v: kiln.call("add.Tensor", v, sizes))
each(lambda v: kiln.call("add.Tensor", sizes, v))
""",
    "before a write": """
class Inferred(torch.Tensor):
    def is_inference(self):
        freeing()
        return False
with torch.inference_mode():
    inferred = torch.ones(N).as_subclass(Inferred)
each(lambda v: kiln.call("add_.Tensor", inferred, v))
""",
    "autograd asked in Python": """
import kiln._helpers
kiln._helpers.torch_samples = lambda: None
class Graded(torch.Tensor):
    @property
    def requires_grad(self):
        freeing()
        return False
graded = torch.ones(N).as_subclass(Graded)
each(lambda v: kiln.call("add.Tensor", graded, v))
each(lambda v: kiln.call("add_.Tensor", graded, v))
""",
}


@pytest.mark.parametrize("code", BESIDE.values(), ids=BESIDE.keys())
def test_memory_freed_by_another_argument(run_torch, code):
    assert "done" in run_torch(START + code + "print('done')")


def test_an_argument_is_what_it_is_once_all_code_has_run():
    class Changing:
        def __dlpack__(self, **kwargs):
            torch_one.set_(torch.full((5,), 7.0))
            array.shape = (5, 1, 1, 1, 1)
            array[...] = 9
            kiln.call("add.out", torch.zeros(5), 3, out=own)
            return torch.ones(5).__dlpack__(**kwargs)

    torch_one, array, own = torch.ones(2, 3), np.ones(5, np.float32), kiln.Tensor([1.0])
    assert kiln.call("add", torch_one, Changing()).tolist() == [8.0] * 5
    array.shape = (5,)
    assert kiln.call("add", array, Changing()).reshape(-1)[:5].tolist() == [10.0] * 5
    assert kiln.call("add", kiln.Tensor([1.0]), Changing()).tolist() == [2.0] * 5
    own = kiln.Tensor([1.0])
    assert kiln.call("add", own, Changing()).tolist() == [4.0] * 5
    out = torch.zeros(5)
    assert kiln.op("aten::add.out")(out=out, self=torch_one, other=Changing()) is out and out.tolist() == [8.0] * 5


NESTED = """
import sys, threading
import torch
import kiln

depth, wanted = 0, 10**9

class Inner:
    def __dlpack__(self, **kwargs):
        global depth
        depth += 1
        try:
            if depth == wanted:
                return torch.ones(3).__dlpack__(**kwargs)
            return make(self).__dlpack__(**kwargs)
        finally:
            depth -= 1
"""


WAYS = ["kiln.call('neg', s)", "kiln.op('aten::neg')(s)", "kiln.Tensor(s)", "kiln.call('add', 1, s)", "-kiln.Tensor([1.0]) + s"]


def test_calls_inside_calls_end_in_an_exception(run_torch):
    code = NESTED + f"""
def run():
    for limit in 1000, 100000:
        sys.setrecursionlimit(limit)
        try:
            make(Inner())
        except RecursionError:
            print("done", depth)
for way in {WAYS}:
    print(way, flush=True)
    make = eval("lambda s: " + way)
    run()
    for size in 256, 512, 4096:
        threading.stack_size(size * 1024)
        thread = threading.Thread(target=run)
        thread.start()
        thread.join()
"""
    assert run_torch(code).splitlines() == [line for way in WAYS for line in [way] + ["done 0"] * 8]


def test_some_calls_inside_calls_are_served(run_torch):
    code = NESTED + """
make, wanted = lambda s: kiln.call("neg", s), 100
print(make(Inner()).tolist())
threading.stack_size(256 * 1024)
wanted = 5
thread = threading.Thread(target=lambda: print(make(Inner()).tolist()))
thread.start()
thread.join()
"""
    assert run_torch(code) == "[1.0, 1.0, 1.0]\n[-1.0, -1.0, -1.0]\n"


# -- what other code can do meanwhile ------------------------------------------------------------------------------

def test_an_index_that_resizes_the_tensor(run_torch):
    code = """
import torch
import kiln
class Index:
    def __index__(self):
        kiln.call("neg.out", torch.ones(1, 2000000), out=t)
        return 999
t = kiln.Tensor([2.0] * 1000)
print(t[Index()].tolist())
t = kiln.Tensor([[2.0] * 1000] * 3)
print(t[2, Index()].tolist(), t.shape)
"""
    assert run_torch(code) == "2.0\n2.0 (1, 2000000)\n"


def test_a_list_is_of_the_tensor_as_it_was(run_torch):
    code = """
import gc
import torch
import kiln
class Cycle:
    def __init__(self):
        self.me = self
    def __del__(self):
        kiln.call("neg.out", torch.ones(2000, 4000), out=t)
t = kiln.Tensor(torch.ones(2000, 2)).copy()
gc.collect()
gc.set_threshold(50)
Cycle()
lists = t.tolist()
gc.collect()
print(len(lists), {len(row) for row in lists}, t.shape)
"""
    assert run_torch(code) == "2000 {2} (2000, 4000)\n"


def test_views_of_views_have_no_depth(run_python):
    code = """
import numpy as np
import kiln
x, fixed = kiln.Tensor([1.0, 2.0]), np.arange(4.0)
fixed.setflags(write=False)
y = kiln.Tensor(fixed)
for _ in range(300000):
    x, y = x[:], y[:]
print(x.tolist(), y.tolist(), y.readonly)
del x, y
"""
    assert run_python(code) == "[1.0, 2.0] [0.0, 1.0, 2.0, 3.0] True\n"


def test_keywords_whose_end_calls_the_operator():
    class Word(str):
        __hash__ = str.__hash__

        def __del__(self):
            add(self=t, other=t)

    add, t = kiln.op("aten::add.Tensor"), torch.ones(3)
    for _ in range(3):
        add(**{Word("self"): t, Word("other"): t, Word("alpha"): 2})
        assert add(other=5 * t, self=t, alpha=3).tolist() == [16.0] * 3


def test_deleters_do_not_meet_a_calls_exception():
    import test_dlpack_faults
    for other, error in ((torch.ones(7), "must match"), (object(), None)):
        crafted = test_dlpack_faults.Crafted()
        with pytest.raises((RuntimeError, TypeError), match=error):
            kiln.call("aten::add.Tensor", crafted, other)
        assert crafted.deleted == 1
    crafted = test_dlpack_faults.Crafted()
    with pytest.raises(TypeError, match="bogus"):
        kiln.Tensor(crafted, dtype="bogus")
    assert crafted.deleted == 0


def test_settings_whose_code_configures(run_torch):
    code = """
import torch
import kiln
from kiln import _kiln
class Count:
    def __index__(self):
        _kiln.configure({"mode": "sync"})
        return 1
for k in range(50):
    _kiln.configure({"mode": "".join(["inter", "p"]), "cc": "c" * (1000 + k), "threads": Count()})
assert kiln.call("neg", torch.ones(2)).tolist() == [-1, -1]
kiln.wait_idle()
print(kiln.last_tier())
"""
    assert run_torch(code) == "interp\n"


def test_configure_load_ops_and_trim_during_a_call(run_torch):
    code = """
import gc
import torch
import kiln
gc.freeze()  # what is there already need not be looked at each time
n = 0
class Pack:
    def __dlpack__(self, **kwargs):
        global n
        n += 1
        kiln.configure(mode="interp" if n % 2 else "sync")
        kiln.load_ops(f"map my::op{n}(Tensor self) -> Tensor : promote(self) = self + self")
        kiln.trim()
        gc.collect()
        kiln.call("add", torch.ones(3), torch.ones(3), alpha=3)
        return torch.ones(3).__dlpack__(**kwargs)
for _ in range(10):
    for out in (kiln.call("add", Pack(), Pack(), alpha=2), kiln.call("add", torch.ones(3), Pack(), alpha=2),
                kiln.call("add.out", torch.ones(3), Pack(), alpha=2, out=torch.empty(0))):
        assert out.tolist() == [3, 3, 3]
    assert "add" in kiln.explain("add", torch.ones(3), Pack(), stage="key")
print("done")
"""
    assert run_torch(code) == "done\n"


def test_types_whose_look_loads_operators(run_torch):
    code = """
import gc
import torch
import kiln
gc.freeze()  # what is there already need not be looked at each time
n = 0
class Meta(type):
    def __getattr__(cls, name):
        global n
        n += 1
        kiln.load_ops(f"map my::op{n}(Tensor self) -> Tensor : promote(self) = self + self")
        kiln.call("add", torch.ones(2), torch.ones(2))
        gc.collect()
        raise AttributeError(name)
for _ in range(30):
    new = Meta("New", (), {"__dlpack__": lambda self, **kwargs: torch.ones(3).__dlpack__(**kwargs)})
    assert kiln.call("add", torch.ones(3), new()).tolist() == [2, 2, 2]
    assert kiln.call("add", new(), torch.ones(3), alpha=2).tolist() == [3, 3, 3]
print("done")
"""
    assert run_torch(code) == "done\n"


def test_a_fork_during_a_call(run_torch):
    code = """
import os
import torch
import kiln
class Pack:
    def __dlpack__(self, **kwargs):
        self.child = os.fork()
        kiln.call("mul", torch.ones(3), 2)
        return torch.ones(3).__dlpack__(**kwargs)
kiln.call("add", torch.ones(3), torch.ones(3))
pack = Pack()
good = kiln.call("add", torch.ones(3), pack).tolist() == [2, 2, 2]
if pack.child == 0:
    os._exit(0 if good else 1)
print(good, os.waitpid(pack.child, 0)[1])
"""
    assert run_torch(code) == "True 0\n"
