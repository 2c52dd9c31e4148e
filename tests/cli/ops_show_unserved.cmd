kiln ops show cat
