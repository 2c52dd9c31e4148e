# in-place and out forms print the tensor they wrote
kiln run --json --mode interp 'add_.Tensor(f32[2]:fill=1, f32[2]:fill=2)' 'add.out(f32[2]:fill=1, f32[2]:fill=2, out=f32[2]:fill=0)'
