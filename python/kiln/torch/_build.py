"""Finds and builds the bridge, the one C++ file that a PyTorch needs: bridge-VERSION-ABI.so.

It is looked for beside this module, where a build of the package puts it, and then, also if that one is refused, in a private
folder of the user's cache, where `python -m kiln.torch build` puts it.  What others could have written is not loaded.
"""
import os
import shlex
import shutil
import stat
import subprocess
import tempfile
from pathlib import Path

import torch

HERE = Path(__file__).resolve().parent
TREE = HERE.parents[2]  # of the project, where this is not installed


def name():
    abi = "cxx11" if torch.compiled_with_cxx11_abi() else "gcc4"
    return f"bridge-{torch.__version__}-{abi}.so"


def folder():
    """The private folder."""
    cache = os.environ.get("KILN_CACHE_DIR") or os.path.join(
        os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "kiln")
    return Path(cache) / "torch"


def _is_ours(path):
    """Whether nobody else can have written it."""
    try:
        info = path.stat()
    except OSError:
        return False
    return info.st_uid in (os.geteuid(), 0) and not info.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def found():
    """The bridges that there are."""
    beside, private = HERE / name(), folder() / name()
    if beside.exists():
        yield beside
    if not os.path.exists(private):
        return
    for path in (folder(), private):
        if not _is_ours(path):
            raise RuntimeError(f"{path} can be written by others, or is not yours: it is not loaded")
    yield private


def _sources():
    """The source file and its folders of headers: of an installed package, or of the project."""
    shipped = HERE / "src"
    if (shipped / "torch_bridge.cpp").exists():
        return shipped / "torch_bridge.cpp", [shipped]
    return TREE / "python" / "csrc" / "torch_bridge.cpp", [TREE / "include", TREE / "python" / "csrc"]


def _compiler():
    for found in (os.environ.get("CXX"), "g++", "c++", "clang++"):
        if found and shutil.which(shlex.split(found)[0]):
            return shlex.split(found)
    raise RuntimeError("there is no C++ compiler: install g++, or name one in CXX")


def command(source, headers, out):
    root = Path(torch.__file__).resolve().parent
    return [*_compiler(), "-std=c++20", "-O2", "-g1", "-fPIC", "-shared", "-fvisibility=hidden", "-Wall", "-Wextra",
            f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.compiled_with_cxx11_abi())}", *(f"-I{path}" for path in headers),
            "-isystem", str(root / "include"), "-isystem", str(root / "include/torch/csrc/api/include"), str(source),
            f"-L{root / 'lib'}", "-ltorch_cpu", "-lc10", "-o", str(out)]


def _is_new(made, headers):
    """Whether made is younger than whatever it may be made of."""
    files = [path for folder in headers for path in folder.rglob("*") if path.is_file()]
    return made.exists() and made.stat().st_mtime > max(path.stat().st_mtime for path in files)


def build(in_place=False):
    """Builds the bridge for the running PyTorch; its path.  Nothing is left behind if that fails."""
    to = HERE if in_place else folder()
    source, headers = _sources()
    if not source.exists():
        raise RuntimeError(f"the bridge's source is missing: {source}")
    if in_place and _is_new(to / name(), headers):
        return to / name()
    try:
        to.mkdir(parents=True, exist_ok=True, mode=0o700)
        with tempfile.TemporaryDirectory(dir=to) as scratch:
            made = Path(scratch) / name()
            done = subprocess.run(command(source, headers, made), capture_output=True, text=True)
            if done.returncode:
                raise RuntimeError(f"the C++ compiler failed:\n{done.stderr[-4000:]}")
            made.chmod(0o755)
            made.replace(to / name())
    except OSError as error:
        raise RuntimeError(f"cannot write into {to}: {error}") from error
    return to / name()
