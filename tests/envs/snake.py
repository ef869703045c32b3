"""Snake of the recipes, `docs/howto/recipes.md`, in episodes of 50 steps."""

from __future__ import annotations

import dataclasses
import linecache
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import rlcpu


def _recipe() -> Any:
    """Return the program as a module that is not registered as an environment."""
    page = (Path(__file__).parents[2] / "docs/howto/recipes.md").read_text("utf-8")
    found = re.search(r"```python\n# snake\.py\n(.*?)```", page, re.DOTALL)
    assert found
    source = found[1].replace("rlcpu.register(snake)\n", "")
    name = "tests.envs.recipe_of_snake"
    module = sys.modules[name] = ModuleType(name)  # type hints are read there
    linecache.cache[name] = len(source), None, source.splitlines(keepends=True), name
    exec(compile(source, name, "exec"), vars(module))
    return module


recipe = _recipe()
Snake = recipe.Snake
snake: rlcpu.Dynamics = dataclasses.replace(recipe.snake, max_episode_steps=50)
