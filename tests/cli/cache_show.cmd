# one entry, found by the first digits of its id
export KILN_CACHE=disk
kiln run 'neg(f32[3])' 'abs(f32[3])' >/dev/null
id=$(kiln cache ls | sed -n 's/^\([0-9a-f]*\) *aten::neg .*/\1/p')
kiln cache show "$id" | sed "s|$HOME|HOME|; s/[0-9a-f]\{32\}/ID/; s/x86-64-v[234]/LEVEL/; s/^\(compiler\|bytes\|built\|used\|built in\): .*/\1:/"
kiln cache show "$id" --source | sed -n '/^source:/,$p' | sed 's/x86-64-v[234]/LEVEL/' | head -n 2
kiln cache show "$id" --json | grep -o '"tested":true,"signed":false,"current":true,"cause":null,"fault":null,"ir":"kernel'
kiln cache show "$id" --json --source | grep -o '"source":"/. aten::neg'
# ids that name no entry, or none
for wrong in 0000000000000000000000000000000 xyz ''; do kiln cache show "$wrong" 2>&1 | sed "s|$HOME|HOME|"; done
kiln cache show 2>&1 | head -n 1
# two entries that begin alike
cp "$KILN_CACHE_DIR"/kernels/"$id"*.kernel "$KILN_CACHE_DIR/kernels/$(echo "$id" | cut -c 1-12)$(printf '%020d' 0).kernel"
kiln cache show "$id" 2>&1 | sed 's/[0-9a-f]\{12\}/ID/'
kiln cache show "$id$(printf '%020d' 0)" | sed -n 's/^refused: *//p'
