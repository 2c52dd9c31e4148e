# of 105 entries exactly the 100 damaged ones are named: a byte of each is another one, or it is cut short, or it has another's name
export KILN_CACHE=disk
for op in neg abs sgn relu square; do echo "$op(f32[3])"; done | kiln run - >/dev/null
cd "$KILN_CACHE_DIR/kernels"
good=$(ls | grep 'kernel$')
one=$(echo "$good" | head -n 1)
for k in $(seq 100 199); do
    bad=00000000000000000000000000000$k.kernel
    cp $one $bad
    case $((k % 3)) in
    0) printf '\377' | dd of=$bad bs=1 seek=$((k * 4)) conv=notrunc 2>/dev/null ;;
    1) truncate -s $((k * 3)) $bad ;;
    esac
done
kiln cache verify >$TMP/found
echo "status $?"
tail -n 1 $TMP/found
grep -c '^00000000000000000000000000000[1][0-9][0-9] ' $TMP/found
for name in $good; do grep -c "^${name%.kernel} " $TMP/found; done | sort | uniq -c | sed 's/^ *//'
kiln cache stats --json | grep -o '"entries":[0-9]*' | head -n 1
