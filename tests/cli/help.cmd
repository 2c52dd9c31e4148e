kiln --help
