"""Compare runs: learning curves and a table of scores.

    python3 -m agents.scripts.plot --logdir=FOLDER --outdir=FOLDER

Runs in the folder and below it are grouped by config, seeds together. For each task a figure (PNG
and SVG) is written, and scores.md and scores.csv. Runs may still be going on.
"""

import csv
import dataclasses
import io
import math
import pathlib
import re
import sys
from collections.abc import Sequence
from typing import Any

from agents.algorithms.hyperparameters import field
from agents.scripts import flags, runs, scores
from agents.scripts.mistakes import UserError


@dataclasses.dataclass(frozen=True, kw_only=True)
class Arguments:
    """Flags."""

    logdir: str = field('', 'Folder with runs in it or below it, or of one run.')
    outdir: str = field('', 'Where to write; made if it is not there.')

    def __post_init__(self) -> None:
        """Check that all are given."""
        for name in ('logdir', 'outdir'):
            if not getattr(self, name):
                raise UserError(f'--{name} must be given. --help shows all flags.')


def main(argv: Sequence[str] | None = None) -> int:
    """Compare runs as a command line says.

    Args:
        argv: Flags; by default those of the process.

    Returns:
        Exit code: 0, or 2 for a mistake of the user.
    """
    try:
        given = flags.parse(sys.argv[1:] if argv is None else argv, Arguments)
        if given.pop('help', False):
            print(flags.describe(__doc__, Arguments(logdir='FOLDER', outdir='FOLDER')))
            return 0
        arguments = Arguments(**given)
        groups = read_groups(arguments.logdir)
        outdir = pathlib.Path(arguments.outdir).expanduser().absolute()
        try:
            write(groups, outdir)
        except OSError as error:
            raise UserError(f'The results must be writable: {error}.') from None
    except UserError as error:
        print(f'plot: error: {error}', file=sys.stderr)
        return 2
    return 0


def read_groups(logdir: str) -> list[scores.Group]:
    """Read the runs below a folder, and say which ones are left out.

    Raises:
        UserError: There is no run with an evaluation, or a file is damaged.
    """
    histories = [scores.read(run) for run in scores.find(logdir)]
    for history in histories:
        if not len(history.evaluation.step):
            print(f'Left out, as it has no evaluation yet: {history.run.folder}')
    evaluated = [history for history in histories if len(history.evaluation.step)]
    if not evaluated:
        raise UserError(f'A run must have an evaluation, but none below {logdir} has one yet.')
    repeats = scores.find_repeats(evaluated)
    for run in sorted(repeats, key=lambda run: run.folder):
        print(f'Left out, as another run with its config has its seed: {run.folder}')
    return scores.group([history for history in evaluated if history.run not in repeats])


def write(groups: Sequence[scores.Group], outdir: pathlib.Path) -> None:
    """Write figures and tables, and print what they say.

    Args:
        groups: What to compare.
        outdir: Where to write; made if it is not there.

    Raises:
        OSError: It cannot be written.
    """
    from agents.scripts import curves  # Not above: matplotlib takes half a second.

    outdir.mkdir(parents=True, exist_ok=True)
    rows = scores.tabulate(groups)
    table = to_markdown(rows)
    runs.write_atomically(outdir / 'scores.md', table)
    runs.write_atomically(outdir / 'scores.csv', to_csv(rows))
    written = ['scores.md', 'scores.csv']
    for task in dict.fromkeys(group.env for group in groups):
        figure = curves.draw_groups([group for group in groups if group.env == task], task)
        for kind in ('png', 'svg'):
            name = f'{re.sub("[^A-Za-z0-9.-]+", "-", task)}.{kind}'
            figure.savefig(outdir / name, dpi=150)
            written.append(name)
    print(table)
    print(f'Written to {outdir}: {", ".join(written)}')


def to_markdown(rows: Sequence[dict[str, Any]]) -> str:
    """Write a table for people.

    Args:
        rows: As of `scores.tabulate`.
    """
    lines = [
        '| group | task | runs | steps | score, IQM | 95 % interval | mean ± std | best | minutes '
        '| steps/s |',
        '|---|---|--:|--:|--:|--:|--:|--:|--:|--:|',
    ]
    for row in rows:
        count = str(row['runs'])
        if row['unfinished']:
            count += f' ({row["unfinished"]} unfinished)'
        interval = '' if math.isnan(row['low']) else f'{row["low"]:,.2f} … {row["high"]:,.2f}'
        deviation = '' if math.isnan(row['std']) else f' ± {row["std"]:,.2f}'
        cells = (
            row['group'],
            row['task'],
            count,
            f'{row["steps"]:,}',
            f'{row["iqm"]:,.2f}',
            interval,
            f'{row["mean"]:,.2f}{deviation}',
            f'{row["best"]:,.2f}',
            f'{row["seconds"] / 60:,.1f}',
            '' if math.isnan(row['steps_per_second']) else f'{row["steps_per_second"]:,.0f}',
        )
        lines.append(f'| {" | ".join(cells)} |')
    return '\n'.join(lines) + '\n'


def to_csv(rows: Sequence[dict[str, Any]]) -> str:
    """Write a table for programs, with all digits; empty cells stand for what is not known.

    Args:
        rows: As of `scores.tabulate`.
    """
    file = io.StringIO()
    writer = csv.DictWriter(file, list(rows[0]), lineterminator='\n')
    writer.writeheader()
    for row in rows:
        known = {name: '' if value != value else value for name, value in row.items()}
        writer.writerow(known)
    return file.getvalue()


if __name__ == '__main__':
    sys.exit(main())
