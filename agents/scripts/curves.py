"""Draw learning curves."""

import io
import pathlib
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter

from agents.scripts import runs, scores

# By Okabe and Ito, told apart by colour-blind people too; yellow is left out, as it is too light.
COLORS = ('#0072B2', '#D55E00', '#009E73', '#CC79A7', '#E69F00', '#56B4E9', '#000000')


def draw_run(folder: pathlib.Path) -> str:
    """Draw the learning curve of one run.

    Args:
        folder: Folder of the run.

    Returns:
        Text of an SVG image.
    """
    history = scores.read(runs.open_folder(str(folder)))
    figure = Figure(figsize=(7, 3), layout='constrained')
    axis = figure.subplots()
    train, evaluation = history.train, history.evaluation
    axis.plot(train.step, train.score, color='0.6', linewidth=1, label='training')
    if len(evaluation.step):
        color = COLORS[0]
        low, high = evaluation.score - evaluation.std, evaluation.score + evaluation.std
        axis.fill_between(evaluation.step, low, high, color=color, alpha=0.2, linewidth=0)
        label = 'evaluation ± standard deviation of its episodes'
        axis.plot(evaluation.step, evaluation.score, 'o-', color=color, markersize=3, label=label)
        best = int(np.argmax(evaluation.score))
        text = f'best {evaluation.score[best]:.5g}'
        axis.plot(
            evaluation.step[best], evaluation.score[best], '*', color=COLORS[1], ms=11, label=text
        )
        axis.legend(frameon=False, fontsize=8)
    _label(axis, 'steps')
    return _to_svg(figure)


def draw_groups(groups: Sequence[scores.Group], title: str) -> Figure:
    """Draw evaluation scores of groups of runs against steps and against wall time.

    A group of three or more runs is its interquartile mean with a 95 % interval; a smaller one is
    the mean with the runs as thin lines.

    Args:
        groups: Groups with the same task.
        title: What stands above.

    Returns:
        The figure.
    """
    figure = Figure(figsize=(10, 4), layout='constrained')
    axes = figure.subplots(1, 2, sharey=True)
    for index, group in enumerate(groups):
        color = COLORS[index % len(COLORS)]
        line = ('-', '--', ':')[index // len(COLORS) % 3]
        for axis, name, unit in zip(axes, ('step', 'seconds'), (1, 60), strict=True):
            _draw_group(axis, group, name, unit, {'color': color, 'linestyle': line})
    _label(axes[0], 'steps')
    _label(axes[1], 'wall time / minutes')
    axes[1].set_ylabel('')
    axes[0].legend(frameon=False, fontsize=9)
    figure.suptitle(title)
    return figure


def _draw_group(axis: Any, group: scores.Group, name: str, unit: float, style: Any) -> None:
    count = len(group.histories)
    points, values = scores.align(group.histories, name)
    summary = scores.summarize(values)
    label = f'{group.label}, {count} run{"s" * (count > 1)}'
    marker = 'o' if len(points) == 1 else ''
    axis.plot(points / unit, summary.middle, linewidth=2, label=label, marker=marker, **style)
    if count >= scores.LEAST_FOR_INTERVAL:
        axis.fill_between(
            points / unit, summary.low, summary.high, color=style['color'], alpha=0.2, linewidth=0
        )
    elif count > 1:
        for history in group.histories:
            curve = history.evaluation
            axis.plot(getattr(curve, name) / unit, curve.score, linewidth=0.8, alpha=0.6, **style)


def _label(axis: Any, horizontal: str) -> None:
    axis.set_xlabel(horizontal)
    axis.set_ylabel('score of an episode')
    if horizontal == 'steps':
        axis.xaxis.set_major_formatter(EngFormatter(sep=' '))
    axis.set_xlim(left=0)
    axis.spines[['top', 'right']].set_visible(False)
    axis.grid(alpha=0.25)


def _to_svg(figure: Figure) -> str:
    file = io.StringIO()
    figure.savefig(file, format='svg')
    text = file.getvalue()
    return text[text.index('<svg') :]  # Without the XML header, which cannot stand inside a page.
