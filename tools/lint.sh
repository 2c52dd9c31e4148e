#!/usr/bin/env bash
# lint.sh [--fix] - layers, sizes, format (clang-format) and faults (clang-tidy) of every C file.
# --fix rewrites files with clang-format and checks nothing.  Ends with `N passed, N failed`, one per check.
set -u
cd "$(dirname "$0")/.."
mapfile -t formatted < <(find include src cli python bench tests tools -name '*.[ch]' | sort)
if [ "${1:-}" = --fix ]; then
    exec clang-format -i "${formatted[@]}"
fi

passed=0 failed=0
check() {
    local name=$1 start=$SECONDS
    shift
    if "$@"; then passed=$((passed + 1)); echo "lint $name: right, $((SECONDS - start)) s"
    else failed=$((failed + 1)); echo "lint $name: WRONG, $((SECONDS - start)) s"; fi
}

format() { clang-format --dry-run -Werror "${formatted[@]}"; }

# Every file the dev build compiles, as it is compiled first, one process each: the analyzer misreads va_list
# in the second of two readings.  loops.c is one file built many times, and generated files are not ours.
tidy() {
    cmake --preset dev >/dev/null || return
    mkdir -p build-dev/tidy
    python3 -c '
import json, sys
first = {}
for command in json.load(open("build-dev/compile_commands.json")): first.setdefault(command["file"], command)
json.dump(list(first.values()), open("build-dev/tidy/compile_commands.json", "w"))
print(*first, sep="\n")' | grep -E "^$PWD/(src|cli|bench|tests|tools)/" | grep -v '/src/run/loops\.c$' | sort |
        xargs -P "$(nproc)" -n 1 clang-tidy -p build-dev/tidy --quiet --warnings-as-errors='*' 2>/dev/null
}

# The two checks above must find what is planted here.
planted() {
    local tree found
    tree=$(mktemp -d)
    mkdir -p "$tree"/{include,src/emit,src/op,cli,python,bench,tests,tools}
    printf '/* a.c - one\n *\n * three */\n#include "op/op.h"\nvoid f(void) { free(p); }\n' >"$tree/src/emit/a.c"
    { printf '/* a.c - same name */\nint g(void) {\n'; yes '    h();' | head -n 80; echo '}'; } >"$tree/src/op/a.c"
    found=$(KILN_ROOT=$tree tools/check_layers.sh; KILN_ROOT=$tree tools/check_size.sh)
    rm -rf "$tree"
    for text in 'emit may not include op/op.h' 'does not call free()' 'a comment of 1 lines' 'more than once' 'function of 82'; do
        case $found in *"$text"*) ;; *) echo "not found although planted: $text"; return 1 ;; esac
    done
}

check layers tools/check_layers.sh
check sizes tools/check_size.sh
check planted planted
check format format
check tidy tidy
echo "$passed passed, $failed failed"
[ $failed = 0 ]
