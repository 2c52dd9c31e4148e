kiln explain --stage=plan 'sum.dim_IntList(f32[4,8,16], [1])'
