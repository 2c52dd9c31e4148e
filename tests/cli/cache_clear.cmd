# all kernels go, and nothing else; who is no terminal must say --yes
export KILN_CACHE=disk
kiln run 'neg(f32[3])' 'abs(f32[3])' >/dev/null
echo log >"$KILN_CACHE_DIR/build-1.log"
mkdir -p "$KILN_CACHE_DIR/torch" && echo bridge >"$KILN_CACHE_DIR/torch/bridge-1.so"
kiln cache clear 2>&1 | sed "s|$HOME|HOME|"
kiln cache ls | sed 1d | wc -l
echo y | kiln cache clear >/dev/null 2>&1
echo "status $?"
kiln cache clear --yes | sed 's/ of [0-9.]* KB/ of N KB/'
kiln cache ls | sed "s|$HOME|HOME|"
ls "$KILN_CACHE_DIR" "$KILN_CACHE_DIR/torch" | sed "s|$HOME|HOME|"
kiln cache clear --yes --json | sed "s|$HOME|HOME|"
