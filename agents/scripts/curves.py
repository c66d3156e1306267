"""Draw learning curves."""

import io
import pathlib
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import EngFormatter

from agents.scripts import runs, scores

# By Okabe and Ito, told apart by colour-blind people too; yellow is left out, as it is too light.
COLORS = ('#0072B2', '#D55E00', '#009E73', '#CC79A7', '#E69F00', '#56B4E9', '#000000')

_LEGEND: dict[str, Any] = {'loc': 'outside lower center', 'frameon': False, 'fontsize': 9}

# Seconds in a unit of time.
_UNITS = ((3600, 'hours'), (60, 'minutes'), (1, 'seconds'))


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
    if len(train.step):
        axis.plot(train.step, train.score, color='0.6', linewidth=1, label='training')
    if len(evaluation.step):
        color = COLORS[0]
        low, high = evaluation.score - evaluation.std, evaluation.score + evaluation.std
        axis.fill_between(evaluation.step, low, high, color=color, alpha=0.2, linewidth=0)
        label = 'evaluation ± standard deviation of its episodes'
        axis.plot(evaluation.step, evaluation.score, 'o-', color=color, markersize=3, label=label)
        best = int(np.argmax(evaluation.score))
        text = f'best, {evaluation.score[best]:,.2f}'
        axis.plot(
            evaluation.step[best], evaluation.score[best], '*', color=COLORS[1], ms=11, label=text
        )
    if axis.get_lines():
        axis.legend(frameon=False, fontsize=8)
    _label(axis, 'steps')
    return _to_svg(figure)


def draw_groups(groups: Sequence[scores.Group], title: str) -> Figure:
    """Draw evaluation scores of groups of runs against steps and against wall time.

    A group of three or more runs is its interquartile mean with a 95 % interval; a smaller one is
    the mean with the runs as thin lines. These are drawn also where runs go on beyond the mean.

    Args:
        groups: Groups with the same task.
        title: What stands above.

    Returns:
        The figure.
    """
    height = 4 + 0.2 * len(groups)
    figure = Figure(figsize=(10, height), layout=ConstrainedLayoutEngine(wspace=0.06))
    axes = figure.subplots(1, 2, sharey=True)
    longest = max(h.evaluation.seconds[-1] for group in groups for h in group.histories)
    unit, word = next((unit, word) for unit, word in _UNITS if longest >= 2 * unit or unit == 1)
    for index, group in enumerate(groups):
        color = COLORS[index % len(COLORS)]
        line = ('-', '--', ':')[index // len(COLORS) % 3]
        style = {'color': color, 'linestyle': line}
        _draw_group(axes[0], group, 'step', 1, style)
        _draw_group(axes[1], group, 'seconds', unit, style)
    _label(axes[0], 'steps')
    _label(axes[1], f'wall time / {word}')
    axes[1].set_ylabel('')
    # Below: names are long, and beside the curves they would lie on some.
    legend = figure.legend(handles=axes[0].get_legend_handles_labels()[0], **_LEGEND)
    if any(len(group.histories) >= scores.LEAST_FOR_INTERVAL for group in groups):
        legend.set_title('interquartile mean and its 95 % interval')
    # Names and values are the user's: a dollar sign in them begins no formula.
    for text in (figure.suptitle(title), *legend.get_texts()):
        text.set_parse_math(False)
    return figure


def _draw_group(axis: Any, group: scores.Group, name: str, unit: float, style: Any) -> None:
    count = len(group.histories)
    points, values = scores.align(group.histories, name)
    summary = scores.summarize(values)
    label = f'{group.label}, {count} run{"s" * (count > 1)}'
    if unfinished := sum(not history.finished for history in group.histories):
        label += f', {unfinished} unfinished'
    marker = 'o' if len(points) == 1 else ''
    axis.plot(points / unit, summary.middle, linewidth=2, label=label, marker=marker, **style)
    if count >= scores.LEAST_FOR_INTERVAL:
        axis.fill_between(
            points / unit, summary.low, summary.high, color=style['color'], alpha=0.2, linewidth=0
        )
    ends = [getattr(history.evaluation, name)[-1] for history in group.histories]
    if 1 < count < scores.LEAST_FOR_INTERVAL or not len(points) or max(ends) > points[-1]:
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
