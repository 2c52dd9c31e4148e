printf 'kg 1\nx = placeholder x\nk = placeholder k(2)\nw = get_attr layer.w\na = call_function torch:add(%%x, %%w, alpha=%%k)\nb = call_function operator:sub(1, %%a)\nc = call_method abs(%%b)\nd = call_function aten::clamp.default(%%c, None, 5)\noutput = output((%%d, %%a))\n' >"$TMP/g.kg"
kiln graph run --mode interp "$TMP/g.kg" 'f32[3]:fill=1' 'layer.w=f32[3]:fill=arange'
printf 'kg 1\nx = placeholder x\ny = call_method abs(%%x)\noutput = output(%%y)\n' | kiln graph run --json --mode interp - 'f32[2]:fill=-1'
