"""Films of the `rlcpu` command: an episode as GIF or MP4."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import rlcpu
from rlcpu.cli.arguments import CommandError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from rlcpu.cli.report import Agent

#: Frames of a film: an episode of an environment without a limit need not end.
MOST_FRAMES = 2000


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
    from rlcpu.train.keeping.files import replacing

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
