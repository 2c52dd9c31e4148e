# primitives with loops on rows that fill no vector: no branch depends on lanes that are no elements, in either tier
calls="special_hermite_polynomial_h(f64[5]:fill=2,f64[5]:fill=arange) special_zeta(f32[3]:fill=2,f32[3]:fill=arange)
 gcd(i64[3]:fill=12,i64[3]:fill=18) gcd(u8[7]:fill=12,u8[7]:fill=18) sin(c64[3]:fill=arange)"
KILN_MODE=interp valgrind -q --error-exitcode=9 kiln run $calls && valgrind -q --error-exitcode=9 kiln run $calls
