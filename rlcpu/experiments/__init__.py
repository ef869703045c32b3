"""Many runs of one environment: variants by seeds, in a folder that can be gone on with."""

from rlcpu.experiments.folder import Experiment, Run, read

__all__ = ["Experiment", "Run", "read"]
