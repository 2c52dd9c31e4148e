# what is kept on disk; ids depend on the version of the emitter, sizes on the compiler
export KILN_CACHE=disk
hide='s/^[0-9a-f]\{12\}  /ID            /; s/x86-64-v[234]/LEVEL    /; s/ *[0-9.]* KB/ N KB/; s/ *[0-9]* \(s\|min\)  /   AGE  /'
kiln cache ls | sed "s|$HOME|HOME|"
kiln cache ls --json
kiln run 'neg(f32[3])' 'neg(f32[9,9])' 'neg(f64[3])' 'add(f32[2], f32[2,1])' >/dev/null
kiln cache ls | sed "1d; $hide"
kiln cache ls --json | grep -o '"op":"[^"]*","class":"[^"]*","target":"[^"]*"'
# a second process builds nothing
KILN_STATS=1 kiln run 'neg(f32[5])' 2>&1 >/dev/null | sed -n 's/^kiln: kernels: \([0-9]* built\) in [0-9.]* ms/\1/p'
