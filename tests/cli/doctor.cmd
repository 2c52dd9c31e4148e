kiln doctor >$TMP/text && grep -c '^  !' $TMP/text
kiln doctor --json | grep -o '"problems":\[\]'
# every setting can be verified
KILN_MODE=frozen KILN_THREADS=3 KILN_MAX_KERNELS=77 KILN_DUMP_DIR=$TMP/dump kiln doctor |
    sed -nE "s|$TMP|TMP|; s|$HOME|HOME|; /^  (mode|threads|pool|max_kernels|cache folder|dump folder):/s/  */ /p"
KILN_CC=clang kiln doctor | grep -c '^  compiler: *clang.*(driver)'
# a compiler that was refused at some level is told once, in one sentence
KILN_CC=clang kiln doctor | grep '^  ! compiler' | grep -vE '^  ! compiler route: clang [0-9]+ cannot compile for x86-64-v4 \(versions before 20 break down there\); kernels are compiled for x86-64-v3$'
kiln doctor | tail -n 1
# a mode that builds nothing
KILN_MODE=frozen kiln doctor | tail -n 1
