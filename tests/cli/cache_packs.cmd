# Recorded calls are built ahead of time, packed, and used where there is no compiler; what is wrong is told by line.
export KILN_CACHE=disk
cd "$TMP"
KILN_RECORD=calls KILN_MODE=interp kiln run 'neg(f32[3]:fill=1)' 'add.Tensor(f32[2,3]:fill=1, f32[3]:fill=1, alpha=2)' '_foreach_neg([f64[2]])' >results
cat calls
(cat calls; echo; echo '# a comment'; echo 'sinn(f32[3])'; echo 'neg(f32[3') >lines
kiln warm lines --json >sums 2>&1
echo "status $?"
sed 's/"compiler_s.*/.../' sums
kiln warm calls | sed 's/;.*//'
kiln cache export --json app.pack | sed 's/"bytes": *[0-9]*/"bytes":N/'
kiln cache export one.pack neg | sed 's/of .*/of N/'
echo "-- without a compiler"
for pack in app.pack one.pack; do
    KILN_PACK=$pack KILN_CACHE_DIR=none KILN_CC=/nonexistent kiln run --mode=frozen 'neg(f32[2]:fill=1)' 'add.Tensor(f32[4]:fill=1, f32[4]:fill=1)' 2>&1 | grep -v '^\[\|^f32'
done
kiln cache clear --yes --json | grep -o '"left":[0-9]*'
kiln cache import app.pack | sed 's/of .*/of N/'
kiln cache verify
echo "-- wrong"
{
    kiln warm
    kiln warm --isa=x86-64-v9 calls
    kiln warm nowhere
    kiln cache export
    kiln cache import calls
    kiln cache export none.pack add 2>&1 | sed "s|$HOME|HOME|"
    ls none.pack
    mkdir -m 777 open && KILN_CACHE_DIR=open kiln warm calls
    KILN_CACHE_SHARED=1 kiln warm calls
    KILN_CACHE_DIR=fresh kiln cache export none.pack
    KILN_CACHE=memory kiln warm calls
    KILN_RECORD=/nonexistent/calls kiln run 'neg(f32[1]:fill=1)'
} 2>&1
