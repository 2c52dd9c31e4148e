kiln explain --stage=plan 'mul_.Tensor(f32[4,8]:strides=(1,4), f64[])'
