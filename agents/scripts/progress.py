"""What a training run shows: a bar on a terminal, plain lines elsewhere."""

import contextlib
import logging
import math
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import tqdm


class Progress:
    """Shows how far a run is; silent if asked to be.

    Attributes:
        step: Steps trained so far.
        busy: Whether anything was trained or evaluated since the start.
    """

    def __init__(self, total: int, quiet: bool = False):
        """Show nothing yet.

        Args:
            total: Steps to train for.
            quiet: Whether to show nothing at all.
        """
        self.step = 0
        self.busy = False
        self._scores = (math.nan, math.nan, 0)
        self._updates: list[tuple[int, float]] = []
        self._total = total
        self._quiet = quiet
        self._bar: Any = None

    def begin(self, step: int, finished: bool) -> None:
        """Say that everything is built.

        Args:
            step: Steps trained before.
            finished: Whether there is nothing left to do.
        """
        self.step = step
        if finished:
            return
        if step:
            self.say(f'Going on at step {step:,}.')
        if not self._quiet and sys.stderr.isatty():
            self._bar = tqdm.tqdm(
                total=self._total, initial=step, unit=' steps', unit_scale=True, dynamic_ncols=True
            )

    @property
    def steps_per_second(self) -> float:
        """Speed of training, NaN if unknown; the first update is left out, as it compiles."""
        steps = sum(steps for steps, _ in self._updates[1:])
        return steps / sum(seconds for _, seconds in self._updates[1:]) if steps else math.nan

    def advance(self, step: int, score: float, seconds: float) -> None:
        """Move the bar.

        Args:
            step: Steps trained so far.
            score: Mean score of the episodes that ended lately, NaN if none did.
            seconds: Time that the steps since the last call took.
        """
        self._updates.append((step - self.step, seconds))
        if self._bar is not None:
            if not math.isnan(score):
                self._bar.set_postfix(score=f'{score:.4g}', refresh=False)
            self._bar.update(step - self.step)
        self.step = step

    def record(self, phase: str, step: int, values: Mapping[str, Any]) -> None:
        """Show a record of metrics; those of training are in the bar already where there is one.

        Args:
            phase: 'train' or 'eval'.
            step: Steps trained so far.
            values: What was measured.
        """
        self.busy = True
        if phase == 'train' and self._bar is not None:
            return
        line = f'step {step:>11,}   {phase:<5}   score {number(values["score"]):>10}'
        if phase == 'eval':
            line += f' ± {number(values["score_std"])} over {values["episodes"]:.0f} episodes'
            if values['cut']:
                line += f', {values["cut"]:.0f} of them cut'
        else:
            line += f'   {values["steps_per_second"]:,.0f} steps/s'
        self.say(line)

    def scores(self, last: float, best: float, best_step: int) -> None:
        """Take down scores for the summary.

        Args:
            last: Mean score of the last evaluation, NaN if there was none.
            best: Best mean score of an evaluation, NaN if there was none.
            best_step: Steps trained before it.
        """
        self._scores = (last, best, best_step)

    def summary(self) -> list[tuple[str, str]]:
        """Say what the run has come to, as pairs of a name and a text."""
        last, best, best_step = self._scores
        lines = [('Steps', f'{self.step:,}')]
        if not math.isnan(self.steps_per_second):
            lines[0] = ('Steps', f'{self.step:,}, {self.steps_per_second:,.0f} per second')
        if not math.isnan(last):
            lines.append(('Last score', number(last)))
            lines.append(('Best score', f'{number(best)} at step {best_step:,}'))
        return lines

    def say(self, line: str) -> None:
        """Print a line, above the bar if there is one."""
        if not self._quiet:
            tqdm.tqdm.write(line)
            sys.stdout.flush()

    @contextlib.contextmanager
    def warnings(self) -> Iterator[None]:
        """Show what this package logs, such as failures of workers, among the other lines only."""
        logger = logging.getLogger('agents')
        former = logger.propagate
        handler = _Lines(self.say)
        if not self._quiet:
            logger.addHandler(handler)
            logger.propagate = False
        try:
            yield
        finally:
            logger.propagate = former
            logger.removeHandler(handler)

    def close(self) -> None:
        """Leave the bar as it is."""
        if self._bar is not None:
            self._bar.close()
            self._bar = None


class _Lines(logging.Handler):
    """Hands messages to a function."""

    def __init__(self, say: Callable[[str], None]):
        super().__init__(logging.WARNING)
        self._say = say

    def emit(self, record: logging.LogRecord) -> None:
        self._say(record.getMessage())


def number(value: float) -> str:
    """Write a score for people."""
    return 'none' if math.isnan(value) else f'{value:.2f}'
