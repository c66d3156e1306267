"""Several contenders, measured in turns."""

import dataclasses
import importlib.util
import statistics
import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import Any

from benchmarks import alone


@dataclasses.dataclass(frozen=True)
class Options:
    """How much to measure.

    Attributes:
        repeats: How often each contender is measured.
        quick: Whether to measure for a shorter time each.
    """

    repeats: int = 3
    quick: bool = False


@dataclasses.dataclass(frozen=True)
class Contender:
    """Something to measure.

    Attributes:
        name: Name in the table.
        function: Function of a module, run in a fresh process; returns the figure.
        kwargs: Its keyword arguments, plain data.
        needs: Module that must be installed, if this project does not depend on it.
    """

    name: str
    function: Callable[..., float]
    kwargs: dict[str, Any] = dataclasses.field(default_factory=dict)
    needs: str = ''


@dataclasses.dataclass
class Figures:
    """What was measured of one contender.

    Attributes:
        name: Name of the contender.
        values: One figure for each repeat.
        problem: Why there is none, such as 'missing: pip install torch'.
    """

    name: str
    values: list[float] = dataclasses.field(default_factory=list)
    problem: str = ''

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    @property
    def spread(self) -> float:
        """(largest - smallest) / median."""
        return (max(self.values) - min(self.values)) / self.median


@dataclasses.dataclass(frozen=True)
class Line:
    """One line of the table.

    Attributes:
        what: What is measured.
        unit: Unit of the figures.
        ours: Figures of this project.
        peer: Figures of what it is compared with, None for nothing.
        ratio_wanted: How many times better than the peer it must be at least.
        below: What the figure must stay below.
        lower_is_better: Whether small figures are good ones.
    """

    what: str
    unit: str
    ours: Figures
    peer: Figures | None = None
    ratio_wanted: float | None = None
    below: float | None = None
    lower_is_better: bool = False

    @property
    def failed(self) -> bool:
        return any(x.problem.startswith('failed') for x in (self.ours, self.peer) if x)

    @property
    def ratio(self) -> float | None:
        """How many times better than the peer; None if unknown."""
        if not self.peer or self.ours.problem or self.peer.problem:
            return None
        ratio = self.ours.median / self.peer.median
        return 1 / ratio if self.lower_is_better else ratio

    @property
    def met(self) -> bool | None:
        """Whether all that is wanted is so; None if nothing is, or it is unknown."""
        checks = []
        if self.ratio_wanted is not None:
            checks.append(None if self.ratio is None else self.ratio >= self.ratio_wanted)
        if self.below is not None:
            checks.append(None if self.ours.problem else self.ours.median < self.below)
        return all(checks) if checks and None not in checks else None


def contest(
    sides: Sequence[Sequence[Contender]],
    repeats: int,
    lower_is_better: bool = False,
    measure: Callable[[Callable, dict], float] = alone.measure,
) -> list[Figures]:
    """Measure the sides in turns, so that a busy moment of the machine hits all of them.

    All contenders of a side run in the first round; the best of them goes on alone.

    Args:
        sides: Contenders of each side: ways to do the same, of which the best counts.
        repeats: Number of rounds.
        lower_is_better: Whether small figures are good ones.
        measure: Calls a function with keyword arguments, by default in a fresh process.

    Returns:
        For each side, the figures of its best contender.
    """
    remaining = [[(c, Figures(c.name)) for c in side] for side in sides]
    for _ in range(repeats):
        for index, candidates in enumerate(remaining):
            for contender, figures in candidates:
                if not figures.problem:
                    _measure_once(contender, figures, measure)
            remaining[index] = [_best(candidates, lower_is_better)]
    return [figures for ((_, figures),) in remaining]


def number(value: float) -> str:
    """Write a figure with three digits, or all those before the point."""
    return f'{value:,.0f}' if abs(value) >= 100 else f'{value:.3g}'


def _measure_once(contender: Contender, figures: Figures, measure: Callable) -> None:
    """Add a figure, or say why there is none."""
    if contender.needs and importlib.util.find_spec(contender.needs) is None:
        figures.problem = f'missing: pip install {contender.needs}'
    else:
        try:
            figures.values.append(measure(contender.function, contender.kwargs))
        except (RuntimeError, subprocess.TimeoutExpired) as error:
            figures.problem = f'failed: {type(error).__name__}'
            print(error, file=sys.stderr)
    text = figures.problem or number(figures.values[-1])
    print(f'  {contender.name}: {text}', file=sys.stderr, flush=True)


def _best(
    candidates: Sequence[tuple[Contender, Figures]], lower_is_better: bool
) -> tuple[Contender, Figures]:
    """Return the contender with the best last figure; the first one if none has any."""
    measured = [pair for pair in candidates if not pair[1].problem]
    best = min if lower_is_better else max
    return best(measured, key=lambda pair: pair[1].values[-1]) if measured else candidates[0]
