# what is no action
kiln cache 2>&1
kiln cache list 2>&1 | head -n 1
kiln cache verfy 2>&1 | head -n 1
kiln cache ls now 2>&1 | head -n 1
kiln cache --yess clear 2>&1 | head -n 1
kiln help cache
