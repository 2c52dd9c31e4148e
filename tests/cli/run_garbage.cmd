# NUL bytes, control characters, a line without end: refused, never a crash
printf 'f(\0)\n\033[31m(\nf("\033[31m\n' | kiln run - || echo "status $?"
head -c 3000000 /dev/zero | tr '\0' '(' | kiln run - || echo "status $?"
head -c 200000 /dev/zero | kiln run -
