#!/usr/bin/env bash
# lint.sh [--fix|--shallow] - layers, sizes, format (clang-format) and faults (clang-tidy) of every C file.
# --fix rewrites files with clang-format and checks nothing.  --shallow: see tools/tidy.py.  Ends with `N passed, N failed`,
# one per check.
set -u
cd "$(dirname "$0")/.."
mapfile -t formatted < <(find include src cli python bench examples tests tools -name '*.[ch]' -o -name '*.cpp' | sort)
if [ "${1:-}" = --fix ]; then
    exec clang-format -i "${formatted[@]}"
fi
shallow=${1:-}

passed=0 failed=0
check() {
    local name=$1 start=$SECONDS
    shift
    if "$@"; then passed=$((passed + 1)); echo "lint $name: right, $((SECONDS - start)) s"
    else failed=$((failed + 1)); echo "lint $name: WRONG, $((SECONDS - start)) s"; fi
}

format() { clang-format --dry-run -Werror "${formatted[@]}"; }

tidy() {
    cmake --preset dev >/dev/null || return
    # shellcheck disable=SC2086 -- nothing, or a word
    tools/tidy.py $shallow
}

# The checks must find what is planted here, the analyzer in its shallow mode too.
planted() {
    local tree found
    tree=$(mktemp -d)
    mkdir -p "$tree"/{include,src/emit,src/op,cli,python,bench,examples,tests,tools}
    printf '/* a.c - one\n *\n * three */\n#include "op/op.h"\nvoid f(void) { free(p); }\n' >"$tree/src/emit/a.c"
    { printf '/* a.c - same name */\nint g(void) {\n'; yes '    h();' | head -n 80; echo '}'; } >"$tree/src/op/a.c"
    found=$(KILN_ROOT=$tree tools/check_layers.sh; KILN_ROOT=$tree tools/check_size.sh)
    printf '#include <stdlib.h>\nint leak(int n) {\n    char *p = malloc(4);\n    if (n) return 1;\n    free(p);\n    return 0;\n}\n' >"$tree/leak.c"
    found+=$(tools/tidy.py --one "$tree/leak.c")
    rm -rf "$tree"
    for text in 'emit may not include op/op.h' 'does not call free()' 'a comment of 1 lines' 'more than once' 'function of 82' \
        'Potential leak'; do
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
