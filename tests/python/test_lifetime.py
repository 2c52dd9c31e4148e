"""References, memory, threads, the end of the interpreter."""
import gc
import os
import sys
import threading
import time

import numpy as np
import pytest
import torch
from sanitized import SANITIZED

import kiln

NEG, ADD = "aten::neg", "aten::add.Tensor"


def inputs():
    return np.ones((3, 4), np.float32), torch.ones(3, 4), kiln.Tensor(np.ones((3, 4), np.float32))


def failing():
    """Calls that raise at every stage."""
    a, t, k = inputs()
    return [lambda: kiln.call(ADD, a, object()), lambda: kiln.call(ADD, t, "x"), lambda: kiln.call(ADD, k, t, nope=1),
            lambda: kiln.call(ADD, a, np.zeros(7)), lambda: kiln.Tensor([[1], 2]), lambda: k[9], lambda: kiln.call("nope", t),
            lambda: kiln.call(ADD, t, [t, t, object()]), lambda: kiln.call(NEG, np.zeros(2, "c32")), lambda: k + "x",
            lambda: kiln.call("aten::neg_", np.broadcast_to(np.float32(1), (3,))), lambda: k.__dlpack__(stream=1),
            lambda: kiln.Tensor(torch.zeros(2, dtype=torch.complex32)), lambda: float(kiln.Tensor(1j))]


def working():
    a, t, k = inputs()
    neg, add = kiln.op(NEG), kiln.op(ADD)
    return [lambda: neg(a), lambda: neg(t), lambda: neg(k), lambda: add(a, k, alpha=2), lambda: add(t, 1), lambda: add(k, 2.5),
            lambda: kiln.call("aten::frexp.Tensor", t), lambda: kiln.call("aten::add_.Tensor", t, 0), lambda: k.numpy(),
            lambda: kiln.call("aten::add.out", t, t, out=torch.empty(0)), lambda: k.__dlpack__(), lambda: np.asarray(k),
            lambda: k.__dlpack__(max_version=(1, 0)), lambda: torch.from_dlpack(k), lambda: kiln.Tensor(t), lambda: kiln.Tensor(a),
            lambda: k[1, ::2], lambda: k.tolist(), lambda: k + k, lambda: 1 - k, lambda: repr(k), lambda: list(k),
            lambda: kiln.Tensor([[1, 2], [3, 4]]), lambda: kiln.Tensor(a, dtype="f16"), lambda: kiln.explain(NEG, t, stage="key"),
            lambda: kiln.op("abs"), lambda: kiln.op("abs").__self__, lambda: kiln.stats(), lambda: kiln.ops(),
            lambda: neg(torch._neg_view(t)), lambda: k * 1j, lambda: neg(torch.ones(2, dtype=torch.complex64).conj()), lambda: neg(a[:, ::2]), lambda: neg(np.arange(3, dtype=">f4"))]


def attempt(f):
    try:
        f()
    except Exception:
        pass


@pytest.mark.parametrize("calls", [working, failing], ids=["working", "failing"])
def test_no_references_leak(calls):
    a, t, k = inputs()
    watched = [a, t, k, kiln.Tensor, kiln.float32, np.ndarray, torch.Tensor, None, True, kiln.dtype, kiln.Op]
    fs = calls()
    for f in fs:
        attempt(f)
    gc.collect()
    before = [sys.getrefcount(o) for o in watched]
    for f in fs:
        for _ in range(50):
            attempt(f)
    gc.collect()
    after = [sys.getrefcount(o) for o in watched]
    assert all(y - x < 20 for x, y in zip(before, after)), list(zip(watched[3:], before[3:], after[3:]))


def test_arguments_are_released():
    for make in (lambda: np.ones(3, np.float32), lambda: torch.ones(3), lambda: kiln.Tensor([1.0, 2.0, 3.0])):
        x = make()
        count = sys.getrefcount(x)
        for _ in range(100):
            kiln.call(ADD, x, x, alpha=2)
            attempt(lambda: kiln.call(ADD, x, x, nope=2))
            attempt(lambda: kiln.call(ADD, x, [x, object()]))
            kiln.Tensor(x)[0]
        kiln.call("aten::neg_", x)
        assert sys.getrefcount(x) == count


def resident():
    with open("/proc/self/statm") as f:
        return int(f.read().split()[1]) * 4096


def test_every_argument_and_result_is_released():
    """Exactly, for each call by itself: what went in and what came out is referred to as often as before."""
    x, y, out = torch.ones(3), torch.ones(3), torch.ones(3)
    a, b, into = np.ones(3, np.float32), np.ones(3, np.float32), np.ones(3, np.float32)
    k, m, new = kiln.Tensor(a), kiln.Tensor(b), kiln.Tensor([1.0, 2.0, 3.0])
    name, number, scalars = "aten::add.Tensor", 1.5, [2, 3]
    watched = [x, y, out, a, b, into, k, m, new, name, number, scalars]
    for p, q, o in ((x, y, out), (a, b, into), (k, m, new), (x, b, new), (k, y, into)):
        calls = [lambda: kiln.call(name, p, q, alpha=number), lambda: kiln.call("add", p, q), lambda: kiln.call("add", p, q, out=o),
                 lambda: kiln.call("aten::add_.Tensor", o, q), lambda: kiln.call("aten::frexp.Tensor", p),
                 lambda: kiln.call(name, p, q, beta=number), lambda: kiln.call(name, p, scalars), lambda: kiln.call("add", p, name),
                 lambda: kiln.call("aten::add.out", p, q, out=number), lambda: kiln.call(name, p, [o, q, object()]),
                 lambda: kiln.call("aten::add.out", p, q, out=torch.empty(5)), lambda: kiln.call("nope", p, q)]
        for call in calls:
            attempt(call)
            before = [sys.getrefcount(w) for w in watched]
            for _ in range(20):
                attempt(call)
            assert [sys.getrefcount(w) for w in watched] == before
            try:
                result = call()
            except Exception:
                continue
            if result is not o and not isinstance(result, tuple):
                assert sys.getrefcount(result) == 2


def test_memory_stays_over_many_calls():
    """100,000 calls of each kind: a leak of 100 bytes would be 10 MB.  Sanitizers look for leaks themselves."""
    t, a, k = torch.ones(4), np.ones(4, np.float32), kiln.Tensor([1.0, 2.0, 3.0, 4.0])
    out, neg, add = torch.empty(4), kiln.op(NEG), kiln.op("add")
    for f in (lambda: neg(t), lambda: neg(a), lambda: neg(k), lambda: add(t, 2, out=out), lambda: add(k, k), lambda: k + 1,
              lambda: attempt(lambda: neg(t, t)), lambda: attempt(lambda: add(t, torch.ones(3)))):
        for _ in range(1000):
            f()
        gc.collect()
        before = resident()
        for _ in range(5_000 if SANITIZED else 100_000):
            f()
        gc.collect()
        assert resident() - before < 8 << 20


def test_no_memory_leaks():
    big = np.ones(100_000, np.float32)
    tensor = torch.from_numpy(big)
    kept = kiln.Tensor(big)
    work = [lambda: kiln.call(NEG, big), lambda: kiln.call(NEG, tensor), lambda: kiln.call(NEG, kept), lambda: kept[5:].copy(),
            lambda: torch.from_dlpack(kiln.call(NEG, kept)), lambda: kiln.Tensor(kiln.call(NEG, big)), lambda: np.asarray(kept) * 1,
            lambda: kiln.Tensor(np.ones(100_000))]
    for f in work * 20:
        f()
    gc.collect()
    before = resident()
    for f in work * 100:  # 400 KB each time: 320 MB if it stayed
        f()
    gc.collect()
    assert resident() - before < 64 << 20


@pytest.mark.parametrize("calls", [working, failing], ids=["working", "failing"])
def test_no_python_objects_leak(calls):
    fs = calls()
    gc.collect()
    gc.freeze()  # what is there already need not be looked at each time
    try:
        for k, f in enumerate(fs):
            left = []
            while len(left) < 2 or left[-1] - left[-2] >= 25:  # one object a call would be 50
                assert len(left) < 20, (k, left)  # Python itself needs some rounds until its lists of free objects are full
                for _ in range(50):
                    attempt(f)
                gc.collect()
                left.append(sys.getallocatedblocks())
    finally:
        gc.unfreeze()


# -- threads ----------------------------------------------------------------------------------------------------------------

def in_threads(n, work):
    errors = []

    def guarded(k):
        try:
            work(k)
        except BaseException as error:  # noqa: BLE001
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(k,)) for k in range(n)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors, errors[0]


def test_threads_agree():
    shared = torch.arange(20_000.0)

    def work(k):
        own = np.full((50, k + 1), k, np.float32)
        for n in range(100):
            assert torch.equal(kiln.call(ADD, shared, shared, alpha=k), shared * (1 + k))
            assert (kiln.call("my::axpb", own, n, 1.0) == k * n + 1).all()
            attempt(lambda: kiln.call(ADD, shared, own, nope=1))
    in_threads(8, work)


def test_the_context_is_replaced_under_running_calls():
    x, small, stop = kiln.Tensor(np.ones(20_000, np.float32)), kiln.Tensor([1.0]), []

    def work(k):
        if k == 0:
            for n in range(20):
                kiln._kiln.configure({**kiln._settings, "mode": "interp"})
                kiln.load_ops(f"map my::extra{n}(Tensor self) -> Tensor : takes all = self")
            stop.append(1)
        add = kiln.op(ADD)
        while not stop:
            assert add(x, x)[0].item() == 2 and add(small, small).item() == 2
    in_threads(4, work)
    kiln._kiln.configure(kiln._settings)


def test_a_list_that_changes_under_a_call():
    def work(k):
        for n in range(200):
            if k % 2:
                items[:] = [kiln.Tensor([1.0] * 500) for _ in range(n % 5)]
            else:
                attempt(lambda: kiln.call("aten::_foreach_add_.List", items, items))
    items = []
    in_threads(4, work)


def runs_beside(work):
    """Whether another thread gets anywhere while work() is running."""
    counts, stop = [0], []

    def count():
        while not stop:
            counts[0] += 1
            time.sleep(0)
    counter = threading.Thread(target=count)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1000)  # other threads run only when the GIL is given up
    try:
        counter.start()
        while not counts[0]:
            time.sleep(0.001)
        before = counts[0]
        work()
        return counts[0] > before
    finally:
        stop.append(1)
        sys.setswitchinterval(interval)
        counter.join()


def test_the_gil_is_released_for_long_work():
    x = kiln.Tensor(np.ones(8_000_000, np.float32))
    tanh = kiln.op("aten::tanh")
    tanh(x)
    assert runs_beside(lambda: [tanh(x) for _ in range(5)])


@pytest.mark.parametrize("make", [kiln.Tensor, torch.from_numpy, lambda a: a], ids=["kiln", "torch", "numpy"])
def test_the_gil_is_released_for_a_compiler(make, tmp_path):
    """In the mode `sync`, a call of another class than those before waits for one."""
    kiln._kiln.configure({"mode": "sync", "cache_dir": str(tmp_path)})
    try:
        if "compiler: none" in kiln.show_config():
            pytest.skip("no compiler runs here: a preloaded sanitizer does not fit their memory limit")
        tanh = kiln.op("aten::tanh")
        for dtype in (np.float32, np.float64, np.int16, np.float16):
            x = make(np.ones(2, dtype))
            assert runs_beside(lambda: tanh(x)) and kiln.last_tier() == "compiled"
    finally:
        kiln._kiln.configure(kiln._settings)


def test_fork(run_python):
    run_python("""
import os, kiln, numpy as np
x = np.ones(10_000, np.float32)
kiln.call("aten::neg", x)
child = os.fork()
if child == 0:
    ok = (kiln.call("aten::neg", x) == -1).all() and (kiln.call("aten::exp", x) > 2).all()
    os._exit(0 if ok else 1)
assert os.waitpid(child, 0)[1] == 0
assert (kiln.call("aten::neg", x) == -1).all()
""")


# -- the end ---------------------------------------------------------------------------------------------------------------------

def test_calls_while_the_interpreter_ends(run_python):
    out = run_python("""
import kiln, numpy as np, sys, atexit
add = kiln.op("aten::add.Tensor")
class Late:
    def __init__(self): self.t = kiln.Tensor([1.0]); self.kiln = kiln; self.add = add
    def __del__(self):
        for f in (lambda: self.add(self.t, 1), lambda: self.kiln.call("aten::neg", self.t), lambda: repr(self.t), lambda: self.t + 1,
                  lambda: self.t.numpy(), lambda: self.kiln.Tensor([1]), lambda: self.t.dtype, lambda: self.t[0].tolist(),
                  lambda: self.kiln.stats(), lambda: self.kiln.op("aten::abs")):
            try: f()
            except Exception: pass
late = Late()
sys.modules["keep"] = Late()
kiln.late = Late()
kiln._kiln.late = Late()
cycle = [Late()]; cycle.append(cycle)
atexit.register(Late)
print("done")
""")
    assert out.strip() == "done"


def test_exports_after_the_end(run_python):
    run_python("""
import kiln, torch, numpy as np
keep = [torch.from_dlpack(kiln.Tensor(np.arange(5))), kiln.Tensor(np.arange(5)).numpy(), kiln.Tensor(torch.ones(3))]
torch.kept = keep
np.kept = kiln.Tensor(np.arange(3))[1:]
""")


def test_a_daemon_thread_at_the_end(run_python):
    run_python("""
import kiln, threading, time, numpy as np
x = kiln.Tensor(np.ones(1_000_000, np.float32))
def work():
    while True: kiln.call("aten::exp", x)
for _ in range(3): threading.Thread(target=work, daemon=True).start()
time.sleep(0.3)
""", ASAN_OPTIONS=os.environ.get("ASAN_OPTIONS", "") + ":detect_leaks=0")  # Python ends the threads within their calls


def test_reimport(run_python):
    run_python("""
import sys, gc
for _ in range(5):
    import kiln
    t = kiln.Tensor([1.0, 2.0])
    assert (t + 1).tolist() == [2.0, 3.0]
    f = kiln.op("aten::neg")
    for name in [n for n in sys.modules if n.startswith("kiln")]: del sys.modules[name]
    del kiln
    gc.collect()
    assert f(t).tolist() == [-1.0, -2.0]
""")


def test_neither_library_is_imported(run_python):
    out = run_python("""
import sys, kiln
t = kiln.Tensor([[1.0, 2.0]])
print(t + 1, t.tolist(), kiln.call("aten::neg", t)[0], "numpy" in sys.modules, "torch" in sys.modules)
""")
    assert "False False" in out
