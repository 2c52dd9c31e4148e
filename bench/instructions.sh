#!/usr/bin/env bash
# instructions.sh [KILN] - instructions that a call adds to its kernel, by path, beside their goals.
# Counts are exact where times are not: callgrind runs `kiln bench dispatch` and bench_general, and each of their paths
# (path_NAME) is charged with what it and everything below it executed, less what the bare kernel does.  Prints a
# table; exits 1 if a goal is missed.  Goals of slot hits are the counts with gcc 12.2 plus one: no change may add to them.
set -eu
cd "$(dirname "$0")/.."
kiln=${1:-build/kiln}
tmp=$(mktemp -d) && trap 'rm -rf "$tmp"' EXIT

# profile NAME COMMAND...: what COMMAND prints goes to NAME.out, its counts to the others'
profile() {
    local name=$1
    shift
    valgrind --tool=callgrind --callgrind-out-file="$tmp/$name.profile" "$@" >"$tmp/$name.out" 2>"$tmp/log" ||
        { cat "$tmp/log"; exit 1; }
    callgrind_annotate --inclusive=yes --threshold=100 "$tmp/$name.profile" >>"$tmp/counts"
}
profile paths "$kiln" bench dispatch --json
calls=$(sed -nE '1s/.*"calls": ?([0-9]+).*/\1/p' "$tmp/paths.out")
profile general "$(dirname "$kiln")/bench/bench_general" "$calls"

# per_call PATH: instructions of one call on that path
per_call() {
    awk -v path="path_$1" -v calls="$calls" '
        $0 ~ ":" path "( |$)" { gsub(",", "", $1); print int($1 / calls + 0.5); exit }' "$tmp/counts"
}

missed=0
# row PATH BARE GOAL TEXT; BARE -: kernels count
row() {
    local all bare over
    all=$(per_call "$1") bare=0
    [ "$2" = - ] || bare=$(per_call "$2")
    [ -n "$all" ] && [ -n "$bare" ] || { echo "path $1 is not in the profile"; exit 1; }
    over=$((all - bare))
    local mark=
    if [ "$3" != - ] && [ $over -gt "$3" ]; then mark=" MISSED" missed=1; fi
    printf '%-66s %6d  goal %5s%s\n' "$4" $over "$3" "$mark"
}
row slot_one bare_one 154 "slot hit, bitwise_not i32 [32,32], fresh result"
row slot_two bare_two 219 "slot hit, add.Tensor f32 [32,32] with alpha, fresh result"
row slot_out bare_two 232 "slot hit, add.out f32 [32,32]"
row borrowed_one bare_one 236 "slot hit, bitwise_not, borrowed tensor"
row borrowed_two bare_two 386 "slot hit, add.Tensor with alpha, borrowed tensors"
row slot_fold bare_fold 298 "slot hit, sum.dim_IntList f32 [32,32] along the last dimension"
row table bare_turns 1000 "table hit, bitwise_not, two classes in turn"
row general_row bare_row 1000 "one layout again, add.Tensor f32 [32,32] + [32] with alpha"
row general_out bare_row 1000 "one layout again, add.out f32 [32,32] + [32]"
row general_last bare_two 1000 "one layout again, add.Tensor f32, channels_last"
row general_turns bare_row - "general path, add.Tensor f32, more layouts than are remembered"
row general_bare bare_row 4000 "the same with nothing remembered of any call"
row composition_bare - - "cross_entropy_loss f32 [2,4] with nothing remembered, kernels included"
exit $missed
