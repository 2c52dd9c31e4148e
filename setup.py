"""Builds kiln._kiln: Kiln's whole library and the Python interface in one shared object; for a wheel the kiln command, too.

KILN_STATIC_LIB names a libkiln.a to link; without it the library is compiled here from src/, as
CMakeLists.txt, src/run/loops.cmake and src/math/embed.cmake do.  KILN_CFLAGS adds compiler flags.
"""
import contextlib
import os
import platform
import re
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from setuptools import Extension, setup
from setuptools.errors import CompileError, LinkError
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py

ROOT = Path(__file__).resolve().parent
os.chdir(ROOT)
# Bits of results depend on the first two.
FLAGS = ["-ffp-contract=off", "-fwrapv", "-std=c11", "-O2", "-g1", "-fvisibility=hidden", "-D_GNU_SOURCE", "-DNDEBUG",
         *os.environ.get("KILN_CFLAGS", "").split()]
INCLUDES = ["include", "src"]
SHARED = ["calltext", "element", "npy", "tensorfill", "loglines", "statlines"]  # calls written as text, lines of KILN_LOG and KILN_STATS: shared with the command


def version():
    header = Path("include/kiln/kiln.h").read_text()
    return ".".join(re.search(rf"#define KILN_VERSION_{part} (\d+)", header)[1] for part in ("MAJOR", "MINOR", "PATCH"))


def loop_levels():
    """ISA level -> its compiler flags, for src/run/loops.c."""
    levels = {"GENERIC": ["-DKILN_VB=16"]}
    machine = platform.machine().lower()
    if machine in ("x86_64", "amd64"):
        levels |= {f"V{n}": [f"-march=x86-64-v{n}", f"-DKILN_ISA_X86_V{n}=1", f"-DKILN_VB={nbytes}"]
                   for n, nbytes in ((2, 16), (3, 32), (4, 64))}
    elif machine in ("aarch64", "arm64"):
        levels["A64"] = ["-march=armv8-a", "-DKILN_LOOPS_A64=1", "-DKILN_VB=16"]
    return levels


def reads_rows(source):
    """Whether a file is part of what reads rows: the library's, and the tool's that checks them."""
    layer = source.split("/")[1]
    return layer in ("base", "schema", "expr", "op") or (layer == "family" and source.endswith("rules.c"))


def stamped():
    patterns = [line for line in Path("src/target/cpu/stamped.txt").read_text().splitlines() if not line.startswith("#")]
    return sorted({str(path) for pattern in patterns for path in Path().glob(pattern)})


NEEDED = {"xxhash.h": "libxxhash-dev", "jansson.h": "libjansson-dev"}  # beside a C compiler: headers, and packages that have them


class CopyBridge(build_py):
    """Puts the source of the bridge to PyTorch beside kiln.torch, which builds it where PyTorch is (python -m kiln.torch build)."""
    def run(self):
        super().run()
        to = Path(self.build_lib) / "kiln/torch/src"
        for path in [*sorted(Path("python/csrc").glob("torch_*")), *Path("include/kiln").iterdir()]:
            copy = to / ("kiln" if path.parent.name == "kiln" else "") / path.name
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, copy)


class BuildKiln(build_ext):
    def build_extension(self, ext):
        temp = Path(self.build_temp)
        temp.mkdir(parents=True, exist_ok=True)
        # One symbol leaves the object: another libkiln in the process is not mixed up with this one.
        exports = temp / "exports.map"
        exports.write_text("{ global: PyInit__kiln; local: *; };\n")
        ext.extra_link_args += [f"-Wl,--version-script={exports}"]
        self.say_what_is_missing(temp)
        library = os.environ.get("KILN_STATIC_LIB")
        objects = [library] if library else self.library_objects(temp)
        ext.extra_objects = objects
        ext.depends += objects
        super().build_extension(ext)
        if "bdist_wheel" in self.distribution.commands:
            self.build_command(temp, objects)

    def say_what_is_missing(self, temp):
        """One line, before anything is built."""
        def compiles(header):
            trial = temp / "trial.c"
            trial.write_text(f"#include <{header}>\n" if header else "int kiln_trial;\n")
            with contextlib.redirect_stderr(None), contextlib.suppress(CompileError):
                return bool(self.compiler.compile([str(trial)], str(temp), include_dirs=INCLUDES, extra_postargs=["-w"]))
            return False

        if not compiles(None):
            raise SystemExit(f"kiln: the C compiler '{self.compiler.compiler[0]}' does not work; on Debian: apt-get install gcc libc6-dev")
        lacking = {header: package for header, package in NEEDED.items() if not compiles(header)}
        if lacking:
            raise SystemExit(f"kiln: {' and '.join(lacking)} not found; on Debian: apt-get install {' '.join(lacking.values())}")

    def build_command(self, temp, objects):
        """The program of cli/ and bench/command/, inside the package; kiln._command runs it.  jansson's archive is linked where there is one, so
        that the wheel needs no library of the machine's."""
        text = temp / "command_text.c"
        subprocess.run([self.build_tool("embed", temp, []), str(text), "bench_kernels_text=bench/kernels.txt", "bench_folds_text=bench/folds.txt",
                        "aten_tags_text=ops/aten-tags-2.13.tsv"], check=True)
        units = [(str(source), ["-I."], temp / "cli") for source in [*sorted(Path("cli").glob("*.c")), *sorted(Path("bench/command").glob("*.c")), text]]
        to = Path(self.build_lib) / "kiln/bin"
        to.mkdir(parents=True, exist_ok=True)
        own = self.compiled(units) + objects
        for jansson in (":libjansson.a", "jansson"):
            with contextlib.suppress(LinkError):
                return self.compiler.link_executable(own, "kiln", str(to), libraries=[jansson, "m", "dl", "pthread"])
        raise SystemExit("kiln: libjansson cannot be linked; on Debian: apt-get install libjansson-dev")

    def compiled(self, units):
        """Objects of (source, flags, folder), several at a time."""
        def compile_unit(unit):
            source, flags, folder = unit
            return self.compiler.compile([source], str(folder), include_dirs=INCLUDES, extra_postargs=FLAGS + flags)

        with ThreadPoolExecutor(os.cpu_count()) as pool:
            return [found for objects in pool.map(compile_unit, units) for found in objects]

    def library_objects(self, temp):
        found = [*Path("src").glob("*/*.c"), *Path("src/target").glob("*/*.c")]
        sources = {source: reads_rows(source) for source in sorted(map(str, found)) if not source.endswith("run/loops.c")}
        rows = self.compiled([(source, [], temp / "lib") for source, is_row in sources.items() if is_row])
        units = [(source, [], temp / "lib") for source, is_row in sources.items() if not is_row]
        units += [(source, [], temp / "lib") for source in self.generated_sources(temp, rows)]
        for level, own in loop_levels().items():
            for size in (1, 2, 4, 8):
                flags = [f"-DKILN_LOOPS_ISA={level}", f"-DKILN_LOOPS_SIZE={size}", "-O2", "-frounding-math", "-fno-math-errno", "-Wno-psabi", *own]
                units.append(("src/run/loops.c", flags, temp / f"loops-{level}-{size}"))
        return rows + self.compiled(units)

    def build_tool(self, name, temp, objects):
        self.compiler.link_executable(self.compiled([(f"tools/{name}.c", [], temp)]) + objects, name, str(temp),
                                      libraries=["m", "pthread"])
        return str(temp / name)

    def generated_sources(self, temp, rows):
        """C files that hold the operator rows with their index, the math source as text, and the build stamp."""
        def embedded(prefix, paths):
            return [f"{prefix}{re.sub(r'[^A-Za-z0-9_]', '_', path.name.split('.')[0])}={path}" for path in sorted(paths)]

        ops, schemas = sorted(Path("ops").glob("*.ops")), "ops/aten-schemas-2.13.txt"
        embed, index = self.build_tool("embed", temp, []), self.build_tool("index_ops", temp, rows)
        commands = {
            "math_text.c": [embed, "-i", "kiln_text_math", *embedded("kiln_text_math_", Path("src/math").glob("*.inc"))],
            "ops_text.c": [embed, f"kiln_text_schemas={schemas}", "-i", "kiln_text_ops", *embedded("kiln_text_ops_", ops)],
            "ops_index.c": [index, schemas, *map(str, ops)],
            "stamp.c": [embed, "-d", "kiln_emit_stamp", *stamped()],
        }
        for name, (tool, *arguments) in commands.items():
            subprocess.run([tool, str(temp / name), *arguments], check=True)
        return [str(temp / name) for name in commands]


setup(
    version=version(),
    package_dir={"": "python"},
    ext_modules=[Extension(
        "kiln._kiln",
        sorted(map(str, Path("python/csrc").glob("*.c"))) + [f"cli/{name}.c" for name in SHARED],
        include_dirs=["include", "."],
        depends=sorted(map(str, [*Path("python/csrc").glob("*.h"), *Path("cli").glob("*.h"), *Path("include/kiln").iterdir()])),
        extra_compile_args=[*FLAGS, "-Wall", "-Wextra", "-Wno-missing-field-initializers", "-Wno-unused-function"],
        libraries=["m", "dl", "pthread"],
        py_limited_api=True,
    )],
    cmdclass={"build_ext": BuildKiln, "build_py": CopyBridge},
    options={"bdist_wheel": {"py_limited_api": "cp310"}},
)
