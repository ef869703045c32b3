"""What a run does for itself while it learns: it is evaluated, saved, and stopped in time.

Nothing of this changes what is learnt. Files are replaced as a whole: whatever happens to the
process, each is an agent that goes on bit for bit from the moment when it was written.
"""

from __future__ import annotations

import json
import os
import zlib
from typing import Any, NamedTuple

from rlcpu.kernels.checks import check_count
from rlcpu.kernels.compiler.announce import clock, cpu_clock
from rlcpu.train.keeping import checkpoint
from rlcpu.train.keeping.files import check_writable
from rlcpu.train.keeping.history import BestEvaluation, Evaluation
from rlcpu.train.running.evaluations import Evaluations, check_other_env


class UpkeepOptions(NamedTuple):
    """Arguments of `Agent.learn` on what is evaluated and saved meanwhile."""

    evaluations: Any  # int or Evaluations; None makes none
    keep_best: Any  # path of a file, or None
    patience: Any  # evaluations in a row, or None
    save_to: Any  # path of a file, or None
    save_every: Any  # environment steps, or None

    def checked(self, report_steps: int) -> UpkeepOptions:
        """Return options whose numbers are ints, and whose `evaluations` are of that class or None.

        `report_steps` environment steps are made between two reports of the agent. TypeError or
        ValueError is raised where an option is bad, or lacks another.
        """
        evaluations, keep_best, patience, save_to, save_every = self
        for name, path in (("keep_best", keep_best), ("save_to", save_to)):
            if path is not None and not isinstance(path, str | os.PathLike):
                raise TypeError(f"{name}={path!r}: expected the path of a file, or None")
        for name, value in (("keep_best", keep_best), ("patience", patience)):
            if value is not None and evaluations is None:
                raise ValueError(
                    f"{name}={_shown(value)}: expected evaluations too, such as evaluations=20, "
                    "which say what is best"
                )
        if patience is not None:
            patience = check_count("patience", patience)
        if evaluations is not None and not isinstance(evaluations, Evaluations):
            try:
                evaluations = Evaluations(check_count("evaluations", evaluations))
            except TypeError:
                raise TypeError(
                    f"evaluations={evaluations!r}: expected how many, or rlcpu.train.Evaluations"
                ) from None
        if save_every is None and save_to is not None:
            raise ValueError(
                f"save_to={_shown(save_to)}: expected save_every too, environment steps"
            )
        if save_every is not None:
            save_every = check_count("save_every", save_every)
            if save_to is None:
                raise ValueError(
                    f"save_every={save_every}: expected save_to too, the path of a file"
                )
            if save_every < report_steps:
                raise ValueError(
                    f"save_every={save_every}: expected at least {report_steps}, as many "
                    "environment steps are made at a time"
                )
        if save_to is not None and keep_best is not None and _is_same(save_to, keep_best):
            raise ValueError(
                f"save_to={_shown(save_to)}: keep_best has the same file, expected another one"
            )
        return UpkeepOptions(evaluations, keep_best, patience, save_to, save_every)


class Upkeep:
    """Evaluates and saves an agent during a call of `learn`, and ends it where nothing improves.

    Args:
        agent: that learns.
        bounds: total steps of the agent over which evaluations are spread.
        options: what is wanted.

    Raises:
        TypeError, ValueError: an option is bad, or one is missing that another needs.
        OSError: a file could not be written.
    """

    def __init__(self, agent: Any, bounds: tuple[int, int], options: UpkeepOptions) -> None:
        self.agent, self.options = agent, options.checked(agent.report_steps)
        self.evaluations: Evaluations | None = self.options.evaluations
        self._evaluated = -1  # steps at the last evaluation of this call
        self._due: list[int] = []  # total steps of the evaluations that are left
        self._to_beat = float("-inf")  # mean return of what the file of the best holds
        for path in (self.options.keep_best, self.options.save_to):
            if path is not None:
                check_writable(path)
        if self.evaluations is not None:
            first, last = bounds
            number = self.evaluations.number
            due = [first - (-part * (last - first) // number) for part in range(1, number + 1)]
            self._due = [steps for steps in due if steps > agent.steps]
            self.env = check_other_env(agent.env, self.evaluations.env)
            # Parameters that JSON does not know are refused where the agent is saved.
            described = json.dumps(checkpoint.describe_env(self.env), sort_keys=True, default=repr)
            self._protocol = (
                self.evaluations.num_episodes,
                self.evaluations.seed,
                f"{self.env.dynamics.id} {zlib.crc32(described.encode()):08x}",
            )
            agent.best_evaluation = self._best_so_far()
        every = self.options.save_every
        self._next_save = every and (agent.steps // every + 1) * every

    @property
    def is_needed(self) -> bool:
        """Tell whether there is anything to do."""
        return self.evaluations is not None or self._next_save is not None

    @property
    def writes_files(self) -> bool:
        """Tell whether the agent will be saved."""
        return self.options.keep_best is not None or self._next_save is not None

    # ------------------------------------------------------------ at each report of `learn`

    def evaluate(self, history: Any) -> None:
        """Evaluate if that is due, note it in the history, and keep the agent if it is the best.

        The last report, which is the one where `history.stopped` is set, has an evaluation too.
        """
        agent, evaluations = self.agent, self.evaluations
        is_due = bool(self._due) and agent.steps >= self._due[0]
        if evaluations is None or not (is_due or history.stopped):
            return
        if agent.steps == self._evaluated:
            return
        begin, cpu_begin = clock(), cpu_clock()
        returns = evaluations.play(self.env, agent.policy)
        made = Evaluation(
            steps=agent.steps,
            seconds=history.time_total,
            cpu_seconds=cpu_clock() - cpu_begin,
            returns=returns,
            training_return=history.episode_return,
        )
        self._due = [steps for steps in self._due if steps > agent.steps]
        self._evaluated = agent.steps
        history.evaluation = history.updates[-1].evaluation = made
        self._compare(made)
        best, patience = agent.best_evaluation, self.options.patience
        if patience is not None and best is not None and best.worse >= patience:
            history.stopped = history.stopped or "patience"
        history.time_upkeep += clock() - begin

    def save(self, history: Any) -> None:
        """Save the agent if that is due, and at the end."""
        every, steps = self.options.save_every, self.agent.steps
        if self._next_save is None or not (steps >= self._next_save or history.stopped):
            return
        begin = clock()
        self.agent.save(with_steps(self.options.save_to, steps))
        self._next_save = (steps // every + 1) * every
        history.saved_at = steps
        history.time_upkeep += clock() - begin

    # ------------------------------------------------------------ the best

    def _compare(self, made: Evaluation) -> None:
        """Note an evaluation that is the best so far, and save the agent to the file of the best.

        Where that fails the evaluation before stays the best, as it does in the file.
        """
        agent, mean = self.agent, made.mean_return
        before: BestEvaluation | None = agent.best_evaluation
        if before is not None and not mean > before.mean_return:  # NaN is never above
            agent.best_evaluation = before._replace(worse=before.worse + 1)
            return
        if mean != mean:
            return
        agent.best_evaluation = BestEvaluation(mean, made.steps, 0, *self._protocol)
        if self.options.keep_best is None or not mean > self._to_beat:
            return
        try:
            agent.save(self.options.keep_best)
        except BaseException:
            agent.best_evaluation = before
            raise
        self._to_beat = mean

    def _best_so_far(self) -> BestEvaluation | None:
        """Return the best evaluation of earlier calls, if it counts in this one; else None.

        It counts if the same episodes are played, and if the file of the best has it. That may
        hold a later one of the same run, which was killed after it and goes on from a file of
        before: then only a better one takes its place.
        """
        agent, options = self.agent, self.options
        best: BestEvaluation | None = agent.best_evaluation
        if best is None or best.protocol != self._protocol:
            return None
        if options.patience is not None and best.worse >= options.patience:
            best = best._replace(worse=0)  # learning ended for it, and is to go on
        if options.keep_best is None:
            return best
        try:
            _, description = checkpoint.read_description(options.keep_best)
            best_of_file = BestEvaluation(**description["best"])
            is_same_protocol = best_of_file.protocol == self._protocol
            is_of_this_run = description["seed"] == agent.seed and is_same_protocol
        except (OSError, LookupError, TypeError, ValueError):
            return None
        if not is_of_this_run or best_of_file.steps < best.steps:
            return None
        self._to_beat = best_of_file.mean_return
        return best


def with_steps(path: str | os.PathLike[str], steps: int) -> str:
    """Return a path in which an agent's steps stand for "{steps}".

    Example:
        >>> with_steps("agent-{steps}.npz", 4096)
        'agent-4096.npz'
    """
    return os.fspath(path).replace("{steps}", str(steps))


def _shown(value: Any) -> str:
    """Return a value as an error shows it, of a path its text."""
    return repr(os.fspath(value) if isinstance(value, os.PathLike) else value)


def _is_same(path: Any, other: Any) -> bool:
    """Tell whether two paths name the same file."""
    return os.path.realpath(path) == os.path.realpath(other)
