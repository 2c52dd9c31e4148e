# kernels replace each other in memory that Valgrind has translated, and it knows no pidfd_open
valgrind -q --log-file=$TMP/log kiln run 'neg(f32[3]:fill=arange)' 'exp(f64[2]:fill=0)'
