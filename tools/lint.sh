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
    mkdir -p "$tree"/{include,src/{op,api,store,family,run,work,target/cpu},cli,python,bench/command,examples,tests,tools}
    printf '/* a.c - one\n *\n * three */\n#include "op/op.h"\nvoid f(void) { free(p); }\n' >"$tree/src/target/cpu/a.c"
    printf '/* h.c - one\n *\n * three */\n#include "target/cpu/cpu.h"\n#include "target/target.h"\n' |
        tee "$tree"/src/{api,store,family}/h.c >"$tree/src/target/h.c"
    printf '/* i.c - one\n *\n * three */\n#include "infer/infer.h"\n#include "api/ctx.h"\n' >"$tree/src/target/cpu/i.c"
    printf '/* f.c - one\n *\n * three */\n#include "target/cpu/tuning.h"\n' | tee "$tree/src/api/f.c" >"$tree/src/family/f.c"
    printf '/* choose_g.c - one\n *\n * three */\n#include "family/fold.h"\n#include "run/pool.h"\n' >"$tree/src/target/cpu/choose_g.c"
    printf '/* b.c - one\n *\n * three */\n#include "bench/command/bench.h"\n' >"$tree/cli/b.c"
    printf '/* c.c - one\n *\n * three */\n#include "base/base.h"\n' >"$tree/bench/command/c.c"
    printf '/* j.c - one\n *\n * three */\n#include "infer/plan.h"\n' >"$tree/src/run/j.c"
    printf '/* k.c - one\n *\n * three */\n#include "tensor/tensor.h"\n' >"$tree/src/work/k.c"
    printf '/* d_rules.c - one\n *\n * three */\n#include "infer/infer.h"\n' >"$tree/src/family/d_rules.c"
    printf '/* e.c - one\n *\n * three */\n#include "family/d_rules.h"\nint f = KILN_FAMILY_FOLD;\n' >"$tree/src/op/e.c"
    { printf '/* a.c - same name */\nint g(void) {\n'; yes '    h();' | head -n 80; echo '}'; } >"$tree/src/op/a.c"
    printf '/* l.c - one\n *\n * three */\nstatic __attribute__((noinline)) int l(int a, int b, int c, int d, int e, int f, int g) {\n    return a;\n}\n' >"$tree/src/op/l.c"
    found=$(KILN_ROOT=$tree tools/check_layers.sh; KILN_ROOT=$tree tools/check_size.sh -v)
    printf '#include <stdlib.h>\nint leak(int n) {\n    char *p = malloc(4);\n    if (n) return 1;\n    free(p);\n    return 0;\n}\n' >"$tree/leak.c"
    found+=$(tools/tidy.py --one "$tree/leak.c")
    rm -rf "$tree"
    for text in 'target/cpu may not include op/op.h' 'cli may not include bench/command/bench.h' \
        'command may not include base/base.h' 'rules may not include infer/infer.h' 'op may not include family/d_rules.h' \
        'only src/family knows' 'does not call free()' 'api may not include target/cpu/cpu.h' \
        'store may not include target/cpu/cpu.h' 'store may not include target/target.h' 'target may not include target/cpu/cpu.h' \
        'family may not include target/target.h' 'target/cpu may not include api/ctx.h' \
        'target/cpu may not include infer/infer.h' 'family may not include target/cpu/tuning.h' 'api may not include target/cpu/tuning.h' \
        'choosers may not include run/pool.h' 'run may not include infer/plan.h' 'work may not include tensor/tensor.h' \
        'a comment of 1 lines' 'more than once' 'function of 82' 'function of 7 parameters' \
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
