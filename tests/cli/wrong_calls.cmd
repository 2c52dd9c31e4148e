# calls that beginners write wrongly: the message shows the place and says the way out
kiln run 'exp(f32(3))' 2>&1
kiln run 'add f32[3]' 2>&1
kiln run 'add(f32[3], f32[3]' 2>&1
kiln run 'aten.exp(f32[3])' 2>&1
kiln run 'sinn(f32[3])' 2>&1
kiln run 'Exp(f32[3])' 2>&1
kiln explain '_foreach_add([f32[3],f32[4]],1)' 2>&1
printf 'exp(f32(3))\n' | kiln run - 2>&1
true
