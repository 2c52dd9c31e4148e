#!/usr/bin/env bash
# cli_tests.sh [--bless] [FOLDER|CASE.cmd ...] - runs shell cases and compares what they print.
# A case is NAME.cmd (shell text; `kiln` is the built command) with NAME.out (exact stdout), and optionally
# NAME.err (each line must occur somewhere in stderr) and NAME.exit (status, 0 if absent).  It runs in its
# own folder's directory with an empty home, an empty cache and $TMP to write to.
# --bless rewrites .out, and .exit where the status is not 0.  Default folders: tests/cli and tests/golden.
# KILN_BIN: another command to test.  Ends with `N passed, N failed`.
set -u
cd "$(dirname "$0")/.."
bless=no
[ "${1:-}" = --bless ] && { bless=yes; shift; }
[ $# -gt 0 ] || set -- tests/cli tests/golden

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/bin"
ln -s "$(realpath "${KILN_BIN:-build/kiln}")" "$work/bin/kiln"
for name in $(env | sed -n 's/^\(KILN_[A-Z_]*\)=.*/\1/p'); do unset "$name"; done

# Runs the case $1 (path without .cmd); leaves out, err and status behind.
run_case() {
    rm -rf "$work/tmp" "$work/home"
    mkdir "$work/tmp" "$work/home"
    (
        cd "$(dirname "$1")" || exit 125
        export PATH="$work/bin:$PATH" HOME="$work/home" TMP="$work/tmp" KILN_CACHE_DIR="$work/home/cache" KILN_CACHE=memory \
            NO_COLOR=1 LC_ALL=C TZ=UTC
        exec timeout 120 sh "$(basename "$1").cmd"
    ) </dev/null >"$work/out" 2>"$work/err"
    status=$?
}

# Says what differs from what the case expects; nothing if all is right.
compare_case() {
    local want=0
    if [ -f "$1.out" ]; then
        diff -u --label "$1.out" --label "what it printed" "$1.out" "$work/out"
    else
        echo "$1.out is missing (make bless writes it)"
    fi
    [ -f "$1.exit" ] && want=$(cat "$1.exit")
    [ "$status" = "$want" ] || echo "exit status $status, expected $want"
    [ -f "$1.err" ] && while IFS= read -r line; do
        grep -qF -- "$line" "$work/err" || echo "stderr lacks: $line"
    done <"$1.err"
}

passed=0 failed=0
while IFS= read -r cmd; do
    case=${cmd%.cmd}
    run_case "$case"
    if [ $bless = yes ]; then
        cp "$work/out" "$case.out"
        rm -f "$case.exit"
        [ "$status" = 0 ] || echo "$status" >"$case.exit"
    fi
    wrong=$(compare_case "$case")
    if [ -z "$wrong" ]; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        printf 'FAILED %s\n%s\n' "$cmd" "$wrong"
        sed 's/^/stderr: /' "$work/err" | head -n 20
    fi
done < <(find "$@" -name '*.cmd' | sort)
echo "$passed passed, $failed failed"
[ $failed = 0 ] && [ $passed != 0 ]
