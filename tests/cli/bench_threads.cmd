kiln bench --threads=0 kernels
