#!/usr/bin/env bash
# make_pack.sh small|full FILE... - builds the kernels that programs meet first and packs them; each FILE is a copy of the pack.
# small: the operators that programs use most, f32, f64 and i64, for this processor.  full: every shipped operator, for x86-64-v3 and v4.
# Kernels are kept in build/pack-cache, so that a second run builds what is new and nothing else.  Nothing is done where the pack fits the build.
set -euo pipefail
cd "$(dirname "$0")/.."
size=$1
shift
made=build/pack-$size
kiln=build/kiln
export KILN_CACHE=disk KILN_CACHE_DIR=$PWD/build/pack-cache KILN_CACHE_SIZE=8G KILN_LOG=error
unset KILN_PACK KILN_KEY_FILE KILN_REDIS_URL KILN_RECORD KILN_CACHE_SHARED KILN_MODE
case $size in
small) option=--small levels= ;;
full) option= levels=--isa=x86-64-v3,x86-64-v4 ;;
*) echo "make_pack.sh: small or full, not '$size'" >&2; exit 2 ;;
esac

# What the pack depends on: the build of Kiln with the processor's level, and the list of calls.
stamp=$(KILN_CACHE=memory "$kiln" doctor | grep -E 'version:|isa:'; cat tools/pack_calls.py ops/programs.calls)
if [ ! -f "$made.pack" ] || [ "$stamp" != "$(cat "$made.stamp" 2>/dev/null)" ]; then
    rm -f "$made.stamp"
    .venv/bin/python tools/pack_calls.py $option >"$made.calls"
    # shellcheck disable=SC2086 -- no word, or one
    "$kiln" warm $levels "$made.calls" || echo "make_pack.sh: the kernels that failed are not in the pack" >&2
    "$kiln" cache export --slim "$made.pack"
    printf '%s' "$stamp" >"$made.stamp"
fi
for file; do
    cmp -s "$made.pack" "$file" || cp "$made.pack" "$file"
done
