"""Every code block of README.md and docs/*.md does what the document says; docs/TESTING.md lists the kinds of block.

Blocks that install, build or measure are not run: what they name must exist.  Expected times stand for any time.
"""
import os
import re
import shutil
import subprocess
import sys

import pytest

import commands
from blocks import BLOCKS, DOCUMENTS, ROOT, blocks_of, difference, pattern_of, prose_of

HERE = ROOT / "tests/docs"


@pytest.fixture(scope="session")
def folder_of(tmp_path_factory):
    """A folder for the commands of a document, in which the source tree's own folders seem to lie and its C blocks are files."""
    made = {}

    def make(document):
        if document not in made:
            made[document] = folder = tmp_path_factory.mktemp("docs")
            for name in ("build", ".venv", "bench", "examples", "tools", "include", "ops"):
                (folder / name).symlink_to(ROOT / name)
            for block in BLOCKS:
                if block.document == document and block.kind == "c" and block.rest:
                    (folder / block.rest).write_text(block.text)
        return made[document]
    return make


@pytest.fixture(scope="session")
def environment(tmp_path_factory):
    home = tmp_path_factory.mktemp("home")
    kept = {name: value for name, value in os.environ.items() if not name.startswith("KILN_")}
    path = f"{ROOT / 'build'}:{ROOT / '.venv/bin'}:{os.environ['PATH']}"
    return kept | {"PATH": path, "HOME": str(home), "KILN_CACHE_DIR": str(home / "cache"), "KILN_CACHE": "memory", "NO_COLOR": "1", "LC_ALL": "C.UTF-8",
                   "PKG_CONFIG_PATH": f"{HERE}/pkgconfig", "LD_LIBRARY_PATH": str(ROOT / "build")}


def of_kind(*kinds):
    return pytest.mark.parametrize("block", [block for block in BLOCKS if block.kind in kinds], ids=str)


def test_kinds():
    """No block is of a kind that no test runs, and none hides as indented text."""
    known = {"python", "console", "sh", "c", "ops", "refused", "ir", "tree", "grammar", "text"}
    unknown = [f"{block}: {block.kind!r}" for block in BLOCKS if block.kind not in known]
    assert not unknown, unknown
    for path in DOCUMENTS:
        lines = prose_of(path)
        indented = [number for (_, before), (number, line) in zip(lines, lines[1:]) if line.startswith("    ") and not before.strip()]
        assert not indented, f"{path.name}: indented blocks are not tested: lines {indented}"


@of_kind("python")
def test_python(block, folder_of, environment):
    done = subprocess.run([sys.executable, HERE / "run_block.py"], input=block.text, cwd=folder_of(block.document), env=environment | {"PYTHONPATH": str(HERE)},
                          capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr


def console_steps(text):
    """Pairs of a command and its output.  A command goes on after a backslash, and to the end of its here-document."""
    steps, lines = [], text.rstrip("\n").split("\n")
    assert lines[0].startswith("$ "), "a console block begins with a command"
    while lines:
        command = lines.pop(0)[2:]
        while command.endswith("\\"):
            command += "\n" + lines.pop(0)
        if end := re.search(r"<<'(\w+)'", command):
            while not command.endswith("\n" + end.group(1)):
                command += "\n" + lines.pop(0)
        output = []
        while lines and not lines[0].startswith("$ "):
            output.append(lines.pop(0))
        steps.append((command, "\n".join(output)))
    return steps


@of_kind("console")
def test_console(block, folder_of, environment):
    kept = {"KILN_CACHE": "disk", "KILN_CACHE_DIR": str(folder_of(block.document) / "kept")} if block.document == "CACHE.md" else {}
    for command, expected in console_steps(block.text):
        done = subprocess.run(["bash", "-c", command], cwd=folder_of(block.document), env=environment | kept, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, timeout=120)
        told = difference(expected, done.stdout)
        assert told is None, f"$ {command}\n{told}"


@of_kind("sh")
def test_commands_exist(block):
    for line in block.text.split("\n"):
        commands.check(line)


@of_kind("c")
def test_c(block, folder_of, environment, tmp_path):
    """Compiles and runs; a comment `=> TEXT` says what the program prints there."""
    source, program = tmp_path / "block.c", tmp_path / "block"
    source.write_text(block.text)
    subprocess.run(["cc", "-std=c11", "-Wall", "-Werror", f"-I{ROOT / 'include'}", source, "-o", program, f"-L{ROOT / 'build'}", "-lkiln"], check=True)
    done = subprocess.run([program], env=environment, capture_output=True, text=True, timeout=60)
    expected = re.findall(r"/\* => (.*?) \*/", block.text)
    assert done.returncode == 0 and expected, done.stderr
    assert difference("\n".join(expected), done.stdout) is None, done.stdout


def as_own_rows(text):
    """Rows of PyTorch's operators under names of a namespace of their own: documents show them shortened, which Kiln's own names forbid."""
    text = re.sub(r"^(map|fold|scan|index|compose|extern) (?!\w+::)", r"\1 doc::", text, flags=re.M)
    text = re.sub(r"^complex (\w+)", r"complex doc_\1", text, flags=re.M)
    return re.sub(r"\bcheck( +)torch\b", r"check\1", text)


@of_kind("ops")
def test_rows(block, tmp_path):
    """Rows load.  The family index is typed, and refused because nothing runs it."""
    import kiln
    if block.text.startswith("index "):
        with pytest.raises(NotImplementedError, match="are not served yet"):
            kiln.load_ops(as_own_rows(block.text))
    else:
        kiln.load_ops(as_own_rows(block.text), replace=True)


def refusals(text):
    """Pairs of rows and the message that refuses them, which stands in the lines after `->`."""
    for part in text.rstrip("\n").split("\n\n"):
        rows, _, message = part.partition("\n-> ")
        assert message, f"no line begins with '->' after:\n{part}"
        yield rows + "\n", message


@of_kind("refused")
def test_refusals(block, tmp_path, environment):
    for rows, message in refusals(block.text):
        (tmp_path / "my.ops").write_text(rows)
        done = subprocess.run(["kiln", "ops", "check", "my.ops"], cwd=tmp_path, env=environment, capture_output=True, text=True)
        assert done.returncode == 1 and re.search(pattern_of(message), done.stdout + done.stderr), f"{rows}{done.stdout}{done.stderr}"


def plain_ir(text):
    return re.sub(r"\s+", " ", re.sub(r"#.*", "", text)).strip()


@of_kind("ir")
def test_ir(block, environment):
    """The block is part of what a call comes to; `..` in it stands for any text, and its comments for nothing."""
    done = subprocess.run(["kiln", "explain", "--stage=ir", block.rest], env=environment, capture_output=True, text=True)
    wanted = ".*?".join(re.escape(part.strip()).replace(r"\ ", " *") for part in plain_ir(block.text).split(" .. "))
    assert done.returncode == 0 and re.search(wanted, plain_ir(done.stdout)), done.stdout + done.stderr


@of_kind("tree")
@pytest.mark.parametrize("n", (1, 63, 64, 1000, 1024, 1025, 7000))
def test_tree_of_a_fold(block, n, tmp_path):
    """The C that describes the tree of a fold gives the very bits of `sum` along a row, whose tree has these numbers."""
    import kiln
    import numpy as np
    x = np.random.default_rng(n).standard_normal(n).astype(np.float32)
    (tmp_path / "x").write_bytes(x.tobytes())
    (tmp_path / "tree.c").write_text("""#include <stdio.h>
#define min(a, b) ((a) < (b) ? (a) : (b))
#define step(s, at) ((s) + x[at])
#define merge(left, right) ((left) + (right))
enum { L = 64, B = 1024 };
int main(void) {
    static float x[8192], lane[L], stack[64];
    const float init = 0;
    int n = (int)fread(x, sizeof *x, 8192, stdin), b, l, i, m, w, k, top = 0;
""" + block.text + """    return fwrite(stack, sizeof *stack, 1, stdout) != 1;
}
""")
    subprocess.run(["cc", "-std=c11", "-ffp-contract=off", tmp_path / "tree.c", "-o", tmp_path / "tree"], check=True)
    with open(tmp_path / "x", "rb") as numbers:
        made = subprocess.run([tmp_path / "tree"], stdin=numbers, capture_output=True, check=True).stdout
    assert made == kiln.call("sum", x).tobytes()


@of_kind("grammar")
def test_grammar(block):
    """Every word that the grammar quotes stands in the sources of the folders that it names."""
    source = "".join(path.read_text() for folder in block.rest.split() for path in sorted((ROOT / folder).iterdir()) if path.is_file())
    words = set(re.findall(r"[\"']([a-z_]{2,})[\"']", re.sub(r"\s{2,}#.*", "", block.text)))
    assert len(words) > 5
    missing = [word for word in sorted(words) if not re.search(rf"\b{word}\b", source)]
    assert not missing, missing


# -- what documents say outside their blocks ------------------------------------------------------------------------

@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_words(path):
    """Commands, files and links that the text names exist."""
    wrong = []
    lines = prose_of(path) + [(block.line, line) for block in blocks_of(path) if block.kind == "text" for line in block.text.split("\n")]
    for number, line in lines:
        for code in re.findall(r"`([^`]+)`", line) if path.name != "OPERATORS.md" else []:
            wrong += [f"{path.name}:{number}: {told}" for told in commands.wrong_words(code)]
        for target in re.findall(r"\]\(([^)#]+)[^)]*\)", line):
            if not target.startswith("http") and not (path.parent / target).exists():
                wrong.append(f"{path.name}:{number}: no file {target}")
    assert not wrong, "\n".join(wrong)


def test_length_of_readme():
    assert len((ROOT / "README.md").read_text().split("\n")) <= 201


# -- the tests themselves can fail ---------------------------------------------------------------------------------

def test_planted_differences(environment, tmp_path):
    assert difference("took 3 ms", "took   17.5 us") is None and difference("took 3 ms", "took 3 bytes")
    assert difference("a\n...\nd", "a\nb\nc\nd") is None and difference("a\n...\nd", "a\nb\nc")
    for block, status in (("x = 1\nx + 1  # => 2\nprint(x)  # => 1", 0), ("1 + 1  # => 3", 1), ("raise ValueError", 1)):
        done = subprocess.run([sys.executable, HERE / "run_block.py"], input=block, env=environment | {"PYTHONPATH": str(HERE)}, capture_output=True, text=True)
        assert done.returncode == status, done.stdout + done.stderr
    for line in ("make nonsense", "tools/nonsense.sh", ".venv/bin/python bench/peers.py --nonsense", "kiln nonsense", "rm -rf x"):
        with pytest.raises(AssertionError):
            commands.check(line)
    assert commands.wrong_words("bench/nonsense.py") and commands.wrong_words("src/nonsense.c") and not commands.wrong_words("bench/peers.py kernels")
    assert shutil.which("kiln", path=environment["PATH"]) == str(ROOT / "build/kiln")
