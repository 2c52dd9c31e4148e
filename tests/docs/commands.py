"""Commands that documents name and tests do not run: set-up, builds, measurements.  What they name must exist.

`check` is for a line of a block; `wrong_words` for text between backquotes, of which most is no command.
"""
import re
import shlex
from functools import cache

from blocks import ROOT

FILE = re.compile(r"(?:[\w.-]+/)*[\w-]+\.(?:c|h|py|cpp|def|sh|inc|ops|md|txt|tsv|cmd|cmake)")


@cache
def text_of(name):
    return (ROOT / name).read_text()


@cache
def tree():
    """Every file of the source tree, and the last part of its path."""
    folders = ["src", "include", "cli", "python", "ops", "tests", "tools", "bench", "docs", "cmake", "examples"]
    files = [path.relative_to(ROOT) for folder in folders for path in (ROOT / folder).rglob("*") if path.is_file()]
    files += [path.relative_to(ROOT) for path in ROOT.iterdir() if path.is_file()]
    return {str(path) for path in files}, {path.name for path in files}


def has_file(name):
    paths, names = tree()
    return name in names if "/" not in name else any(path == name or path.endswith("/" + name) for path in paths)


def make(words):
    for word in words:
        if "=" not in word:
            assert re.search(rf"^{re.escape(word)}:", text_of("Makefile"), re.M), f"make has no target {word}"


def kiln(words):
    names = re.findall(r"^CMD\(\w+, (\w+)", text_of("cli/commands.def"), re.M)
    assert not words or words[0].startswith("-") or words[0] in names, f"kiln has no command {words[0]}"
    options = re.findall(r'^OPT\(\w+, "([\w-]+)"', text_of("cli/options.def"), re.M)
    for word in words:
        if option := re.match(r"--([\w-]+)", word):
            assert option[1] in options, f"kiln has no option --{option[1]}"
    if words[:1] == ["bench"]:
        for word in words[1:]:
            assert word.startswith("-") or re.search(rf"^BENCH\({word},", text_of("bench/command/benches.def"), re.M), f"kiln bench has no {word}"


def script(words):
    """A script of the tree: its options, and other words in small letters, stand in its text."""
    if not words:
        return
    assert has_file(words[0]), f"there is no {words[0]}"
    parts = sorted(ROOT.glob(words[0].removesuffix(".py") + "_*.py")) if words[0] == "bench/peers.py" else []
    text = text_of(words[0]) + " ".join(path.stem.partition("_")[2] for path in parts)
    for word in words[1:]:
        if re.fullmatch(r"--?[a-z][a-z-]*|[a-z][a-z-]+", word):
            assert re.search(rf"(?<![\w-]){re.escape(word)}(?![\w-])", text), f"{words[0]} does not know {word}"


def python(words):
    if words[:2] == ["-m", "pytest"]:
        for word in words[2:]:
            assert not word.startswith("tests/") or (ROOT / word).exists(), f"there is no {word}"
    elif words[:2] == ["-m", "pip"] or words[:1] == ["-c"]:
        pass
    elif words[:1] == ["-m"]:
        module = "python/" + words[1].replace(".", "/")
        assert has_file(module + ".py") or has_file(module + "/__main__.py"), f"there is no module {words[1]}"
    else:
        script(words)


def cmake(words):
    for name, word in zip(words, words[1:]):
        if name == "--preset":
            assert f'"name": "{word}"' in text_of("CMakePresets.json"), f"there is no preset {word}"
        if name == "--target":
            lists = "".join(path.read_text() for path in [*ROOT.rglob("CMakeLists.txt"), *(ROOT / "cmake").iterdir()] if ".venv" not in path.parts)
            assert re.search(rf"\b{word}\b", lists), f"there is no target {word}"


def built_test(words):
    assert has_file(words[0].rpartition("/")[2] + ".c"), f"there is no {words[0]}"


SET_UP = {"git", "apt-get", "sudo", "pip", "cd", "cc", "ldconfig", "export"}  # of the system: nothing of Kiln's to check


def checker(word):
    name = word.rpartition("/")[2]
    if word in SET_UP:
        return lambda words: None
    if word.startswith("build-"):
        return lambda words: built_test([word])
    if re.fullmatch(r"(bench|tools|tests)/[\w/-]+\.(sh|py)", word):
        return lambda words: script([word, *words])
    return {"make": make, "kiln": kiln, "cmake": cmake, "python": python, "python3": python}.get(name)


def check(line):
    """Fails if a line of shell names what is not there, or a command that nothing here knows."""
    for part in re.split(r"&&|\|\||[;|]", re.sub(r"(^|\s)#.*", "", line)):
        words = shlex.split(part)
        while words and re.fullmatch(r"\w+=.*", words[0]):
            words.pop(0)
        if words:
            known = checker(words[0])
            assert known, f"what should be checked of: {part.strip()}"
            known(words[1:])


MADE = {"example.c", "my.ops", "g.kg", "torch.ops"}  # made by blocks; a module


def wrong_words(code):
    """What is wrong with the commands and files that a piece of code in the text names."""
    told, words = [], code.split()
    known = checker(words[0]) if re.fullmatch(r"make|kiln|python3?|\.venv/bin/python|build/kiln|cmake|(bench|tools)/[\w-]+\.(py|sh)", words[0] if words else "") else None
    if known and "NAME" not in code and "PART" not in code:
        try:
            known([word for word in words[1:] if re.fullmatch(r"[\w./=:-]+", word)])
        except AssertionError as error:
            told.append(str(error))
    for word in words:
        name = word.rstrip(",;:")
        if FILE.fullmatch(name) and not re.search(r"NAME|[A-Z]{4,}/", name) and name not in MADE and not name.startswith(("build", "/", "~")):
            if not has_file(name):
                told.append(f"there is no file {name}")
    return told
