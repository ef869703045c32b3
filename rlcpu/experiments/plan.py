"""What an experiment runs, checked before anything does: its environment, protocol and variants.

A plan is made of the arguments of `rlcpu.experiments.run`, and again, in other processes, of its
description. The seeds of a run with the seed S, which is below 2**64, are those of three ranges:

    training                         S
    evaluations on the way           2**64 + S
    episodes of the final score      2 * 2**64 + S

so that no score is of an episode that was trained or chosen on, and that all variants are scored in
the same episodes of each seed, whatever other seeds there are.
"""

from __future__ import annotations

import difflib
import functools
import json
import math
import numbers
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from rlcpu.experiments import references
from rlcpu.experiments.environments import EnvSource, open_environments
from rlcpu.experiments.folder import LONGEST_NAME, Variant
from rlcpu.kernels.checks import check_count
from rlcpu.train.agent import Agent
from rlcpu.train.running.evaluations import check_other_env
from rlcpu.train.settings.algorithms import NAMES, algorithm
from rlcpu.train.settings.tuned import default_steps, fitting

#: Seeds of training are below it; see above.
SEED_LIMIT = 2**64
#: What an experiment sets itself, and what no folder could hold.
_NOT_OF_VARIANTS = {
    "seed": "seeds= has the seeds",
    "num_threads": "each run has one thread",
    "config": "name the settings themselves",
    "policy": "a run begins with a new one",
    "buffer": "a run begins with a new one: capacity, replay and n_step say which",
    "env": "all variants are run in one environment",
    "steps": "all variants make the same number: steps=",
    "total_steps": "all variants make the same number: steps=",
    "total_timesteps": "all variants make the same number: steps=",
    "algorithm": 'write "algo"',
}


class Protocol(NamedTuple):
    """Numbers by which each run is made and scored."""

    steps: int  # environment steps of training
    target: float | None  # mean return that ends a run
    evaluations: int  # on the way
    eval_episodes: int  # of each of these
    final_episodes: int  # of the last policy


class Plan(NamedTuple):
    """Environment, protocol and variants of an experiment."""

    env: EnvSource
    eval_env: EnvSource | None  # None: episodes are played in other copies of `env`
    protocol: Protocol
    variants: dict[str, Variant]

    def describe(self) -> dict[str, Any]:
        """Return it as JSON takes it, for `of_description`."""
        return {
            "env": self.env.describe(),
            "eval_env": None if self.eval_env is None else self.eval_env.describe(),
            "protocol": self.protocol._asdict(),
            "variants": {name: each._asdict() for name, each in self.variants.items()},
        }

    @classmethod
    def of_description(cls, described: Mapping[str, Any]) -> Plan:
        """Return the plan of a description, in another process."""
        other = described["eval_env"]
        return cls(
            EnvSource(**described["env"]),
            None if other is None else EnvSource(**other),
            Protocol(**described["protocol"]),
            {name: Variant(**each) for name, each in described["variants"].items()},
        )

    def make_agent(self, variant: str, seed: int, env: Any) -> Agent:
        """Return a new agent of a variant, in what `EnvSource.make` has returned."""
        chosen = self.variants[variant]
        return make_agent(chosen.algo, chosen.settings, seed, env)

    def things_here(self) -> list[str]:
        """Return references of what other processes could not import, and objects in words."""
        sources = [each for each in (self.env, self.eval_env) if each is not None]
        names = [each.describe()["text"] for each in sources if each.is_here_alone]
        for variant in self.variants.values():
            values = [variant.algo, *variant.settings.values()]
            names += [each for each in values if references.is_reference(each)
                      and references.lives_here(each)]  # fmt: skip
        return list(dict.fromkeys(names))

    def code(self) -> dict[str, str]:
        """Return hashes of the user's code that decides what is run; see `references.code_of`."""
        things = [*self.env.code(), *(self.eval_env.code() if self.eval_env else ())]
        for variant in self.variants.values():
            values = [variant.algo, *variant.settings.values()]
            things += [references.resolve(each) for each in values if references.is_reference(each)]
        return references.code_of(things)


# ---------------------------------------------------------------- made of arguments


class Facts(NamedTuple):
    """Facts that an agent tells which was made for the checks."""

    env_id: str
    threshold: float | None  # of the environment
    steps: int  # that its algorithm learns by default
    variant: Variant


def make_plan(
    env: Any, variants: Any, eval_env: Any, numbers_of_runs: Mapping[str, Any]
) -> tuple[Plan, Facts]:
    """Return the plan of arguments, and facts of its first variant.

    One agent of each variant is made, which refuses bad settings before anything runs.

    Args:
        env: as `rlcpu.experiments.run` takes it.
        variants: likewise.
        eval_env: likewise.
        numbers_of_runs: its arguments that are fields of `Protocol`.

    Raises:
        TypeError, ValueError, ImportError: one of them is bad.
    """
    source = EnvSource.of("env", env)
    other = source.other() if eval_env is None else EnvSource.of("eval_env", eval_env)
    facts: dict[str, Facts] = {}
    for name, settings in _check_variants(variants).items():
        try:
            facts[name] = try_variant(source, other, name, settings)
        except (TypeError, ValueError, MemoryError) as error:
            raise type(error)(f"variants[{name!r}]: {error}") from error
    protocol = _check_protocol(numbers_of_runs, {name: each.steps for name, each in facts.items()})
    plan = Plan(source, other, protocol, {name: each.variant for name, each in facts.items()})
    return plan, next(iter(facts.values()))


def try_variant(
    source: EnvSource, other: EnvSource | None, name: str, settings: Mapping[str, Any]
) -> Facts:
    """Make an agent of a variant, and return what it tells; raises where something is refused."""
    for each, reason in _NOT_OF_VARIANTS.items():
        if each in settings:
            raise TypeError(f"{each}={settings[each]!r} is no setting of a variant: {reason}")
    with source.open() as env:
        described = {key: _as_json(value) for key, value in settings.items() if key != "algo"}
        algo = _name_of(settings.get("algo") or _algorithm_of_name(name) or _fitting(env))
        agent = make_agent(algo, described, 0, env)
        if other is not None:
            with open_environments(other) as environments:
                check_other_env(agent.env, environments)
        config = {each: _as_json(getattr(agent.config, each)) for each in agent.config.names()}
        config["dtype"] = agent.env.dtype.name
        # As a file will have it: what is compared with the file's has no tuples.
        variant = Variant(*json.loads(json.dumps([algo, described, config])))
        dynamics = agent.env.dynamics
        facts = Facts(dynamics.id, dynamics.reward_threshold, default_steps(agent), variant)
        if agent.env is not env:
            agent.env.close()
    return facts


def make_agent(algo: str, settings: Mapping[str, Any], seed: int, env: Any) -> Agent:
    """Return a new agent of one thread, of an algorithm's name or reference, and JSON's settings.

    Raises:
        TypeError, ValueError: there is no such algorithm, or it refuses a setting.
    """
    kind = references.resolve(algo) if references.is_reference(algo) else algorithm(algo)
    if not (isinstance(kind, type) and issubclass(kind, Agent)):
        raise TypeError(f"algo={algo!r}: expected a class of agents, of rlcpu.train.PPO or another")
    chosen = {
        name: references.resolve(value) if references.is_reference(value) else value
        for name, value in settings.items()
    }
    options: dict[str, Any] = {"seed": seed, "num_threads": 1, **chosen}
    agent_class: Any = kind
    agent: Agent = agent_class(env, **options)
    return agent


def _name_of(algo: Any) -> str:
    """Return the name of an algorithm of this library, or the reference of another class."""
    if isinstance(algo, type):
        name = algo.__name__.lower()
        return name if name in NAMES and algorithm(name) is algo else references.refer(algo)
    if not isinstance(algo, str):
        raise TypeError(f"algo={algo!r}: expected a name such as 'dqn', or a class of agents")
    return algo


def _algorithm_of_name(name: str) -> str | None:
    """Return the algorithm that a variant's name begins with, as "ppo, small steps" does."""
    word = re.match(r"[a-z0-9]*", name.lower())
    return word[0] if word and word[0] in NAMES else None


def _fitting(env: Any) -> str:
    """Return the algorithm that `rlcpu train` takes for an environment."""
    return fitting(getattr(env, "id", ""))


def _as_json(value: Any) -> Any:
    """Return a setting as JSON has it; of a class or function its reference.

    Raises:
        TypeError, ValueError: it is neither these nor what a file can hold.
    """
    if callable(value):
        return references.refer(value)
    if isinstance(value, numbers.Integral) and not isinstance(value, bool):
        return int(value)
    if isinstance(value, numbers.Real) and not isinstance(value, bool):
        return float(value)
    if isinstance(value, tuple | list):
        return [_as_json(each) for each in value]
    if value is None or isinstance(value, bool | str):
        return value
    raise TypeError(f"{value!r}: expected numbers, texts, or functions of a module")


# ---------------------------------------------------------------- checks of arguments


def _check_variants(variants: Any) -> dict[str, Mapping[str, Any]]:
    """Return variants whose names are usable; TypeError or ValueError for anything else."""
    if not isinstance(variants, Mapping):
        raise TypeError(
            f"variants={variants!r}: expected settings by name, such as "
            '{"ppo": {}, "dqn": {"algo": "dqn"}}'
        )
    if not variants:
        raise ValueError("variants={}: expected one at least")
    for name, settings in variants.items():
        if not isinstance(name, str):
            raise TypeError(f"variants has {name!r}: expected texts as names")
        if not name.strip() or name != name.strip() or not name.isprintable():
            raise ValueError(f"variants has {name!r}: expected a name without blanks around it")
        if len(name) > LONGEST_NAME:
            raise ValueError(f"variants has {name!r}: expected at most {LONGEST_NAME} letters")
        if not isinstance(settings, Mapping) or not all(isinstance(key, str) for key in settings):
            raise TypeError(f"variants[{name!r}]={settings!r}: expected settings by name")
    folded = [name.casefold() for name in variants]
    for name in variants:
        if folded.count(name.casefold()) > 1:
            raise ValueError(f"variants has {name!r} twice: some systems' folders know no capitals")
    return dict(variants)


def _check_protocol(values: Mapping[str, Any], defaults: Mapping[str, int]) -> Protocol:
    """Return the protocol; where no steps are given, all variants' `defaults` have to agree."""
    steps, target = values["steps"], values["target"]
    if steps is None:
        if len(set(defaults.values())) > 1:
            listed = ", ".join(f"{name!r} {number:,}" for name, number in defaults.items())
            raise ValueError(
                f"steps=None: the variants learn different numbers of steps by default, {listed}: "
                "expected steps=, one number for all"
            )
        steps = next(iter(defaults.values()))
    if target is not None:
        if isinstance(target, bool) or not isinstance(target, numbers.Real):
            raise TypeError(f"target={target!r}: expected a number, or None")
        if not math.isfinite(target):
            raise ValueError(f"target={target!r}: expected a finite number")
        target = float(target)
    counts = {name: check_count(name, values[name]) for name in Protocol._fields[2:]}
    return Protocol(check_count("steps", steps), target, **counts)


def check_seeds(seeds: Any) -> list[int]:
    """Return the seeds of a count, 0 and the following ones, or of a list.

    Raises:
        TypeError, ValueError: it is neither, or has a seed twice, or none.
    """
    if isinstance(seeds, numbers.Integral) and not isinstance(seeds, bool):
        return list(range(check_count("seeds", seeds)))
    if isinstance(seeds, str | bytes | Mapping) or not hasattr(seeds, "__iter__"):
        raise TypeError(f"seeds={seeds!r}: expected a number of seeds, or a list of them")
    checked = [check_count("seeds", seed, 0, SEED_LIMIT) for seed in seeds]
    if not checked or len(set(checked)) < len(checked):
        raise ValueError(f"seeds={seeds!r}: expected one at least, and each once")
    return checked


#: What stable-baselines3 and its zoo call our arguments, and what else people try.
_ALIASES = {
    "eval_freq": "evaluations, how many of them",
    "n_evaluations": "evaluations",
    "n_eval_episodes": "eval_episodes, and final_episodes of the last policy",
    "total_timesteps": "steps",
    "n_timesteps": "steps",
    "total_steps": "steps",
    "n_seeds": "seeds",
    "num_seeds": "seeds",
    "seed": "seeds",
    "n_jobs": "workers",
    "num_workers": "workers",
    "num_threads": "workers: each has one thread",
    "algo": 'variants={"dqn": {"algo": "dqn"}}',
    "algorithm": 'variants={"dqn": {"algo": "dqn"}}',
    "target_return": "target",
    "reward_threshold": "target",
    "log_path": "folder",
    "log_folder": "folder",
    "best_model_save_path": "folder, where each run keeps its last policy",
    "tensorboard_log": "folder, where each run keeps its curve",
    "n_envs": 'variants={"ppo": {"num_envs": ...}}',
}


def refuse_others(names: Mapping[str, Any], arguments: list[str]) -> None:
    """Raise TypeError for arguments that `rlcpu.experiments.run` lacks, with those it has."""
    for name in names:
        if name not in _ALIASES and name in _names_of_settings():
            raise TypeError(f'{name} is a setting: variants={{"ppo": {{{name!r}: ...}}}}')
        near = _ALIASES.get(name) or next(iter(difflib.get_close_matches(name, arguments, n=1)), "")
        hint = f"did you mean {near}?" if near else f"expected {', '.join(arguments)}"
        raise TypeError(f"{name}: experiments.run has no such argument; {hint}")


@functools.cache
def _names_of_settings() -> set[str]:
    """Return the names of the settings of all algorithms of this library."""
    return {name for each in NAMES for name in algorithm(each).Config.names()}
