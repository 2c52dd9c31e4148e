# KILN_LOG says which messages are written, and where
KILN_LOG=debug kiln run 'neg(f32[2]:fill=1)' 2>&1 | sed 's/[0-9.]* ms$/some ms/'
KILN_LOG=error KILN_CC=/nonexistent/cc kiln run 'neg(f32[2]:fill=1)' 2>&1
KILN_LOG=info:$TMP/log kiln run 'neg(f32[2]:fill=1)' 2>&1
sed 's/[0-9.]* ms$/some ms/' $TMP/log
for wrong in loud info: info:/dev/null/log; do KILN_LOG=$wrong kiln run 'neg(f32[2]:fill=1)' 2>&1; echo "status $?"; done
