for call in 'multinomial(f32[3], 2)' 'unbind(f32[3], 0)' 'gather(f32[3], 0, i64[3])' 'add(f32[3], 1)'; do
    kiln run "$call" --json >/dev/null
    echo "$call: $?"
done
printf 'index my::s(Tensor self, Tensor index) -> Tensor : promote(self) takes index: i64 = self[0: index]\n    out like index\n' >$TMP/index.ops
kiln run --ops=$TMP/index.ops 'add(f32[3], 1)'
kiln ops show multinomial
kiln ops show gather | head -n 5
