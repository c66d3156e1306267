"""Runs sorted by what they trained."""

import dataclasses
import pathlib
import shlex
from collections.abc import Mapping, Sequence

import numpy as np

from agents.scripts import configs
from agents.scripts.config import Config
from agents.scripts.mistakes import UserError
from benchmarks import intervals
from benchmarks.scores import tables, targets, training
from benchmarks.scores.tables import Row
from benchmarks.scores.targets import OBJECTIVES, Target


@dataclasses.dataclass(frozen=True)
class Entry:
    """What is known of a config, or of a config with changed settings.

    Attributes:
        name: Name of the config.
        flags: Changed settings, as text.
        config: What is trained, with either objective.
        rows: Runs by objective; failed ones among them.
        curves: Curves of the runs that did not fail, by objective.
    """

    name: str
    flags: str
    config: Config
    rows: Mapping[str, Sequence[Row]]
    curves: Mapping[str, Sequence[np.ndarray]]

    @property
    def label(self) -> str:
        """Name with the changed settings."""
        return f'{self.name} {self.flags}'.strip()

    @property
    def task(self) -> str:
        """Id of the environment, without the module that registers it."""
        return self.config.env.rpartition(':')[2]

    @property
    def family(self) -> str:
        """Which tasks it stands among."""
        return targets.family(self.name, self.config)

    @property
    def targets(self) -> list[Target]:
        """What is wanted."""
        return targets.find(self.name, self.config)

    @property
    def wanted_score(self) -> float | None:
        """Score that is wanted, None for none."""
        return self.targets[0].score if self.targets else None

    def finished(self, objective: str) -> list[Row]:
        """Return the runs that did not fail."""
        return [row for row in self.rows[objective] if not row.problem]

    def middle(self, objective: str) -> float:
        """Return the interquartile mean of the scores, NaN for no run."""
        scores = [row.score for row in self.finished(objective)]
        return float(intervals.interquartile_mean(scores)) if scores else float('nan')


def read(folder: pathlib.Path) -> tuple[list[Entry], list[Row]]:
    """Sort runs by what they trained.

    Args:
        folder: Where the tables are.

    Returns:
        An entry for each config, also for those without runs, and for each config with changed
        settings that has some; and the rows whose settings the configs don't have any more.
    """
    rows, curves = tables.read_rows(folder), tables.read_curves(folder)
    known = tables.read_known(folder)
    wanted = {(name, '') for name in configs.TASKS if name != 'debug'}
    wanted |= {(row.config, row.flags) for row in rows}
    entries, used = [], set()
    for name, flags in sorted(wanted):
        members, lines = {}, {}
        for objective in OBJECTIVES:
            try:
                config = training.make_config(name, objective, shlex.split(flags))
            except UserError:  # A config or a setting that is no more: its rows are stale.
                break
            digest = tables.digest(config, known)
            members[objective] = [
                row
                for row in rows
                if (row.config, row.objective) == (name, objective) and row.digest == digest
            ]
            lines[objective] = [curves[row.key] for row in members[objective] if not row.problem]
        else:
            found = {row.key for group in members.values() for row in group}
            if found or not flags:
                entries.append(Entry(name, flags, config, members, lines))
            used |= found
    return entries, [row for row in rows if row.key not in used]
