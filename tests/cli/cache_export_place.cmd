# A pack takes the place of a plain file and of nothing else: a pipe, a folder and a link stay what they are.
export KILN_CACHE=disk
cd "$TMP"
kiln run 'neg(f32[3]:fill=1)' >results
mkfifo pipe; mkdir folder; echo text >file; ln -s file link
for place in pipe folder link file; do
    kiln cache export $place 2>&1 | sed 's/of .*/of N/'
done
for kind in p:pipe d:folder L:link f:file; do test -${kind%:*} ${kind#*:} && echo $kind; done
head -c 8 file; echo
