# ---
# jupyter:
#   jupytext:
#     formats: ipynb,py:percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # History: is it faster than it was?
#
# `make bench` measures the newest commit with [asv](https://asv.readthedocs.io), and `make history`
# a list of commits of which each changed a kernel (`asv_benches/history.txt`), one number for every
# kind of work. Results lie in `asv_benches/results/asv` in a folder for each machine, a JSON file
# for each commit. This notebook reads them, measures nothing, and needs a clone of the repository.

# %%
import datetime as dt
import json
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import rlcpu

plt.rcParams.update({"axes.grid": True, "grid.alpha": 0.3, "axes.axisbelow": True})
plt.rcParams["figure.constrained_layout.use"] = True
benches = Path(rlcpu.__file__).parents[1] / "asv_benches"
listed = dict(line.split(" ", 1) for line in (benches / "history.txt").read_text().splitlines())


def read(machine):
    """Measured commits of a machine, the oldest first: date, hash, and seconds by job."""
    commits = []
    for path in machine.glob("*-*.json"):
        run = json.loads(path.read_text("utf-8"))
        results = {
            name.removeprefix("milestones."): value[0][0]
            for name, value in run["results"].items()
            if name.startswith("milestones.") and value and value[0]  # else it failed there
            if np.isfinite(value[0][0] or np.nan)
        }
        commits.append((run["date"] / 1000, run["commit_hash"], results))  # asv has milliseconds
    return sorted(commits)


machines = {
    path.name: read(path)
    for path in sorted((benches / "results" / "asv").iterdir())
    if path.is_dir()
}
for machine, commits in machines.items():
    first, last = (dt.datetime.fromtimestamp(commits[k][0], dt.UTC).date() for k in (0, -1))
    print(f"{machine}: {len(commits)} commits, from {first} to {last}")

# %% [markdown]
# ## All jobs over the commits
#
# How many times as fast as at the first commit that could do the job. Figures of one machine are
# compared with each other only, and even there the neighbours of a virtual machine are seen: what
# goes up at one commit and down at the next was their load.


# %%
def words(job):
    """A job in words, as "Tree: update"."""
    return job.replace(".track_", ": ").replace("_", " ")


for machine, commits in machines.items():
    jobs = sorted({job for _, _, results in commits for job in results})
    groups = sorted({job.partition(".")[0] for job in jobs})
    figure, panels = plt.subplots(
        len(groups),
        1,
        figsize=(7.5, 0.9 + 1.1 * len(groups)),
        sharex=True,
        sharey=True,
        squeeze=False,
    )
    for axes, group in zip(panels[:, 0], groups, strict=True):
        for job in (job for job in jobs if job.partition(".")[0] == group):
            points = [(k, run[2][job]) for k, run in enumerate(commits) if job in run[2]]
            places, seconds = np.array(points).T
            axes.plot(places, seconds[0] / seconds, "o-", markersize=4, label=words(job))
        axes.set_yscale("log", base=2)
        axes.yaxis.set_major_formatter("{x:g}x")
        axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), fontsize=8)
    hashes = [commit[:7] for _, commit, _ in commits]
    panels[-1, 0].set_xticks(range(len(commits)), hashes, rotation=60, ha="right", fontsize=8)
    figure.suptitle(f"{machine}: times as fast as at first")
    plt.show()

# %% [markdown]
# ## What a commit gained
#
# Where a job took at least a tenth less time than at every commit before:

# %%
for machine, commits in machines.items():
    print(machine)
    best = {}
    for _, commit, results in commits:
        gains = {job: best.get(job, seconds) / seconds for job, seconds in results.items()}
        for job in (job for job, gain in gains.items() if gain > 1.1):
            about = listed.get(commit[:7], "")
            print(f"  {commit[:7]} {words(job):31s} {gains[job]:5.2f}x  {about}")
        best |= {job: min(best.get(job, s), s) for job, s in results.items()}

# %% [markdown]
# ## What has become slower
#
# The newest time of each job beside its best. A number far above one is noise or a regression, and
# measuring the commit again tells which.

# %%
for machine, commits in machines.items():
    print(machine)
    for job in sorted(commits[-1][2]):
        times = [results[job] for _, _, results in commits if job in results]
        last, ratio = 1e6 * times[-1], times[-1] / min(times)
        print(f"  {words(job):31s} {last:10,.1f} us, {ratio:.2f} of its best")

# %% [markdown]
# To have a machine and a commit of your own in these pictures: `make bench` for the newest commit,
# or `make history` for the list, and run this notebook again. `asv compare` and `asv continuous`
# work in `asv_benches` too; `asv publish` makes its pages.
