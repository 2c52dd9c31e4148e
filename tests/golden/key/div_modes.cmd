kiln explain --isa=generic --stage=key 'div.Tensor_mode(f32[4,8], i32[4,1], rounding_mode="floor")' 'div.Tensor_mode(f32[4,8], i32[4,1], rounding_mode="trunc")' | sed 's,[0-9a-f]\{32\},DIGEST,'
