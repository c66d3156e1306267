"""Bars of what was measured."""

import pathlib
from collections.abc import Sequence

from benchmarks.contest import Figures, Line, number

OURS, OTHERS = 'tab:blue', 'tab:gray'


def draw(lines: Sequence[Line], path: pathlib.Path) -> None:
    """Draw a panel for everything that was measured, with a bar for each contender.

    Args:
        lines: What was measured.
        path: PNG to write.
    """
    import matplotlib.figure

    panels = group(lines)
    if not panels:
        return
    rows = [len(bars) for _, bars in panels]
    figure = matplotlib.figure.Figure(
        figsize=(9, sum(0.28 * count + 0.6 for count in rows)), layout='constrained'
    )
    axes = figure.subplots(len(panels), squeeze=False, height_ratios=[n + 1 for n in rows])
    for axis, (title, bars) in zip(axes[:, 0], panels, strict=True):
        names = [bar.name for bar in bars]
        values = [bar.median for bar in bars]
        drawn = axis.barh(
            range(len(bars)),
            values,
            color=[OURS if name.startswith('agents') else OTHERS for name in names],
        )
        axis.bar_label(drawn, [number(value) for value in values], padding=3, fontsize=8)
        axis.set_yticks(range(len(bars)), names, fontsize=8)
        axis.set_title(title, fontsize=9, loc='left')
        axis.set_xlim(0, 1.15 * max(values))
        axis.invert_yaxis()
        axis.tick_params(axis='x', labelsize=7)
        for side in ('top', 'right'):
            axis.spines[side].set_visible(False)
    figure.savefig(path, dpi=100)


def group(lines: Sequence[Line]) -> list[tuple[str, list[Figures]]]:
    """Collect the contenders of each thing that was measured; those without figures are left out.

    Args:
        lines: What was measured.

    Returns:
        Title and contenders of each panel that has at least two of them.
    """
    panels: dict[str, dict[str, Figures]] = {}
    for line in lines:
        bars = panels.setdefault(f'{line.what}, {line.unit}', {})
        for figures in (line.ours, line.peer):
            if figures and figures.values:
                bars[figures.name] = figures
    return [(title, list(bars.values())) for title, bars in panels.items() if len(bars) > 1]
