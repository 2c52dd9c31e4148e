"""The `kiln` command of an installed package: becomes the program that the package holds."""
import os
import sys


def main():
    program = os.path.join(os.path.dirname(os.path.abspath(__file__)), "bin", "kiln")
    if not os.access(program, os.X_OK):
        sys.exit("kiln: this package holds no command; a source tree has it in build/kiln, built by make")
    os.execv(program, ["kiln", *sys.argv[1:]])
