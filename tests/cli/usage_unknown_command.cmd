kiln expalin
