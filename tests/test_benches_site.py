"""The published history in a headless browser: from the list of benchmarks to a graph."""

from __future__ import annotations

import functools
import http.server
import importlib.util
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(Path(__file__).parent)]

import browser  # noqa: E402

from asv_benches import history, publish  # noqa: E402
from asv_benches.peers import report, rows  # noqa: E402


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """asv's pages of the committed results."""
    if importlib.util.find_spec("asv") is None:
        pytest.skip("asv is not installed: pip install 'asv>=0.6.4'")
    if len(history.measured("*")) < 2:
        pytest.skip("no history: python -m asv_benches.history")
    absent = [commit for commit in history.measured("*") if not history.exists(commit)]
    if absent:
        pytest.skip(f"a shallow clone: {len(absent)} measured commits are not in it")
    html = tmp_path_factory.mktemp("site") / "html"
    publish.make_pages(html)
    return html


@pytest.fixture(scope="module")
def url(pages: Path) -> Iterator[str]:
    """The address of the pages, libraries beside them."""
    if browser.find() is None:
        pytest.skip(f"no browser, one of {', '.join(browser.NAMES)}: apt-get install chromium")
    try:
        modules = publish.fetch(publish.PACKAGES)
    except (FileNotFoundError, subprocess.TimeoutExpired) as error:
        pytest.skip(f"{error}: asv's pages need them")
    publish.localise(pages, modules)

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *arguments: object) -> None:
            pass

    handler = functools.partial(Quiet, directory=str(pages))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/index.html"
        server.shutdown()


def test_every_milestone_of_the_newest_commit_is_published(pages):
    graphs = {path.stem for path in (pages / "graphs").rglob("milestones.*.json")}
    assert {"milestones.Simulation.track_step_4096", "milestones.Tree.track_sample"} <= graphs


def test_pages_load_nothing_from_the_web(pages, tmp_path):
    text = (pages / "index.html").read_text()
    assert "https://" in text
    local = publish.REMOTE.sub(r'\g<link>="\g<file>"', text)
    assert not publish.REMOTE.search(local)
    assert 'src="jquery.flot.time.min.js"' in local


def test_a_click_leads_from_the_list_to_a_graph(url, tmp_path):
    name = "milestones.Simulation.track_step_4096"
    with browser.opened(browser.find(), tmp_path / "profile") as page:
        page.open(url)
        link = f"Array.from(document.querySelectorAll('a')).find(a => a.href.endsWith('{name}'))"
        page.wait(f"!!({link})")
        page.evaluate(f"({link}).click()")
        page.wait("document.querySelectorAll('#main-graph canvas').length > 0")
        page.wait(f"document.title.includes('{name}') || location.hash.includes('{name}')")
        series = "$('#main-graph').data('plot').getData().map(s => s.data.length)"
        lengths = page.wait(f"{series}.some(n => n > 1) && {series}")
        assert max(lengths) > len(history.measured("*")) // 2


def width_on_a_phone(page: browser.Page, url: str, ready: str) -> int:
    """Pixels that a page takes on a screen of 390; what is wider scrolls in a box of its own."""
    size = {"width": 390, "height": 844, "deviceScaleFactor": 1, "mobile": True}
    page.send("Emulation.setDeviceMetricsOverride", **size)
    page.open("about:blank")
    page.open(url)
    page.wait(ready)
    return page.evaluate("document.documentElement.scrollWidth")


def test_the_history_fits_a_phone(url, tmp_path):
    shown = "Array.from(document.querySelectorAll('a')).some(a => a.href.includes('milestones.'))"
    graph = "document.querySelectorAll('#main-graph canvas').length > 0"
    pages = {"#/": shown, "#/summarylist": shown, "#milestones.Simulation.track_step_4096": graph}
    with browser.opened(browser.find(), tmp_path / "profile") as page:
        for place, ready in pages.items():
            assert width_on_a_phone(page, url + place, ready) == 390


def test_the_report_fits_a_phone(tmp_path):
    pytest.importorskip("jinja2")
    pytest.importorskip("matplotlib")
    if browser.find() is None:
        pytest.skip(f"no browser, one of {', '.join(browser.NAMES)}: apt-get install chromium")
    name = next(rows.RESULTS.glob("*-simulate.json")).name.removesuffix("-simulate.json")
    report.write(tmp_path / "report.html", rows.RESULTS, name)
    with browser.opened(browser.find(), tmp_path / "profile") as page:
        path = (tmp_path / "report.html").as_uri()
        assert width_on_a_phone(page, path, "document.readyState === 'complete'") == 390


def test_libraries_lie_beside_the_pages_under_the_names_that_they_are_asked_for(tmp_path):
    modules, html = tmp_path / "modules", tmp_path / "html"
    html.mkdir()
    files = ("jquery/dist/jquery.min.js", "flot/jquery.flot.time.js", "bootstrap/dist/js/x.js")
    for file in files:
        (modules / file).parent.mkdir(parents=True)
        (modules / file).write_text(file)
    (html / "index.html").write_text(
        '<script src="https://code.jquery.com/jquery-3.3.1.min.js" integrity="x"></script>'
        '<script src="asv.js"></script>'
    )
    publish.localise(html, modules)
    assert (html / "jquery-3.3.1.min.js").read_text() == files[0]
    assert (html / "jquery.flot.time.min.js").read_text() == files[1]
    assert (html / "index.html").read_text() == (
        '<script src="jquery-3.3.1.min.js"></script><script src="asv.js"></script>'
    )


def test_without_npm_or_results_it_says_what_is_missing(tmp_path, monkeypatch):
    monkeypatch.setattr(publish.shutil, "which", lambda name: None)
    with pytest.raises(FileNotFoundError, match="no npm"):
        publish.fetch(tmp_path)
    with pytest.raises(FileNotFoundError, match="asv_benches"):
        publish.make_pages(tmp_path / "html", tmp_path)
