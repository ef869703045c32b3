"""`python -m asv_benches.publish`: asv's web pages of the saved history, to be opened offline.

asv's pages load jQuery, Flot and others from the web. Where npm is installed these are fetched
once, into `env/site`, and put beside the pages.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).parent
PACKAGES = FOLDER / "env" / "site"
LIBRARIES = {
    "jquery@3.3.1": "dist/jquery.min.js",
    "flot@0.8.3": "jquery.flot*.js",
    "flot-orderbars@1.0.0": "js/*.js",
    "stupid-table-plugin@1.1.3": "stupidtable.min.js",
    "blueimp-md5@2.19.0": "js/md5.min.js",
    "bootstrap@3.1.1": "dist/*/bootstrap.min.*s",
}
# asv's own pages are 980 pixels wide everywhere: on a phone the columns go below each other.
PHONE = """<meta name="viewport" content="width=device-width, initial-scale=1">
<style>
@media (max-width: 700px) {
  #nav, #nav ul, #nav li { position: static; float: none; margin: 0; }
  #nav li.active, #nav li.active a, #nav span.navbar-brand { height: auto; }
  #nav a, #nav p, #nav span.navbar-brand { margin: 0; padding: 6px 12px; overflow-wrap: anywhere; }
  #summarygrid-display, #summarylist-display > div, #regressions-display,
  #graph-display > div { position: static !important; width: auto !important; height: auto; }
  #summarylist-navigation, #graphdisplay-navigation { max-height: 220px; }
  #summarylist-body, #regressions-body { padding: 8px; overflow-x: auto !important; }
  #graph-display > div:last-child { height: 460px; overflow-x: auto; }
  #graph { position: relative; height: 440px; margin-left: 16px; }
  .benchmark-container, .benchmark-plot, .benchmark-text { max-width: 100%; }
}
</style>
"""
REMOTE = re.compile(r'(?P<link>src|href)="https://[^"]*/(?P<file>[^"/]+\.(?:js|css))"[^>]*')


def main(arguments: list[str] | None = None) -> None:
    """Publishes, and says how to look at it."""
    parser = argparse.ArgumentParser(prog="python -m asv_benches.publish", description=__doc__)
    parser.add_argument("--html", metavar="DIR", type=Path, default=FOLDER / "html")
    html = parser.parse_args(arguments).html
    make_pages(html)
    try:
        localise(html, fetch(PACKAGES))
    except FileNotFoundError as error:
        print(f"{error}: the pages need a network")
    print(f"now: {sys.executable} -m http.server -d {html}, and open http://localhost:8000")


def make_pages(html: Path, results: Path | None = None) -> None:
    """Makes asv's pages, readable on a phone, too.

    Args:
        html: folder to make them in.
        results: folder of the saved results; None takes the configuration's.

    Raises:
        FileNotFoundError: there are no results.
        RuntimeError: asv failed; its words.
    """
    settings = json.loads((FOLDER / "asv.conf.json").read_text())
    results = results or FOLDER / settings["results_dir"]
    if not any(results.glob("*/*-*.json")):
        raise FileNotFoundError(f"no results in {results}: `python -m asv_benches.history`")
    html.mkdir(parents=True, exist_ok=True)
    paths = {"repo": FOLDER.parent, "benchmark_dir": FOLDER / "benchmarks", "html_dir": html}
    paths |= {"results_dir": results, "env_dir": FOLDER / "env"}
    configuration = html.parent / f"{html.name}.asv.conf.json"
    configuration.write_text(json.dumps(settings | {k: str(v) for k, v in paths.items()}))
    command = [sys.executable, "-m", "asv", "publish", "--config", str(configuration)]
    done = subprocess.run(command, cwd=FOLDER, capture_output=True, text=True)
    configuration.unlink()
    if done.returncode:
        raise RuntimeError(f"asv publish: {done.stdout}{done.stderr}")
    page = html / "index.html"
    page.write_text(page.read_text().replace("</head>", f"{PHONE}</head>", 1))


def fetch(folder: Path) -> Path:
    """The libraries, by npm; at once where they are there already.

    Raises:
        FileNotFoundError: there is no npm, or it could not get them.
    """
    modules = folder / "node_modules"
    if all((modules / name.rpartition("@")[0]).exists() for name in LIBRARIES):
        return modules
    npm = shutil.which("npm")
    if npm is None:
        raise FileNotFoundError("no npm, which would fetch jQuery and Flot")
    folder.mkdir(parents=True, exist_ok=True)
    quiet = ("--silent", "--no-audit", "--no-fund", "--ignore-scripts")
    command = [npm, "install", "--prefix", str(folder), *quiet, *LIBRARIES]
    if subprocess.run(command, stdin=subprocess.DEVNULL, timeout=120).returncode:
        raise FileNotFoundError("npm could not fetch jQuery and Flot")
    return modules


def localise(html: Path, modules: Path) -> None:
    """Copies the libraries beside the pages, and lets the pages load those."""
    for name, pattern in LIBRARIES.items():
        for path in (modules / name.rpartition("@")[0]).glob(pattern):
            shutil.copy(path, html / served_as(name, path.name))
    for page in html.glob("*.html"):
        page.write_text(REMOTE.sub(r'\g<link>="\g<file>"', page.read_text()))


def served_as(package: str, file: str) -> str:
    """What the pages call a file of a package: flot's is minified on the web and not with npm."""
    if package.startswith("flot@"):
        return file.replace(".js", ".min.js")
    return "jquery-3.3.1.min.js" if package.startswith("jquery@") else file


if __name__ == "__main__":
    main()
