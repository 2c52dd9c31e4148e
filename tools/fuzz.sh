#!/usr/bin/env bash
# fuzz.sh (--runs N | --seconds N) [NAME...] - runs tests/fuzz/fuzz_NAME, or all of them, from the seeds in
# tests/fuzz/corpus/NAME.  --runs begins with a fixed seed (what it tries differs all the same where tables hash by a
# secret of the process); --seconds explores and keeps what it found in
# build-asan/fuzz/corpus/NAME.  A crasher is left in build-asan/fuzz/ and belongs into the corpus once mended.
# Ends with `N passed, N failed`, one test per fuzzer.
set -u
cd "$(dirname "$0")/.."
case ${1:-} in
--runs) limit="-runs=$2 -seed=1" explore=no ;;
--seconds) limit="-max_total_time=$2" explore=yes ;;
*) echo "usage: fuzz.sh (--runs N | --seconds N) [NAME...]" >&2; exit 2 ;;
esac
shift 2
if [ $explore = yes ]; then
    cmake --preset asan >/dev/null && cmake --build --preset asan --target fuzzers || exit 1
fi

# fuzz NAME: leaves what there is to say of it in build-asan/fuzz/NAME.said
fuzz() {
    local name=$1 found=build-asan/fuzz/corpus/$1 seeds=tests/fuzz/corpus/$1 # libFuzzer writes to the first folder, reads the others
    [ $explore = yes ] || rm -rf "$found"
    mkdir -p "$found"
    [ -d "$seeds" ] || seeds=
    # shellcheck disable=SC2086 -- these are words
    if timeout 600 ${fixed:-} "build-asan/fuzz_$name" $limit -timeout=20 -rss_limit_mb=4096 -print_final_stats=1 -verbosity=0 \
        -artifact_prefix="build-asan/fuzz/crash-$name-" "$found" $seeds >"build-asan/fuzz/$name.log" 2>&1; then
        echo "fuzz_$name: $(sed -n 's/stat::number_of_executed_units: *//p' "build-asan/fuzz/$name.log") runs"
    else
        echo "fuzz_$name FAILED"
        tail -n 60 "build-asan/fuzz/$name.log"
    fi >"build-asan/fuzz/$name.said"
}

passed=0 failed=0 names=() running=0
for source in tests/fuzz/fuzz_*.c; do
    name=$(basename "$source" .c)
    name=${name#fuzz_}
    case " ${*:-$name} " in *" $name "*) ;; *) continue ;; esac
    names+=("$name")
    [ "$running" -lt "$(nproc)" ] || { wait -n; running=$((running - 1)); }
    fuzz "$name" &
    running=$((running + 1))
done
wait
for name in "${names[@]}"; do
    cat "build-asan/fuzz/$name.said"
    case $(head -n 1 "build-asan/fuzz/$name.said") in *" runs") passed=$((passed + 1)) ;; *) failed=$((failed + 1)) ;; esac
done
echo "$passed passed, $failed failed"
[ $failed = 0 ] && [ $passed != 0 ]
