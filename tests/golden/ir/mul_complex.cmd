kiln explain --isa=generic --stage=ir 'mul.Scalar(c64[4,8], 2j)'
