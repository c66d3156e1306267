"""Measure against peers and print one table: python3 -m benchmarks [ROW ...]."""

import argparse
import json
import os
import pathlib
import sys
from collections.abc import Callable, Sequence

from benchmarks import (
    acting,
    chart,
    compiled,
    pool,
    scaling,
    solving,
    startup,
    stepping,
    training,
    updating,
)
from benchmarks.contest import Line, Options
from benchmarks.report import as_data, report

# A row is a function from how much to measure to lines of the table; its docstring is printed.
ROWS: dict[str, Callable[[Options], list[Line]]] = {
    function.__name__: function
    for function in (
        stepping.stepping,
        acting.acting,
        training.training,
        updating.updating,
        solving.solving,
        scaling.scaling,
        startup.startup,
        startup.first_score,
        compiled.compiled_stepping,
        compiled.compiled_training,
        compiled.compiled_solve,
        pool.envpool,
    )
}


def main(argv: Sequence[str] | None = None) -> int:
    """Measure what a command line says.

    Args:
        argv: Flags; by default those of the process.

    Returns:
        Exit code: 1 if something could not be measured, a missing peer excepted.
    """
    args = parse(argv)
    options = Options(args.repeats or (1 if args.quick else 3), args.quick)
    results = {}
    before = load()
    for name in args.rows or ROWS:
        print(name, file=sys.stderr, flush=True)
        results[ROWS[name]] = ROWS[name](options)
    text = report(options, results, (before, load()))
    print(text)
    if args.outdir:
        args.outdir.mkdir(parents=True, exist_ok=True)
        (args.outdir / 'results.md').write_text(text, encoding='utf-8')
        data = json.dumps(as_data(options, results), indent=2, ensure_ascii=False)
        (args.outdir / 'results.json').write_text(data + '\n', encoding='utf-8')
        chart.draw([x for lines in results.values() for x in lines], args.outdir / 'results.png')
    return int(any(line.failed for lines in results.values() for line in lines))


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """Read flags; a mistake among them ends the process.

    Args:
        argv: Flags; by default those of the process.
    """
    parser = argparse.ArgumentParser(prog='python3 -m benchmarks', description=__doc__)
    parser.add_argument('rows', nargs='*', help=f'Rows, all by default: {", ".join(ROWS)}.')
    parser.add_argument('--quick', action='store_true', help='Measure for a shorter time.')
    parser.add_argument(
        '--repeats', type=int, help='Figures of which each is the median, default 3; quick 1.'
    )
    parser.add_argument(
        '--write',
        dest='outdir',
        action='store_const',
        const=pathlib.Path(__file__).parent,
        help='Write results.md, results.json and results.png to benchmarks/ as well.',
    )
    parser.add_argument(
        '--outdir', type=pathlib.Path, help='Write those files to this folder instead.'
    )
    args = parser.parse_args(argv)
    unknown = [name for name in args.rows if name not in ROWS]
    if unknown:
        parser.error(f'There is no row {unknown[0]!r}. There are: {", ".join(ROWS)}.')
    if args.repeats is not None and args.repeats < 1:
        parser.error(f'Repeats must be at least 1, got repeats={args.repeats}.')
    return args


def load() -> float:
    """Load average of the last minute, NaN where the system does not tell."""
    return os.getloadavg()[0] if hasattr(os, 'getloadavg') else float('nan')


if __name__ == '__main__':
    sys.exit(main())
