"""Pictures of the `rlcpu` command: learning curves, `rlcpu plot`, and films of an episode."""

from __future__ import annotations

import argparse
import csv
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import rlcpu
from rlcpu.cli.arguments import CommandError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from rlcpu.cli.train import Agent

#: Frames of a film: an episode of an environment without a limit need not end.
MOST_FRAMES = 2000
Points = Sequence[tuple[float, float]]


# ---------------------------------------------------------------- learning curves


def plot(args: argparse.Namespace) -> int:
    """Run `rlcpu plot`: draw the curves of several tables into one picture."""
    curves = {name: read_curve(name) for name in args.tables}
    labels = [Path(name).stem for name in curves]
    unique = len(set(labels)) == len(labels)
    named = dict(zip(labels if unique else curves, curves.values(), strict=True))
    draw_curves(args.out, named, "training, mean return of the last episodes", args.target)
    print(f"picture     {args.out}")
    return 0


def read_curve(name: str) -> list[tuple[float, float]]:
    """Return (steps, mean return) of each line of a table.

    Raises:
        CommandError: it cannot be read, or is another table.
    """
    try:
        with open(name, newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        steps = "total_steps" if rows and "total_steps" in rows[0] else "steps"
        points = [(float(row[steps]), float(row["episode_return"])) for row in rows]
    except OSError as error:
        raise CommandError(f"cannot read {name!r}: {error.strerror}") from None
    except (KeyError, TypeError, ValueError, csv.Error):
        raise CommandError(
            f"{name!r}: expected a table with numbers in its columns steps and episode_return"
        ) from None
    if not points:
        raise CommandError(f"{name!r} has no updates")
    return points


def draw_curves(
    path: Path,
    curves: Mapping[str, Points],
    title: str,
    target: float | None = None,
    greedy: tuple[int, NDArray[np.float64]] | None = None,
) -> None:
    """Draw learning curves and the target; `greedy` is (steps, returns) of an evaluation.

    Raises:
        OSError: the file cannot be written.
    """
    from matplotlib.figure import Figure

    from rlcpu.train.files import replacing

    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.add_subplot()
    for label, points in curves.items():
        axes.plot(*zip(*points, strict=True), label=label, marker="." if len(points) == 1 else None)
    if greedy is not None:
        steps, returns = greedy
        mean, low, high = returns.mean(), returns.min(), returns.max()
        span = [[mean - low], [high - mean]]
        label = f"greedy policy, mean and range of {len(returns)} episodes"
        axes.errorbar([steps], [mean], yerr=span, fmt="o", capsize=4, label=label)
    if target is not None:
        axes.axhline(target, color="0.5", linestyle="--", label=f"target {target:g}")
    axes.set_xlabel("environment steps")
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.set_ylabel("episode return")
    axes.set_title(title)
    axes.legend(loc="best")
    axes.grid(alpha=0.3)
    with replacing(path) as file:
        figure.savefig(file, dpi=150, format=path.suffix[1:].lower())


# ---------------------------------------------------------------- films


def check_renderer(agent: Agent) -> None:
    """Draw one picture of the agent's environment.

    Raises:
        CommandError: it has no renderer, or the renderer does not run here.
    """
    import gymnasium

    dynamics = agent.env.dynamics
    has_own = dynamics.picture is not None or not dynamics.runs_in_kernels
    if dynamics.original is None and not has_own:
        raise CommandError(
            f"--video: {dynamics.id} has no renderer; Dynamics(picture=...) draws it, and "
            "Dynamics(original=...) lends it that of an environment of Gymnasium"
        )
    try:
        next(film(agent, seed=0))
    except (gymnasium.error.Error, ImportError, TypeError, ValueError) as error:
        raise CommandError(f"--video: {error}") from None


def film(agent: Agent, seed: int) -> Iterator[NDArray[np.uint8]]:
    """Yield pictures (height, width, 3) of one greedy episode, from its start to its end."""
    # Pictures in memory need neither a screen nor a greeting.
    for name, value in (("PYGAME_HIDE_SUPPORT_PROMPT", "1"), ("SDL_VIDEODRIVER", "dummy")):
        os.environ.setdefault(name, value)
    env = rlcpu.make_vec(
        agent.env.dynamics.resized(1),
        dtype=agent.env.dtype.name,
        max_episode_steps=agent.env.max_episode_steps,
        render_mode="rgb_array",
    )
    try:
        observations, infos = env.reset(seed=seed)
        memory: dict[str, Any] = {"state": agent.initial_state()} if agent.state_size else {}
        for _ in range(MOST_FRAMES):
            frames = env.render()
            if frames is None or frames[0] is None:
                raise ValueError(f"{agent.env.dynamics.id} renders nothing as rgb_array")
            yield frames[0]
            masks = infos["action_mask"] if agent.env.dynamics.num_masked else None
            actions = agent.predict(observations, action_masks=masks, **memory)
            if memory:
                actions, memory["state"] = actions
            observations, _, terminated, truncated, infos = env.step(actions)
            if terminated[0] or truncated[0]:
                yield env.render()[0]  # type: ignore[index]
                return
    finally:
        env.close()


def write_video(agent: Agent, path: Path, seed: int) -> None:
    """Film one greedy episode.

    Not by Gymnasium's RecordVideo: it writes MP4 alone, needs moviepy for it, and names its files
    itself; and it wraps a single environment, while an agent's may exist as a vector only.

    Raises:
        OSError: the file cannot be written.
    """
    from rlcpu.train.files import replacing

    frames = film(agent, seed)
    rate = agent.env.metadata.get("render_fps", 30)
    with replacing(path) as file:
        if path.suffix.lower() == ".gif":
            write_gif(frames, rate, file)
        else:
            write_mp4(list(frames), rate, file)


def write_gif(frames: Iterator[NDArray[np.uint8]], rate: int, file: Any) -> None:
    """Write a GIF that repeats for ever; a picture is shown for a multiple of 10 ms."""
    from PIL import Image

    pictures = (Image.fromarray(frame).quantize(128, Image.Quantize.FASTOCTREE) for frame in frames)
    next(pictures).save(
        file,
        format="GIF",
        save_all=True,
        append_images=pictures,
        duration=max(20, round(100 / rate) * 10),  # ms; viewers show less than 20 as 100
        loop=0,
    )


def write_mp4(frames: list[NDArray[np.uint8]], rate: int, file: Any) -> None:
    """Write an MP4 with moviepy, as Gymnasium's RecordVideo does."""
    from moviepy.video.io.ImageSequenceClip import ImageSequenceClip

    with tempfile.TemporaryDirectory() as folder:
        temporary = Path(folder) / "episode.mp4"
        ImageSequenceClip(frames, fps=rate).write_videofile(str(temporary), logger=None)
        file.write(temporary.read_bytes())
