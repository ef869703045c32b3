"""The progress of `learn`, for callbacks and users, and its outputs: tables, TensorBoard, bars."""

from __future__ import annotations

import collections
import copyreg
import csv
import dataclasses
import functools
import io
import math
import os
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

import rlcpu
from rlcpu import palette, terminal
from rlcpu.terminal import rounded, short
from rlcpu.train.keeping.files import replacing


class Evaluation(NamedTuple):
    """One evaluation on the way."""

    steps: int  # environment steps of the agent, those that it really was
    seconds: float  # `Progress.time_total` then: of this call of `learn`, without evaluating
    cpu_seconds: float  # of this process, that the evaluation took; without compiling
    returns: npt.NDArray[np.float64]  # (num_episodes,) of greedy episodes; NaN: see `Evaluations`
    training_return: float  # mean of the last 100 training episodes; NaN before the first ends

    @property
    def mean_return(self) -> float:
        """Return the mean over the episodes."""
        return float(self.returns.mean())


class BestEvaluation(NamedTuple):
    """The best evaluation of an agent so far, as its files keep it."""

    mean_return: float  # over the episodes
    steps: int  # environment steps of the agent then; of equal returns, those of the first
    worse: int  # evaluations since, none of which was better
    num_episodes: int  # of each evaluation
    seed: int  # of the episodes
    env: str  # of the episodes: its id, and a digest of its parameters and limits

    @property
    def protocol(self) -> tuple[int, int, str]:
        """Return by what an evaluation has to be made to be comparable."""
        return self.num_episodes, self.seed, self.env


@functools.cache
def losses_type(names: tuple[str, ...]) -> Any:
    """Return a NamedTuple of the losses that `learn` reports, pickled by its fields' names.

    A number of its last field is a count, 0 unless it is given; the others are NaN.
    """
    make: Any = collections.namedtuple
    kind = make("Losses", names, defaults=[math.nan] * (len(names) - 1) + [0])
    copyreg.pickle(kind, lambda losses: (_make_losses, (names, tuple(losses))))
    return kind


def _make_losses(names: tuple[str, ...], numbers: tuple[float, ...]) -> Any:
    return losses_type(names)._make(numbers)


#: What has no algorithm, as a history of its own, has no losses but these.
_NO_LOSSES = "gradient_norm", "num_gradients"


@dataclasses.dataclass
class Progress:
    """Progress of a call of `learn`.

    Attributes:
        steps: environment steps in this call.
        episodes: episodes that ended in this call.
        episode_return: mean return of the last 100 training episodes (NaN before the first ends).
        time_collect, time_update, time_total: seconds in this call: simulating and inferring,
            updating the networks, everything. Compiling is left out, and so is `time_upkeep`.
        losses: NamedTuple of means over the last update: of the algorithm's statistics, see
            `reported`, and of the norm of the gradient before it is clipped; `num_gradients` is a
            count. NaN before the first update.
        actors: of processes in the place of this one, by name: `collector_0_steps_per_second` of
            its last answer, `shard_0_size` in transitions, and so on.
        evaluation: that was made at this report, an `Evaluation`, or None.
    """

    steps: int = 0
    episodes: int = 0
    episode_return: float = float("nan")
    time_collect: float = 0.0
    time_update: float = 0.0
    time_total: float = 0.0
    losses: Any = dataclasses.field(default_factory=lambda: losses_type(_NO_LOSSES)())
    actors: dict[str, float] = dataclasses.field(default_factory=dict)
    evaluation: Evaluation | None = dataclasses.field(default=None, compare=False)

    def numbers(self) -> dict[str, float]:
        """Return all of it as numbers by name, for loggers; losses are `loss_policy` and so on.

        Where there was an evaluation, `evaluation_return` is the mean over its episodes and
        `evaluation_deviation` their standard deviation.

        Example:
            >>> list(History().numbers())[:3]
            ['steps', 'episodes', 'episode_return']
        """
        losses = {f"loss_{name}": value for name, value in self.losses._asdict().items()}
        parts = ("losses", "actors", "evaluation")
        values = {name: getattr(self, name) for name in _FIELDS if name not in parts}
        evaluated = {}
        if self.evaluation is not None:
            evaluated["evaluation_return"] = self.evaluation.mean_return
            evaluated["evaluation_deviation"] = float(self.evaluation.returns.std())
        return {**values, **evaluated, **losses, **self.actors}


class PastCall(NamedTuple):
    """Outcome of a call of `learn`, as a file of the agent keeps it."""

    steps: int  # environment steps
    episodes: int  # that ended
    episode_return: float  # mean of the last 100 training episodes
    seconds: float  # without compiling
    stopped: str  # see `History`
    version: str  # of rlcpu


_FIELDS = tuple(field.name for field in dataclasses.fields(Progress))


@dataclasses.dataclass(repr=False)
class History(Progress):
    """Result of `learn`: the last progress, and the curve that led there.

    Attributes:
        solved: whether the target was reached.
        time_compile: seconds that went into compiling kernels, which are in no other time; of the
            first call of `learn` with those of making the agent.
        time_upkeep: seconds that went into evaluations on the way and files of the agent, which are
            in no other time.
        saved_at: total steps of the agent when it was last saved to `save_to`; None before that.
        stopped: why learning ended: "steps" (they were used up), "solved", "patience" (evaluations
            no longer improved), "callback" (it returned False), "interrupted" (Ctrl-C) or "error";
            "" while it goes on.
        updates: the progress after each rollout and its update.
        steps_before: environment steps of the agent before this call.
    """

    steps_before: int = 0
    solved: bool = False
    time_compile: float = 0.0
    time_upkeep: float = 0.0
    saved_at: int | None = None
    stopped: str = ""
    updates: list[Progress] = dataclasses.field(default_factory=list)

    @property
    def total_steps(self) -> int:
        """Return the agent's environment steps so far, over all calls of `learn`."""
        return self.steps_before + self.steps

    @property
    def curve(self) -> list[tuple[int, float]]:
        """Return (steps, mean episode return) after each rollout."""
        return [(update.steps, update.episode_return) for update in self.updates]

    @property
    def evaluations(self) -> list[Evaluation]:
        """Return the evaluations on the way, in their order."""
        return [each.evaluation for each in self.updates if each.evaluation is not None]

    def outcome(self) -> PastCall:
        """Return what a file of the agent keeps of this call."""
        numbers = self.steps, self.episodes, self.episode_return, self.time_total
        return PastCall(*numbers, self.stopped, rlcpu.__version__)

    def add(self) -> None:
        """Keep the present progress as that of one more update."""
        self.updates.append(Progress(*(getattr(self, name) for name in _FIELDS)))

    def go_back(self, num_updates: int) -> None:
        """Forget what came after the first `num_updates` updates."""
        del self.updates[num_updates:]
        self.solved = False
        last = self.updates[-1] if self.updates else Progress(losses=type(self.losses)())
        self.__dict__.update(vars(last))

    def to_csv(
        self,
        path: str | os.PathLike[str],
        append: bool = False,
        labels: Mapping[str, Any] | None = None,
    ) -> None:
        """Write one line per update: what `Progress` holds; losses are `loss_policy` and so on.

        Args:
            path: of the table.
            append: keep the lines that an earlier call of `learn` has written, as far as the agent
                had come when this one began; `total_steps` goes on in them.
            labels: columns that have the same value in each new line, such as {"seed": 0}.

        Raises:
            OSError: the file cannot be written.
            ValueError: it holds something else than such a table.
        """
        earlier = read_table(path) if append else []
        rows = [row for row in earlier if float(row["total_steps"]) <= self.steps_before]
        for update in self.updates:
            steps = {"total_steps": self.steps_before + update.steps}
            rows.append({**(labels or {}), **steps, **update.numbers()})
        # Those of a table without rows too.
        columns = [*rows, {**(labels or {}), "total_steps": 0, **self.numbers()}]
        names = dict.fromkeys(name for row in columns for name in row)
        with replacing(path) as file:
            text = io.TextIOWrapper(file, "utf-8", newline="", write_through=True)
            table = csv.DictWriter(text, list(names), restval="nan")
            table.writeheader()
            table.writerows(rows)
            text.detach()  # or it would close the file

    def __repr__(self) -> str:
        return (
            f"History({self.steps:,} steps, {self.episodes:,} episodes in {self.time_total:.2f} s, "
            f"mean return {rounded(self.episode_return)}, stopped={self.stopped!r})"
        )

    def _repr_html_(self) -> str:
        """Return a table, and the learning curve as a line, for notebooks."""
        rows: dict[str, Any] = {
            "steps": f"{self.steps:,}",
            "episodes": f"{self.episodes:,}",
            "mean return of the last 100 episodes": rounded(self.episode_return),
            "seconds": f"{self.time_total:.2f}",
            "stopped": self.stopped or "not yet",
        }
        cells = "".join(f"<tr><th>{name}</th><td>{text}</td></tr>" for name, text in rows.items())
        return f"<table>{cells}</table>{_draw_curve(self.curve)}"


def read_table(path: str | os.PathLike[str]) -> list[dict[str, Any]]:
    """Return the lines of a table of `History.to_csv`, texts by name; none without a file.

    Raises:
        OSError: it cannot be read.
        ValueError: it is something else.
    """
    if not os.path.isfile(path) or not os.path.getsize(path):
        return []
    with open(path, newline="", encoding="utf-8") as file:
        try:
            rows = list(csv.DictReader(file, restval="nan"))
            for row in rows:
                float(row["total_steps"])
        except (KeyError, TypeError, ValueError, csv.Error):
            raise ValueError(
                f"{os.fspath(path)!r}: expected a table with numbers in its column total_steps"
            ) from None
    return rows


def _draw_curve(curve: list[tuple[int, float]], width: int = 360, height: int = 90) -> str:
    """Return the curve as SVG, from its lowest to its highest return.

    `width` and `height` are pixels, of which two stay free above and below the line.
    """
    points = [(x, y) for x, y in curve if y == y]  # without NaN, before the first episode ends
    if len(points) < 2:
        return ""
    last, low = points[-1][0], min(y for _, y in points)
    scale = (height - 4) / (max(y for _, y in points) - low or 1.0)
    line = " ".join(
        f"{x * width / last:.1f},{height - 2 - (y - low) * scale:.1f}" for x, y in points
    )
    return (
        f'<svg width="{width}" height="{height}" role="img" aria-label="mean return over steps">'
        f'<polyline points="{line}" fill="none" stroke="{palette.BLUE}" stroke-width="1.5"/></svg>'
    )


class TensorBoard:
    """A callback of `learn` that writes its numbers for TensorBoard, by tensorboard's own writer.

    The scalars are those of `Progress.numbers`, at the agent's steps over all calls of `learn`. The
    part of a name before its first "_" is its group: "loss/policy", "time/total". What is not
    finite yet, as the mean return before an episode ends, is left out.

    Args:
        folder: where the events go; it is made. `tensorboard --logdir` of it, or of the folder
            around several runs, shows them.

    Raises:
        ImportError: tensorboard is missing: `pip install ".[tensorboard]"` in a clone.
        OSError: the folder cannot be written.

    Example:
        agent.learn(100_000, callback=TensorBoard("runs/one"))
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        try:
            from tensorboard.summary import Writer  # 0.5 s
        except ImportError as error:
            raise ImportError(f"{error}: pip install tensorboard") from error
        self._writer = Writer(os.fspath(folder))

    def __call__(self, progress: Any) -> None:
        """Write one line of progress; see `learn`."""
        for name, number in progress.numbers().items():
            if math.isfinite(number):
                self._writer.add_scalar(name.replace("_", "/", 1), number, progress.total_steps)
        self._writer.flush()

    def close(self) -> None:
        """Close the file."""
        self._writer.close()

    def __enter__(self) -> TensorBoard:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


#: Processes of a kind that a bar has room for.
_FEW = 4


class LearningBar(terminal.Bar):
    """The bar of `learn`: steps, the recent return, the best one and the target.

    Args:
        env_id: what is learnt.
        total_steps: environment steps at most.
        target: mean return that ends learning, or None.
    """

    def __init__(self, env_id: str, total_steps: int, target: float | None) -> None:
        super().__init__(env_id, total_steps, "steps")
        self._target = "" if target is None else f", target {rounded(target)}"
        self._best = -math.inf
        self._evaluated = math.nan  # mean return of the last evaluation
        self._best_evaluated = -math.inf

    def tell(self, progress: Progress, seconds: float) -> None:
        """Show what has been reached in so many seconds."""
        recent, evaluation = progress.episode_return, progress.evaluation
        if evaluation is not None:
            self._evaluated = evaluation.mean_return
            if self._evaluated > self._best_evaluated:  # NaN is not
                self._best_evaluated = self._evaluated
        text = "no episode has ended yet"
        if recent == recent:  # NaN is not
            self._best = max(self._best, recent)
            text = f"recent return {rounded(recent)}"
            if self._best_evaluated == -math.inf:
                text += f", best {rounded(self._best)}"
        if self._best_evaluated > -math.inf:
            text += f", evaluated {rounded(self._evaluated)}, best {rounded(self._best_evaluated)}"
        if recent == recent:
            text += self._target
        processes = []
        for kind, unit in (("collector", " steps/s"), ("shard", "")):
            numbers = [x for name, x in progress.actors.items() if name.startswith(kind)]
            texts = [short(x) for x in numbers[:_FEW]] + ["..."] * (len(numbers) > _FEW)
            processes += [f"{kind}s {' '.join(texts)}{unit}"] if numbers else []
        self.show(progress.steps, seconds, text, ", ".join(processes))
