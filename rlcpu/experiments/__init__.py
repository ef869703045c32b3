"""Many runs of one environment: variants by seeds, in a folder that can be gone on with.

Read `plan` (what is run, checked), `folder` (what lies on disk), `single` (one run), `pool` and
`worker` (processes that make runs) and `runner` (`run`); then `results`, `statistics`, `tables`,
`verdicts` and `pictures`, what the runs say. `search`, `spaces`, `outcome` and `settings_file` are
`tune`; `environments` and `references` name a user's things so that other processes have them.
"""

from rlcpu.experiments.folder import Experiment, Run, UnwritableError
from rlcpu.experiments.outcome import Search
from rlcpu.experiments.results import Results, load
from rlcpu.experiments.runner import run
from rlcpu.experiments.search import tune
from rlcpu.experiments.single import RunError
from rlcpu.experiments.tables import Table
from rlcpu.experiments.verdicts import Verdict

__all__ = [
    "Experiment",
    "Results",
    "Run",
    "RunError",
    "Search",
    "Table",
    "UnwritableError",
    "Verdict",
    "load",
    "run",
    "tune",
]


def __dir__() -> list[str]:
    return __all__
