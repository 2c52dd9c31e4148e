for call in 'multinomial(f32[3], 2)' 'softmax(f32[3], 0)' 'cumsum(f32[3], 0)' 'add(f32[3], 1)'; do
    kiln run "$call" --json >/dev/null
    echo "$call: $?"
done
printf 'scan my::s(Tensor self, int dim) -> Tensor = acc + self from 0\n    over dim\n' >$TMP/scan.ops
kiln run --ops=$TMP/scan.ops 'add(f32[3], 1)'
kiln ops show multinomial
kiln ops show cumsum | head -n 5
