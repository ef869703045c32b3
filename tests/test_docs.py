"""The documentation: examples in docstrings are right, and the reference holds what is public."""

from __future__ import annotations

import doctest
import importlib
import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import rlcpu
from asv_benches import study
from rlcpu.catalogue import main_function
from rlcpu.envs import find

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
#: Packages that are extras, and the modules that need them.
EXTRAS = {
    "rlcpu.adapters.sb3.vec_env": "stable_baselines3",
    "rlcpu.adapters.torch": "torch",
    "rlcpu.scan.torch": "torch",
    "rlcpu.scan.jax": "jax",
    "rlcpu.scan.xla": "jax",
}
PUBLIC = (
    *("rlcpu", "rlcpu.cuda", "rlcpu.envs.transforms", "rlcpu.experiments", "rlcpu.policies"),
    *("rlcpu.replay", "rlcpu.scan", "rlcpu.train"),
)


def modules() -> list[Any]:
    """The modules of rlcpu that have examples; those of `rlcpu.cuda` need a GPU."""
    package = Path(rlcpu.__file__).parent
    sources = [path for path in sorted(package.rglob("*.py")) if ">>> " in path.read_text("utf-8")]
    names = [".".join(path.relative_to(package.parent).with_suffix("").parts) for path in sources]
    gpu = [pytest.mark.gpu]
    return [pytest.param(n, marks=gpu if n.startswith("rlcpu.cuda.") else []) for n in names]


def load(name: str) -> ModuleType:
    """A module, or a skipped test where the extra is missing that it needs."""
    if name in EXTRAS:
        pytest.importorskip(EXTRAS[name])
    return importlib.import_module(name)


@pytest.mark.parametrize("name", modules())
def test_examples_of_docstrings(name: str) -> None:
    module = load(name)
    names = {"np": np, "rlcpu": rlcpu, **vars(module)}
    results = doctest.testmod(module, extraglobs=names, optionflags=doctest.NORMALIZE_WHITESPACE)
    assert results.attempted > 0
    assert results.failed == 0


def documented() -> set[str]:
    """What the pages of the reference name."""
    pages = "".join(page.read_text("utf-8") for page in (DOCS / "reference").glob("*.md"))
    return set(re.findall(r"^::: ([\w.]+)$", pages, re.MULTILINE))


def public() -> set[str]:
    """All public names that are no modules."""
    names = set()
    for path in PUBLIC:
        package = rlcpu.policies if path == "rlcpu.policies" else importlib.import_module(path)
        members = {name: getattr(package, name) for name in package.__all__}
        names |= {f"{path}.{k}" for k, v in members.items() if not isinstance(v, ModuleType)}
    return names


def test_reference_holds_every_public_name() -> None:
    assert public() <= documented()


def test_every_page_is_on_the_site() -> None:
    config = (ROOT / "mkdocs.yml").read_text("utf-8")
    pages = [*DOCS.rglob("*.md"), *(ROOT / "notebooks").glob("[0-9]*.py")]
    assert [page.stem for page in pages if f"{page.stem}.md" not in config] == []


def is_ours(env_id: str) -> bool:
    """Tell whether an environment is rlcpu's; pages that other tests ran may have added theirs."""
    module: str = main_function(find(env_id)).__module__
    return module.startswith("rlcpu.")


def test_site_is_built_without_a_warning(tmp_path: Path) -> None:
    if importlib.util.find_spec("mkdocs") is None:
        pytest.skip('needs mkdocs: pip install -e ".[docs]"')
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)]
    result = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert "WARNING" not in result.stderr
    pages = "".join(page.read_text("utf-8") for page in tmp_path.glob("reference/**/*.html"))
    assert [name for name in sorted(public()) if f'id="{name}"' not in pages] == []
    assert "usage: rlcpu train" in (tmp_path / "command_line" / "index.html").read_text("utf-8")
    assert "SumTree.update of" in (tmp_path / "figures" / "index.html").read_text("utf-8")
    assert "The last commit that was measured here is of 20" in (
        tmp_path / "history" / "index.html"
    ).read_text("utf-8")
    report = (tmp_path / "report.html").read_text("utf-8")
    agents = {env_id for env_id, _ in study.grouped(study.load(study.PATH))}
    # The README's three pictures, nine more, and one of each environment that was learnt.
    assert report.count("data:image/svg+xml;base64,") == 12 + len(agents)
    assert "http" not in report.replace("data:image", "")
    assert report.count("<table>") == report.count('<div class="scroll"><table>')
    assert pages.count('id="rlcpu.train.off_policy.OffPolicy.learn"') == 1
    assert 'id="rlcpu.train.DQN.learn"' not in pages
    ours = [id for id in rlcpu.registered() if is_ours(id)]
    assert len(ours) > 30
    for env_id in ours:  # others' are in this process alone
        name = env_id.replace("/", "-").lower()
        page = (tmp_path / "catalogue" / name / "index.html").read_text("utf-8")
        assert "Settings of <code>rlcpu train</code>" in page, env_id
        assert "/edit/main/docs/../" not in page, env_id
    assert "/edit/main/rlcpu/envs/tasks/toy_text/taxi.py" in (
        tmp_path / "catalogue" / "taxi-v4" / "index.html"
    ).read_text("utf-8")
    assert (tmp_path / "guide" / "01_quickstart.ipynb").exists()
    lander = (tmp_path / "catalogue" / "lunarlander-v3" / "index.html").read_text("utf-8")
    assert "<td>heuristic</td>" in lander  # of a table in its docstring
    start = (tmp_path / "index.html").read_text("utf-8")
    scripts = re.findall(r'<script src="(howto/[^"]+)"', start)
    assert len(scripts) == 4
    assert [script for script in scripts if not (tmp_path / script).exists()] == []
    empty = r"<td[^>]*></td>"
    texts = {path.parent.name: path.read_text("utf-8") for path in tmp_path.rglob("*.html")}
    assert [name for name, text in texts.items() if re.search(empty, text)] == []
    returned = re.findall(r">Returns:</span></p>\s*<ul>(.*?)</ul>", pages, re.DOTALL)
    assert returned
    assert [text for text in returned if text.count("doc-section-item") > 1] == []
