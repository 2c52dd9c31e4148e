#!/usr/bin/env bash
# py_asan.sh - the Python module under AddressSanitizer and UndefinedBehaviorSanitizer, leaks judged at the end.
# Builds kiln._kiln with clang over the sanitized library into build-asan/python and runs tests/python with the
# runtime preloaded and every Python object in memory of its own: all but what builds packages and documents.  A planted
# leak must be seen, of an interpreter and of a fork of one (tests/python/test_planted_leak.py).
# fixed: how to get fixed addresses (setarch -R), which the runtime needs where the kernel spreads them widely.
set -eu
fixed=${fixed:-}
cd "$(dirname "$0")/.."
out=$PWD/build-asan/python
runtime=$(clang -print-file-name="libclang_rt.asan-$(uname -m).so")
flags="-fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer -shared-libasan"

CC=clang LDSHARED="clang -shared" KILN_STATIC_LIB=build-asan/libkiln.a KILN_CFLAGS="$flags" LDFLAGS="$flags" \
    .venv/bin/python setup.py -q build_ext --build-lib "$out" --build-temp "$out/temp"
mkdir -p "$out/kiln/torch"
cp python/kiln/*.py* "$out/kiln/"
cp python/kiln/torch/*.py* python/kiln/torch/default.txt "$out/kiln/torch/"

export LD_PRELOAD=$runtime PYTHONPATH=$out PYTHONMALLOC=malloc PYTHONDONTWRITEBYTECODE=1
export ASAN_OPTIONS=detect_leaks=1:malloc_context_size=3:quarantine_size_mb=4:allocator_may_return_null=1:detect_odr_violation=0
export LSAN_OPTIONS=suppressions=$PWD/tests/python/lsan.supp:print_suppressions=0 UBSAN_OPTIONS=print_stacktrace=1

# shellcheck disable=SC2086 -- fixed is words
$fixed .venv/bin/python -m pytest -q -p no:cacheprovider tests/python --ignore=tests/python/test_package.py \
    --ignore=tests/python/test_docs.py "$@"
