kiln run 'equal(i64[3]:fill=arange, f32[3]:fill=arange)' 'equal(f32[3], f32[2])'
kiln run --json 'equal(i64[3]:fill=arange, f32[3]:fill=1)'
