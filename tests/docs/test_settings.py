"""docs/OPERATIONS.md names every setting: environment variables that the code reads, fields of kiln_config, arguments of kiln.configure."""
import inspect
import re

import kiln
from blocks import ROOT

PAGE = (ROOT / "docs/OPERATIONS.md").read_text()
ROWS = [[cell.strip() for cell in line.split("|")[1:-1]] for line in PAGE.split("## Settings")[1].split("\n## ")[0].split("\n") if line.startswith("|")][2:]
READS = (re.compile(r'\b(?:(?:secure_)?get)?env\("(\w+)"\)'), re.compile(r'\b(?:number|setting|keep_text)\([^;]*?"(KILN_\w+)"'), re.compile(r"""environ(?:\.get\(|\[|\.pop\(|\.setdefault\()["'](\w+)["']"""),
         re.compile(r"\$\{?(KILN_[A-Z_]+)"))
OTHERS = {"NO_COLOR", "TERM", "TORCH_CPP_LOG_LEVEL", "SHELL"}  # of terminals and PyTorch


def read_in(*folders):
    found = set()
    for folder in folders:
        for path in sorted((ROOT / folder).rglob("*")) if (ROOT / folder).is_dir() else [ROOT / folder]:
            if path.suffix in {".c", ".h", ".cpp", ".py", ".sh"}:
                found.update(name for pattern in READS for name in pattern.findall(path.read_text()))
    return found


def names_in(column):
    return {name for row in ROWS for name in re.findall(r"`(\w+)`", row[column])}


def test_variables_of_the_library():
    read = read_in("src", "cli", "bench/command", "python") - OTHERS
    assert {"KILN_MODE", "KILN_CC", "XDG_CACHE_HOME", "TMPDIR"} <= read, "the search itself finds too little"
    assert {name for name in read if name.startswith("KILN_")} == names_in(0)
    assert not [name for name in sorted(read) if name not in PAGE]


def test_variables_of_tests_and_tools():
    read = {name for name in read_in("tests", "tools", "bench", "setup.py") if name.startswith("KILN_")} - names_in(0)
    assert read and not [name for name in sorted(read) if name not in PAGE], read


def test_configure():
    assert names_in(1) == set(inspect.signature(kiln.configure).parameters)


def test_config_of_c():
    text = re.search(r"typedef struct kiln_config \{(.*?)\} kiln_config;", (ROOT / "include/kiln/kiln.h").read_text(), re.S).group(1)
    fields = set(re.findall(r"(\w+);", re.sub(r"/\*.*?\*/", "", text, flags=re.S))) - {"size"}
    assert names_in(2) == fields
