#!/usr/bin/env bash
# run_tests.sh [PART...] - runs the test suite, or the named parts of it, and sums up.
# Prints one line per part, the output of each part that failed, and last `N passed, N failed`.
# A part that ran nothing counts as a failure.  Logs stay in build-logs/.
set -u
cd "$(dirname "$0")/.."
all_parts="lint unit asan tsan fuzz cli golden abi install ops python graph pyasan"
logs=build-logs
mkdir -p "$logs"
passed=0 failed=0
# Sanitizers of clang 14 cannot map their shadow where the kernel spreads addresses widely: fixed addresses for all.
setarch -R true 2>/dev/null && fixed="setarch -R"
export fixed=${fixed:-}

# build PRESET [TARGET...]
build() {
    local preset=$1
    shift
    cmake --preset "$preset" >/dev/null && cmake --build --preset "$preset" ${1:+--target "$@"}
}

# Counts single cmocka tests (TAP lines), not programs; a program that died counts as one failure more.
# c_tests PRESET [CTEST OPTION...]
c_tests() {
    local preset=$1 out ok bad died
    shift
    # shellcheck disable=SC2086 -- fixed is words
    out=$(CMOCKA_MESSAGE_OUTPUT=TAP $fixed ctest --preset "$preset" -V -j "$(nproc)" "$@" 2>&1)
    printf '%s\n' "$out"
    ok=$(printf '%s\n' "$out" | grep -cE '^[0-9]+: ok ')
    bad=$(printf '%s\n' "$out" | grep -E '^[0-9]+: not ok ' | grep -vc '# SKIP')
    died=$(printf '%s\n' "$out" | sed -nE 's/.* ([0-9]+) tests? failed out of .*/\1/p')
    [ "${died:-0}" -gt "$bad" ] && bad=$died
    echo "$ok passed, $bad failed"
}

part_lint() { build dev && tools/lint.sh; }
part_unit() { build dev && c_tests dev; }
part_asan() { build asan unit_tests stress_tests && c_tests asan; }
part_tsan() { build tsan stress_tests && c_tests tsan -L stress; }
part_fuzz() { build fuzz fuzzers && tools/fuzz.sh --runs 20000; }
part_cli() { build release && tools/cli_tests.sh tests/cli; }
part_golden() { build release && tools/cli_tests.sh tests/golden; }
part_abi() { build release && tests/abi/check_exports.sh; }
part_install() { build release && tests/abi/check_install.sh; }
part_ops() { build release && make -s python && side_by_side; }
part_python() { build release && make -s python && py_tests tests/python; }
part_pyasan() { build asan kiln_static && pytest_counts tools/py_asan.sh; }
part_graph() { build release && make -s python && py_tests tests/graph; }

py_tests() { pytest_counts .venv/bin/python -m pytest -q -p no:cacheprovider "$@"; }

# The functional forms take as long against PyTorch as all else in tests/ops: two processes.
side_by_side() {
    local status=0 one=$logs/ops_functional.log other=$logs/ops_others.log
    py_tests tests/ops -k "not test_functional" >"$other" 2>&1 &
    py_tests tests/ops -k test_functional >"$one" 2>&1 || status=$?
    wait $! || status=$?
    cat "$one" "$other"
    tail -q -n 1 "$one" "$other" | awk '{ ok += $1; bad += $3 } END { print ok + 0 " passed, " bad + 0 " failed" }'
    return "$status"
}

# pytest_counts COMMAND...: runs it, gives pytest's closing line as `N passed, N failed`, and its exit status
pytest_counts() {
    local out status
    out=$("$@" 2>&1)
    status=$?
    printf '%s\n' "$out"
    # An error while collecting or in a fixture is a failure too.
    printf '%s\n' "$out" | grep -E '^[0-9]+ [a-z]+.* in [0-9.]+s' | tail -n 1 | awk '{
        for (i = 2; i <= NF; i++) {
            if ($i ~ /^passed/) ok = $(i - 1)
            if ($i ~ /^(failed|errors?)/) bad += $(i - 1)
        }
    }
    END { print ok + 0 " passed, " bad + 0 " failed" }'
    return "$status"
}

# Runs one part; its last line is `N passed, N failed`, whatever its exit status.
run_part() {
    local name=$1 start=$SECONDS status counts ok bad
    "part_$name" >"$logs/$name.log" 2>&1
    status=$?
    counts=$(tail -n 1 "$logs/$name.log" | sed -nE 's/^([0-9]+) passed, ([0-9]+) failed$/\1 \2/p')
    read -r ok bad <<<"${counts:-0 0}"
    if [ -z "$counts" ] || { [ "$status" != 0 ] && [ "$bad" = 0 ]; }; then
        bad=$((bad + 1)) # it stopped before it could say what failed
    elif [ "$ok" = 0 ] && [ "$bad" = 0 ]; then
        echo "no test ran" >>"$logs/$name.log"
        bad=1
    fi
    passed=$((passed + ok)) failed=$((failed + bad))
    if [ "$bad" != 0 ]; then
        printf -- '--- %s: output of the failing part (%s) ---\n' "$name" "$logs/$name.log"
        tail -n 200 "$logs/$name.log"
    fi
    printf '%-8s %6d passed, %d failed  %4d s\n' "$name" "$ok" "$bad" $((SECONDS - start))
}

for name in ${*:-$all_parts}; do
    case " $all_parts " in
    *" $name "*) run_part "$name" ;;
    *) echo "run_tests.sh: no part '$name'; there are: $all_parts" >&2; exit 2 ;;
    esac
done
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
