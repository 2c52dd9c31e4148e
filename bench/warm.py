#!/usr/bin/env python3
"""What a new process pays for code that an earlier process compiled: Kiln's folder and pack beside the caches of Numba, JAX and Inductor.

bench/warm.py [--json].  Each system computes the same five functions of arrays in f32: a formula, a softmax, a sum of squares along rows, a layer
norm, a comparison.  A first process fills the system's cache; then fresh processes are timed, from after the imports to the last result.  The
median of five counts.  A system that is not installed (numba, jax from PyPI) is left out.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROUNDS = 5
ROOT = Path(__file__).resolve().parents[1]
START = "import time, numpy as np\nx = np.linspace(0.1, 1, 64 * 64, dtype='f4').reshape(64, 64); w = np.ones(64, 'f4')\n"
KILN = START + """
import kiln
start = time.perf_counter()
kiln.evaluate("2*x + sin(x)**2"); kiln.call("softmax", x, -1); kiln.call("sum", kiln.call("square", x), [1])
kiln.call("layer_norm", x, [64], w, w, 1e-5); kiln.call("gt", x, 0.5)
took = time.perf_counter() - start
kiln.wait_idle()
stats = kiln.stats()
print(took, stats["compiles"], stats["interp_calls"])
"""
TORCH = START + """
import torch
a, b = torch.from_numpy(x), torch.from_numpy(w)
fs = [lambda a: 2*a + torch.sin(a)**2, lambda a: torch.softmax(a, -1), lambda a: torch.sum(torch.square(a), [1]),
      lambda a: torch.nn.functional.layer_norm(a, [64], b, b, 1e-5), lambda a: a > 0.5]
start = time.perf_counter()
for f in fs:
    torch.compile(f)(a)
print(time.perf_counter() - start, 0, 0)
"""
NUMBA = START + """
import sys; sys.path.insert(0, CACHE)
import numba_functions as m
start = time.perf_counter()
m.formula(x); m.softmax(x); m.squares(x); m.norm(x, w); m.greater(x)
print(time.perf_counter() - start, 0, 0)
"""
NUMBA_MODULE = """
import numba, numpy as np
@numba.njit(cache=True)
def formula(x): return 2 * x + np.sin(x) ** 2
@numba.njit(cache=True)
def softmax(x):
    out = np.empty_like(x)
    for i in range(x.shape[0]):
        e = np.exp(x[i] - x[i].max())
        out[i] = e / e.sum()
    return out
@numba.njit(cache=True)
def squares(x): return (x * x).sum(1)
@numba.njit(cache=True)
def norm(x, w):
    out = np.empty_like(x)
    for i in range(x.shape[0]):
        out[i] = (x[i] - x[i].mean()) / np.sqrt(x[i].var() + 1e-5) * w + w
    return out
@numba.njit(cache=True)
def greater(x): return x > 0.5
"""
JAX = START + """
import jax, jax.numpy as jnp
jax.config.update("jax_compilation_cache_dir", CACHE)
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
fs = [lambda a: 2*a + jnp.sin(a)**2, lambda a: jax.nn.softmax(a, -1), lambda a: jnp.sum(jnp.square(a), 1),
      lambda a: (a - a.mean(1, keepdims=True)) / jnp.sqrt(a.var(1, keepdims=True) + 1e-5) * w + w, lambda a: a > 0.5]
start = time.perf_counter()
for f in fs:
    jax.jit(f)(x).block_until_ready()
print(time.perf_counter() - start, 0, 0)
"""


def run(code, cache, **environment):
    """Seconds, kernels compiled and calls interpreted; None if the system is not installed."""
    done = subprocess.run([sys.executable, "-c", f"CACHE = {cache!r}\n{code}"], capture_output=True, text=True,
                          env={**os.environ, "JAX_PLATFORMS": "cpu", **environment})
    if "ModuleNotFoundError" in done.stderr:
        return None
    if done.returncode:
        raise SystemExit(done.stderr)
    return [float(word) for word in done.stdout.split()]


def measure(code, cache, first=None, **environment):
    """A process that fills the cache, and fresh ones: figures of both."""
    cold = run(code, cache, **environment, **(first or {}))
    if not cold:
        return None
    warm = [run(code, cache, **environment) for _ in range(ROUNDS)]
    return {"cold_ms": 1e3 * cold[0], "warm_ms": 1e3 * statistics.median(w[0] for w in warm), "compiles": max(w[1] for w in warm),
            "interpreted": max(w[2] for w in warm)}


def pack_of(cache):
    """A pack of the kernels in a folder that was filled before."""
    kiln = str(ROOT / "build" / "kiln")
    pack = str(Path(cache, "all.pack"))
    subprocess.run([kiln, "cache", "export", pack], check=True, stdout=subprocess.DEVNULL, env={**os.environ, "KILN_CACHE": "disk", "KILN_CACHE_DIR": cache})
    return pack


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="kiln-warm-") as folder:
        def place(name):
            Path(folder, name).mkdir()
            return str(Path(folder, name))
        numba, kiln, none = place("numba"), place("kiln"), place("none")
        Path(numba, "numba_functions.py").write_text(NUMBA_MODULE)
        kept = {"KILN_CACHE": "disk", "KILN_CACHE_DIR": kiln, "KILN_MODE": "sync"}
        found = {"Kiln, folder": measure(KILN, kiln, **kept)}
        found["Kiln, pack"] = measure(KILN, none, **{**kept, "KILN_CACHE_DIR": none, "KILN_PACK": pack_of(kiln)})
        found["Numba, cache=True"] = measure(NUMBA, numba, NUMBA_CACHE_DIR=numba)
        found["JAX, persistent cache"] = measure(JAX, place("jax"))
        found["Inductor, FX graph cache"] = measure(TORCH, place("inductor"), TORCHINDUCTOR_CACHE_DIR=str(Path(folder, "inductor")))
    if given.json:
        print(json.dumps(found))
        return
    print(f"{'five first calls, ms':28}{'empty cache':>14}{'warm cache':>14}")
    for name, f in found.items():
        print(f"{name:28}" + (f"{f['cold_ms']:14.1f}{f['warm_ms']:14.2f}" if f else f"{'not installed':>28}"))
    for name in ("Kiln, folder", "Kiln, pack"):
        if found[name]["compiles"]:
            raise SystemExit(f"{name}: {found[name]['compiles']:.0f} kernels were compiled although the cache was warm")


if __name__ == "__main__":
    main()
