"""Train all configs over several seeds, and write the page of final scores.

    python3 -m benchmarks.scores --logdir=DIR [--configs NAME,NAME] [--seeds N] [--minutes M]
    python3 -m benchmarks.scores --page

What is finished is not run again, and what was stopped goes on; so a long measurement can be cut
into short calls. Writes docs/results.md, and scores.csv, curves.csv, configs.json and pictures in
docs/results. The exit code is 1 if a run failed.
"""

import argparse
import pathlib
import sys
import time
from collections.abc import Sequence

from agents.scripts import configs, signals
from agents.scripts.mistakes import UserError
from benchmarks import alone
from benchmarks.scores import page, tables, targets, training


def main(argv: Sequence[str] | None = None) -> int:
    """Measure as a command line says.

    Args:
        argv: Flags; by default those of the process.

    Returns:
        Exit code: 1 if a run failed, 2 for a mistake of the user, or 128 plus the number of a
        signal.
    """
    args = parse(argv)
    folder = args.outdir / 'results'
    failed = False
    with signals.handled():
        try:
            if not args.page:
                jobs = training.plan(
                    *(args.configs, args.objectives, args.seeds, args.changes),
                    tables.read_known(folder),
                )
                failed = measure(jobs, args.logdir, folder, 60 * args.minutes)
            page.write(args.outdir)
        except UserError as error:
            print(f'scores: error: {error}', file=sys.stderr)
            return 2
        except signals.Stop as stop:
            print(f'{stop} The same command goes on.')
            return 128 + stop.signum
    return int(failed)


def measure(
    jobs: Sequence[training.Job], logdir: pathlib.Path, folder: pathlib.Path, seconds: float
) -> bool:
    """Make runs in their order, and write down what came of each.

    Args:
        jobs: What to train.
        logdir: Where run folders are.
        folder: Where the tables are.
        seconds: Time after which to stop.

    Returns:
        Whether a run failed.
    """
    deadline = time.monotonic() + seconds
    done = {row.key for row in tables.read_rows(folder) if not row.problem}
    waiting = [job for job in jobs if job.key not in done]
    print(f'{len(jobs) - len(waiting)} of {len(jobs)} runs are measured.', flush=True)
    left, failures = len(waiting), 0
    for job in waiting:
        history, problem = None, ''
        try:
            history = training.find(job, logdir)
            if not history and not training.train(job, logdir, deadline):
                continue
            history = history or training.find(job, logdir)
            problem = '' if history else 'it ended without the evaluation at the end'
        except (RuntimeError, UserError) as error:
            problem = str(error)
        row, points = training.describe(job, history, problem)
        tables.add(folder, row, points, job.config)
        failures += bool(problem)
        left -= not problem
        result = f'failed, {problem}' if problem else f'{row.score:,.2f} in {row.seconds:,.0f} s'
        print(f'{row.config}, {row.objective}, seed {row.seed}: {result}', flush=True)
    print(f'{left} runs are left, {failures} of them failed now.', flush=True)
    return failures > 0


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """Read flags; a mistake among them ends the process.

    Args:
        argv: Flags; by default those of the process.
    """
    parser = argparse.ArgumentParser(
        prog='python3 -m benchmarks.scores',
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    everything = [name for name in configs.TASKS if name != 'debug']
    parser.add_argument('--logdir', type=_path, help='For run folders.')
    parser.add_argument(
        '--configs', type=_names, default=everything, help='By default all but debug.'
    )
    parser.add_argument('--seeds', type=int, default=5, help='From 0 on, how many, default 5.')
    parser.add_argument(
        '--objectives',
        type=_names,
        default=targets.OBJECTIVES,
        help=f'Default {",".join(targets.OBJECTIVES)}.',
    )
    parser.add_argument('--minutes', type=float, default=30.0, help='When to stop, default 30.')
    parser.add_argument(
        '--set',
        dest='changes',
        nargs='+',
        default=[],
        metavar='NAME=VALUE',
        help='Settings besides those of the configs.',
    )
    parser.add_argument('--page', action='store_true', help='Only write the page.')
    parser.add_argument(
        '--outdir',
        type=_path,
        default=alone.ROOT / 'docs',
        help='Where results.md and the folder results are, default docs.',
    )
    args = parser.parse_args(argv)
    if not args.page and not args.logdir:
        parser.error('--logdir must be given, or --page.')
    if args.seeds < 1:
        parser.error(f'--seeds must be at least 1, got --seeds={args.seeds}.')
    return args


def _names(text: str) -> list[str]:
    return text.split(',')


def _path(text: str) -> pathlib.Path:
    return pathlib.Path(text).expanduser()


if __name__ == '__main__':
    sys.exit(main())
