"""`python -m rlcpu`: the same as the `rlcpu` command."""

import sys

from rlcpu.cli import main

if __name__ == "__main__":
    sys.exit(main())
