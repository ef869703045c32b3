"""The history of our own kernels: `make bench` and `make history`, or `asv` in the folder above.

`tables` is our side of all that the peers' tables compare; `process`, `replay` and `scan` have what
no peer does. What is compiled is compiled in `setup` (asv's own warm-up is too short for it), and
every benchmark carries a version of its own, so that editing its text does not end its history. A
commit that lacks what a benchmark measures shows "n/a". `milestones` is the short list for commits
of long ago.
"""

import sys
from pathlib import Path

# Last, so that `import rlcpu` finds the commit that asv has installed.
sys.path.append(str(Path(__file__).parents[2]))
