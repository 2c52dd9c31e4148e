#!/usr/bin/env bash
# run_tests.sh [PART...] - runs the test suite, or the named parts of it, and sums up.
# Says when a part starts and how far it is, shows the output of each that failed, then a table of counts and times, and
# last `N passed, N failed`.  A part that ran nothing counts as a failure.  Logs stay in build-logs/.
# Parts that keep every core busy run alone; the others, of one process each, run beside each other.
set -u
cd "$(dirname "$0")/.."
wide_parts="lint unit asan tsan fuzz"
narrow_parts="ops folds torch torchasan pyasan python torchtsan maps graph docs install cli golden abi" # those that take longest first, so that cores end together
all_parts="$wide_parts $narrow_parts"
known_parts="$all_parts check" # check: what of unit has no crowds of threads
logs=build-logs
mkdir -p "$logs"
export KILN_CACHE=memory # tests count compiles; those of the cache folder ask for it
rm -f "$logs"/*.running "$logs"/*.result
# Sanitizers of clang 14 cannot map their shadow where the kernel spreads addresses widely: fixed addresses for all.
setarch -R true 2>/dev/null && fixed="setarch -R"
export fixed=${fixed:-}

case ${KILN_TEST_ALL:-0} in 0) whole=0 lint=--shallow ;; *) whole=1 lint= ;; esac # as tests/whole.h says

# build PRESET [TARGET...]; one at a time
build() {
    local preset=$1
    shift
    flock "$logs/lock" cmake --preset "$preset" >/dev/null && flock "$logs/lock" cmake --build --preset "$preset" ${1:+--target "$@"}
}
module() { build release && flock "$logs/lock" make -s python; }

# One test more than there are cores, as some only wait.
# Counts single cmocka tests (TAP lines), not programs; a program that died counts as one failure more.
# c_tests PRESET [CTEST OPTION...]
c_tests() {
    local preset=$1 out=$logs/ctest_$1.out ok bad died
    shift
    # shellcheck disable=SC2086 -- fixed is words
    CMOCKA_MESSAGE_OUTPUT=TAP $fixed ctest --preset "$preset" -V -j $(($(nproc) + 1)) "$@" 2>&1 | tee "$out"
    ok=$(grep -cE '^[0-9]+: ok ' "$out")
    bad=$(grep -E '^[0-9]+: not ok ' "$out" | grep -vc '# SKIP')
    died=$(sed -nE 's/.* ([0-9]+) tests? failed out of .*/\1/p' "$out")
    [ "${died:-0}" -gt "$bad" ] && bad=$died
    echo "$ok passed, $bad failed"
}

# shellcheck disable=SC2086 -- nothing, or a word
part_lint() { tools/lint.sh $lint; }
part_unit() { build dev && c_tests dev; }
part_check() { build dev unit_tests && c_tests dev -L unit; }
part_asan() { build asan unit_tests stress_tests && c_tests asan; }
part_tsan() { build tsan stress_tests && c_tests tsan -L stress; }
part_fuzz() { build asan fuzzers && tools/fuzz.sh --runs 20000; }
part_cli() { build release && tools/cli_tests.sh tests/cli; }
part_golden() { build release && tools/cli_tests.sh tests/golden; }
part_abi() { build release && tests/abi/check_exports.sh; }
part_install() { build release all benches && tests/abi/check_install.sh; }
folds=$(echo tests/ops/test_{fold,each,views,norms,losses,nll,weights,layers,lists,optimizers,compose,scan,long_scans,select}.py)
# The functional forms of element-wise rows take as long against PyTorch as all else in tests/ops.
part_maps() { module && py_tests tests/ops -k test_functional; }
# shellcheck disable=SC2046,SC2086 -- words
part_ops() { module && py_tests tests/ops $(for t in $folds; do echo "--ignore=$t"; done) -k "not test_functional"; }
# shellcheck disable=SC2086 -- words
part_folds() { module && py_tests $folds; }
part_python() { module && py_tests tests/python; }
part_pyasan() {
    build asan kiln_static && pytest_counts tools/py_sanitized.sh asan tests/python --ignore=tests/python/test_package.py
}
# A sampled run takes the files that reach into the bridge: what happens around calls, rows that are replaced, failures.
# Two groups of tests need the source tree around the package, which build-asan/python is not.
part_torchasan() {
    local left_out="not test_build and not test_folder_that" files=(tests/torch)
    [ "$whole" = 1 ] || files=(tests/torch/test_{around,define,faults,opdb,optimizer_steps,status,surfaces}.py)
    build asan kiln_static && pytest_counts tools/py_sanitized.sh asan "${files[@]}" -k "$left_out"
}
part_torchtsan() { build tsan kiln_static && pytest_counts tools/py_sanitized.sh tsan tests/torch/test_races.py; }
part_graph() { module && py_tests tests/graph; }
part_docs() { module && py_tests tests/docs; }
part_torch() { module && py_tests tests/torch; }

py_tests() { pytest_counts .venv/bin/python -m pytest -q -p no:cacheprovider "$@"; }

# pytest_counts COMMAND...: runs it, gives pytest's closing line as `N passed, N failed`, and its exit status
pytest_counts() {
    local out status
    out=$(mktemp)
    "$@" 2>&1 | tee "$out"
    status=${PIPESTATUS[0]}
    # An error while collecting or in a fixture is a failure too.
    grep -hE '^[0-9]+ [a-z]+.* in [0-9.]+s' "$out" | tail -n 1 | awk '{
        for (i = 2; i <= NF; i++) {
            if ($i ~ /^passed/) ok = $(i - 1)
            if ($i ~ /^(failed|errors?)/) bad += $(i - 1)
        }
    }
    END { print ok + 0 " passed, " bad + 0 " failed" }'
    rm -f "$out"
    return "$status"
}

# Runs one part, in a shell of its own.  The part's last line is `N passed, N failed`, whatever its exit status.
run_part() {
    local name=$1 start=$SECONDS status counts ok bad
    printf '%-9s starts\n' "$name"
    echo "$start" >"$logs/$name.running"
    "part_$name" >"$logs/$name.log" 2>&1
    status=$?
    rm -f "$logs/$name.running"
    counts=$(tail -n 1 "$logs/$name.log" | sed -nE 's/^([0-9]+) passed, ([0-9]+) failed$/\1 \2/p')
    read -r ok bad <<<"${counts:-0 0}"
    if [ -z "$counts" ] || { [ "$status" != 0 ] && [ "$bad" = 0 ]; }; then
        bad=$((bad + 1)) # it stopped before it could say what failed
    elif [ "$ok" = 0 ] && [ "$bad" = 0 ]; then
        echo "no test ran" >>"$logs/$name.log"
        bad=1
    fi
    if [ "$bad" != 0 ]; then
        printf -- '--- %s: output of the failing part (%s) ---\n' "$name" "$logs/$name.log"
        tail -n 200 "$logs/$name.log"
    fi
    times >"$logs/$name.times" # second line: of what the shell waited for
    echo "$ok $bad $((SECONDS - start)) $(awk 'NR == 2 { gsub(/[ms]/, " "); print int($1 * 60 + $2 + $3 * 60 + $4 + 0.5) }' "$logs/$name.times")" >"$logs/$name.result"
    printf '%-9s %6d passed, %d failed\n' "$name" "$ok" "$bad"
}

# ctest_running LOG: the tests that ctest has started and not ended, the oldest first.  Other logs have no lines of this kind.
ctest_running() {
    awk '$1 == "Start" && $2 ~ /^[0-9]+:$/ { name[$2 + 0] = $3; order[++n] = $2 + 0 }
         match($0, /^ *[0-9]+\/[0-9]+ Test +#[0-9]+:/) { sub(/^[^#]*#/, ""); delete name[$0 + 0] }
         END { for (k = 1; k <= n; k++) if (order[k] in name) printf "%s%s", said++ ? ", " : "", name[order[k]] }' "$1"
}

# Every half minute: how far the running parts are, by the last mark of pytest, ctest, Ninja or tidy.py in their logs.
show_progress() {
    local file name mark tests
    while sleep 30 >/dev/null 2>&1; do
        for file in "$logs"/*.running; do
            [ -f "$file" ] || continue
            name=$(basename "$file" .running)
            mark=$(grep -oE '\[ *[0-9]+%\]|\[[0-9]+/[0-9]+\]|[0-9]+/[0-9]+ Test' "$logs/$name.log" | tail -n 1)
            tests=$(ctest_running "$logs/$name.log")
            printf '%-9s runs for %d s%s%s\n' "$name" $((SECONDS - $(cat "$file"))) "${mark:+, at $mark}" "${tests:+, in $tests}"
        done
    done
}

# The parts as they are listed, with sums; then the closing line.  Returns 1 if something failed.
sum_up() {
    local name ok bad seconds cpu passed=0 failed=0 work=0
    printf '\n%-9s %8s %8s %8s %8s\n' part passed failed seconds cpu
    for name in "$@"; do
        read -r ok bad seconds cpu <"$logs/$name.result" || { ok=0 bad=1 seconds=0 cpu=0; }
        passed=$((passed + ok)) failed=$((failed + bad)) work=$((work + cpu))
        printf '%-9s %8d %8d %8d %8d\n' "$name" "$ok" "$bad" "$seconds" "$cpu"
    done
    printf '%-9s %8d %8d %8d %8d\n' all "$passed" "$failed" "$SECONDS" "$work"
    echo "$passed passed, $failed failed"
    [ "$failed" = 0 ]
}

parts=${*:-$all_parts}
for name in $parts; do
    case " $known_parts " in
    *" $name "*) ;;
    *) echo "run_tests.sh: no part '$name'; there are: $known_parts" >&2; exit 2 ;;
    esac
done
show_progress &
watcher=$!
trap 'kill "$watcher"' EXIT
for name in $parts; do
    case " $wide_parts check " in *" $name "*) (run_part "$name") ;; esac
done
running=0 pids=()
for name in $parts; do
    case " $narrow_parts " in *" $name "*) ;; *) continue ;; esac
    [ "$running" -lt "$(nproc)" ] || { wait -n; running=$((running - 1)); }
    (run_part "$name") &
    pids+=($!)
    running=$((running + 1))
done
[ ${#pids[@]} = 0 ] || wait "${pids[@]}"
trap - EXIT
kill "$watcher"
wait "$watcher" 2>/dev/null
# shellcheck disable=SC2086 -- parts are words
sum_up $parts
