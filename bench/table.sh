#!/usr/bin/env bash
# table.sh [BUILD] - instructions of a table hit among 100,000 classes against 100, beside the goal.
# Counted by callgrind, so the same on every run.  Exits 1 if the goal is missed.
set -eu
cd "$(dirname "$0")/.."
tmp=$(mktemp -d) && trap 'rm -rf "$tmp"' EXIT
valgrind --tool=callgrind --callgrind-out-file="$tmp/profile" "${1:-build}/bench/bench_table" >"$tmp/log" 2>&1 ||
    { cat "$tmp/log"; exit 1; }
callgrind_annotate --inclusive=yes --threshold=100 "$tmp/profile" >"$tmp/counts"
count() { awk -v path="$1" '$0 ~ ":" path "( |$)" { gsub(",", "", $1); print $1; exit }' "$tmp/counts"; }
awk -v few="$(count path_few)" -v many="$(count path_many)" 'BEGIN {
    if (few == 0 || many == 0) { print "the paths are not in the profile"; exit 1 }
    met = many <= 1.1 * few
    printf "%-66s %10.3f <=    1.1 x%s\n", "table hit among 100,000 classes against 100, instructions", many / few, met ? "" : "  MISSED"
    printf "    %d and %d instructions\n", many / 50000, few / 50000
    exit !met
}'
