"""What the repository holds beside the package: versions, addresses, requirements, workflows."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

import rlcpu

ROOT = Path(__file__).parents[1]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
URL = PROJECT["urls"]["Repository"]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


def read(name: str) -> str:
    return (ROOT / name).read_text("utf-8")


def test_one_version_is_named_everywhere() -> None:
    assert PROJECT["version"] == rlcpu.__version__
    citation = yaml.safe_load(read("CITATION.cff"))
    assert citation["version"] == rlcpu.__version__
    entry = read("docs/project.md")
    assert f"version = {{{rlcpu.__version__}}}" in entry
    assert f"title = {{{citation['title']}}}" in entry
    assert f'set version = "{rlcpu.__version__}"' in read("conda/meta.yaml")


def test_one_address_is_named_everywhere() -> None:
    names = ["CITATION.cff", "SECURITY.md", "CODE_OF_CONDUCT.md", "conda/meta.yaml"]
    names += [".github/ISSUE_TEMPLATE/config.yml"]
    for name in names:
        assert URL in read(name), name
        ours = re.findall(r"https://github.com/[\w-]+/rlcpu\b", read(name))
        assert set(ours) == {URL}, name
    assert all(PROJECT["urls"][name].startswith(URL) for name in ("Issues", "Changelog"))


def bounds(lines: list[str], pattern: str) -> dict[str, str]:
    found = (re.match(pattern, line.strip()) for line in lines)
    return {match[1]: match[2] for match in found if match}


def test_oldest_versions_are_those_that_are_promised() -> None:
    promised = bounds(PROJECT["dependencies"], r"([a-z]+)>=([0-9.]+)")
    tried = bounds(read(".ci/oldest.txt").splitlines(), r"([a-z]+)==([0-9.]+)")
    recipe = read("conda/meta.yaml").partition("  run:")[2]
    conda = bounds(recipe.splitlines(), r"- (?!python)([a-z]+) >=(.+)")
    assert promised == conda
    assert {name: f"{version}." for name, version in promised.items()} == {
        name: version[: len(promised[name]) + 1] for name, version in tried.items()
    }


def test_the_tests_that_need_no_extra_are_there() -> None:
    assert all((ROOT / name).exists() for name in read(".ci/minimal-tests.txt").split())


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_workflows_run_what_there_is_and_may_write_nothing(path: Path) -> None:
    workflow = yaml.safe_load(path.read_text("utf-8"))
    assert workflow["permissions"] == {"contents": "read"}
    targets = set(re.findall(r"^([a-z-]+):", read("Makefile"), re.MULTILINE))
    for name, job in workflow["jobs"].items():
        assert "timeout-minutes" in job, name
        for step in job["steps"]:
            if "checkout" in step.get("uses", ""):
                assert step["with"]["persist-credentials"] is False, name
            run = step.get("run", "")
            assert set(re.findall(r"make ([a-z-]+)", run)) <= targets
            for file in re.findall(r"(\.ci/[\w.-]+)", run):
                assert (ROOT / file).exists(), file


@pytest.mark.parametrize("name", ["bug", "feature", "slow"])
def test_forms_ask_for_what_they_name_once(name: str) -> None:
    form = yaml.safe_load(read(f".github/ISSUE_TEMPLATE/{name}.yml"))
    ids = [part["id"] for part in form["body"]]
    assert len(set(ids)) == len(ids)
    assert form["name"]
    assert form["description"]


def test_the_paper_cites_what_its_bibliography_has() -> None:
    cited = set(re.findall(r"@([a-z0-9]+)", read("paper/paper.md")))
    listed = set(re.findall(r"^@\w+\{(\w+),", read("paper/paper.bib"), re.MULTILINE))
    assert cited == listed


def test_the_environment_for_agents_is_right(tmp_path: Path) -> None:
    """The page teaches with a program that `rlcpu check` passes."""
    match = re.search(r"```python\n(.*?)```", read("AGENTS.md"), re.DOTALL)
    assert match
    names: dict[str, Any] = {"__name__": "corridor"}
    exec(compile(match[1], "corridor.py", "exec"), names)
    report = rlcpu.envs.check("Corridor-v0", 100, 0)
    assert report.ok, str(report)
    assert names["step"]((9.0,), 1, names["Params"]())[2]
