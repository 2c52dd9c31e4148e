"""Being here puts tests/ on the path of every folder of tests below, so that they can import whole.py and descriptions.py."""
import os

os.environ["KILN_CACHE"] = "memory"  # tests count compiles; those of the cache folder ask for it
