"""`rlcpu warmup`: compile, and so cache, kernels ahead of their use."""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Callable

import rlcpu
from rlcpu.algorithms import NAMES as ALGORITHMS
from rlcpu.cli.arguments import DTYPES, known_environments
from rlcpu.terminal import Bar, is_watched


def warmup(args: argparse.Namespace) -> int:
    """Compile, and so cache, the kernels of stepping, collecting and training."""
    env_ids = [env.id for env in args.envs] or known_environments()
    dtypes = args.dtype or DTYPES
    jobs = [(env, dtype, job) for env in env_ids for dtype in dtypes for job in WARMUP_JOBS]
    shown = is_watched() and not args.no_progress
    with Bar("kernels", len(jobs), "parts") if shown else contextlib.nullcontext() as bar:
        for done, (env_id, dtype, job) in enumerate(jobs, 1):
            job(env_id, dtype)
            if bar is not None:
                bar.show(done, text=f"{env_id} {dtype} {job.__name__.removeprefix('warm_')}")
    print(f"compiled {', '.join(env_ids)} in {' and '.join(dtypes)}")
    return 0


def few_and_many(env_id: str, many: int) -> tuple[int, ...]:
    """Return numbers of environments whose kernels differ: MuJoCo's are the same for any."""
    return (2, many) if rlcpu.envs.find(env_id).runs_in_kernels else (2,)


def warm_step(env_id: str, dtype: str) -> None:
    """Compile `env.step`, in few environments (serial kernels) and many (parallel kernels)."""
    for num_envs in few_and_many(env_id, 1 << 16):
        env = rlcpu.make_vec(env_id, num_envs=num_envs, dtype=dtype)
        env.reset(seed=0)
        env.step(env.action_space.sample())


def warm_collect(env_id: str, dtype: str) -> None:
    """Compile `simulate` and `collect` with the policies that take no code of the user's."""
    for num_envs in few_and_many(env_id, 1 << 14):
        env = rlcpu.make_vec(env_id, num_envs=num_envs, dtype=dtype)
        env.reset(seed=0)
        spaces = env.dynamics.observation_space, env.dynamics.action_space
        for policy in (rlcpu.policies.Uniform(), rlcpu.policies.MLP(*spaces)):
            rlcpu.simulate(env, policy, 2)
            rlcpu.collect(env, policy, 2)


def warm_train(env_id: str, dtype: str) -> None:
    """Compile the default training of each algorithm that takes the environment's actions."""
    from rlcpu.envs.rollout.collect import EndlessEpisodeError
    from rlcpu.train.settings.algorithms import algorithm

    for name in ALGORITHMS:
        try:
            agent = algorithm(name)(env_id, seed=0, dtype=dtype)
        except (TypeError, ValueError):  # before anything is compiled
            continue
        enough = getattr(agent.config, "learning_starts", 0)
        # Many steps, of which few are made: only long runs load the kernel of whole rounds. The
        # callback ends the run by returning False.
        agent.learn(1e9, callback=lambda progress, enough=enough: progress.steps <= enough)
        with contextlib.suppress(EndlessEpisodeError):  # it has hardly learnt
            agent.evaluate(num_episodes=1, seed=0)


WARMUP_JOBS: tuple[Callable[[str, str], None], ...] = (warm_step, warm_collect, warm_train)
