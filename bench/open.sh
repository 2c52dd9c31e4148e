#!/usr/bin/env bash
# open.sh [BUILD] - what opening a context costs in time and in instructions, also with ten times the rows; and what
# Kiln costs a Python process before its second call, beside PyTorch and 16 threads.
#
# `kiln bench open` gives medians over fresh processes.  The command with ten times the rows is kiln_many.  The two
# commands are compared by the least of three medians each.  callgrind counts the instructions of the 21 opens and
# finds of a fresh process.  Exits 1 if a goal is missed.
set -eu
cd "$(dirname "$0")/.."
build=${1:-build}
tmp=$(mktemp -d) && trap 'rm -rf "$tmp"' EXIT
missed=0

# goal TEXT VALUE GOAL UNIT
goal() {
    awk -v text="$1" -v value="$2" -v goal="$3" -v unit="$4" 'BEGIN {
        met = value != "" && value <= goal
        printf "%-66s %10.4g <= %6.4g %s%s\n", text, value, goal, unit, met ? "" : "  MISSED"
        exit !met
    }' || missed=1
}

# instructions COMMAND: of the 21 opens and finds of a fresh process
instructions() {
    valgrind --tool=callgrind --trace-children=no --toggle-collect=path_open --callgrind-out-file="$tmp/profile.%p" \
        "$1" bench open >"$tmp/log" 2>&1 || true # its goals of time are not for valgrind
    ls "$tmp"/profile* >/dev/null
    # Each child writes a profile of its own; all take the same way.
    for profile in "$tmp"/profile*; do callgrind_annotate "$profile" | sed -nE 's/^ *([0-9,]+).*PROGRAM TOTALS.*/\1/p'; done |
        tr -d , | sort -n | tail -1
    rm -f "$tmp"/profile*
}

# median COMMAND: of the first open and find in ms, the least of three runs
median() {
    for _ in 1 2 3; do "$1" bench open --json | sed -nE 's/.*first kiln_op_find.*"value": *([0-9.e-]+).*/\1/p'; done |
        sort -g | head -1
}
"$build/kiln" bench open || missed=1
few=$(instructions "$build/kiln") many=$(instructions "$build/kiln_many")
goal "instructions of 21 opens and finds in a fresh process" "$few" 1000000 ""
goal "the same with ten times the rows, against that" "$(awk "BEGIN { print $many / $few }")" 1.2 x
goal "time of the first with ten times the rows" "$(awk "BEGIN { print $(median "$build/kiln_many") / $(median "$build/kiln") }")" 1.2 x
.venv/bin/python bench/open_python.py || missed=1
exit $missed
