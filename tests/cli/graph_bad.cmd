printf 'kg 1\nx = placeholder\n' | kiln graph show -
kiln graph show nosuch.kg
printf 'kg 1\nx = placeholder x\ny = call_function torch:relu(%%x, 1)\n' >"$TMP/g.kg" && kiln graph normalize "$TMP/g.kg"
kiln graph run "$TMP/g.kg"
kiln graph run "$TMP/g.kg" 'f32[2]'
kiln graph frob "$TMP/g.kg"
printf 'kg 1\nx = placeholder x\ny = call_method abs(%%x)\noutput = output(%%y)\n' >"$TMP/abs.kg"
kiln graph run "$TMP/abs.kg" 'f32[2]' 'f32[2]'
kiln graph run "$TMP/abs.kg" 'f32[2]' 'layer.v=f32[2]'
kiln graph show --dot --svg "$TMP/abs.kg"
kiln graph python --svg "$TMP/abs.kg"
