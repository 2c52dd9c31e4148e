#!/usr/bin/env python3
"""tidy.py [--shallow | --one FILE] - clang-tidy over every file that the dev build compiles, one process each.

Nearly all of its time goes to the analyzer, which has a shallow mode that takes a tenth of it.  Without --shallow all is
analysed in full.  With it, in full what the work tree or the last commit changed, the rest shallowly.  A file found right is
not looked at again until its text after the preprocessor (comments kept), its command, the checks or clang-tidy change.
--one shows what the shallow mode says of a file that is no part of the build.

Each file is taken as it is compiled first, by a process of its own: the analyzer misreads va_list in the second of two
readings.  loops.c is one file built many times, and generated files are not ours.
"""
import concurrent.futures
import hashlib
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build-dev"
STAMPS = BUILD / "tidy"
OURS = re.compile(r"(src|cli|bench|tests|tools)/(?!run/loops\.c$)")
SHALLOW = [f"--extra-arg={word}" for word in ("-Xclang", "-analyzer-config", "-Xclang", "mode=shallow")]


def output(*command):
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout


def commands():
    """File -> the first command that compiles it."""
    first = {}
    for command in json.loads((BUILD / "compile_commands.json").read_text()):
        first.setdefault(os.path.relpath(command["file"], ROOT), command)
    return {file: command for file, command in sorted(first.items()) if OURS.match(file)}


def changed():
    """Files that the work tree or the last commit changed; none where there is no git."""
    try:
        return set(output("git", "diff", "--name-only", "HEAD~1").split())
    except (OSError, subprocess.CalledProcessError):
        return set()


def tool():
    """What decides beside the file itself."""
    configs = [ROOT / ".clang-tidy", *ROOT.glob("*/.clang-tidy")]
    return output("clang-tidy", "--version") + "".join(config.read_text() for config in sorted(configs))


def key_of(command, common):
    words = shlex.split(command["command"])
    at = words.index("-o")
    words = words[:at] + words[at + 2:]
    read = subprocess.run([*words, "-E", "-CC"], cwd=command["directory"], capture_output=True, check=True).stdout
    return hashlib.sha256("\0".join([common, *words]).encode() + read).hexdigest()


def check(file, command, common, deep):
    """(key, what clang-tidy says of the file or None where it is known to be right, whether it is right)."""
    key = key_of(command, common)
    if (STAMPS / f"{key}.deep").exists() or (not deep and (STAMPS / f"{key}.shallow").exists()):
        return key, None, True
    said = subprocess.run(["clang-tidy", "-p", STAMPS, "--quiet", "--warnings-as-errors=*", *([] if deep else SHALLOW), file],
                          cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if said.returncode == 0:
        (STAMPS / f"{key}.{'deep' if deep else 'shallow'}").touch()
    return key, said.stdout or (said.stderr if said.returncode else ""), said.returncode == 0


def show(file):
    config = f"--config-file={ROOT / '.clang-tidy'}"
    return subprocess.run(["clang-tidy", "--quiet", config, *SHALLOW, file, "--"], stderr=subprocess.DEVNULL).returncode


def main():
    files, common = commands(), tool()
    STAMPS.mkdir(exist_ok=True)
    (STAMPS / "compile_commands.json").write_text(json.dumps(list(files.values())))
    deep = changed() if "--shallow" in sys.argv[1:] else set(files)
    keys, known, wrong = set(), 0, 0
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        waiting = [pool.submit(check, file, command, common, file in deep) for file, command in files.items()]
        for n, done in enumerate(concurrent.futures.as_completed(waiting), 1):
            key, said, right = done.result()
            keys.add(key)
            known += said is None
            wrong += not right
            print(said or "", end="")
            if n % 20 == 0:
                print(f"[{n}/{len(files)}]", flush=True)
    for stamp in STAMPS.glob("*.*"):
        if stamp.suffix in (".deep", ".shallow") and stamp.stem not in keys:
            stamp.unlink()
    print(f"{len(files)} files, {wrong} wrong; {len(deep & set(files))} in full, {known} were known to be right")
    return wrong != 0


sys.exit(show(sys.argv[2]) if sys.argv[1:2] == ["--one"] else main())
