kiln explain --stage=plan 'var_mean.correction(f64[4,8,16], [0, 2], keepdim=true)'
