# which entry a call would use, or what differs from the nearest one
export KILN_CACHE=disk
hide="s|$HOME|HOME|; s/[0-9a-f]\{32\}/ID/g; s/x86-64-v[234]/LEVEL/g"
kiln cache why 'neg(f32[7])' | sed "$hide"
kiln run 'neg(f32[3])' 'neg(f64[3])' >/dev/null
echo "-- the same class"
kiln cache why 'neg(f32[100,100])' | sed "$hide"
echo "-- another dtype"
kiln cache why 'neg(i32[7])' | sed "$hide"
echo "-- another level"
kiln cache why --isa=x86-64-v2 'neg(f32[7])' | sed "$hide" | tail -n 1
echo "-- a damaged entry"
for f in "$KILN_CACHE_DIR"/kernels/*.kernel; do truncate -s 600 "$f"; done
kiln cache why 'neg(f32[7])' | sed "$hide; s/has [0-9]* bytes, expected [0-9]*/has N bytes, expected N/"
kiln cache why --json 'exp(f32[7])' | sed "$hide"
echo "-- calls that have no kernel"
kiln cache why 'layer_norm(f32[2,3], [3])' 2>&1
kiln cache why 'neg(' 2>&1 | head -n 1
kiln cache why 'nosuch(f32[3])' 2>&1 | head -n 1
kiln cache why 2>&1 | head -n 1
