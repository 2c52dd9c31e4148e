kiln ops 'add[._]*Tensor' | awk '{ print $1, $2, $3, $4 }'
