# every reference that folds are judged by is of a line of the list
for name in $(sed -n '/references\[\] = /,/;/s/[^"]*"\([a-z0-9]*\)"[^"]*/\1 /gp' ../../bench/command/accuracy.c); do grep -o "^$name " ../../bench/folds.txt; done
