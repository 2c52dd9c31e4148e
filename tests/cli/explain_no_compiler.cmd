# the stages before asm need no compiler; asm says what is missing
KILN_CC=/nonexistent/cc kiln explain --stage=source 'bitwise_not(i32[4])' >/dev/null && echo source
KILN_CC=/nonexistent/cc kiln explain --stage=asm 'bitwise_not(i32[4])'
