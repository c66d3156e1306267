"""Read the scores of runs, group runs that differ by their seed, and summarise groups."""

import collections
import dataclasses
import functools
import json
import pathlib
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from agents.scripts import flags, runs
from agents.scripts.config import Config
from agents.scripts.mistakes import UserError

# Fewer say nothing about how far others would be.
LEAST_FOR_INTERVAL = 3

# More show nothing more in a figure, and resampling them would take gigabytes.
MOST_POINTS = 200

# Fields that do not make a run another experiment; threads change no more than rounding.
_SAME = runs.MAY_CHANGE | {'seed', 'threads'}


class Curve(NamedTuple):
    """What was recorded at some steps, each float64 [N].

    Attributes:
        step: Steps trained.
        seconds: Wall time of the run.
        score: Mean score.
        std: Standard deviation between the episodes of an evaluation, else 0.
    """

    step: np.ndarray
    seconds: np.ndarray
    score: np.ndarray
    std: np.ndarray


@dataclasses.dataclass(frozen=True)
class History:
    """What a run has recorded so far.

    Attributes:
        run: Its folder.
        config: Its config.
        train: Scores while training.
        evaluation: Scores of evaluations; of several at one step the last one.
        finished: Whether the last of them is that at the end.
        speed: Steps per second while training, the median, NaN if unknown.
    """

    run: runs.Run
    config: Config
    train: Curve
    evaluation: Curve
    finished: bool
    speed: float


@dataclasses.dataclass(frozen=True)
class Group:
    """Runs that differ by their seed at most.

    Attributes:
        label: Name of the config, with the fields in which it differs from others of that name.
        histories: The runs.
    """

    label: str
    histories: Sequence[History]

    @property
    def env(self) -> str:
        """Task of all runs."""
        return self.histories[0].config.env


class Summary(NamedTuple):
    """Interquartile mean over runs with its 95 % interval, each float64 [N].

    Attributes:
        middle: Interquartile mean.
        low: Lower end of the interval, NaN for fewer than three runs.
        high: Upper end.
    """

    middle: np.ndarray
    low: np.ndarray
    high: np.ndarray


def find(folder: str) -> list[runs.Run]:
    """Find the runs in a folder and below it, by name; the folder may be one itself.

    Raises:
        UserError: There is none.
    """
    base = pathlib.Path(folder).expanduser().absolute()
    # Both files: other programs have a config.yaml, too.
    paths = sorted(path.parent for path in base.rglob('metrics.jsonl'))
    paths = [path for path in paths if (path / 'config.yaml').is_file()]
    if not paths:
        raise UserError(
            f'Runs, folders with config.yaml and metrics.jsonl, must be in {base}, which has none. '
            'A run writes the latter with its first record.'
        )
    return [runs.open_folder(str(path)) for path in paths]


def read(run: runs.Run) -> History:
    """Read what a run has recorded so far, also while it goes on.

    Raises:
        UserError: A file is damaged.
    """
    records = list(read_lines(run.folder / 'metrics.jsonl'))
    train = [record for record in records if record['phase'] == 'train']
    # A later evaluation at the same step, as that at the end, counts instead.
    at_step = {record['step']: record for record in records if record['phase'] == 'eval'}
    evaluation = list(at_step.values())
    speeds = [x['steps_per_second'] for x in train if x.get('steps_per_second')]
    return History(
        run=run,
        config=runs.load_config(run),
        train=_curve(train),
        evaluation=_curve(evaluation),
        finished=bool(evaluation) and bool(evaluation[-1].get('final')),
        speed=_median(speeds),
    )


def find_repeats(histories: Sequence[History]) -> set[runs.Run]:
    """Find runs that repeat a seed of their group, besides the one that got furthest.

    They say nothing new: with them an interval would be too narrow, up to no width at all.

    Args:
        histories: Runs with at least one evaluation.
    """
    furthest: dict[Any, History] = {}
    for history in histories:
        key = (_experiment(history), history.config.seed)
        other = furthest.setdefault(key, history)
        if history.evaluation.step[-1] > other.evaluation.step[-1]:
            furthest[key] = history
    return {history.run for history in histories} - {x.run for x in furthest.values()}


def group(histories: Sequence[History]) -> list[Group]:
    """Group runs whose configs differ in nothing that matters, in order of their names."""
    groups = collections.defaultdict(list)
    for history in histories:
        groups[_experiment(history)].append(history)
    result = []
    for (name, items), members in groups.items():
        others = [dict(key[1]) for key in groups if key[0] == name]
        own = [f'{k}={v}' for k, v in items if any(other.get(k) != v for other in others)]
        result.append(Group(' '.join([name, *own]), members))
    return sorted(result, key=lambda group: (group.env, group.label))


def summarize(scores: np.ndarray) -> Summary:
    """Take the interquartile mean over runs, with a 95 % bootstrap interval.

    Runs are drawn again with replacement, from each task for itself where there are several; here a
    group has one. The random generator is seeded, so that equal scores give equal intervals.

    Args:
        scores: Scores, float64 [runs, N].

    Source:
        Agarwal et al. 2021, "Deep Reinforcement Learning at the Edge of the Statistical
        Precipice". Their library has had no release since 2024; SciPy has what it takes.
    """
    import scipy.stats  # Not above: it takes longer than the rest of the command.

    iqm = functools.partial(scipy.stats.trim_mean, proportiontocut=0.25)
    middle = iqm(scores, axis=0)
    if len(scores) < LEAST_FOR_INTERVAL:
        unknown = np.full(middle.shape, np.nan)
        return Summary(middle, unknown, unknown)
    interval = scipy.stats.bootstrap(
        (scores,), iqm, n_resamples=2000, batch=200, axis=0, method='percentile', rng=0
    ).confidence_interval
    return Summary(middle, interval.low, interval.high)


def align(histories: Sequence[History], axis: str) -> tuple[np.ndarray, np.ndarray]:
    """Bring the evaluations of several runs to common points, by linear interpolation.

    They lie where all runs have a score: a mean over fewer runs would jump, and a score before the
    first or after the last evaluation would be made up. A finished run, though, keeps its last
    score: against wall time, as that is what it has from then on, and against steps if it was to
    stop at a score, or else the group would end where its quickest run did.

    Args:
        histories: Runs with at least one evaluation.
        axis: 'step' or 'seconds'.

    Returns:
        Points [N], and scores [runs, N]; N is 0 if the runs have no point in common.
    """
    curves = [history.evaluation for history in histories]
    positions = [getattr(curve, axis) for curve in curves]
    ends = [
        x[-1] for x, history in zip(positions, histories, strict=True) if not _keeps(history, axis)
    ]
    end = min(ends) if ends else max(x[-1] for x in positions)
    start = max(x[0] for x in positions)
    points = np.unique(np.concatenate(positions))
    points = points[(points >= start) & (points <= end)]
    if len(points) > MOST_POINTS:
        points = np.linspace(points[0], points[-1], MOST_POINTS)
    scores = [np.interp(points, x, curve.score) for x, curve in zip(positions, curves, strict=True)]
    return points, np.array(scores)


def tabulate(groups: Sequence[Group]) -> list[dict[str, Any]]:
    """Describe the last scores of groups.

    Returns:
        Rows of plain numbers and texts; scores are those at the end, or the last ones of runs that
        still go on, whose number is in `unfinished`. `std` is that of a sample, NaN for one run.
    """
    rows = []
    for members in groups:
        histories = members.histories
        last = np.array([history.evaluation.score[-1] for history in histories])
        summary = summarize(last[:, None])
        rows.append(
            {
                'group': members.label,
                'task': members.env,
                'runs': len(histories),
                'unfinished': sum(not history.finished for history in histories),
                'steps': int(np.median([history.evaluation.step[-1] for history in histories])),
                'iqm': float(summary.middle[0]),
                'low': float(summary.low[0]),
                'high': float(summary.high[0]),
                'mean': float(last.mean()),
                'std': float(last.std(ddof=1)) if len(last) > 1 else float('nan'),
                'best': float(max(history.evaluation.score.max() for history in histories)),
                'seconds': float(np.median([h.evaluation.seconds[-1] for h in histories])),
                'steps_per_second': _median([h.speed for h in histories]),
            }
        )
    return rows


def _experiment(history: History) -> tuple[str, tuple[tuple[str, str], ...]]:
    """Return the name and the fields, as text, that the runs of a group share."""
    config = history.config
    # Steps say only how long, unless the learning rate falls over all of them.
    same = _SAME - {'steps'} if config.decay_learning_rate else _SAME
    values = ((name, value) for name, value in vars(config).items() if name not in same)
    return history.run.name, tuple((name, flags.to_text(value)) for name, value in values)


def _keeps(history: History, axis: str) -> bool:
    """Return whether a run's last score stands for all that comes after it."""
    return history.finished and (axis == 'seconds' or history.config.stop_at_score is not None)


def _median(values: Sequence[float]) -> float:
    """Return the median of those that are known, NaN if none is."""
    known = [value for value in values if not np.isnan(value)]
    return float(np.median(known)) if known else float('nan')


def read_lines(path: pathlib.Path) -> Iterator[dict[str, Any]]:
    """Read records of metrics; the last line may be half written.

    Args:
        path: A run's metrics.jsonl; nothing is in it if it does not exist.

    Raises:
        UserError: The file cannot be read, or a line is no record.
    """
    try:
        lines = path.read_bytes().split(b'\n') if path.exists() else []
    except OSError as error:
        raise UserError(f'The file of a run must be readable: {error}.') from None
    for number, line in enumerate(lines[:-1], 1):
        try:
            record = json.loads(line)
        except ValueError:
            record = None
        if not _is_record(record):
            raise UserError(f'Each line must be a record of metrics, got line {number} of {path}.')
        yield record


def _is_record(record: Any) -> bool:
    if not isinstance(record, dict) or not {'phase', 'step', 'score', 'seconds'} <= record.keys():
        return False
    unknown = record['score'] is None  # NaN is written as null.
    numbers = [record['step'], record['seconds'], 0.0 if unknown else record['score']]
    return all(isinstance(number, int | float) for number in numbers)


def _curve(records: Sequence[dict[str, Any]]) -> Curve:
    """Collect the records that have a score: none ends while no episode does."""
    scored = [record for record in records if record['score'] is not None]
    columns = ('step', 'seconds', 'score', 'score_std')
    return Curve(*(np.array([x.get(name, 0.0) for x in scored], np.float64) for name in columns))
