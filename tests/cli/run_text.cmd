kiln run --mode interp 'aten::add.Tensor(f32[2,3]:fill=arange, f32[]:fill=0.5)' 'bitwise_not(i32[2,2,1]:fill=arange)'
