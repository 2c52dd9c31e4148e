# every fold that is timed can be made, over a dimension and over all elements
sed -E '/^#/d; s/^([^ ]+ +){4}//; s/\[S\]/[2,3]/g; s/\[Y\]/[2]/g; s/\bD\b/1/g' ../../bench/folds.txt | sed 's/ | /\n/' | grep -v '^-$' |
    kiln run --mode=interp - | sed -n 's/ (interp)$//p'
