# many entries, some of them damaged in different ways: verify names exactly these
export KILN_CACHE=disk
kiln cache verify | sed "s|$HOME|HOME|"
for t in f32 f64 i32 i64; do
    for op in neg abs sgn relu square; do echo "$op($t[3])"; done
done | kiln run - >/dev/null
kiln cache verify
cd "$KILN_CACHE_DIR/kernels"
set -- *.kernel
flip() { printf "$2" | dd of="$1" bs=1 seek="$3" conv=notrunc 2>/dev/null; }
flip $1 XXXX 0                                # another magic
flip $2 '\377' 8                              # another format
flip $3 '\377' 20                             # another checksum
flip $4 '\377\377' 700                        # a byte of the kernel or a text
flip $5 '\377' $(($(stat -c %s $5) - 1))      # the last byte of the source
truncate -s 100 $6                            # less than a head
truncate -s 600 $7                            # cut short
cp $9 $8                                      # another kernel's entry under this name
shift 9
chmod 666 $1                                  # others may write it
mv $2 kept && ln -s kept $2                   # no plain file
: >$3                                         # empty
for k in 1 2 3; do echo $k; done >notes.txt   # no entry at all
kiln cache verify >$TMP/found
echo "status $?"
sed 's/^[0-9a-f]\{32\}/ID/; s/has [0-9]* bytes, expected [0-9]*$/has N bytes, expected N/; s/format [0-9]*/format N/' $TMP/found | sort
kiln cache verify --json | grep -o '"cause":"[a-z]*"' | sort | uniq -c | sed 's/^ *//'
# looking has removed nothing, and a later call uses what is right
ls | grep -c 'kernel$'
