#!/usr/bin/env bash
# check_exports.sh [--bless] - what the built libraries show to the linker.
# exports.txt is the reviewed list of the shared library's symbols; --bless rewrites it.  Ends with
# `N passed, N failed`.
set -u
cd "$(dirname "$0")/../.."
export LC_ALL=C
list=tests/abi/exports.txt so=build/libkiln.so archive=build/libkiln.a
passed=0 failed=0

# same NAME WANT GOT: two texts must be equal
same() {
    if [ "$2" = "$3" ]; then passed=$((passed + 1)); return; fi
    failed=$((failed + 1))
    echo "FAILED $1 (- expected, + found)"
    diff -U0 <(echo "$2") <(echo "$3") | tail -n +4
}

exported=$(nm -D --defined-only "$so" | awk '$2 != "A" { sub(/@.*/, "", $3); print $3 }' | sort)
[ "${1:-}" = --bless ] && echo "$exported" >"$list"
declared=$(cat include/kiln/kiln.h include/kiln/kiln_graph.h | tr '\n' ' ' | grep -oE 'KILN_API [^(;]*[ *]kiln_[a-z0-9_]+\(' |
    sed -E 's/.*[ *](kiln_[a-z0-9_]+)\($/\1/' | sort)
needed=$(readelf -d "$so" | sed -nE 's/.*\(NEEDED\).*\[(.*)\]/\1/p' | grep -vE '^(libc|libm|ld-linux.*)\.so\.[0-9]+$')
foreign=$(nm -g --defined-only "$archive" 2>/dev/null | awk 'NF == 3 && $3 !~ /^kiln_/ { print $3 }' | sort -u)

same "exports are $list" "$(cat $list 2>/dev/null)" "$exported"
same "exports are what the headers declare" "$declared" "$exported"
same "soname" libkiln.so.0 "$(readelf -d "$so" | sed -nE 's/.*\(SONAME\).*\[(.*)\]/\1/p')"
same "needs the C library alone" "" "$needed"
same "every global name in libkiln.a starts with kiln_" "" "$foreign"
same "no executable stack" "RW" "$(readelf -lW "$so" | awk '/GNU_STACK/ { print $7 }')"
echo "$passed passed, $failed failed"
[ $failed = 0 ]
