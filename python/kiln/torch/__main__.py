"""python -m kiln.torch build: the bridge for the running PyTorch.  python -m kiln.torch status: what enable() would take."""
import argparse
import sys

import kiln.torch

from . import _build


def main():
    parser = argparse.ArgumentParser(prog="python -m kiln.torch", description=__doc__.split(".  ")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    build = commands.add_parser("build", help="build the bridge for the running PyTorch with a C++ compiler")
    build.add_argument("--in-place", action="store_true", help="beside this module, instead of in the user's cache folder")
    commands.add_parser("status", help="say what enable('all') takes and leaves alone")
    given = parser.parse_args()
    try:
        if given.command == "build":
            print(_build.build(given.in_place))
        else:
            with kiln.torch.enabled("all"):
                print(kiln.torch.status())
    except RuntimeError as error:
        sys.exit(f"kiln.torch: {error}")


if __name__ == "__main__":
    main()
