kiln explain --isa=generic --stage=ir 'div.Tensor_mode(f32[4,8], i32[4,1], rounding_mode="floor")'
