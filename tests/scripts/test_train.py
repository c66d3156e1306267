import contextlib
import dataclasses
import io
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import traceback

import gymnasium
import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from agents.scripts import configs, runs, train

FAST = ['--config=debug', '--compile=off']
TIMES = {
    'seconds',
    'steps_per_second',
    'simulate_seconds',
    'simulate_steps_per_second',
    'update_seconds',
    'update_steps_per_second',
}

TASK = """
import gymnasium
import numpy as np


class Counting(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(0, 1, (3,), np.float32)
    action_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)

    def __init__(self, reward=1.0, fail_at=0):
        self._reward = reward
        self._fail_at = fail_at
        self._count = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.np_random.random(3, np.float32), {}

    def step(self, action):
        self._count += 1
        if self._count == self._fail_at:
            raise OverflowError('my own failure')
        return self.np_random.random(3, np.float32), self._reward, False, False, {}


gymnasium.register('TrainCounting-v0', Counting, max_episode_steps=12)
"""

ALGORITHM = """
import tensorflow as tf


class Zero(tf.Module):
    failure_names = ()

    def __init__(self, observation_space, action_space, num_envs, config):
        super().__init__()
        self.count = tf.Variable(0.0)
        self.learning_rate = config.learning_rate

    def initial(self, num_envs):
        return ()

    def perform(self, obs, first, carry, seed, training):
        return tf.zeros(tf.shape(first), tf.int64), (), carry

    def experience(self, transition, extras):
        return transition.reward

    def update(self, records, last_obs, carry, seed):
        self.count.assign_add(1.0)
        return {'count': self.count.read_value(), 'rate': tf.constant(self.learning_rate)}
"""


@dataclasses.dataclass
class Result:
    code: int
    out: str
    err: str

    @property
    def folder(self):
        return pathlib.Path(re.search('^Run folder: (.*)$', self.out, re.MULTILINE)[1])

    @property
    def metrics(self):
        text = (self.folder / 'metrics.jsonl').read_text()
        lines = [json.loads(line) for line in text.splitlines()]
        return [{name: line[name] for name in line if name not in TIMES} for line in lines]

    @property
    def timestamp(self):
        return self.folder.name.removesuffix('-debug')


def run(*argv):
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = train.main(argv)
    return Result(code, out.getvalue(), err.getvalue())


@pytest.fixture
def modules(tmp_path, monkeypatch):
    (tmp_path / 'train_task.py').write_text(TASK)
    (tmp_path / 'train_algorithm.py').write_text(ALGORITHM)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, 'path', list(sys.path))
    yield
    sys.modules.pop('train_task', None)
    sys.modules.pop('train_algorithm', None)
    gymnasium.registry.pop('TrainCounting-v0', None)


@pytest.fixture(scope='module')
def finished(tmp_path_factory):
    return run(*FAST, f'--logdir={tmp_path_factory.mktemp("logs")}')


def steps(result, phase):
    return [line['step'] for line in result.metrics if line['phase'] == phase]


def snapshot(folder):
    return {path: path.stat().st_mtime_ns for path in sorted(folder.rglob('*')) if path.is_file()}


# Mistakes of the user.


@pytest.mark.parametrize(
    'argv, message',
    [
        (['--confg=debug'], 'no flag --confg. Did you mean --config?'),
        (['--config=pendulun'], "no config 'pendulun'. Did you mean pendulum?"),
        (['--seed=1'], f'--config must be given: {", ".join(configs.TASKS)}.'),
        (['--config=debug', '--timestamp=x', '--logdir='], '--timestamp must come with --logdir'),
        (['--config=debug', '--env=CartPole-v3'], 'Did you mean CartPole-v1'),
        (['--config=debug', '--wrappers=ActionRepet'], 'Did you mean ActionRepeat'),
        (['--config=debug', '--algorithm=no_module:Mine'], 'got no_module, which is neither'),
        (['--config=debug', '--algorithm=json:Mine'], 'module json has no Mine'),
        (['--config=debug', '--steps=3'], 'steps must be at least one update'),
        (['--config=nothing', '--help'], "no config 'nothing'"),
    ],
)
def test_a_mistake_is_one_line_and_makes_nothing(tmp_path, argv, message):
    result = run(f'--logdir={tmp_path / "logs"}', *argv)
    assert result.code == 2
    assert result.err.startswith('train: error: ')
    assert message in result.err
    assert result.err.count('\n') == 1
    assert list(tmp_path.iterdir()) == []


def test_another_backend_of_keras_is_refused(tmp_path, monkeypatch):
    monkeypatch.setenv('KERAS_BACKEND', 'torch')
    result = run(*FAST, f'--logdir={tmp_path / "logs"}')
    assert result.code == 2
    assert "'torch'. Set KERAS_BACKEND=tensorflow" in result.err
    assert list(tmp_path.iterdir()) == []


def test_help_shows_the_flags_with_the_values_of_the_config():
    result = run('--config=pendulum', '--help')
    assert result.code == 0
    assert 'python3 -m agents.scripts.train --logdir=' in result.out
    assert '--timestamp=' in result.out
    assert '--env=Pendulum-v1 ' in result.out


# One run.


def test_a_run_trains_and_evaluates_at_exact_steps(finished):
    assert finished.code == 0
    # Updates of 4 · 32 = 128 steps; log_every 256, eval_every 512, 1024 steps in all.
    assert steps(finished, 'train') == [256, 512, 768, 1024]
    assert steps(finished, 'eval') == [512, 1024]
    evaluations = [line for line in finished.metrics if line['phase'] == 'eval']
    assert [(line['final'], line['episodes']) for line in evaluations] == [(False, 4), (True, 6)]


def test_what_a_run_shows_is_short_and_says_how_to_go_on(finished):
    lines = finished.out.splitlines()
    assert lines[0] == 'CartPole-v1: ppo on 4 environments, 8 updates of 128 steps.'
    assert len(lines) == 2 + 4 + 2 + 8
    texts = dict(re.match(r'(.*?): +(.*)', line).groups() for line in lines[-7:])
    assert lines[-8] == 'Done.'
    assert re.fullmatch(r'1,024, [\d,]+ per second', texts['Steps'])
    assert re.fullmatch(r'[\d.]+', texts['Last score'])
    assert re.fullmatch(r'[\d.]+ at step (512|1,024)', texts['Best score'])
    assert texts['Run folder'] == str(finished.folder)
    assert texts['Watch it'].startswith(
        f'python3 -m agents.scripts.visualize --logdir={finished.folder} --outdir='
    )
    assert texts['Curves'] == f'tensorboard --logdir={finished.folder}'
    assert f'--timestamp={finished.timestamp} --config=debug --steps=2048' in texts['Train on']


def test_checkpoints_curves_and_histograms_are_in_the_folder(finished):
    names = {path.stem for path in (finished.folder / 'checkpoints').glob('*.index')}
    assert names == {'step-512', 'step-1024'}
    tags = EventAccumulator(str(finished.folder / 'train')).Reload().Tags()['tensors']
    assert {'config', 'score', 'value_loss', 'kl', 'steps_per_second'} <= set(tags)
    assert any('policy/' in tag for tag in tags)
    assert any('value/' in tag for tag in tags)


def test_equal_seeds_give_equal_metrics_and_others_do_not(finished, tmp_path):
    again = run(*FAST, f'--logdir={tmp_path}', '--num_workers=1')
    assert again.metrics == finished.metrics
    other = run(*FAST, f'--logdir={tmp_path}', '--seed=1', '--steps=256')
    assert other.metrics[0] != finished.metrics[0]


def test_a_finished_run_says_so_and_stays_as_it_is(finished):
    before = snapshot(finished.folder / 'checkpoints')
    metrics = (finished.folder / 'metrics.jsonl').read_bytes()
    events = set(finished.folder.glob('*/events*'))
    result = run(f'--logdir={finished.folder.parent}', f'--timestamp={finished.timestamp}')
    assert result.code == 0
    assert 'This run is finished already.\nSteps:      1,024\n' in result.out
    assert snapshot(finished.folder / 'checkpoints') == before
    assert (finished.folder / 'metrics.jsonl').read_bytes() == metrics
    assert set(finished.folder.glob('*/events*')) == events


def test_without_a_logdir_nothing_is_stored(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = run(*FAST, '--steps=256')
    assert result.code == 0
    assert 'Nothing is stored: no --logdir is given.' in result.out
    assert list(tmp_path.iterdir()) == []


def test_a_score_to_stop_at_ends_the_run_after_the_evaluation_that_reaches_it(tmp_path):
    argv = [*FAST, f'--logdir={tmp_path}', '--stop_at_score=1', '--timestamp=a']
    result = run(*argv)
    assert steps(result, 'eval') == [512, 512]
    assert [line['final'] for line in result.metrics if line['phase'] == 'eval'] == [False, True]
    assert 'finished already' in run(*argv).out
    # Without it the run goes on to its last step.
    result = run(*argv, '--stop_at_score=none')
    assert steps(result, 'eval') == [512, 512, 1024]


def test_the_learning_rate_falls_linearly_over_the_run(tmp_path):
    flags = ['--decay_learning_rate', '--learning_rate=0.1', '--log_every=128', '--steps=512']
    result = run(*FAST, f'--logdir={tmp_path}', *flags)
    rates = [line['learning_rate'] for line in result.metrics if line['phase'] == 'train']
    # Four updates.
    assert rates == pytest.approx([0.1, 0.075, 0.05, 0.025])


# Other tasks and algorithms.


def test_another_registered_task_is_just_a_flag():
    result = run(*FAST, '--env=Acrobot-v1', '--steps=128', '--max_eval_steps=20')
    assert result.code == 0
    # An Acrobot cannot be done with 20 steps: all six episodes are cut, at a reward of -1 each.
    assert 'score     -20.00 ± 0.00 over 6 episodes, 6 of them cut' in result.out


def test_a_task_with_numbered_observations_is_trained_on():
    result = run(*FAST, '--env=FrozenLake-v1', '--env_kwargs={is_slippery: false}', '--steps=128')
    assert result.code == 0


def test_a_task_of_ones_own_is_trained_on_with_wrappers_in_a_process(modules):
    result = run(
        *FAST,
        '--env=train_task:TrainCounting-v0',
        '--env_kwargs={reward: 2.5}',
        '--wrappers=[FrameStackObservation: {stack_size: 4}, ActionRepeat: {amount: 3}]',
        '--steps=256',
        '--num_workers=1',
    )
    assert result.code == 0
    # 12 steps of reward 2.5, whatever the wrappers.
    assert 'score      30.00 ± 0.00 over 6 episodes' in result.out


def test_an_exception_of_the_environment_keeps_its_traceback(modules, tmp_path):
    argv = [*FAST, '--env=train_task:TrainCounting-v0', '--env_kwargs={fail_at: 70}']
    with pytest.raises(OverflowError, match='my own failure') as info:
        run(*argv, f'--logdir={tmp_path}')
    assert 'train_task.py' in ''.join(traceback.format_exception(info.value))


def test_an_algorithm_of_ones_own_is_trained_and_checkpointed(modules, tmp_path):
    argv = [
        '--config=debug',
        '--algorithm=train_algorithm:Zero',
        f'--logdir={tmp_path}',
        '--learning_rate=0.5',
        '--timestamp=a',
        '--steps=512',
    ]
    result = run(*argv)
    counts = [line['count'] for line in result.metrics if line['phase'] == 'train']
    # Means over two updates each: (1 + 2) / 2, (3 + 4) / 2.
    assert counts == [1.5, 3.5]
    assert result.metrics[0]['rate'] == 0.5
    result = run(*argv[:-1], '--steps=768')
    assert [line['count'] for line in result.metrics if line['phase'] == 'train'] == [1.5, 3.5, 5.5]


# Stopping and going on.


def test_an_unknown_timestamp_begins_a_run_of_that_name(tmp_path):
    result = run(*FAST, f'--logdir={tmp_path}', '--timestamp=mine', '--steps=128')
    assert result.code == 0
    assert 'There is no run mine yet: this begins it.' in result.out
    assert result.folder == tmp_path / 'mine-debug'


def test_a_flag_that_contradicts_the_run_is_refused_by_name(finished):
    before = snapshot(finished.folder)
    argv = [f'--logdir={finished.folder.parent}', f'--timestamp={finished.timestamp}']
    result = run(*argv, '--config=debug', '--horizon=16')
    assert result.code == 2
    assert 'horizon cannot change when a run is resumed, got --horizon=16' in result.err
    assert 'where the run has 32' in result.err
    result = run(*argv, '--config=cartpole')
    assert result.code == 2
    assert 'must be debug, got --config=cartpole' in result.err
    assert snapshot(finished.folder) == before


def test_closing_the_iterator_saves_and_the_run_goes_on_from_there(tmp_path):
    config = dataclasses.replace(configs.debug(), compile='off', checkpoint_every=0)
    folder = runs.create(str(tmp_path), 'debug', config)
    with contextlib.closing(train.train(config, folder)) as scores:
        first = next(scores)
    assert (folder.folder / 'checkpoints' / 'step-512.index').exists()
    rest = list(train.train(config, folder))
    # The evaluation at step 512 is not made again.
    assert len(rest) == 1
    lines = [json.loads(x) for x in (folder.folder / 'metrics.jsonl').read_text().splitlines()]
    assert [line['step'] for line in lines if line['phase'] == 'eval'] == [512, 1024]
    assert [line['score'] for line in lines if line['phase'] == 'eval'] == [first, *rest]


@pytest.mark.parametrize('signum, workers', [(signal.SIGINT, 1), (signal.SIGTERM, 0)])
def test_a_signal_saves_and_the_printed_command_goes_on(tmp_path, signum, workers):
    argv = [*FAST, f'--logdir={tmp_path}', '--steps=1e7', f'--num_workers={workers}']
    process = subprocess.Popen(
        [sys.executable, '-m', 'agents.scripts.train', *argv, '--checkpoint_every=0'],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, 'PYTHONUNBUFFERED': '1'},
    )
    shown = ''
    while '  eval  ' not in shown:
        line = process.stdout.readline()
        assert line, process.stderr.read()
        shown += line
    process.send_signal(signum)
    process.send_signal(signum)  # As `timeout` does.
    out, err = process.communicate(timeout=60)
    result = Result(process.returncode, shown + out, err)
    assert result.code == 128 + signum
    assert 'Traceback' not in err
    stop = re.search(rf'^Stopped by {signum.name}\.\nSteps: +([\d,]+),', out, re.MULTILINE)
    stopped_at = int(stop[1].replace(',', ''))
    assert (result.folder / 'checkpoints' / f'step-{stopped_at}.index').exists()
    command = re.search(r'python3 -m agents.scripts.train (.*)$', out, re.MULTILINE)[1].split()
    resumed = run(*command, f'--steps={stopped_at + 256}')
    assert resumed.code == 0
    assert f'Going on at step {stopped_at:,}.' in resumed.out
    recorded = steps(resumed, 'train')
    assert recorded == sorted(set(recorded))
    assert recorded[-1] == stopped_at + 256
