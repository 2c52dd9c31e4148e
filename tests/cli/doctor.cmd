kiln doctor >$TMP/text && grep -c '^!' $TMP/text
kiln doctor --json | grep -o '"problems":\[\]'
# every setting can be verified
KILN_MODE=frozen KILN_THREADS=3 KILN_MAX_KERNELS=77 KILN_DUMP_DIR=$TMP/dump kiln doctor |
    sed -nE "s|$TMP|TMP|; s|$HOME|HOME|; /^(mode|threads|pool|max_kernels|cache folder|dump folder):/s/  */ /p"
KILN_CC=clang kiln doctor | grep -c '^compiler: *clang.*(driver)'
