"""Builds kiln._kiln: Kiln's whole library and the Python interface in one shared object.

KILN_STATIC_LIB names a libkiln.a to link; without it the library is compiled here from src/, as
CMakeLists.txt, src/run/loops.cmake and src/math/embed.cmake do.  KILN_CFLAGS adds compiler flags.
"""
import os
import platform
import re
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

ROOT = Path(__file__).resolve().parent
os.chdir(ROOT)
# Bits of results depend on the first two.
FLAGS = ["-ffp-contract=off", "-fwrapv", "-std=c11", "-O2", "-g1", "-fvisibility=hidden", "-D_GNU_SOURCE", "-DNDEBUG",
         *os.environ.get("KILN_CFLAGS", "").split()]
INCLUDES = ["include", "src"]
CALL_TEXT = ["calltext", "element", "npy", "tensorfill"]  # calls written as text, shared with the command


def version():
    header = Path("include/kiln/kiln.h").read_text()
    return ".".join(re.search(rf"#define KILN_VERSION_{part} (\d+)", header)[1] for part in ("MAJOR", "MINOR", "PATCH"))


def loop_levels():
    """ISA level -> its compiler flags, for src/run/loops.c."""
    levels = {"GENERIC": []}
    machine = platform.machine().lower()
    if machine in ("x86_64", "amd64"):
        levels |= {f"V{n}": [f"-march=x86-64-v{n}"] for n in (2, 3, 4)}
    elif machine in ("aarch64", "arm64"):
        levels["A64"] = ["-march=armv8-a"]
    return levels


class BuildKiln(build_ext):
    def build_extension(self, ext):
        temp = Path(self.build_temp)
        temp.mkdir(parents=True, exist_ok=True)
        # One symbol leaves the object: another libkiln in the process is not mixed up with this one.
        exports = temp / "exports.map"
        exports.write_text("{ global: PyInit__kiln; local: *; };\n")
        ext.extra_link_args += [f"-Wl,--version-script={exports}"]
        library = os.environ.get("KILN_STATIC_LIB")
        objects = [library] if library else self.library_objects(temp)
        ext.extra_objects = objects
        ext.depends += objects
        super().build_extension(ext)

    def library_objects(self, temp):
        units = [(source, [], temp / "lib") for source in sorted(map(str, Path("src").glob("*/*.c")))
                 if not source.endswith("run/loops.c")]
        units += [(source, [], temp / "lib") for source in self.generated_sources(temp)]
        for level, march in loop_levels().items():
            for size in (1, 2, 4, 8):
                flags = [f"-DKILN_LOOPS_ISA={level}", f"-DKILN_LOOPS_SIZE={size}", "-O2", "-fno-math-errno", "-Wno-psabi", *march]
                units.append(("src/run/loops.c", flags, temp / f"loops-{level}-{size}"))

        def compile_unit(unit):
            source, flags, folder = unit
            return self.compiler.compile([source], str(folder), include_dirs=INCLUDES, extra_postargs=FLAGS + flags)

        with ThreadPoolExecutor(os.cpu_count()) as pool:
            return [found for objects in pool.map(compile_unit, units) for found in objects]

    def generated_sources(self, temp):
        """C files that hold the operator rows and the math source as text, made by tools/embed.c."""
        objects = self.compiler.compile(["tools/embed.c"], str(temp), extra_postargs=["-std=c11", "-D_GNU_SOURCE"])
        self.compiler.link_executable(objects, "kiln_embed", str(temp))

        def embedded(prefix, paths):
            return [f"{prefix}{re.sub(r'[^A-Za-z0-9_]', '_', path.name.split('.')[0])}={path}" for path in sorted(paths)]

        texts = {
            "math_text.c": ["-i", "kiln_text_math", *embedded("kiln_text_math_", Path("src/math").glob("*.inc"))],
            "ops_text.c": ["kiln_text_schemas=ops/aten-schemas-2.13.txt", "-i", "kiln_text_ops",
                           *embedded("kiln_text_ops_", Path("ops").glob("*.ops"))],
        }
        for name, arguments in texts.items():
            subprocess.run([str(temp / "kiln_embed"), str(temp / name), *arguments], check=True)
        return [str(temp / name) for name in texts]


setup(
    version=version(),
    package_dir={"": "python"},
    ext_modules=[Extension(
        "kiln._kiln",
        sorted(map(str, Path("python/csrc").glob("*.c"))) + [f"cli/{name}.c" for name in CALL_TEXT],
        include_dirs=["include", "."],
        depends=sorted(map(str, [*Path("python/csrc").glob("*.h"), *Path("cli").glob("*.h"), *Path("include/kiln").iterdir()])),
        extra_compile_args=[*FLAGS, "-Wall", "-Wextra", "-Wno-missing-field-initializers", "-Wno-unused-function"],
        libraries=["m", "dl", "pthread"],
        py_limited_api=True,
    )],
    cmdclass={"build_ext": BuildKiln},
    options={"bdist_wheel": {"py_limited_api": "cp310"}},
)
