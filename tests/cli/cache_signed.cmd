# a shared folder: every entry must be signed by the key
head -c 32 /dev/urandom >$TMP/key; head -c 32 /dev/urandom >$TMP/other; chmod 600 $TMP/key $TMP/other
export KILN_CACHE=disk KILN_CACHE_SHARED=1 KILN_KEY_FILE=$TMP/key
mkdir $HOME/cache && chmod 777 $HOME/cache
kiln run 'neg(f32[3])' 'abs(f32[3])' >/dev/null
kiln cache stats --json | grep -o '"signed":[0-9]*'
kiln cache verify
for f in "$KILN_CACHE_DIR"/kernels/*.kernel; do chmod 666 "$f"; done
kiln cache verify
KILN_KEY_FILE=$TMP/other kiln cache verify | sed 's/^[0-9a-f]\{32\}/ID/'
KILN_KEY_FILE=$TMP/other kiln cache why 'neg(f32[3])' | sed -n 's/^refused: [0-9a-f]*/refused: ID/p'
KILN_KEY_FILE= kiln cache verify | sed 's/^[0-9a-f]\{32\}/ID/'
