kiln ops no_such_operator
