"""Films the environments for the documentation: `python docs/film.py [ENV ...]`.

Each environment is learnt as `rlcpu train` does it, or played at random where that takes long or
leads nowhere, and one episode is written to docs/pictures as a GIF. The word `pages` makes the
pictures of pages instead: the README's pole and a game, before and after training, and the learning
curves of the tutorial and of the page on seeds.
"""

from __future__ import annotations

import itertools
import re
import runpy
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from PIL import Image, ImageDraw

import rlcpu
from rlcpu.cli.films import film
from rlcpu.envs.registration import registered
from rlcpu.train.settings.algorithms import algorithm
from rlcpu.train.settings.tuned import default_steps, fitting

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "docs" / "pictures"
#: Frames, pixels of the longer side, colours, and bytes of a film: longer ones are cut.
FRAMES, SIDE, COLOURS, LARGEST = 90, 200, 32, 200_000
#: Environments played at random: they need a memory, or many minutes of training.
RANDOM = (
    *("MiniGrid-FourRooms-v0", "Craftax-Classic-Symbolic-v1"),
    *("Ant-v5", "Humanoid-v5", "HumanoidStandup-v5", "Pusher-v5", "Walker2d-v5"),
)


# ---------------------------------------------------------------- the catalogue


def main(names: list[str]) -> None:
    """Film the named environments, or all."""
    if names == ["pages"]:
        draw_balance()
        draw_game("MinAtar/Breakout-v1")
        draw_runs()
        return
    for name in names or registered():
        begin = time.monotonic()
        write(FOLDER / f"{name.replace('/', '-').lower()}.gif", record(name))
        print(name, f"{time.monotonic() - begin:.0f} s", flush=True)


def record(name: str) -> Iterator[Image.Image]:
    """The frames of one episode, every second one where they come fast."""
    agent = make_random(name) if name in RANDOM else trained(name)
    rate = agent.env.metadata.get("render_fps", 15)
    every = max(1, round(rate / 15))
    for frame in itertools.islice(film(agent, seed=3), 0, FRAMES * every, every):
        yield resized(frame)


def make_random(name: str) -> Any:
    """What `film` takes for an agent, which acts at random."""
    env = rlcpu.make_vec(name)
    env.action_space.seed(0)

    def predict(observations: Any, action_masks: Any = None) -> Any:
        return env.action_space.sample()

    return SimpleNamespace(env=env, predict=predict, state_size=0)


def trained(name: str) -> Any:
    """An agent after the steps that `rlcpu train` takes."""
    agent = algorithm(fitting(name))(name, seed=0)
    agent.learn(default_steps(agent), target_return=agent.env.dynamics.reward_threshold)
    return agent


def resized(frame: Any) -> Image.Image:
    """A frame in the size of the films; the cells of boards keep their edges."""
    image = Image.fromarray(np.ascontiguousarray(frame))
    scale = SIDE / max(image.size)
    method = Image.Resampling.LANCZOS if max(image.size) > 300 else Image.Resampling.NEAREST
    return image.resize(tuple(round(scale * side) for side in image.size), method)


def write(path: Path, frames: Iterable[Image.Image], milliseconds: int = 70) -> None:
    """Write an animated GIF whose frames share one palette, so that what rests takes no bytes."""
    path.parent.mkdir(exist_ok=True)
    images = list(frames)
    sample = Image.new("RGB", (SIDE * 4, SIDE * 2))
    for place, image in enumerate(images[:: max(1, len(images) // 8)][:8]):
        sample.paste(image.resize((SIDE, SIDE)), (place % 4 * SIDE, place // 4 * SIDE))
    palette = sample.quantize(COLOURS)
    shown = [image.quantize(palette=palette, dither=Image.Dither.NONE) for image in images]
    while True:
        durations = [milliseconds] * (len(shown) - 1) + [1000]
        options = {"duration": durations, "loop": 0, "optimize": True}
        shown[0].save(path, save_all=True, append_images=shown[1:], **options)
        if path.stat().st_size <= LARGEST:
            return
        shown = shown[: len(shown) * 3 // 4]


# ---------------------------------------------------------------- before and after


def read_balance() -> dict[str, Any]:
    """The names that the README's own environment defines."""
    readme = (ROOT / "README.md").read_text("utf-8")
    (text,) = re.findall(r"^```python\n(# balance\.py\n.*?)^```", readme, re.DOTALL | re.MULTILINE)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "balance.py"
        path.write_text(text, "utf-8")
        return runpy.run_path(str(path), run_name="balance")


def swing(names: dict[str, Any], choose: Any, steps: int) -> tuple[list[float], list[int]]:
    """Angles (rad) of the pole, and lengths of episodes; a pole that falls is shown falling."""
    params, rng = names["Params"](), np.random.default_rng(2)
    state, angles, lengths, length = (0.05, 0.0), [], [], 0
    falling = False
    while len(angles) < steps:
        state, _, terminated = names["step"](state, choose(state), params)
        angles.append(state[0])
        falling, length = falling or terminated, length + (not falling)
        if abs(state[0]) > 1.45:
            angles += [np.copysign(1.5, state[0])] * 12
            lengths.append(length)
            state, length, falling = tuple(rng.uniform(-0.1, 0.1, 2)), 0, False
    return angles[:steps], lengths


def draw_balance() -> None:
    """Draw the pole before and after training as animated SVG, for light and for dark pages."""
    names = read_balance()
    rng = np.random.default_rng(0)
    begin = time.monotonic()
    agent = rlcpu.train.PPO("Balance-v0", seed=0)
    agent.learn(300_000, target_return=475.0)
    seconds = agent.history.time_total
    print(f"balance: {seconds:.1f} s without compiling, {time.monotonic() - begin:.1f} with it")

    def decide(state: tuple[float, float]) -> int:
        return int(agent.predict(np.array([state], np.float32))[0])

    steps = 400
    before, lengths = swing(names, lambda state: int(rng.integers(2)), steps)
    after, _ = swing(names, decide, steps)
    returns = agent.evaluate(100, seed=1).mean()
    captions = (
        ("before", f"falls after {np.mean(lengths):.0f} steps on average"),
        ("after", f"{returns:.0f} of 500 steps"),
    )
    for theme, ink, muted in (("light", "#1f2328", "#59636e"), ("dark", "#e6edf3", "#9198a1")):
        parts = [
            '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 480 200" '
            'font-family="system-ui, sans-serif" text-anchor="middle" role="img">'
            "<title>A pole that falls before training, and stands after it</title>"
        ]
        motion = f'dur="{steps / 50:.0f}s" repeatCount="indefinite"'
        for left, (title, caption), angles, colour in (
            (0, captions[0], before, "#d55e00"),
            (240, captions[1], after, "#0072b2" if theme == "light" else "#56b4e9"),
        ):
            values = ";".join(f"{np.degrees(angle):.0f}" for angle in angles[::2])
            parts.append(
                f'<g transform="translate({left + 120} 140)">'
                f'<path d="M-90 8H90" stroke="{muted}" stroke-width="2"/>'
                f'<path d="M0 0V-105" stroke="{colour}" stroke-width="9" stroke-linecap="round">'
                f'<animateTransform attributeName="transform" type="rotate" {motion} '
                f'values="{values}"/></path>'
                f'<circle r="8" fill="{ink}"/>'
                f'<text y="32" fill="{ink}" font-size="16" font-weight="600">{title}</text>'
                f'<text y="52" fill="{muted}" font-size="14">{caption}</text></g>'
            )
        (FOLDER / f"balance-{theme}.svg").write_text("\n".join([*parts, "</svg>\n"]), "utf-8")


def draw_game(name: str) -> None:
    """Film a game beside itself: at random, and after training."""
    agents = make_random(name), trained(name)
    plays = [itertools.islice(endless(agent), 160) for agent in agents]
    side, gap, bar = 200, 20, 28
    frames = []
    for left, right in zip(*plays, strict=True):
        image = Image.new("RGB", (2 * side + gap, side + bar), (20, 20, 28))
        pen = ImageDraw.Draw(image)
        for place, (frame, word) in enumerate(((left, "at random"), (right, "trained"))):
            image.paste(resized(frame).resize((side, side)), (place * (side + gap), bar))
            pen.text((place * (side + gap) + side / 2, 6), word, "white", anchor="ma", font_size=15)
        frames.append(image)
    write(FOLDER / "before_after_game.gif", frames, 60)


def draw_runs() -> None:
    """Run the last step of the tutorial and the page on seeds, and keep the pictures they draw."""
    tutorial = (ROOT / "docs" / "tutorial.md").read_text("utf-8")
    seeds = (ROOT / "docs" / "howto" / "seeds.md").read_text("utf-8")
    (balance,) = re.findall(
        r"^```python\n# balance\.py\n(.*?)^```", tutorial, re.DOTALL | re.MULTILINE
    )
    commands = re.findall(r"^rlcpu (train .* --seeds .*--plot .*)$", tutorial, re.MULTILINE)
    commands += re.findall(r"^rlcpu ((?:train|plot) .*\brates\b.*)$", seeds, re.MULTILINE)
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "balance.py").write_text(balance, "utf-8")
        for command in commands:
            words = [sys.executable, "-m", "rlcpu", *shlex.split(command)]
            subprocess.run(words, cwd=folder, check=True)
        for name in ("seeds.png", "rates.png"):
            picture = Image.open(Path(folder) / name).quantize(COLOURS)
            picture.save(FOLDER / name, optimize=True)


def endless(agent: Any) -> Iterator[Any]:
    """The frames of one episode after the other."""
    for seed in itertools.count():
        yield from film(agent, seed)


if __name__ == "__main__":
    main(sys.argv[1:])
