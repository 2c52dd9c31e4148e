printf 'kg 1\nx = placeholder x\ny = call_function aten::uniform_.default(%%x, from=0.0, to=2.0)\nz = call_function torch:clamp(%%y, max=1)\noutput = output(%%z)\n' >"$TMP/g.kg"
kiln graph normalize --kwargs-only "$TMP/g.kg"
kiln graph python "$TMP/g.kg"
kiln graph python --json "$TMP/g.kg"
