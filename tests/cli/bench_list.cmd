# every call that is timed can be made
sed -E '/^#/d; s/^([^ ]+ +){4}//; s/([[,(])N\b/\116/g; s/([[,(])[RC]\b/\14/g; s/i32\[16\]/&:fill=3/g' ../../bench/kernels.txt |
    kiln run --mode=interp - | sed -n 's/ (interp)$//p'
