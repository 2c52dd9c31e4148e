"""Kiln's loops run on PyTorch's threads once PyTorch is loaded, whatever way a call comes, and Kiln has none of its own then.

Threads are told by their names in /proc.  What needs a process of its own, because threads stay or because it forks, runs in one.
"""
import subprocess
import sys
import threading

import numpy as np
import pytest
import torch

import kiln
import kiln.torch
from kiln import _kiln

PYTORCHS, CALLERS = "PyTorch's", "the caller's, after a fork of a process with PyTorch"

# What the processes of their own begin with.
COMMON = """if True:
    import os, sys
    import numpy as np
    import kiln
    from kiln import _kiln
    def threads():
        return len(os.listdir("/proc/self/task"))
    def workers():
        return sum(open(f"/proc/self/task/{t}/comm").read() == "kiln-pool\\n" for t in os.listdir("/proc/self/task"))
    kiln.configure(mode="interp", threads=2)
    wave = np.sin(np.arange(1 << 20, dtype=np.float32)).reshape(1024, 1024)
    def direct(x):
        kiln.call("exp", x), kiln.call("sum", x), kiln.call("cumsum", x, 1), kiln.op("aten::tanh")(x)
"""


def run_python(code):
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"


# -- Kiln's pool -------------------------------------------------------------------------------------------------------

SURFACES = {
    "NumPy": "direct(wave)",
    "kiln.Tensor": "direct(kiln.Tensor(wave))",
    "torch": "direct(torch.from_numpy(wave))",
    "kiln.op, out=": "kiln.op('aten::exp.out')(torch.from_numpy(wave), out=torch.empty(1024, 1024))",
    "list": "kiln.call('_foreach_add_', [torch.ones(1 << 19), torch.ones(1 << 19)], 1)",
    "row": "kiln.load_ops('map my::twice(Tensor x) -> Tensor : takes float = x + x'); kiln.call('my::twice', wave)",
    "formula": "kiln.evaluate('2*wave + sin(wave)**2')",
    "defined": "import kiln.torch; kiln.torch.define('my::f', 'map my::f(Tensor x) -> Tensor : takes float = x * x')(torch.from_numpy(wave))",
    "torch.*": "import kiln.torch; kiln.torch.enable('all'); x = torch.ones(1 << 20, requires_grad=True); x.exp().sum().backward(); "
               "assert any(row.served for row in kiln.torch.status().rows)",
}


@pytest.mark.parametrize("surface", SURFACES)
@pytest.mark.parametrize("started", [False, True])
def test_kiln_has_no_threads_of_its_own(surface, started):
    """Nor any that it had started before PyTorch was imported.  The loop leaves a thread of PyTorch's behind."""
    run_python(COMMON + f"""
    if {started}:
        for _ in range(100):
            direct(wave)
        assert workers() == 1, workers()
        assert _kiln.threads() == ("Kiln's", 2), _kiln.threads()
    import torch
    torch.set_num_threads(2)
    before = threads() - workers()
    {SURFACES[surface]}
    assert workers() == 0, workers()
    assert threads() == before + 1, (before, threads())
    assert _kiln.threads() == ({PYTORCHS!r}, 2), _kiln.threads()
    assert "\\npool: PyTorch's\\n" in kiln.show_config() and "\\nthreads: 2\\n" in kiln.show_config()
    """)


def test_without_pytorch():
    run_python(COMMON + """
    for _ in range(100):
        direct(wave)
    assert workers() == 1 and "torch" not in sys.modules, workers()
    assert "\\npool: Kiln's\\n" in kiln.show_config() and "\\nthreads: 2\\n" in kiln.show_config()
    """)


# -- how many threads --------------------------------------------------------------------------------------------------

@pytest.fixture
def four():
    """A context of Kiln's whose calls may use four threads, on each tier."""
    kiln.configure(threads=4)
    yield
    kiln.configure(threads=0, mode="default")
    torch.set_num_threads(1)


def results(x, y):
    """Of maps, folds along all dimensions, scans and rows; by kiln.call and by torch.*."""
    calls = [lambda f, name=name: f(name, x) for name in ("exp", "sum", "amax", "erf")]
    calls += [lambda f, name=name, dim=dim: f(name, x, dim) for name in ("sum", "cumsum") for dim in (0, 1)]
    calls += [lambda f: f("add", x, y, alpha=2), lambda f: f("cumsum", x.reshape(-1), 0), lambda f: f("_softmax", x, 1, False)]
    for call in calls:
        yield call(kiln.call)
        yield call(lambda name, *args, **kwargs: getattr(torch, name)(*args, **kwargs))


@pytest.mark.parametrize("mode", ["interp", "sync"])
def test_bits_do_not_depend_on_threads(four, mode):
    kiln.configure(mode=mode)
    generator = torch.Generator().manual_seed(1)
    x, y = torch.randn(777, 1001, generator=generator), torch.randn(1001, generator=generator)
    want = None
    for n in (1, 2, 3, 4):
        torch.set_num_threads(n)
        with kiln.torch.enabled("all"):
            for _ in range(2):  # costs are guessed in the first, and known in the second
                got = list(results(x, y))
        assert _kiln.threads() == (PYTORCHS, n)
        want = want or got
        assert all(torch.equal(a.view(torch.int32), b.view(torch.int32)) for a, b in zip(got, want, strict=True))


def test_the_number_is_pytorchs(four):
    for n in (1, 2, 3, 4, 7):
        torch.set_num_threads(n)
        assert _kiln.threads() == (PYTORCHS, min(n, 4))
        assert kiln.torch.status().threads == (PYTORCHS, min(n, 4))
        assert f"\nlarge calls run on threads that are PyTorch's: up to {min(n, 4)} for a call" in str(kiln.torch.status())


def test_one_thread_computes_alone():
    """A result that is larger than what it is made of, too."""
    run_python(COMMON + """
    import torch, kiln.torch
    kiln.torch.enable("all")
    kiln.configure(threads=0)
    def started(n):
        torch.set_num_threads(n)
        before = threads()
        a = torch.ones(300, 1, 1)
        assert (a + torch.ones(1, 300, 1) + 1)[0, 0, 0] == 3
        torch.where(a > 0, a.reshape(1, 300, 1), a.reshape(1, 1, 300)).sum()
        torch.ones(1 << 20).exp().sum()
        direct(wave)
        return threads() - before
    assert started(1) == 0
    kiln.configure(threads=2)
    assert started(2) == 1
    """)


def test_inference_mode(four):
    torch.set_num_threads(4)
    x = torch.randn(1 << 20)
    want = x.exp()
    with kiln.torch.enabled("all"), torch.inference_mode():
        y = torch.exp(x)
        assert torch.is_inference_mode_enabled() and y.is_inference()
        z = kiln.call("exp", x)
        assert torch.is_inference_mode_enabled() and z.is_inference()
    assert not torch.is_inference_mode_enabled()
    torch.testing.assert_close(y, want)
    assert torch.equal(y, z)


def test_inside_a_loop_of_pytorchs():
    """A call inside at::parallel_for runs on the thread that makes it."""
    run_python(COMMON + f"""
    import ctypes, torch
    torch.set_num_threads(2)
    cpu = ctypes.CDLL(os.path.join(os.path.dirname(torch.__file__), "lib", "libtorch_cpu.so"))
    want, seen = kiln.call("exp", wave), []
    def body(begin, end, user):
        for k in range(begin, end):
            seen.append((k, _kiln.threads(), np.array_equal(kiln.call("exp", wave), want)))
    kind = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p)
    cpu.torch_parallel_for.argtypes = [ctypes.c_int64, ctypes.c_int64, ctypes.c_int64, kind, ctypes.c_void_p]
    assert cpu.torch_parallel_for(0, 6, 1, kind(body), None) == 0
    assert sorted(seen) == [(k, ({PYTORCHS!r}, 1), True) for k in range(6)], seen
    assert _kiln.threads() == ({PYTORCHS!r}, 2)
    """)


def test_threads_that_call_at_once(four):
    torch.set_num_threads(3)
    wrong = []

    def work(seed):
        x = torch.randn(300, 1001, generator=torch.Generator().manual_seed(seed))
        want = kiln.call("exp", x), kiln.call("sum", x, 1)
        for _ in range(40):
            got = torch.exp(x), kiln.call("sum", x, 1)
            if not all(map(torch.equal, got, want)):
                wrong.append(seed)

    with kiln.torch.enabled("all"):
        threads = [threading.Thread(target=work, args=(k,)) for k in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not wrong


# -- other processes ---------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("before", ["", "direct(wave)", "import kiln.torch; kiln.torch.enable('all'); torch.exp(torch.ones(1 << 20))"])
def test_forked_child(before):
    """OpenMP would wait there for threads that the child does not have.  PyTorch's exist before the fork, by loops of its own."""
    run_python(COMMON + f"""
    import torch
    torch.set_num_threads(2)
    torch.rand(512, 512) @ torch.rand(512, 512); torch.rand(1 << 20).tanh()
    {before}
    child = os.fork()
    import signal
    signal.alarm(60)
    direct(wave)
    owner = _kiln.threads()
    import kiln.torch
    with kiln.torch.enabled("all"):
        x = torch.from_numpy(wave).exp()
        assert any(row.served for row in kiln.torch.status().rows)
    assert np.array_equal(x.numpy(), kiln.call("exp", wave))
    if child == 0:
        assert owner == ({CALLERS!r}, 1), owner
        assert workers() == 0
        os._exit(0)
    assert owner == ({PYTORCHS!r}, 2), owner
    assert os.waitpid(child, 0)[1] == 0
    direct(wave)
    """)


def test_child_that_imports_kiln():
    """It was forked before Kiln could see it; PyTorch came with the fork if the parent has it, else the child has loaded it itself."""
    run_python("""if True:
    import os, sys
    def child(owner, *modules):
        pid = os.fork()
        if pid == 0:
            import signal
            signal.alarm(60)
            for module in modules:
                __import__(module)
            import numpy as np, torch, kiln
            from kiln import _kiln
            torch.set_num_threads(2)
            kiln.configure(mode="interp", threads=2)
            kiln.call("exp", np.ones(1 << 20, np.float32))
            assert _kiln.threads() == owner, _kiln.threads()
            os._exit(0)
        assert os.waitpid(pid, 0)[1] == 0
    child(%r, "torch", "kiln")
    child(%r, "kiln", "torch")
    import torch
    torch.set_num_threads(2)
    torch.rand(512, 512) @ torch.rand(512, 512); torch.rand(1 << 20).tanh()
    child(%r)
    """ % ((PYTORCHS, 2), (PYTORCHS, 2), (CALLERS, 1)))


class Large(torch.utils.data.Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, k):
        kiln.configure(mode="interp")
        x = torch.linspace(0, k, 1 << 18)
        with kiln.torch.enabled("all"):
            y = torch.exp(x)
        return float((y - kiln.call("exp", x)).abs().max()), float(y[-1]), _kiln.threads()[0]


@pytest.mark.parametrize("how, owner", [("fork", CALLERS), ("spawn", PYTORCHS)])
def test_loader(four, how, owner):
    torch.set_num_threads(2)
    kiln.call("exp", np.ones(1 << 20, np.float32))
    torch.rand(1 << 20).tanh()
    loader = torch.utils.data.DataLoader(Large(), batch_size=2, num_workers=2, multiprocessing_context=how, timeout=100)
    seen = [item for differences, last, owners in loader for item in zip(differences.tolist(), last.tolist(), owners, strict=True)]
    assert [(d, o) for d, _, o in seen] == [(0.0, owner)] * 4
    np.testing.assert_allclose([y for _, y, _ in seen], np.exp(range(4)), rtol=1e-6)
