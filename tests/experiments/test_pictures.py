"""Pictures of learning curves: what is drawn, where, and in which colours."""

from __future__ import annotations

import sys
from typing import Any

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.colors import to_hex
from PIL import Image

from rlcpu import palette
from rlcpu.experiments import pictures
from rlcpu.experiments.pictures import Panel, common_grid, draw, held, points
from rlcpu.experiments.results import Results
from tests.experiments.made import experiment_of, experiment_with, run_of

SCORES = {
    "ppo": np.arange(10.0) + 460.0,
    "ppo, small steps": np.arange(10.0) + 300.0,
    "dqn": np.arange(10.0) + 100.0,
}


def results() -> Results:
    return Results(experiment_with(SCORES))


def bands(axes: Any) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Abscissas, lower and upper bounds of the bands."""
    found = []
    for collection in axes.collections:
        (path,) = collection.get_paths()
        x = np.unique(path.vertices[:, 0])
        ends = [path.vertices[path.vertices[:, 0] == each, 1] for each in x]
        found.append((x, np.array([e.min() for e in ends]), np.array([e.max() for e in ends])))
    return found


def test_no_value_is_shown_before_it_was_measured() -> None:
    first, second = points([10, 20, 30], [1, 2, 3]), points([12, 25, 28, 50], [4, 5, 6, 7])
    grid = common_grid([first, second])
    assert grid.tolist() == [12, 25, 30, 50]
    assert held(first, grid).returns.tolist() == [1, 2, 3, 3]  # to the end
    assert held(second, grid).returns.tolist() == [4, 5, 6, 7]
    late = points([40, 60], [8, 9])
    assert common_grid([first, late]).tolist() == [40, 60]
    many = points(np.arange(1000), np.arange(1000))
    grid = common_grid([many])
    assert (len(grid), grid[0], grid[-1]) == (pictures.MOST_POINTS, 0, 999)


def test_points_without_a_return_are_left_out() -> None:
    assert points([1, 2, 3], [np.nan, 5.0, 6.0]).steps.tolist() == [2, 3]


def test_a_line_is_the_mean_and_its_band_the_interval() -> None:
    (axes,) = results().plot().axes
    line = axes.get_lines()[0]
    assert line.get_xdata().tolist() == [2590, 5090, 7590, 10090]  # of the last seed
    mean = SCORES["ppo"].mean()
    np.testing.assert_allclose(line.get_ydata(), mean * np.arange(1, 5) / 4)
    x, low, high = bands(axes)[0]
    assert x.tolist() == line.get_xdata().tolist()
    row = results().table().rows[0]
    np.testing.assert_allclose([low[-1], high[-1]], [row["low"], row["high"]], atol=0.5)


def test_other_statistics_and_abscissas() -> None:
    scores = np.array([0.0, 0.0, 0.0, 1.0, 8.0])
    (axes,) = Results(experiment_with({"ppo": scores})).plot("iqm", "seconds").axes
    line = axes.get_lines()[0]
    assert line.get_ydata()[-1] == pytest.approx(np.mean([0.0, 0.0, 1.0]))
    assert line.get_xdata()[-1] == pytest.approx(1.002)  # the median of 1.000 to 1.004
    assert axes.get_xlabel() == "seconds of learning"


def test_lines_differ_in_colour_and_style() -> None:
    (axes,) = results().plot().axes
    lines = axes.get_lines()[:3]
    assert [to_hex(line.get_color(), keep_alpha=False).upper() for line in lines] == [
        colour.upper() for colour in palette.CYCLE[:3]
    ]
    assert [line.get_linestyle() for line in lines] == ["-", "--", "-."]
    assert len({palette.look(number) for number in range(12)}) == 12


def test_names_stand_above_the_curves() -> None:
    figure = results().plot()
    (axes,) = figure.axes
    figure.draw_without_rendering()
    legend = axes.get_legend()
    assert legend.get_window_extent().y0 >= axes.get_window_extent().y1
    assert legend.get_window_extent().x1 <= figure.bbox.x1
    assert legend.get_window_extent().y1 <= figure.bbox.y1
    assert [text.get_text() for text in legend.get_texts()] == [*SCORES, "solved: 475"]
    title = "CartPole-v1\nmean of 10 seeds and its 95 % interval"
    assert legend.get_title().get_text() == title
    assert len(axes.texts) == 0


def test_numbers_of_seeds_are_said() -> None:
    (axes,) = Results(experiment_with({"a": np.ones(5), "b": np.ones(2), "c": [1]})).plot().axes
    texts = [text.get_text() for text in axes.get_legend().get_texts()]
    assert texts[:3] == ["a, 5 seeds", "b, 2 seeds", "c, 1 seed"]
    (axes,) = Results(experiment_with({"a": np.arange(3.0)})).plot().axes
    assert axes.get_legend().get_title().get_text().endswith("mean of 3 seeds, lowest to highest")
    (_, low, high) = bands(axes)[0]
    assert (low[-1], high[-1]) == (0.0, 2.0)


def test_a_page_on_a_telephone_can_show_it(tmp_path: Any) -> None:
    figure = results().plot()
    pictures.write(figure, tmp_path / "bands.png")
    with Image.open(tmp_path / "bands.png") as image:
        assert image.width == 1040
    # Points of the smallest letters, where the picture is 390 pixels wide.
    (axes,) = figure.axes
    texts = [*axes.get_legend().get_texts(), *axes.get_xticklabels(), axes.xaxis.label]
    scale = 390 / (figure.get_size_inches()[0] * 72)
    assert min(text.get_fontsize() for text in texts) * scale >= 9.0


def test_a_notebook_shows_the_figure() -> None:
    png = results().plot()._repr_png_()
    assert png.startswith(b"\x89PNG")
    assert len(png) < 100_000
    assert plt.get_fignums() == []  # nothing is left for pyplot to show again


def test_each_environment_has_a_panel() -> None:
    other = experiment_with({"ppo": -SCORES["ppo"]}, env="Pendulum-v1", folder="p", threshold=None)
    both = Results(experiment_with(SCORES), other)
    figure = both.plot()
    assert [axes.get_ylabel() for axes in figure.axes] == [
        "CartPole-v1\nreturn",
        "Pendulum-v1\nreturn",
    ]
    assert [len(axes.collections) for axes in figure.axes] == [3, 1]
    legends = [axes.get_legend() for axes in figure.axes]
    assert legends[1] is None
    scaled = both.normalised({"CartPole-v1": (0.0, 500.0), "Pendulum-v1": (-1000.0, 0.0)}).plot()
    assert scaled.axes[0].get_lines()[0].get_ydata()[-1] == pytest.approx(464.5 / 500)
    assert scaled.axes[1].get_lines()[0].get_ydata()[-1] == pytest.approx(535.5 / 1000)


def test_runs_that_reached_a_target_keep_their_last_value() -> None:
    runs = [run_of("ppo", seed, 480.0, reached=2000) for seed in range(5)]
    short = runs[0]._replace(curve=type(runs[0].curve)(*(column[:1] for column in runs[0].curve)))
    (axes,) = Results(experiment_of([short, *runs[1:]], target=475.0)).plot().axes
    expected = (4 * 480.0 + 120.0) / 5
    assert axes.get_lines()[0].get_ydata()[-1] == pytest.approx(expected)
    assert axes.get_legend().get_texts()[-1].get_text() == "target: 475"


def test_axes_of_ones_own() -> None:
    figure, axes = plt.subplots()
    assert results().plot(axes=axes) is figure
    assert len(axes.get_lines()) == 4
    with pytest.raises(ValueError, match="axes: got 2, expected 1"):
        results().plot(axes=[axes, axes])
    plt.close(figure)


def test_settings_of_the_users_matplotlib_stay() -> None:
    before = dict(mpl.rcParams)
    results().plot()
    assert dict(mpl.rcParams) == before


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"over": "hours"}, "over='hours': expected one of steps, seconds"),
        ({"statistic": "best"}, "statistic='best'"),
    ],
)
def test_bad_arguments(options: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        results().plot(**options)


def test_nothing_to_draw() -> None:
    early = Panel("return", {"ppo": [points([1], [np.nan])]}, {"target": 5.0})
    for panel in (Panel("return", {"ppo": []}), early):
        with pytest.raises(ValueError, match="no run is done, or no episode has ended yet"):
            draw([panel])
    (axes,) = draw([early], is_needed=False).axes
    assert [line.get_label() for line in axes.get_lines()] == ["target"]


def test_without_matplotlib_one_sentence_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ImportError, match="pip install matplotlib"):
        results().plot()
