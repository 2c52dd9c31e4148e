# every wrong use is told on standard error with status 2
for use in 'run' 'run -q' 'run --mode' 'run --mode=fast x' 'run --json=1 x' 'explain' 'explain a b c' 'ops a b' 'ops show' \
    'doctor x' 'demo x' 'demo --json' '-q'; do
    kiln $use
    echo "$use: $?"
done
kiln explain --stage=foo 'bitwise_not(i32[2])'
kiln explain --stage=sorce 'bitwise_not(i32[2])'
