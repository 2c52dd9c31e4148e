# the loop alone: the vector math above it is src/math
kiln explain --isa=generic --stage=source 'add.Tensor(f32[4,8], f32[8], alpha=2)' | sed -n '/^static int nest0/,$p'
