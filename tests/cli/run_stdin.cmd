printf '\n# a comment\n  bitwise_not(i8[2]:fill=3)\r\nbitwise_not(\nno_such_operator(1)\nbitwise_not(f32[2])\nbitwise_not(i8[2]:fill=3)' |
    kiln run --json --mode interp -
