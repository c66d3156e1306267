"""Whole runs whose workers are killed."""

import contextlib
import io
import json
import math
import pathlib
import re
import sys

import pytest
import tensorflow as tf
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from agents.scripts import train
from agents.tools.wrappers import WorkerError, restarting_batch

WRAPPER = """
import os
import pathlib
import signal

import gymnasium


class Fragile(gymnasium.Wrapper):
    '''Kills its process in its 120th step, once for each file `kill*`; `broken` breaks it.'''

    def __init__(self, env, folder):
        super().__init__(env)
        self.folder, self.count = pathlib.Path(folder), 0
        if (self.folder / 'broken').exists():
            raise ZeroDivisionError('cannot be made')

    def step(self, action):
        self.count += 1
        for fuse in self.folder.glob('kill*') if self.count == 120 else ():
            try:
                fuse.unlink()
            except FileNotFoundError:  # The other process was faster.
                continue
            if fuse.name == 'kill-and-break':
                (self.folder / 'broken').touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return super().step(action)
"""


@pytest.fixture
def argv(tmp_path, monkeypatch):
    (tmp_path / 'fragile.py').write_text(WRAPPER)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, 'path', list(sys.path))
    monkeypatch.setattr(restarting_batch, 'PAUSES', (0.0,) * 4)
    yield [
        '--config=debug',
        '--compile=off',
        '--num_workers=2',
        '--wrappers=[fragile:Fragile: {folder: .}]',
        f'--logdir={tmp_path}/logs',
        '--timestamp=a',
    ]
    sys.modules.pop('fragile', None)


def run(*argv):
    """Train, and return the exit code, what was printed, and the lines of metrics."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        code = train.main(argv)
    text = pathlib.Path('logs/a-debug/metrics.jsonl').read_text()
    return code, out.getvalue(), [json.loads(line) for line in text.splitlines()]


def test_a_run_whose_workers_are_killed_ends_well_and_counts_them(argv):
    for number in range(3):
        pathlib.Path(f'kill{number}').touch()
    code, out, metrics = run(*argv, '--steps=2048')
    assert code == 0
    assert not list(pathlib.Path().glob('kill*'))
    assert out.count(' was ended by SIGKILL') == 3
    assert len(re.findall('^Restarting environments', out, re.MULTILINE)) == 3
    failures = [line['worker_failures'] for line in metrics]
    assert failures == sorted(failures) and failures[-1] == 3
    assert metrics[-1]['final'] and math.isfinite(metrics[-1]['score'])
    # Both environments of a worker lost one row, unless it was one of an evaluation.
    assert metrics[-1]['step'] in (2048, 2046, 2044, 2042)
    events = EventAccumulator('logs/a-debug/eval').Reload()
    assert tf.make_ndarray(events.Tensors('worker_failures')[-1].tensor_proto) == 3
    # A run that goes on counts on.
    pathlib.Path('kill').touch()
    _, _, metrics = run(*argv, '--steps=4096')
    assert metrics[-1]['worker_failures'] == 4


def test_a_run_that_gives_up_saves_a_checkpoint_and_names_the_cause(argv):
    pathlib.Path('kill-and-break').touch()
    with pytest.raises(WorkerError, match='failed 5 times') as info:
        run(*argv, '--checkpoint_every=0', '--eval_every=0')
    assert isinstance(info.value.__cause__, ZeroDivisionError)
    # The third rollout of 32 steps of 4 environments is left out of it, for it did not end.
    assert pathlib.Path('logs/a-debug/checkpoints/step-384.index').exists()
    pathlib.Path('broken').unlink()
    code, out, metrics = run(*argv)
    assert code == 0 and 'Going on at step 384.' in out
    assert metrics[-1]['worker_failures'] == 5


def test_failures_end_a_run_that_asks_for_it(argv):
    pathlib.Path('kill').touch()
    with pytest.raises(WorkerError, match='SIGKILL'):
        run(*argv, '--on_worker_failure=raise')
