# short rows beside a column are taken as one: what is the same along a row is computed for several rows at once, and picked
kiln explain --isa=generic --stage=source 'where(bool[4,8], f32[4,1], f32[4,8])' | sed -n '/^static int nest0/,/^    for (; r/p'
