"""Code blocks of README.md and docs/*.md, and how expected output is compared.

A block is what stands between fences; the word after the opening fence says what kind of text it is, and further words belong
to the kind.  Knows documents as text only: test_blocks.py decides what is run.
"""
import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


@dataclass(frozen=True)
class Block:
    document: str
    line: int  # of the opening fence, from 1
    kind: str  # the first word after the fence, "" if there is none
    rest: str  # the other words
    text: str

    def __str__(self):
        return f"{self.document}:{self.line}"


def blocks_of(path):
    """The fenced blocks of a document, in order."""
    found, opened, lines = [], None, path.read_text().split("\n")
    for number, line in enumerate(lines, 1):
        if not line.startswith("```"):
            continue
        if opened is None:
            opened = number
            continue
        kind, _, rest = lines[opened - 1][3:].strip().partition(" ")
        found.append(Block(path.name, opened, kind, rest, "\n".join(lines[opened:number - 1]) + "\n"))
        opened = None
    assert opened is None, f"{path.name}:{opened}: the block has no end"
    return found


def prose_of(path):
    """Lines of a document outside its blocks, with their numbers."""
    inside, found = False, []
    for number, line in enumerate(path.read_text().split("\n"), 1):
        if line.startswith("```"):
            inside = not inside
        elif not inside:
            found.append((number, line))
    return found


BLOCKS = [block for path in DOCUMENTS for block in blocks_of(path)]
TIME = re.compile(r"\d[\d,]*(\.\d+)? (ns|us|ms|s)\b")


def pattern_of(expected):
    """A regular expression for one line of expected output: a time stands for any time, `...` for any text, and several spaces for any number."""
    parts = re.split(r"(\.\.\.|\d[\d,]*(?:\.\d+)? (?:ns|us|ms|s)\b)", expected.rstrip())
    return "".join(r".*" if part == "..." else r" *\d[\d,]*(\.\d+)? (ns|us|ms|s)" if TIME.fullmatch(part) else re.sub(r"(\\ ){2,}", " +", re.escape(part))
                   for part in parts if part)


def difference(expected, got):
    """None if the output is the expected one, else what differs.  A line `...` stands for any number of lines."""
    want = expected.rstrip("\n").split("\n")
    have = [line.rstrip() for line in got.rstrip("\n").split("\n")]
    whole = "\n".join("(?:.*\n)*?.*" if line.strip() == "..." else pattern_of(line) for line in want)
    if re.fullmatch(whole, "\n".join(have)):
        return None
    return "the document says:\n" + "\n".join(want) + "\nand the program:\n" + "\n".join(have)
