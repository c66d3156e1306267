"""The files that hold what was measured: scores.csv, curves.csv and configs.json."""

import csv
import dataclasses
import hashlib
import io
import json
import math
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from agents.scripts import runs
from agents.scripts.config import Config, annotations

# Fields that change nothing in a score.
_FREE = frozenset(
    (
        *('seed', 'num_workers', 'worker_timeout', 'on_worker_failure'),
        *('log_every', 'histograms_every', 'video_every', 'checkpoint_every'),
    )
)
MOST_POINTS = 50  # Of a curve: more show nothing more, and the file stays small.


class Key(NamedTuple):
    """What a run is.

    Attributes:
        config: Name of the config.
        objective: clip or kl_penalty.
        seed: Seed.
        digest: Of all settings that change a score.
    """

    config: str
    objective: str
    seed: int
    digest: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Row:
    """What came of a run; numbers are NaN if it failed.

    Attributes:
        config: Name of the config.
        env: Id of the environment.
        objective: clip or kl_penalty.
        seed: Seed.
        flags: Settings besides the config's, as text.
        digest: Of all settings that change a score.
        steps: Steps trained.
        score: Mean score of the evaluation at the end.
        std: Standard deviation between its episodes.
        maximum: Best mean score of an evaluation.
        seconds: Wall time of the run.
        steps_per_second: Of training alone, the median.
        problem: Why it failed, empty if it did not.
        commit: Version and commit of this package.
        date: When it ended.
        machine: Where it ran.
        versions: Of what it ran with.
    """

    config: str
    env: str
    objective: str
    seed: int
    flags: str
    digest: str
    steps: int = 0
    score: float = math.nan
    std: float = math.nan
    maximum: float = math.nan
    seconds: float = math.nan
    steps_per_second: float = math.nan
    problem: str = ''
    commit: str = ''
    date: str = ''
    machine: str = ''
    versions: str = ''

    @property
    def key(self) -> Key:
        """What the run is."""
        return Key(self.config, self.objective, self.seed, self.digest)


def settings(config: Config) -> dict[str, Any]:
    """Return all fields that change a score, as JSON can hold them."""
    plain = runs.to_plain(config)
    return {name: value for name, value in plain.items() if name not in _FREE}


def digest(config: Config, known: Mapping[str, Mapping[str, Any]]) -> str:
    """Name the settings of a config.

    Those that were measured keep their name when fields are added whose default changes nothing.

    Args:
        config: The config.
        known: Settings that were measured, by digest.
    """
    wanted, defaults = settings(config), settings(Config())
    for name, measured in known.items():
        if {**defaults, **measured} == wanted:
            return name
    text = json.dumps(wanted, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def read_rows(folder: pathlib.Path) -> list[Row]:
    """Read what came of the runs so far; empty if there is no file."""
    kinds = annotations(Row)
    return [
        Row(**{name: _parse(text, kinds[name]) for name, text in record.items()})
        for record in _read(folder / 'scores.csv')
    ]


def read_curves(folder: pathlib.Path) -> dict[Key, np.ndarray]:
    """Read the evaluations of the runs so far: steps and score, each float64 [N, 2]."""
    curves: dict[Key, list[tuple[float, float]]] = {}
    for x in _read(folder / 'curves.csv'):
        key = Key(x['config'], x['objective'], int(x['seed']), x['digest'])
        curves.setdefault(key, []).append((float(x['steps']), float(x['score'])))
    return {key: np.array(points) for key, points in curves.items()}


def read_known(folder: pathlib.Path) -> dict[str, dict[str, Any]]:
    """Read the settings that were measured, by digest; empty if there is no file."""
    path = folder / 'configs.json'
    return json.loads(path.read_text(encoding='utf-8')) if path.exists() else {}


def add(folder: pathlib.Path, row: Row, points: Sequence[Any], config: Config) -> None:
    """Write down what came of a run, in the place of an earlier try.

    Args:
        folder: Where the files are; made if it is not there.
        row: What came of it.
        points: Steps and score of its evaluations, [N, 2].
        config: What it trained.
    """
    folder.mkdir(parents=True, exist_ok=True)
    known = {row.digest: settings(config), **read_known(folder)}
    text = ',\n'.join(f'{json.dumps(x)}: {json.dumps(known[x])}' for x in sorted(known))
    runs.write_atomically(folder / 'configs.json', f'{{\n{text}\n}}\n')
    # The curve first: a run whose row is there is not looked at again.
    curves = {**read_curves(folder), row.key: thin(np.array(points).reshape(-1, 2))}
    lines = [
        {**key._asdict(), 'steps': int(steps), 'score': round(score, 3)}
        for key in sorted(curves)
        for steps, score in curves[key].tolist()
    ]
    _write(folder / 'curves.csv', [*Key._fields, 'steps', 'score'], lines)
    rows = {**{x.key: x for x in read_rows(folder)}, row.key: row}
    plain = [dataclasses.asdict(rows[key]) for key in sorted(rows)]
    _write(folder / 'scores.csv', [x.name for x in dataclasses.fields(Row)], plain)


def thin(points: np.ndarray) -> np.ndarray:
    """Leave out points of a long curve, evenly; the first and the last one stay."""
    if len(points) <= MOST_POINTS:
        return points
    return points[np.linspace(0, len(points) - 1, MOST_POINTS).round().astype(int)]


def _read(path: pathlib.Path) -> list[dict[str, str]]:
    if not path.exists():
        return []
    with path.open(encoding='utf-8', newline='') as file:
        return list(csv.DictReader(file))


def _write(path: pathlib.Path, names: Sequence[str], lines: Sequence[Mapping[str, Any]]) -> None:
    file = io.StringIO()
    writer = csv.DictWriter(file, names, lineterminator='\n')
    writer.writeheader()
    for line in lines:
        # NaN, which stands for nothing, is an empty cell.
        writer.writerow({name: '' if x != x else x for name, x in line.items()})
    runs.write_atomically(path, file.getvalue())


def _parse(text: str, kind: Any) -> Any:
    return kind(text) if text or kind is str else math.nan
