# what is the same along a row is converted before it, and vectors are as wide as f32 allows
kiln explain --isa=generic --stage=source 'mul.Tensor(f32[4,8], f64[])' | sed -n '/^static int nest0/,/^}/p'
