"""Train what is to be measured, one run after another, each in a process of its own."""

import dataclasses
import datetime
import pathlib
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

import agents
from agents.scripts import configs, flags, runs
from agents.scripts.config import Config
from agents.scripts.mistakes import UserError
from agents.scripts.scores import History, read
from benchmarks import alone, report
from benchmarks.scores import tables
from benchmarks.stepping import usable_cores

PACKAGES = ('gymnasium', 'mujoco', 'tensorflow')


@dataclasses.dataclass(frozen=True)
class Job:
    """A run to make.

    Attributes:
        key: What it is.
        config: What it trains.
        changes: Settings besides the config's, as NAME=VALUE.
    """

    key: tables.Key
    config: Config
    changes: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """What the run folder is called; of other settings it is another one."""
        return f'{self.key.objective}-{self.key.seed}-{self.key.digest}'

    def command(self, logdir: pathlib.Path) -> list[str]:
        """Return the command line that begins the run, or goes on with it.

        Args:
            logdir: Where run folders are.
        """
        return [
            *(sys.executable, '-m', 'agents.scripts.train', f'--logdir={logdir}'),
            *(f'--timestamp={self.name}', f'--config={self.key.config}'),
            *(f'--objective={self.key.objective}', f'--seed={self.key.seed}'),
            *(f'--{change}' for change in self.changes),
        ]


def plan(
    names: Sequence[str],
    objectives: Sequence[str],
    seeds: int,
    changes: Sequence[str],
    known: Mapping[str, Mapping[str, Any]],
) -> list[Job]:
    """Put runs in order: first seed 0 of everything, so that a part of them is balanced.

    Args:
        names: Names of configs.
        objectives: Objectives of each.
        seeds: How many of each.
        changes: Settings besides the configs', as NAME=VALUE.
        known: Settings that were measured, by digest.

    Raises:
        UserError: There is no such config or setting.
    """
    given = _parse(changes)
    written = tuple(f'{name}={flags.to_text(value)}' for name, value in sorted(given.items()))
    jobs = []
    for seed in range(seeds):
        for name in names:
            for objective in objectives:
                config = make_config(name, objective, changes)
                key = tables.Key(name, objective, seed, tables.digest(config, known))
                jobs.append(Job(key, dataclasses.replace(config, seed=seed), written))
    return jobs


def make_config(name: str, objective: str, changes: Sequence[str] = ()) -> Config:
    """Return a config with an objective and changed settings.

    Args:
        name: Name of the config.
        objective: clip or kl_penalty.
        changes: Settings besides the config's, as NAME=VALUE.

    Raises:
        UserError: There is no such config or setting.
    """
    return dataclasses.replace(configs.get(name), **_parse(changes), objective=objective)


def train(job: Job, logdir: pathlib.Path, deadline: float) -> bool:
    """Train until the run is finished or the time is up; a later call goes on.

    Args:
        job: What to train.
        logdir: Where run folders are.
        deadline: When the time is up, as of `time.monotonic`.

    Returns:
        Whether it ended by itself.

    Raises:
        RuntimeError: The run failed; the message says why.
    """
    if time.monotonic() >= deadline:
        return False
    logdir.mkdir(parents=True, exist_ok=True)
    output = logdir / f'{job.key.config}-{job.name}.txt'
    with output.open('w') as file:
        process = subprocess.Popen(
            job.command(logdir),
            stdout=file,
            stderr=subprocess.STDOUT,
            env=alone.environ(),
            start_new_session=True,  # Ctrl-C is this process's, which then ends the training.
        )
        stopped = False
        try:
            process.wait(deadline - time.monotonic())
        except subprocess.TimeoutExpired:
            stopped = True
        finally:
            process.terminate()  # It saves a checkpoint; nothing happens if it has ended.
            process.wait()
    code = process.returncode
    # The latter before it has taken charge of signals.
    if stopped and code in (128 + signal.SIGTERM, -signal.SIGTERM):
        return False
    if code:
        lines = [line for line in output.read_text(errors='replace').splitlines() if line.strip()]
        raise RuntimeError(f'exit code {code}: {lines[-1].strip() if lines else "no output"}')
    return True


def find(job: Job, logdir: pathlib.Path) -> History | None:
    """Return what a run has recorded if it is finished, None if it is not.

    Args:
        job: What it trained.
        logdir: Where run folders are.

    Raises:
        UserError: A file of the run is damaged.
    """
    run = runs.find(str(logdir), job.name, job.key.config)
    history = read(run) if run else None
    return history if history and history.finished else None


def describe(job: Job, history: History | None, problem: str = '') -> tuple[tables.Row, np.ndarray]:
    """Return what came of a run, and its curve.

    Args:
        job: What it trained.
        history: What it has recorded; None if it failed.
        problem: Why it failed.

    Returns:
        A row, and steps and scores of evaluations, float64 [N, 2].
    """
    counted = tables.settings(job.config)
    changes = [change for change in job.changes if change.partition('=')[0] in counted]
    numbers: dict[str, Any] = {}
    points = np.zeros((0, 2))
    if history:
        curve = history.evaluation
        points = np.stack([curve.step, curve.score], 1)
        numbers = {
            'steps': int(curve.step[-1]),
            'score': round(float(curve.score[-1]), 4),
            'std': round(float(curve.std[-1]), 4),
            'maximum': round(float(curve.score.max()), 4),
            'seconds': round(float(curve.seconds[-1]), 1),
            'steps_per_second': round(history.speed, 1),
        }
    row = tables.Row(
        **job.key._asdict(),
        env=job.config.env,
        flags=shlex.join(changes),
        problem=problem,
        commit=' '.join(filter(None, (agents.__version__, commit()))),
        date=str(datetime.date.today()),
        machine=f'{report.processor()}, {usable_cores()} cores',
        versions=', '.join(f'{name} {report.version(name)}' for name in PACKAGES),
        **numbers,
    )
    return row, points


def commit() -> str:
    """Return the short hash of this checkout's commit, with + if `agents` differs from it."""
    if not (alone.ROOT / '.git').exists() or not shutil.which('git'):
        return ''
    head, changed = (
        subprocess.run(
            ['git', *words], cwd=alone.ROOT, check=True, capture_output=True, text=True
        ).stdout.strip()
        for words in (('rev-parse', '--short', 'HEAD'), ('status', '--porcelain', '--', 'agents'))
    )
    return head + '+' * bool(changed)


def _parse(changes: Sequence[str]) -> dict[str, Any]:
    given = flags.parse([f'--{change}' for change in changes], Config)
    for own in ('objective', 'seed'):
        if own in given:
            raise UserError(f'{own} must be given by --{own}s, not by --set {own}={given[own]}.')
    return given
