"""The wheel and the source archive: what they hold, and that they work outside the source tree."""
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

import kiln

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ["src", "cli", "include", "ops", "python", "tools/embed.c", "tools/index_ops.c", "bench/command", "bench/kernels.txt", "bench/folds.txt", "setup.py", "pyproject.toml", "MANIFEST.in", "LICENSE", "README.md"]
BUILT_SOON = {"KILN_CFLAGS": "-O0 -g0"}  # which matters more here than fast; the loops keep their -O2
PROGRAM = """
import kiln, sys
assert {here!r} not in kiln.__file__ and kiln.__file__.startswith({target!r}), kiln.__file__
import numpy as np, torch
assert len(kiln.ops()) > 50
x = np.arange(6, dtype=np.float32).reshape(2, 3)
for mode in ("tiered", "sync", "interp", "frozen"):
    kiln.configure(mode=mode)
    assert (kiln.call("aten::add.Tensor", x, x, alpha=2) == 3 * x).all()
    assert torch.equal(kiln.call("aten::neg", torch.from_numpy(x)), -torch.from_numpy(x))
print("works,", kiln.show_config().splitlines()[0])
"""


def run(*command, cwd, **environment):
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, env={**os.environ, **environment}, timeout=600)
    assert done.returncode == 0, f"{command}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    return done.stdout


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    """A copy of the sources: building must not need, nor change, anything else."""
    to = tmp_path_factory.mktemp("tree")
    for name in SOURCES:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, to / name, ignore=shutil.ignore_patterns("*.so", "__pycache__"))
        elif source.exists():
            (to / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, to / name)
    return to


def backend(tree, what, **environment):
    """Builds through the interface pip uses: the name of the file made in tree/dist."""
    code = f"import setuptools.build_meta as b; import os; os.makedirs('dist', exist_ok=True); print('made', b.{what}('dist'))"
    return tree / "dist" / run(sys.executable, "-c", code, cwd=tree, **environment).split("made ")[-1].strip()


def works(wheel, tmp_path):
    target = str(tmp_path / "installed")
    run(sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--no-deps", "--no-index", "--target", target,
        str(wheel), cwd=tmp_path)
    program = PROGRAM.format(here=str(ROOT), target=target)
    out = run(sys.executable, "-c", program, cwd=tmp_path, PYTHONPATH=target, KILN_CACHE_DIR=str(tmp_path / "cache"))
    assert out.strip() == f"works, {kiln.show_config().splitlines()[0]}"  # and carries the same build stamp
    return Path(target)


def command_runs(target, tmp_path):
    """The command by its name, which needs nothing of the source tree, nor a library of the machine's beside C's."""
    environment = {"PYTHONPATH": str(target), "KILN_CACHE_DIR": str(tmp_path / "cache")}
    out = run(str(target / "bin/kiln"), "run", "add.Tensor(i64[2]:fill=arange, i64[2]:fill=5, alpha=2)", cwd=tmp_path, **environment)
    assert "[10, 11]" in out
    assert run(str(target / "bin/kiln"), "--version", cwd=tmp_path, **environment).strip().endswith(kiln.__version__)
    libraries = {line.split()[0].split(".so")[0] for line in run("ldd", str(target / "kiln/bin/kiln"), cwd=tmp_path).splitlines()}
    assert not {name for name in libraries if "jansson" in name}


def test_what_is_missing_is_said_in_one_line(tree, tmp_path):
    """Without headers, and without a compiler that works."""
    poor = tmp_path / "cc"
    poor.write_text("#!/bin/sh\nfor word; do case $word in *trial.c) ! grep -q 'xxhash\\|jansson' $word || exit 1;; esac; done\nexec gcc \"$@\"\n")
    poor.chmod(0o755)
    for compiler, said in ((poor, "kiln: xxhash.h and jansson.h not found; on Debian: apt-get install libxxhash-dev libjansson-dev"),
                           ("/bin/false", "kiln: the C compiler '/bin/false' does not work; on Debian: apt-get install gcc libc6-dev")):
        done = subprocess.run([sys.executable, "setup.py", "-q", "build_ext", "--build-temp", str(tmp_path / "temp"), "--build-lib", str(tmp_path / "lib")],
                              cwd=tree, env={**os.environ, "CC": str(compiler)}, capture_output=True, text=True)
        assert done.returncode == 1 and done.stderr.strip().splitlines()[-1] == said, done.stderr


def bridge_builds(target, tmp_path):
    """What is installed can build its bridge to PyTorch, into a folder of the user's."""
    environment = {"PYTHONPATH": str(target), "KILN_CACHE_DIR": str(tmp_path / "cache")}
    code = "import kiln.torch, torch; kiln.torch.enable(['neg']); torch.neg(torch.ones(2)); print(kiln.torch.status().rows)"
    failed = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env={**os.environ, **environment}, capture_output=True, text=True)
    assert failed.returncode and "run  python -m kiln.torch build" in failed.stderr
    made = run(sys.executable, "-m", "kiln.torch", "build", cwd=tmp_path, **environment).strip()
    assert made.startswith(str(tmp_path / "cache")) and os.stat(tmp_path / "cache/torch").st_mode & 0o777 == 0o700
    assert "operator='aten::neg', taken=True, served=1" in run(sys.executable, "-c", code, cwd=tmp_path, **environment)


def test_wheel(tree, tmp_path):
    library = ROOT / "build" / "libkiln.a"
    wheel = backend(tree, "build_wheel", **BUILT_SOON, **({"KILN_STATIC_LIB": str(library)} if library.exists() else {}))
    assert "-cp310-abi3-linux_" in wheel.name
    names = zipfile.ZipFile(wheel).namelist()
    assert {"kiln/__init__.py", "kiln/__init__.pyi", "kiln/py.typed", "kiln/_kiln.abi3.so"} <= set(names)
    assert not [n for n in names if n.endswith((".c", ".h", ".o")) and "/torch/src/" not in n]
    target = works(wheel, tmp_path)
    command_runs(target, tmp_path)
    bridge_builds(target, tmp_path)
    symbols = run("nm", "-D", "--defined-only", str(target / "kiln/_kiln.abi3.so"), cwd=tmp_path).split()
    assert [s for s in symbols if s.startswith(("kiln", "Py", "kp_"))] == ["PyInit__kiln"]


def test_source_archive(tree, tmp_path):
    """From the archive alone, with a C compiler and nothing else, to a module that works."""
    archive = backend(tree, "build_sdist")
    with tarfile.open(archive) as tar:
        names = tar.getnames()
    run("tar", "-xzf", str(archive), "-C", str(tmp_path), cwd=tmp_path)  # Python's own asks for a filter by its version
    assert not [n for n in names if n.endswith((".so", ".o", ".pyc"))]
    works(backend(next(tmp_path.glob("kiln_tensor-*")), "build_wheel", **BUILT_SOON), tmp_path)
