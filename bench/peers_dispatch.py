"""What a small call costs from Python: a fresh result each, [32,32], one thread; beside NumPy, PyTorch, AOTI eager, Numba, JAX.

All run in turns.  AOTI eager replaces PyTorch's own kernel wherever it is, so it runs in a process of its own that takes
its turns over a pipe.  A peer that is not installed or does not work is named with the reason.
"""
import json
import os
import select
import statistics
import subprocess
import sys
import tempfile
import time
import warnings

os.environ.update(KILN_MODE="sync", KILN_THREADS="1", OMP_NUM_THREADS="1")
import numpy as np  # noqa: E402
import torch  # noqa: E402

import kiln  # noqa: E402
from peers_kernels import python_loop  # noqa: E402

ROUNDS, CALLS = 21, 2000  # samples per side, calls per sample
AOTI_SECONDS = 300  # for its compiles


def calls():
    """Name -> Kiln's operator, the arguments as text, tensors, and the same call of PyTorch and NumPy."""
    i = torch.arange(1024, dtype=torch.int32).reshape(32, 32)
    f = torch.linspace(-4, 4, 1024).reshape(32, 32)
    return {"bitwise_not": ("aten::bitwise_not", "t0", [i], torch.bitwise_not, np.invert),
            "add": ("aten::add.Tensor", "t0, t1", [f, f.clone()], torch.add, np.add)}


# -- AOTI eager, in its own process --------------------------------------------------------------------------------

def serve_aoti():
    """Compiles every call, then times as many of one as each line of the input asks for."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    library, loops, first = torch.library.Library("aten", "IMPL"), {}, {}
    for name, (op, text, tensors, function, _) in calls().items():
        want = function(*tensors)
        library._impl_with_aoti_compile(op.removeprefix("aten::"), "CPU")
        start = time.perf_counter()
        if not torch.equal(function(*tensors), want):
            raise SystemExit(f"{name}: a wrong result")
        first[name] = time.perf_counter() - start
        loops[name] = python_loop(text, function, tensors)
    print(json.dumps(first), flush=True)
    for line in sys.stdin:
        name, n = line.split()
        print(loops[name](int(n)), flush=True)


class Aoti:
    """The other process.  first: seconds that each first call took."""

    def __init__(self, folder):
        self.errors = os.path.join(folder, "errors")
        with open(self.errors, "w") as errors:
            self.process = subprocess.Popen([sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                            stderr=errors, env={**os.environ, "TORCHINDUCTOR_CACHE_DIR": folder})
        self.first = json.loads(self.read(AOTI_SECONDS))

    def read(self, seconds):
        ready = select.select([self.process.stdout], [], [], seconds)[0]
        line = self.process.stdout.readline() if ready else ""
        if not line:
            self.process.kill()
            status = self.process.wait()
            with open(self.errors) as errors:
                last = (errors.read().strip().splitlines() or [""])[-1]
            raise OSError(f"exit status {status}: {last}" if ready else f"no answer within {seconds} s")
        return line

    def loop(self, name):
        def run(n):
            self.process.stdin.write(f"{name} {n}\n")
            self.process.stdin.flush()
            return float(self.read(60))
        return run

    def close(self):
        self.process.stdin.close()
        self.process.wait()


# -- measuring -----------------------------------------------------------------------------------------------------

def measure(sides):
    """Best and median nanoseconds per call of each side, the sides taking turns."""
    samples = {name: [] for name in sides}
    for _ in range(ROUNDS):
        for name, side in sides.items():
            side(CALLS // 10)  # what the side before has left in the caches
            samples[name].append(side(CALLS))
    return {name: {"best": min(s), "median": statistics.median(s)} for name, s in samples.items()}


# -- the others ----------------------------------------------------------------------------------------------------

def numba_function(name):
    import numba
    return numba.njit({"bitwise_not": lambda x: ~x, "add": lambda x, y: x + y}[name])


def jax_function(name):
    import jax
    compiled = jax.jit({"bitwise_not": lambda x: ~x, "add": lambda x, y: x + y}[name])
    return lambda *args: compiled(*args).block_until_ready()


def own_sides(op, text, tensors, function, numpy_function):
    arrays = [t.numpy() for t in tensors]
    return {"kiln.Tensor": python_loop(text, kiln.op(op), [kiln.Tensor(t.clone()) for t in tensors]),
            "kiln, torch": python_loop(text, kiln.op(op), tensors),
            "kiln, numpy": python_loop(text, kiln.op(op), arrays),
            "numpy": python_loop(text, numpy_function, arrays),
            "torch": python_loop(text, function, tensors)}


def optional_sides(name, text, tensors, missing):
    found = {}
    for peer, make, convert in (("numba", numba_function, lambda t: t.numpy()),
                                ("jax", jax_function, lambda t: __import__("jax").numpy.asarray(t.numpy()))):
        try:
            found[peer] = python_loop(text, make(name), [convert(t) for t in tensors])
        except ImportError as error:
            missing[peer] = str(error)
    return found


def goals(times):
    """What must hold: (what, figure, the same of medians, at most)."""
    def ratios(own, peer):
        return [times["bitwise_not"][own][kind] / times["bitwise_not"][peer][kind] for kind in ("best", "median")]
    yield "bitwise_not i32 [32,32] on a kiln.Tensor against np.invert", *ratios("kiln.Tensor", "numpy"), 0.3
    yield "torch tensor in and out against torch.bitwise_not", *ratios("kiln, torch", "torch"), 0.5


def show_goals(times):
    """Prints each figure beside its goal: how many were missed."""
    missed = 0
    for what, figure, median, bound in goals(times):
        missed += figure > bound
        print(f"{what:66} {figure:10.3f} <= {bound:6.2f} x{'' if figure <= bound else '  MISSED'}\n    by medians {median:.3f}")
    return missed


def own_times():
    """Kiln, NumPy and PyTorch alone."""
    return {name: measure(own_sides(*call)) for name, call in calls().items()}


def run(as_json, threads):
    torch.set_num_threads(1)
    missing, times, aoti = {}, {}, None
    with tempfile.TemporaryDirectory(prefix="kiln-bench-") as folder:
        try:
            aoti = Aoti(folder)
        except (OSError, ValueError) as error:
            missing["aoti eager"] = str(error)
        for name, call in calls().items():
            sides = own_sides(*call) | optional_sides(name, call[1], call[2], missing)
            if aoti:
                sides["aoti eager"] = aoti.loop(name)
            times[name] = measure(sides)
        if aoti:
            aoti.close()
    show(times, aoti.first if aoti else {}, missing, as_json)
    return sum(figure > bound for _, figure, _, bound in goals(times))


def show(times, first, missing, as_json):
    if as_json:
        print(json.dumps({"bench": "dispatch", "ns": times, "aoti_first_s": first, "missing": missing}))
        return
    for name, sides in times.items():
        print(f"{name}, ns per call: best, median, and its best over that of kiln on the same tensors")
        for side, t in sides.items():
            own = "kiln.Tensor" if side in ("kiln.Tensor", "numpy", "numba", "jax") else "kiln, torch"
            print(f"  {side:12} {t['best']:9.0f} {t['median']:9.0f} {t['best'] / sides[own]['best']:8.2f}")
        if name in first:
            print(f"  the first call of AOTI eager took {first[name]:.1f} s")
    for peer, reason in missing.items():
        print(f"{peer}: not in this run: {reason}")
    show_goals(times)


if __name__ == "__main__":
    serve_aoti()
