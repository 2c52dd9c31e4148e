"""Being here puts tests/ on the path of every folder of tests below, so that they can import whole.py and descriptions.py."""
