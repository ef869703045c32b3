"""Learn the policy that the page on deployment plays Breakout with: `python docs/played.py`.

It writes docs/howto/breakout_policy.js: what `agent.export("policy.json")` gives, with numbers of
four digits. cartpole_policy.js says in its first line what made it.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import rlcpu
from rlcpu import nn

HOWTO = Path(__file__).parent / "howto"
STEPS, SEED, CHANNELS, UNITS = 3_000_000, 0, 8, 32


def layers(space: Any) -> nn.Graph:
    """A convolution of few channels and a dense layer of few units: the page loads them all."""
    seen = nn.Planes(*space.shape) >> nn.Convolution(CHANNELS, 3)
    seen = seen >> nn.LayerNorm(each_pixel=True) >> nn.Relu()
    return seen >> nn.Dense(UNITS) >> nn.LayerNorm() >> nn.Relu()


def learnt() -> rlcpu.train.PQN:
    """An agent that plays the game."""
    agent = rlcpu.train.PQN("MinAtar/Breakout-v1", seed=SEED, network=layers)
    agent.learn(STEPS)
    return agent


def exported(agent: rlcpu.train.PQN) -> dict[str, Any]:
    """Its policy, whose numbers have four digits, without the test that is in the file."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "policy.json")
        agent.export(path)
        policy: dict[str, Any] = json.loads(path.read_text())
    arrays = policy["arrays"]
    del arrays["probe"], arrays["expected"]
    for name, numbers in arrays.items():
        arrays[name] = [float(f"{x:.4g}") for x in numbers]
    return policy


def main() -> None:
    """Learn, export and write."""
    agent = learnt()
    print("returns of greedy episodes", agent.evaluate(100, seed=1).mean())
    made = f"policy.json of docs/played.py: rlcpu.train.PQN, learnt for {STEPS:,} steps"
    text = json.dumps(exported(agent), separators=(",", ":"))
    source = f"// {made}, numbers of four digits.\nconst breakoutPolicy = {text};\n"
    (HOWTO / "breakout_policy.js").write_text(source)


if __name__ == "__main__":
    main()
