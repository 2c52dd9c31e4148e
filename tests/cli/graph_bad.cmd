printf 'kg 1\nx = placeholder\n' | kiln graph show -
kiln graph show nosuch.kg
printf 'kg 1\nx = placeholder x\ny = call_function torch:relu(%%x, 1)\n' >"$TMP/g.kg" && kiln graph normalize "$TMP/g.kg"
kiln graph run "$TMP/g.kg"
kiln graph run "$TMP/g.kg" 'f32[2]'
kiln graph frob "$TMP/g.kg"
