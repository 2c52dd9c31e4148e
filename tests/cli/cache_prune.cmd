# the kernels that were not used for longest go first
export KILN_CACHE=disk
size='s/ of [0-9.]* [KM]B/ of N KB/g'
kiln cache prune
kiln run 'neg(f32[3])' 'abs(f32[3])' 'exp(f32[3])' >/dev/null
kiln cache prune | sed "$size"
old=$(kiln cache ls --json | grep -o '"id":"[0-9a-f]*","op":"aten::exp"' | cut -c 7-38)
touch -d 2020-01-01 "$KILN_CACHE_DIR/kernels/$old.kernel"
left=$(($(cat "$KILN_CACHE_DIR"/kernels/*.kernel | wc -c) - 1))
echo log >"$KILN_CACHE_DIR/build-1.log"
kiln cache prune --size $left | sed "$size"
kiln cache ls | sed 1d | cut -c 15-30
kiln cache prune --size 1 --json | sed "s|$HOME|HOME|; s/bytes\":[1-9][0-9]*/bytes\":N/g"
ls "$KILN_CACHE_DIR"
for wrong in 0 -1 many 5X 5KB ''; do kiln cache prune --size "$wrong" 2>&1 | head -n 1; done
KILN_CACHE_SIZE=1K kiln cache prune
