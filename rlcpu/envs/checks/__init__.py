"""Check environments: a trial when they are made, and `rlcpu.envs.check` beside plain Python."""
