"""The table that is printed and kept."""

import dataclasses
import datetime
import importlib.metadata
import inspect
import pathlib
import platform
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import agents
from benchmarks.contest import Figures, Line, Options, number
from benchmarks.stepping import usable_cores

PACKAGES = (
    *('tensorflow', 'keras', 'gymnasium', 'numpy', 'stable-baselines3', 'torch'),
    *('jax', 'gymnax', 'sbx-rl', 'envpool', 'mujoco', 'ale-py'),
)
COLUMNS = ('what', 'agents', 'peer', "peer's figure", 'ratio', 'wanted', 'met', 'spread')
LEGEND = """Figures are medians of the repeats, in which the contenders take turns. The ratio says
how many times better than the peer this project is. The spread is (largest - smallest) / median,
of this project / of the peer."""
NOTHING = '—'


def report(
    options: Options, results: Mapping[Callable, Sequence[Line]], load: tuple[float, float]
) -> str:
    """Write everything as Markdown that is readable as plain text too.

    Args:
        options: How much was measured.
        results: Lines of each row's function, whose docstring says what was measured.
        load: Load average of the machine before and after.
    """
    lines = [line for lines in results.values() for line in lines]
    rows = [f'**{row.__name__}**: {inspect.getdoc(row)}' for row in results]
    sections = ['# Results', _header(options, results, load), table(lines), LEGEND, *rows]
    return '\n\n'.join(sections) + '\n'


def as_data(options: Options, results: Mapping[Callable, Sequence[Line]]) -> dict[str, Any]:
    """Return everything that was measured as plain data, every single figure included.

    Args:
        options: How much was measured.
        results: Lines of each row's function.
    """
    rows = [
        {
            'row': row.__name__,
            **dataclasses.asdict(line),
            'ratio': line.ratio,
            'met': line.met,
        }
        for row, lines in results.items()
        for line in lines
    ]
    versions = {name: version(name) for name in PACKAGES}
    return {
        'date': str(datetime.date.today()),
        'processor': processor(),
        'cores': usable_cores(),
        'python': platform.python_version(),
        'versions': {'agents': agents.__version__, **versions},
        'options': dataclasses.asdict(options),
        'lines': rows,
    }


def table(lines: Sequence[Line]) -> str:
    """Write lines as a table of which the columns stand below each other.

    Args:
        lines: What was measured.
    """
    cells = [COLUMNS, *map(_cells, lines)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    cells.insert(1, tuple('-' * width for width in widths))
    return '\n'.join(
        f'| {" | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))} |'
        for row in cells
    )


def _header(
    options: Options, results: Mapping[Callable, Sequence[Line]], load: tuple[float, float]
) -> str:
    """Say how it was measured, on which machine and with which versions."""
    rows = ' '.join(row.__name__ for row in results)
    quick = ' --quick' if options.quick else ''
    versions = [f'agents {agents.__version__}', f'Python {platform.python_version()}']
    versions += [f'{name} {version(name)}' for name in PACKAGES]
    return '\n'.join(
        [
            f'- {datetime.date.today()}: `python3 -m benchmarks {rows}{quick} '
            f'--repeats {options.repeats}`',
            f'- {processor()}, {usable_cores()} usable cores, {platform.system()} '
            f'{platform.machine()}; load average {load[0]:.1f} before and {load[1]:.1f} after',
            f'- {", ".join(versions)}',
        ]
    )


def _cells(line: Line) -> tuple[str, ...]:
    wanted = NOTHING
    if line.ratio_wanted is not None:
        wanted = f'≥ {number(line.ratio_wanted)} ×'
    if line.below is not None:
        wanted = f'< {number(line.below)} {line.unit}'
    return (
        f'{line.what}, {line.unit}',
        _figure(line.ours),
        line.peer.name if line.peer else NOTHING,
        _figure(line.peer) if line.peer else NOTHING,
        NOTHING if line.ratio is None else f'{number(line.ratio)} ×',
        wanted,
        {True: 'yes', False: 'no', None: NOTHING}[line.met],
        ' / '.join(_spread(figures) for figures in (line.ours, line.peer) if figures),
    )


def _figure(figures: Figures) -> str:
    return figures.problem or number(figures.median)


def _spread(figures: Figures) -> str:
    alone = figures.problem or len(figures.values) < 2
    return NOTHING if alone else f'{figures.spread:.0%}'


def version(package: str) -> str:
    """Return the version of a package that is installed, or 'missing'."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return 'missing'


def processor() -> str:
    """Return the name of this machine's processor."""
    path = pathlib.Path('/proc/cpuinfo')
    name = re.search(r'model name\s*: (.+)', path.read_text()) if path.exists() else None
    return name[1].strip() if name else platform.processor() or 'unknown processor'
