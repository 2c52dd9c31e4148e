for call in 'sum(f32[3])' 'softmax(f32[3], 0)' 'amax(f32[3])' 'add(f32[3], 1)'; do
    kiln run "$call" --json >/dev/null
    echo "$call: $?"
done
printf 'fold my::s(Tensor self, int[1] dim=[]) -> Tensor = acc + self from 0\n    over dim\n' >$TMP/fold.ops
kiln run --ops=$TMP/fold.ops 'add(f32[3], 1)'
kiln ops show sum
kiln ops show amax | head -n 5
