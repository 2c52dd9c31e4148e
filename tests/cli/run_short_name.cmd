# the arguments choose the overload
kiln run --mode=interp 'add(f32[3]:fill=1,f32[3]:fill=2)' 'add(f32[3]:fill=1, 2, alpha=3)' 'relu.default(f32[2]:fill=-1)' \
    'aten::relu.default(f32[2]:fill=arange)'
kiln explain --stage=bind 'add(f32[3], 2)'
kiln run 'add(f32[3], "x")'
