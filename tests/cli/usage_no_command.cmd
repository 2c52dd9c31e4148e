kiln
