"""`rlcpu.experiments.tune`: a search over settings, whose trials are variants of an experiment.

Optuna proposes settings in batches of `BATCH` trials, from the trials of the batches before and
from what it has proposed in the same one; each proposal has a random generator of the seed and the
trial's number. A batch is run in rounds, one for each seed. Whether a run ends early, or a trial
gets no other seed, depends on the batches before and on the trial itself. So nothing depends on the
order in which processes finish, on their number, or on kills: what is missing is made again, the
same.

    over steps   a run ends at an evaluation where its best one so far, or the mean of that with
                 those of the trial's other seeds, is below the median that trials had there which
                 came to their end (Optuna's `MedianPruner`; never in the first third of the steps)
    over seeds   a trial ends after a seed with which it is known to be worse than the best one
                 (Optuna's `WilcoxonPruner`; of fewer than four seeds that test tells nothing)

The best of many trials has been lucky as well as good: its score is estimated anew, with
`FRESH` seeds that the search has not used, beside the default settings.
"""

from __future__ import annotations

import contextlib
import math
import os
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rlcpu.envs.contract.policies import Uniform
from rlcpu.envs.rollout.collect import EndlessEpisodeError
from rlcpu.experiments import folder as folders
from rlcpu.experiments import references
from rlcpu.experiments.environments import open_environments
from rlcpu.experiments.folder import PRUNED, Variant
from rlcpu.experiments.outcome import DEFAULT, Best, Search, outcome_of
from rlcpu.experiments.plan import SEED_LIMIT, Facts, Plan, make_plan, try_variant
from rlcpu.experiments.runner import (
    Maker,
    check_versions,
    number_of_workers,
    read_done,
    write_manifest,
)
from rlcpu.experiments.single import PlannedRun, RunError, parts_of
from rlcpu.experiments.spaces import Space, make_space
from rlcpu.experiments.statistics import Array, scipy_stats
from rlcpu.kernels.checks import check_count
from rlcpu.train.running.evaluate import evaluate
from rlcpu.train.settings.algorithms import algorithm

#: Trials that are proposed together, and seeds that the best one is run with anew.
BATCH, FRESH = 8, 10
#: Trials that have to have come to their end before others are ended early; Optuna's default.
FEWEST_TRIALS = 5
#: What an evaluation counts as in which an episode did not end.
LOWEST = -1e30
#: What Optuna calls the search.
STUDY = "rlcpu"


def tune(
    env: Any,
    algo: Any = None,
    *,
    trials: int = 60,
    seeds: int = 3,
    seed: int = 0,
    steps: int | float | None = None,
    space: Mapping[str, Any] | None = None,
    settings: Mapping[str, Any] | None = None,
    minutes: float | None = None,
    evaluations: int = 10,
    eval_episodes: int = 10,
    final_episodes: int = 100,
    eval_env: Any = None,
    folder: str | os.PathLike[str],
    workers: int | None = None,
) -> Search:
    """Search for settings, and return the best ones with what fresh seeds say about them.

    Trials are variants of an experiment, "trial 0" and so on: the same call goes on where one was
    interrupted, also by a kill, and comes to the same result; one with more `trials` adds these.
    A trial's score is the mean over seeds of the last policy's return. The best trial is run again
    with ten seeds that no trial was chosen by, beside the default settings with the same seeds.

    Args:
        env: see `rlcpu.experiments.run`.
        algo: a name such as "dqn" or a class of agents; None for what `rlcpu train` takes.
        trials: how many settings are tried.
        seeds: runs of each.
        seed: of the proposals, and the first one of the runs.
        steps: environment steps of each run; None takes the algorithm's default.
        space: changes to the settings that are searched, by name: (low, high), of whole numbers if
            both are; (low, high, "log"), or "log1m" for the logarithm of the distance from 1; a
            list of choices; None to leave one out. See `rlcpu.experiments.spaces.SPACES`.
        settings: that are the same in all trials and the default.
        minutes: after which no other batch of eight trials begins. The result depends on the
            machine's speed then.
        evaluations: on the way, at which runs may end early.
        eval_episodes: deterministic episodes of each of them.
        final_episodes: deterministic episodes of the last policy, of which the score is the mean.
        eval_env: see `rlcpu.experiments.run`.
        folder: where runs are kept; a new one, or one of the same search. Optuna's journal of the
            trials is there, and at the end `settings.json`, which `rlcpu train --settings` takes.
        workers: processes, see `rlcpu.experiments.run`.

    Raises:
        TypeError, ValueError: a bad argument, or a space that has what the agent refuses, before
            anything runs; no episode ends in the environment; or the folder has another search.
        ImportError: Optuna or SciPy is missing.
        BlockingIOError: another process runs an experiment in the folder.
        RunError: no trial came to its end, or the default settings did not.
        UnwritableError, OSError: the folder cannot be written; what is done stays.

    Example:
        search = tune("CartPole-v1", "ppo", trials=60, seeds=3, steps=50_000, folder="search")
        print(search)
    """
    _check_libraries()
    trials, seeds = check_count("trials", trials), check_count("seeds", seeds)
    seed = check_count("seed", seed, 0, SEED_LIMIT - seeds - FRESH)
    if minutes is not None and not (isinstance(minutes, int | float) and 0 < minutes < math.inf):
        raise ValueError(f"minutes={minutes!r}: expected a finite number above 0, or None")
    if not isinstance(folder, str | os.PathLike):
        raise TypeError(f"folder={folder!r}: expected the path of a folder")
    if settings is not None and not isinstance(settings, Mapping):
        raise TypeError(f"settings={settings!r}: expected values by the setting's name")
    fixed = {**({} if algo is None else {"algo": algo}), **(settings or {})}
    protocol = {
        "steps": steps,
        "target": None,
        "evaluations": evaluations,
        "eval_episodes": eval_episodes,
        "final_episodes": final_episodes,
    }
    try:
        plan, facts = make_plan(env, {DEFAULT: fixed}, eval_env, protocol)
    except (TypeError, ValueError, MemoryError) as error:
        raise type(error)(str(error).removeprefix(f"variants[{DEFAULT!r}]: ")) from error
    chosen = facts.variant
    kind = references.resolve(chosen.algo) if ":" in chosen.algo else algorithm(chosen.algo)
    replay = chosen.config.get("replay")
    dimensions = make_space(kind, kind.Config.names(), chosen.settings, space, replay)
    at_ends = _check_ends(plan, dimensions, chosen)
    if workers is not None:
        workers = check_count("workers", workers)
    size = number_of_workers(workers, plan._replace(variants=at_ends))
    _check_ending(plan)
    search = _Trials(plan, facts, dimensions, Path(folder), range(seed, seed + seeds))
    # What the agent refuses of the first proposals is told before anything is written.
    search.add_variants(search.propose([])[:trials])
    search.path.mkdir(parents=True, exist_ok=True)
    with folders.locked(search.path):
        search.open()
        total = trials * seeds + 2 * FRESH
        with Maker(plan, search.path, size, total, f"{trials} trials") as maker:
            search.make(maker, trials, math.inf if minutes is None else 60.0 * minutes)
            best = search.confirm(maker, trials)
        return outcome_of(search.path, search.study, trials, best, search.fresh)


# ---------------------------------------------------------------- checks


def _check_libraries() -> None:
    """Raise ImportError with what to install where Optuna or SciPy is missing."""
    scipy_stats()
    try:
        import optuna  # noqa: F401
    except ImportError as error:
        raise ImportError(f'{error}: a search needs Optuna: pip install "optuna>=5.0"') from error


def _check_ends(plan: Plan, space: Space, chosen: Variant) -> dict[str, Variant]:
    """Return a variant for each end of each range, and for each choice; ValueError if refused."""
    variants = {}
    for name, dimension in space.items():
        for value in dimension.ends():
            changed = {"algo": chosen.algo, **chosen.settings, name: value}
            try:
                facts = try_variant(plan.env, plan.eval_env, DEFAULT, changed)
            except (TypeError, ValueError, MemoryError) as error:
                raise ValueError(
                    f"space[{name!r}] has {value!r}, which the agent refuses: {error}"
                ) from error
            variants[f"{name}={value!r}"] = facts.variant
    return variants


def _check_ending(plan: Plan) -> None:
    """Raise ValueError where no episode of random actions ends in an environment without limit."""
    with open_environments(plan.eval_env or plan.env) as envs:
        if envs.max_episode_steps is not None or not envs.dynamics.runs_in_kernels:
            return  # one of Gymnasium's takes minutes for a million steps
        try:
            evaluate(envs, Uniform(), 1)
        except EndlessEpisodeError as error:
            raise ValueError(
                f"{error}: a search needs returns of episodes, expected an environment whose "
                "episodes end, or one with max_episode_steps"
            ) from None


# ---------------------------------------------------------------- the trials of a folder


def name_of(number: int) -> str:
    """Return what the variant of a trial is called."""
    return f"trial {number}"


class _Trials:
    """The trials of a search in a folder.

    Args:
        plan: whose variants are the default, and those that are added.
        facts: of the default.
        space: that settings are proposed from.
        path: of the folder.
        seeds: of the runs of each trial.
    """

    study: Any  # Optuna's, in the folder: of trials that have ended, in their order

    def __init__(self, plan: Plan, facts: Facts, space: Space, path: Path, seeds: range) -> None:
        self.plan, self.facts, self.space, self.path = plan, facts, space, path
        self.seeds, self.fresh = seeds, range(seeds.stop, seeds.stop + FRESH)
        self._done: set[tuple[str, int]] = set()
        self._curves: dict[tuple[str, int], Array] = {}

    def open(self) -> None:
        """Enter the search in its folder, and read what is done.

        Raises:
            ValueError: the folder has something else.
        """
        self._write_manifest()
        older = folders.read_manifest(self.path)["variants"]
        self.plan.variants.update({name: Variant(**each) for name, each in older.items()})
        done = read_done(self.path)
        check_versions(self.path, {*done.values()})
        self._done = set(done)
        self.study = open_study(self.path)
        whole = [x for x in self.study.get_trials(deepcopy=False) if x.state.name == "COMPLETE"]
        names = [name_of(trial.number) for trial in whole]
        if any((name, seed) not in self._done for name in names for seed in self.seeds):
            # A power failure has damaged a run. What is told of trials is made of runs, again.
            (self.path / folders.TRIALS).unlink()
            self.study = open_study(self.path)

    def _write_manifest(self) -> None:
        """Write the variants so far, with what the search is, into the manifest."""
        import optuna

        described = {
            "algo": self.facts.variant.algo,
            "settings": self.facts.variant.settings,
            "space": {name: each.describe() for name, each in self.space.items()},
            "seed": self.seeds.start,
            "seeds": len(self.seeds),
            "batch": BATCH,
            "optuna": optuna.__version__,
        }
        write_manifest(self.path, self.plan, self.facts, described)

    def propose(self, finished: Sequence[Any]) -> list[Any]:
        """Return the trials (BATCH,) that come after the finished ones.

        They are Optuna's, of a study in memory, and know those of the same batch as running.
        """
        import optuna

        with _quiet():
            pruner = optuna.pruners.WilcoxonPruner()
            study = optuna.create_study(direction="maximize", pruner=pruner)
            study.add_trials(finished)
            distributions = {each.label: each.distribution() for each in self.space.values()}
            asked = []
            for number in range(len(finished), len(finished) + BATCH):
                seed = np.random.SeedSequence([self.seeds.start, number]).generate_state(1)
                study.sampler = optuna.samplers.TPESampler(
                    seed=int(seed[0]),
                    n_startup_trials=BATCH,  # the first batch is drawn evenly
                    multivariate=True,
                    constant_liar=True,
                )
                asked.append(study.ask(distributions))
        return asked

    def add_variants(self, asked: Sequence[Any]) -> None:
        """Add the variants of proposals to the plan; ValueError where the agent refuses one."""
        chosen = self.facts.variant
        for trial in asked:
            drawn = {
                each.name: each.value(trial.params[each.label]) for each in self.space.values()
            }
            settings = {"algo": chosen.algo, **chosen.settings, **drawn}
            name = name_of(trial.number)
            try:
                facts = try_variant(self.plan.env, self.plan.eval_env, name, settings)
            except (TypeError, ValueError, MemoryError) as error:
                raise ValueError(
                    f"space: {name} is {drawn}, which the agent refuses: {error}"
                ) from error
            self.plan.variants[name] = facts.variant

    def make(self, maker: Maker, count: int, seconds: float) -> None:
        """Make the trials that are missing of the first `count`, or begin no batch after `seconds`.

        Raises:
            RunError: all trials of the first batch failed.
        """
        begin = time.monotonic()
        for first in range(0, count, BATCH):
            told = self.study.get_trials(deepcopy=False)
            batch = range(first, min(first + BATCH, count))
            if len(told) < batch.stop:
                if first and time.monotonic() - begin > seconds:
                    return
                asked = self.propose(told[:first])[: len(batch)]
                missing = asked[max(0, len(told) - first) :]
                self.add_variants(missing)
                self._write_manifest()
                self._make_batch(maker, told[:first], missing)
            else:
                maker.skip(len(batch) * len(self.seeds))

    def _make_batch(self, maker: Maker, finished: Sequence[Any], asked: Sequence[Any]) -> None:
        """Make the runs of proposals, seed by seed, and tell Optuna of them."""
        from optuna.trial import TrialState

        going, states = list(asked), dict.fromkeys((x.number for x in asked), TrialState.COMPLETE)
        values: dict[int, dict[int, float]] = {trial.number: {} for trial in asked}
        reasons: dict[int, str] = {}
        for index, seed in enumerate(self.seeds):
            medians = self._medians(finished, index)
            jobs = []
            for name in (name_of(trial.number) for trial in going):
                jobs.append(PlannedRun(name, seed, self._bars(name, medians, index)))
            failed = maker.make([job for job in jobs if (job.variant, seed) not in self._done])
            maker.skip(len(asked) - len(jobs))
            for trial in list(going):
                number, name = trial.number, name_of(trial.number)
                if name in failed:
                    states[number], reasons[number] = TrialState.FAIL, failed[name]
                    going.remove(trial)
                    continue
                run = folders.read_run(self.path, name, seed)
                values[number][index] = run.score
                with _quiet():
                    trial.report(run.score, index)
                    is_worse = index + 1 < len(self.seeds) and trial.should_prune()
                if is_worse or run.done.stopped == PRUNED:
                    states[number] = TrialState.PRUNED
                    going.remove(trial)
        if not finished and len(reasons) == len(asked):
            reason = next(iter(reasons.values()))
            raise RunError({}, f"all {len(asked)} trials of the first batch failed: {reason}")
        for trial in asked:
            reason = reasons.get(trial.number, "")
            self._tell(trial, states[trial.number], values[trial.number], reason)

    def _tell(self, trial: Any, state: Any, values: dict[int, float], reason: str) -> None:
        """Write a trial that has ended into the journal, of a failed one with the reason."""
        import optuna

        is_whole = state == optuna.trial.TrialState.COMPLETE
        finite = {index: value for index, value in values.items() if math.isfinite(value)}
        self.study.add_trial(
            optuna.trial.create_trial(
                state=state,
                value=float(np.mean(list(values.values()))) if is_whole else None,
                params=trial.params,
                distributions=trial.distributions,
                intermediate_values=finite,
                user_attrs={"reason": reason} if reason else {},
            )
        )

    def _medians(self, finished: Sequence[Any], index: int) -> Array | None:
        """Return medians (evaluations,) over whole trials of means over the seeds up to one.

        None where too few trials are whole.
        """
        names = [name_of(each.number) for each in finished if each.state.name == "COMPLETE"]
        if len(names) < FEWEST_TRIALS:
            return None
        seeds = self.seeds[: index + 1]
        means = [np.mean([self._returns(name, seed) for seed in seeds], axis=0) for name in names]
        medians: Array = np.median(means, axis=0)
        medians[: len(medians) // 3] = -np.inf
        return medians

    def _bars(self, name: str, medians: Array | None, index: int) -> tuple[float, ...]:
        """Return what the next run of a trial has to reach for its mean to be at the medians."""
        if medians is None:
            return ()
        past = [np.maximum.accumulate(self._returns(name, x)) for x in self.seeds[:index]]
        return tuple(((index + 1) * medians - np.sum(past, axis=0)).tolist())

    def _returns(self, name: str, seed: int) -> Array:
        """Return the mean returns (evaluations,) of a run after each of its parts."""
        if (name, seed) not in self._curves:
            protocol = self.plan.protocol
            curve = folders.read_run(self.path, name, seed).curve
            passed = parts_of(curve.steps, protocol.steps, protocol.evaluations)
            # Of several parts that are over at one evaluation, each has its return.
            places = np.searchsorted(passed, np.arange(1, protocol.evaluations + 1))
            # An episode that does not end is no reason for warnings of infinities.
            self._curves[name, seed] = np.nan_to_num(curve.mean_return, nan=LOWEST)[places]
        return self._curves[name, seed]

    def confirm(self, maker: Maker, count: int) -> Best:
        """Run the best of the first `count` trials and the default with fresh seeds; see `tune`.

        Returns:
            The best trial.

        Raises:
            RunError: one of the runs failed, or all trials did.
        """
        whole = [x for x in self.study.trials[:count] if x.state.name == "COMPLETE"]
        if not whole:
            raise RunError({}, f"none of {count} trials came to its end")
        trial = max(whole, key=lambda each: (each.value, -each.number))
        best = Best(name_of(trial.number), trial.value)
        jobs = [PlannedRun(x, seed) for seed in self.fresh for x in (best.variant, DEFAULT)]
        missing = [job for job in jobs if job[:2] not in self._done]
        maker.skip(len(jobs) - len(missing))
        if failed := maker.make(missing):
            raise RunError(failed)
        return best


# ---------------------------------------------------------------- Optuna


def open_study(folder: Path) -> Any:
    """Return Optuna's study of a search, or a new one, in a folder that this process has locked."""
    import optuna
    from optuna.storages.journal import JournalFileBackend

    path = folder / folders.TRIALS
    # A kill may leave half a line, which Optuna would write behind, and its own lock.
    Path(f"{path}.lock").unlink(missing_ok=True)
    if path.exists():
        with open(path, "r+b") as file:
            file.truncate(file.read().rfind(b"\n") + 1)
    with _quiet():
        return optuna.create_study(
            storage=optuna.storages.JournalStorage(JournalFileBackend(os.fspath(path))),
            study_name=STUDY,
            direction="maximize",
            load_if_exists=True,
        )


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Let Optuna neither tell of new studies, nor warn that a pruner may change, in a block."""
    import optuna

    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            yield
    finally:
        optuna.logging.set_verbosity(before)
