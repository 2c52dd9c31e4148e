#!/usr/bin/env bash
# py_sanitized.sh asan|tsan PYTEST-ARGUMENT... - runs Python tests over a sanitized library, module and bridge.
# Builds kiln._kiln and the bridge to PyTorch with clang over build-asan/libkiln.a or build-tsan/libkiln.a, puts both into
# build-*/python, preloads the sanitizer's runtime into the Python of .venv, and runs pytest.  Python and PyTorch themselves
# are not instrumented.
# asan: AddressSanitizer and UndefinedBehaviorSanitizer.  Every Python object has memory of its own, and leaks are judged
# when a Python process ends (tests/python/lsan.supp).  Compilers that it starts may leak.
# tsan: ThreadSanitizer.  The runtime is gcc's, because clang 14's shared one crashes when it is preloaded: it calls libstdc++
# before it has found the functions that it intercepts.  Code of both compilers calls the runtime in the same way.
# $fixed is the command that gives a process fixed addresses (setarch -R); clang 14's runtimes need it on kernels that
# spread addresses widely.
set -eu
fixed=${fixed:-}
cd "$(dirname "$0")/.."
sanitizer=$1
shift
build=$PWD/build-$sanitizer
out=$build/python
python=.venv/bin/python

case $sanitizer in
asan)
    flags="-fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer -shared-libasan"
    bridge_flags=-fno-sanitize=vptr # the check reads type names that PyTorch's libraries do not export
    link=$flags
    runtime=$(clang -print-file-name="libclang_rt.asan-$(uname -m).so")
    ;;
tsan)
    flags="-fsanitize=thread -fno-omit-frame-pointer"
    bridge_flags=
    link= # the preloaded runtime defines what is undefined
    runtime=$(gcc -print-file-name=libtsan.so)
    ;;
*) echo "py_sanitized.sh: asan or tsan, not '$sanitizer'" >&2; exit 2 ;;
esac

build_module() {
    CC=clang LDSHARED="clang -shared" KILN_STATIC_LIB=$build/libkiln.a KILN_CFLAGS="$flags" LDFLAGS="$link" \
        $python setup.py -q build_ext --build-lib "$out" --build-temp "$out/temp"
    mkdir -p "$out/kiln/torch"
    cp python/kiln/*.py* "$out/kiln/"
    cp python/kiln/torch/*.py* python/kiln/torch/default.txt "$out/kiln/torch/"
}

# Takes the compiler's command from _build.py, without importing kiln.
build_bridge() {
    local made
    made=$(find "$out/kiln/torch" -name 'bridge-*.so')
    [ -n "$made" ] && [ -z "$(find include python/csrc python/kiln/torch/_build.py tools/py_sanitized.sh -newer "$made")" ] && return
    CXX="clang++ $flags $bridge_flags" $python - "$out/kiln/torch" <<'END'
import pathlib, runpy, subprocess, sys
build = runpy.run_path("python/kiln/torch/_build.py")
to = pathlib.Path(sys.argv[1], build["name"]())
command = build["command"]("python/csrc/torch_bridge.cpp", ["include", "python/csrc"], to)
subprocess.run([*command, "-Wno-c99-designator"], check=True)
END
}

mkdir -p "$out"
( # two parts of the test suite may build at the same time
    flock 9
    build_module
    build_bridge
) 9>"$out/lock"

export PYTHONPATH=$out PYTHONDONTWRITEBYTECODE=1
if [ "$sanitizer" = asan ]; then
    cp tests/python/settle.py "$out/sitecustomize.py"
    export PYTHONMALLOC=malloc UBSAN_OPTIONS=print_stacktrace=1
    for name in "$python"* "$(readlink -f $python)"; do echo detect_leaks=1 >"$out/options.${name##*/}"; done # %b: the name of the program that runs
    export ASAN_OPTIONS=detect_leaks=0:include_if_exists=$out/options.%b:malloc_context_size=3:quarantine_size_mb=4:allocator_may_return_null=1:detect_odr_violation=0
    export LSAN_OPTIONS=suppressions=$PWD/tests/python/lsan.supp:print_suppressions=0
else
    export OMP_NUM_THREADS=1 MKL_NUM_THREADS=1
    # Contexts of Python live until the process ends, and so may a thread of Kiln's that has ended and that the next call would join.
    export TSAN_OPTIONS=suppressions=$PWD/tests/torch/tsan.supp:halt_on_error=1:history_size=4:report_thread_leaks=0
fi
# env, so that setarch itself, whose addresses are not fixed yet, does not load the runtime
# shellcheck disable=SC2086 -- fixed is words
exec $fixed env LD_PRELOAD="$runtime" $python -m pytest -q -p no:cacheprovider "$@"
