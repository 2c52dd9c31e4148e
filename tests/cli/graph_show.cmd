printf 'kg 1\nx = placeholder x\n y=call_function torch:add( %%x,1 ) # more\noutput = output(%%y)\n' | kiln graph show -
printf 'kg 1\nx = placeholder x\noutput = output([%%x])\n' >"$TMP/g.kg" && kiln graph show --json "$TMP/g.kg" && kiln graph show --dot "$TMP/g.kg"
kiln graph show --svg "$TMP/g.kg" | grep -c '<rect '
