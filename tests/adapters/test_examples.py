"""The examples are short, and run; that they learn was seen when they were written."""

from __future__ import annotations

import importlib.util
import math
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

EXAMPLES = Path(__file__).parents[2] / "examples"
FEW = {
    "ppo_torch": ["--total-steps", "512", "--num-envs", "8", "--num-steps", "32"],
    "dqn_torch": ["--total-steps", "320", "--learning-starts", "100", "--updates", "2"],
    "sac_torch": ["--total-steps", "80", "--learning-starts", "40", "--batch-size", "16"],
}


def test_all_are_here() -> None:
    assert {path.stem for path in EXAMPLES.glob("*_torch.py")} == set(FEW)
    for path in EXAMPLES.glob("*.py"):
        assert len(path.read_text("utf-8").splitlines()) <= 250


@pytest.mark.parametrize("name", FEW)
def test_example_runs(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # A dataclass looks its module up by name.
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(__import__("sys").modules, name, module)
        spec.loader.exec_module(module)
        score = module.main(FEW[name])
    assert math.isfinite(score)
    assert f"greedy: {score:.1f}" in capsys.readouterr().out
