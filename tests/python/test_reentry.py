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
each(lambda v: kiln.call("add.Tensor", v, Number(2)))
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
class Graded(torch.Tensor):
    @property
    def requires_grad(self):
        freeing()
        return False
each(lambda v: kiln.call("add_.Tensor", torch.ones(N).requires_grad_().as_subclass(Graded), v))
""",
}


@pytest.mark.parametrize("code", BESIDE.values(), ids=BESIDE.keys())
def test_memory_freed_by_another_argument(run_python, code):
    assert "done" in run_python(START + code + "print('done')")


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


@pytest.mark.parametrize("make", ["kiln.call('neg', s)", "kiln.op('aten::neg')(s)", "kiln.Tensor(s)", "kiln.call('add', 1, s)",
                                  "-kiln.Tensor([1.0]) + s"])
def test_calls_inside_calls_end_in_an_exception(run_python, make):
    code = NESTED + f"""
make = lambda s: {make}
def run():
    for limit in 1000, 100000:
        sys.setrecursionlimit(limit)
        try:
            make(Inner())
        except RecursionError:
            print("done", depth)
run()
for size in 256, 512, 4096:
    threading.stack_size(size * 1024)
    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
"""
    assert run_python(code).split() == ["done", "0"] * 8


def test_some_calls_inside_calls_are_served(run_python):
    code = NESTED + """
make, wanted = lambda s: kiln.call("neg", s), 100
print(make(Inner()).tolist())
threading.stack_size(256 * 1024)
wanted = 5
thread = threading.Thread(target=lambda: print(make(Inner()).tolist()))
thread.start()
thread.join()
"""
    assert run_python(code) == "[1.0, 1.0, 1.0]\n[-1.0, -1.0, -1.0]\n"
