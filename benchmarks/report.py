"""The table that is printed and kept."""

import datetime
import importlib.metadata
import inspect
import os
import pathlib
import platform
from collections.abc import Callable, Mapping, Sequence

import agents
from benchmarks.contest import Figures, Line, Options
from benchmarks.stepping import usable_cores

PACKAGES = ('tensorflow', 'keras', 'gymnasium', 'numpy', 'stable-baselines3', 'torch')
COLUMNS = ('what', 'agents', 'peer', "peer's", 'ratio', 'wanted', 'met', 'spread')


def header(options: Options, lines: Mapping[Callable, Sequence[Line]]) -> str:
    """Say what was measured, where and with which versions.

    Args:
        options: How much was measured.
        lines: Results of each row.
    """
    rows = ' '.join(function.__name__ for function in lines)
    flags = f'{" --quick" if options.quick else ""} --repeats {options.repeats}'
    load = f', load {os.getloadavg()[0]:.1f}' if hasattr(os, 'getloadavg') else ''
    versions = [f'agents {agents.__version__}', f'Python {platform.python_version()}']
    versions += [f'{name} {_version(name)}' for name in PACKAGES]
    return '\n'.join(
        [
            '# Results',
            '',
            f'- `python3 -m benchmarks {rows}{flags}`, {datetime.date.today()}',
            f'- {_processor()}, {usable_cores()} usable cores, {platform.system()} '
            f'{platform.machine()}',
            f'- {", ".join(versions)}',
        ]
    ) + load


def table(lines: Sequence[Line]) -> str:
    """Write results as a Markdown table that is readable as plain text too.

    Args:
        lines: Results, one for each line of the table.
    """
    cells = [COLUMNS, *map(_cells, lines)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    rule = ['-' * width for width in widths]
    return '\n'.join(
        f'| {" | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))} |'
        for row in (cells[0], rule, *cells[1:])
    )
