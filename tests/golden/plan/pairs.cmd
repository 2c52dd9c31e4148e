kiln explain --stage=plan 'kiln::pair_distances(f32[20,16], f32[20,16], 2)'
kiln explain --stage=plan 'kiln::pair_distances(f32[5,300], f32[5,300], inf)'
