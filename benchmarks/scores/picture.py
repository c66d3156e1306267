"""Learning curves of several tasks beside each other."""

import functools
import pathlib
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import EngFormatter

from agents.scripts.curves import COLORS
from benchmarks.scores.targets import OBJECTIVES

# One is dashed, so that both are seen where they are equal.
_LINES = dict(zip(OBJECTIVES, zip(COLORS, ('-', '--'), strict=False), strict=True))
_MOST_COLUMNS = 3


class Panel(NamedTuple):
    """Curves of one task.

    Attributes:
        title: What stands above.
        curves: Steps and score of each run, float64 [N, 2], by objective.
        target: Score that is wanted, None for none.
    """

    title: str
    curves: Mapping[str, Sequence[np.ndarray]]
    target: float | None


def draw(panels: Sequence[Panel], path: pathlib.Path) -> None:
    """Draw a panel for each task: thin lines are runs, thick ones their mean.

    Args:
        panels: What to draw.
        path: PNG to write.
    """
    columns = min(_MOST_COLUMNS, len(panels))
    rows = -(-len(panels) // columns)
    figure = Figure(figsize=(max(4.5, 3.6 * columns), 2.6 * rows + 0.5), layout='constrained')
    axes = list(figure.subplots(rows, columns, squeeze=False).flat)
    for axis, panel in zip(axes, panels, strict=False):
        _draw(axis, panel)
    for axis in axes[len(panels) :]:
        axis.set_axis_off()
    shown = {name for panel in panels for name, curves in panel.curves.items() if curves}
    handles = [
        Line2D([], [], color=color, linestyle=line, linewidth=2, label=OBJECTIVES[name])
        for name, (color, line) in _LINES.items()
        if name in shown
    ]
    if any(panel.target is not None for panel in panels):
        handles.append(Line2D([], [], color='0.4', linestyle=':', label='wanted'))
    figure.legend(handles=handles, loc='outside lower center', ncols=3, frameon=False, fontsize=9)
    figure.savefig(path, dpi=120)


def mean(curves: Sequence[np.ndarray]) -> np.ndarray:
    """Average runs at the steps that all of them have.

    Args:
        curves: Steps and score of each run, float64 [N, 2].
    """
    steps = functools.reduce(np.intersect1d, [curve[:, 0] for curve in curves])
    scores = [curve[np.isin(curve[:, 0], steps), 1] for curve in curves]
    return np.stack([steps, np.mean(scores, 0)], 1)


def _draw(axis: Axes, panel: Panel) -> None:
    if panel.target is not None:
        axis.axhline(panel.target, color='0.4', linestyle=':', linewidth=1.2)
    for name, (color, line) in _LINES.items():
        curves = panel.curves.get(name, ())
        for curve in curves:
            axis.plot(*curve.T, color=color, linewidth=0.8, alpha=0.35)
        if curves:
            shared = mean(curves)
            marker = 'o' if len(shared) == 1 else ''
            axis.plot(*shared.T, line, color=color, linewidth=2, marker=marker, markersize=4)
    axis.set_title(panel.title, fontsize=9, parse_math=False)
    axis.set_xlabel('steps', fontsize=9)
    axis.set_ylabel('score', fontsize=9)
    axis.set_xlim(left=0)
    axis.xaxis.set_major_formatter(EngFormatter(sep=' '))
    axis.tick_params(labelsize=8)
    axis.spines[['top', 'right']].set_visible(False)
    axis.grid(alpha=0.25)
