#!/usr/bin/env bash
# check_install.sh - installs into a scratch folder and builds C and C++ programs and the examples in C against that, by
# pkg-config and by CMake, shared and static, and runs them.  Ends with `N passed, N failed`.
set -u
cd "$(dirname "$0")/../.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
passed=0 failed=0
ok() {
    local name=$1
    shift
    if "$@" >"$work/log" 2>&1; then passed=$((passed + 1)); return; fi
    failed=$((failed + 1))
    echo "FAILED $name: $*"
    tail -n 30 "$work/log"
}
prints() { # prints PROGRAM TEXT
    local got
    got=$("$1") || return
    echo "printed: $got; expected: $2"
    [ "$got" = "$2" ]
}

version=$(awk '/#define KILN_VERSION_/ { v = v sep $3; sep = "." } END { print v }' include/kiln/kiln.h)
c_says="$version 21 42 63" cpp_says="$version 42"
export KILN_CACHE_DIR=$work/cache

# Staged with DESTDIR, then moved: nothing may hold on to the place it was built or installed in.
ok "make install" env DESTDIR="$work/stage" cmake --install build --prefix /opt/kiln
mv "$work/stage/opt/kiln" "$work/tree"
for file in include/kiln/{kiln.h,kiln_abi.h,kiln_graph.h,status.def,dtype.def,counter.def} bin/kiln; do
    ok "installs $file" test -f "$work/tree/$file"
done
ok "the installed command runs" "$work/tree/bin/kiln" --version
lib=$(dirname "$(find "$work/tree" -name libkiln.a)")
export PKG_CONFIG_PATH=$lib/pkgconfig LD_LIBRARY_PATH=$lib
for where in "$lib/pkgconfig" "$lib/cmake"; do
    ok "no path of the build in $where" bash -c '! grep -rn "$1" "$2"' - "$PWD" "$where"
done

# Each public header stands alone, in strict C and C++.
for header in kiln kiln_abi kiln_graph; do
    echo "#include <kiln/$header.h>" | tee "$work/one.c" >"$work/one.cpp"
    ok "$header.h in C11" cc -std=c11 -Wall -Wextra -pedantic -Werror -I"$work/tree/include" -fsyntax-only "$work/one.c"
    ok "$header.h in C++" c++ -std=c++11 -Wall -Wextra -pedantic -Werror -I"$work/tree/include" -fsyntax-only "$work/one.cpp"
done

here=tests/abi/consumer
flags=$(pkg-config --cflags kiln)
shared=$(pkg-config --libs kiln)
static="$lib/libkiln.a $(pkg-config --static --libs-only-l --libs-only-other kiln | sed 's/-lkiln//')"
# shellcheck disable=SC2086 -- flags are words
{
    ok "C, pkg-config, shared" cc -Wall -Wextra -Werror $flags $here/use_c.c -o "$work/c1" $shared
    ok "C, pkg-config, static" cc -Wall -Wextra -Werror $flags $here/use_c.c -o "$work/c2" $static
    ok "C++, pkg-config, shared" c++ -Wall -Wextra -Werror $flags $here/use_cpp.cpp -o "$work/c3" $shared
    ok "C++, pkg-config, static" c++ -Wall -Wextra -Werror $flags $here/use_cpp.cpp -o "$work/c4" $static
}
ok "runs c1" prints "$work/c1" "$c_says"
ok "runs c2" prints "$work/c2" "$c_says"
ok "runs c3" prints "$work/c3" "$cpp_says"
ok "runs c4" prints "$work/c4" "$cpp_says"
# shellcheck disable=SC2086 -- flags are words
for example in examples/*.c; do
    ok "builds $example" cc -std=c11 -Wall -Wextra -pedantic -Werror $flags "$example" -o "$work/example" $shared -lm
    ok "runs $example" "$work/example" # which compares its numbers with those of plain C
done

# Nothing is interpreted, and nothing compiled, where there is no compiler.
shipped() {
    examples/ship/build_and_run.sh | tee /dev/stderr | grep -qE '^[0-9]+ calls, 0 interpreted, [1-9][0-9]* kernels from packs, 0 compiled$'
}
export PATH=$work/tree/bin:$PATH
ok "a shipped program needs no compiler" shipped

ok "CMake finds it" cmake -S $here -B "$work/cmake" -G Ninja -DCMAKE_PREFIX_PATH="$work/tree"
ok "CMake builds" cmake --build "$work/cmake"
for kind in kiln kiln_static; do
    ok "runs c_$kind" prints "$work/cmake/c_$kind" "$c_says"
    ok "runs cpp_$kind" prints "$work/cmake/cpp_$kind" "$cpp_says"
done
echo "$passed passed, $failed failed"
[ $failed = 0 ]
