kiln explain --isa=generic --stage=key 'add.Tensor(f32[4,8], f32[8], alpha=2)' | sed 's,[0-9a-f]\{32\},DIGEST,'
