# complex numbers as fills, scalars and results; a size of theirs is real; what has no order is refused
for mode in interp sync; do
    kiln run --json --mode $mode \
        'mul.Tensor(c64[3]:fill=1+2j, c64[]:fill=0.5-1j)' \
        'add.Tensor(c128[2]:fill=-2j, f64[2]:fill=1, alpha=1+1j)' \
        'mul.Scalar(f32[2]:fill=3, 2j)' \
        'abs(c64[2,1]:strides=(3,1):fill=3-4j)' \
        'div.Tensor(c64[1]:fill=1e30+1e30j, c64[1]:fill=1e30-1e30j)' \
        'sqrt(c128[1]:fill=-4-0j)' \
        'eq.Tensor(c64[2]:fill=1j, c64[2]:fill=arange)' | sed 's/"tier":"[a-z]*",//'
done
kiln run 'lt.Tensor(c64[2], c64[2])'
