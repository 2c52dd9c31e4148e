kiln explain --isa=generic --stage=key 'sum.dim_IntList(f32[4,8,3], [0])' 'sum.dim_IntList(f32[4,8,3], [0,2])' | sed 's,[0-9a-f]\{32\},DIGEST,'
