"""Runs that are stopped and go on, against runs that never were."""

import dataclasses
import json
import os
import re
import resource
import signal
import subprocess
import sys

import gymnasium
import numpy as np
import pytest
import tensorflow as tf

from agents.scripts import checkpoints, configs, runs, train
from agents.scripts.trainer import Trainer
from tests.faults.drifting import Drift, Forgetting, Keeping

# How often TensorFlow saved, and time: what may differ.
EXEMPT = ('save_counter/', '_CHECKPOINTABLE_OBJECT_GRAPH', 'counters/seconds/')


TASKS = {'Drift-v0': Drift, 'Keeping-v0': Keeping, 'Forgetting-v0': Forgetting}


@pytest.fixture(autouse=True)
def tasks():
    for name, kind in TASKS.items():
        gymnasium.register(name, kind)
    yield
    for name in TASKS:
        del gymnasium.registry[name]


def make_config(env, **changes):
    """Six updates of 128 steps; everything falls on other steps than everything else."""
    defaults = {
        'env': env,
        'compile': 'off',
        'steps': 768,
        'eval_every': 0,
        'final_eval_episodes': 4,
        'log_every': 300,
        'histograms_every': 0,
        'checkpoint_every': 0,
    }
    return dataclasses.replace(configs.debug(), **{**defaults, **changes})


def begin(tmp_path, name, config):
    return runs.create(str(tmp_path), 'debug', config, name)


def finish(config, run):
    list(train.train(config, run))
    return run


def stop_at(config, run, step, monkeypatch):
    """Train until Ctrl-C arrives before the update after a step."""
    update = Trainer.update

    def interrupted(trainer):
        if trainer.step == step:
            raise KeyboardInterrupt
        update(trainer)

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, 'update', interrupted)
        with pytest.raises(KeyboardInterrupt):
            finish(config, run)
    return run


def tensors(run):
    """Read the newest checkpoint; of what the environments are, the bytes."""
    reader = tf.train.load_checkpoint(str(checkpoints.find(run)[0]))
    names = [x for x in reader.get_variable_to_dtype_map() if not x.startswith(EXEMPT)]
    return {
        name: np.asarray(reader.get_tensor(name)).tobytes()
        if reader.get_variable_to_dtype_map()[name] != tf.string
        else reader.get_tensor(name)
        for name in names
    }


def metrics(run):
    rows = [json.loads(line) for line in (run.folder / 'metrics.jsonl').read_text().splitlines()]
    return [{k: v for k, v in row.items() if 'second' not in k} for row in rows]


def assert_same(run, other):
    first, second = tensors(run), tensors(other)
    assert len(first) > 20 and first.keys() == second.keys()
    # The continuation at the end of a run is that of its environments; times are in no part of it.
    assert [name for name in first if first[name] != second[name]] == []
    assert metrics(run) == metrics(other)


def said(caplog):
    return [record.getMessage() for record in caplog.records if record.name.startswith('agents.')]


@pytest.mark.parametrize(
    ('env', 'changes'),
    [
        ('CartPole-v1', {}),
        ('Pendulum-v1', {'wrappers': ({'ActionRepeat': {'amount': 2}},)}),
        ('HalfCheetah-v5', {'env_kwargs': {'max_episode_steps': 50}, 'num_workers': 1}),
        ('Hopper-v5', {'num_workers': 2}),
        ('Keeping-v0', {'num_workers': 2}),
    ],
)
def test_a_resumed_run_equals_one_that_never_stopped(tmp_path, monkeypatch, env, changes):
    config = make_config(env, **changes)
    whole = finish(config, begin(tmp_path, 'whole', config))
    stopped = stop_at(config, begin(tmp_path, 'stopped', config), 384, monkeypatch)
    # States belong to environments, wherever they are.
    assert_same(whole, finish(dataclasses.replace(config, num_workers=1), stopped))


@pytest.mark.parametrize(
    ('env', 'reason'),
    [
        ('Drift-v0', r'Drift has no get_state\(\) and set_state\(state\)\. Add both'),
        ('Forgetting-v0', r'Forgetting with the state of another one does not do the same'),
    ],
)
def test_new_episodes_begin_where_the_state_is_not_known_and_it_is_said(
    tmp_path, monkeypatch, caplog, env, reason
):
    config = make_config(env)
    stopped = stop_at(config, begin(tmp_path, 'stopped', config), 384, monkeypatch)
    (line,) = said(caplog)
    assert line.startswith('If this run is stopped, it will go on with new episodes: ')
    caplog.clear()
    finish(config, stopped)
    assert said(caplog)[0].startswith('New episodes begin: ')
    assert metrics(stopped)[-1]['step'] == 768
    assert re.search(reason, line)


def test_evaluations_change_nothing_in_training(tmp_path):
    config = make_config('CartPole-v1', log_every=0)
    never = finish(config, begin(tmp_path, 'never', config))
    often = dataclasses.replace(config, eval_every=128)
    often = finish(often, begin(tmp_path, 'often', often))
    first, second = tensors(never), tensors(often)
    names = [name for name in first if name.startswith(('algorithm/', 'simulation/'))]
    assert len(names) > 20
    assert [name for name in names if first[name] != second[name]] == []


def launch(tmp_path, *flags):
    argv = ['--config=debug', '--compile=off', '--eval_every=0', '--final_eval_episodes=4']
    argv += [f'--logdir={tmp_path}', '--num_workers=1', '--log_every=128', *flags]
    return subprocess.Popen(
        [sys.executable, '-m', 'agents.scripts.train', *argv],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, 'PYTHONUNBUFFERED': '1'},
    )


def wait_for_step(process, step):
    for line in process.stdout:
        if line.startswith('step ') and int(line.split()[1].replace(',', '')) >= step:
            return
    raise AssertionError('The run ended too early.')


@pytest.mark.parametrize('signum', [signal.SIGTERM, signal.SIGKILL])
def test_a_run_that_a_signal_ended_goes_on_as_if_nothing_had_happened(tmp_path, signum):
    flags = ('--steps=100_000_000', '--timestamp=stopped', '--checkpoint_every=256')
    process = launch(tmp_path, *flags)
    try:
        wait_for_step(process, 512)
        process.send_signal(signum)
        out = process.communicate(timeout=60)[0]
    finally:
        process.kill()
    assert process.returncode == (128 + signum if signum == signal.SIGTERM else -signum)
    assert 'new episodes' not in out.lower()
    stopped = runs.find(str(tmp_path), 'stopped', 'debug')
    steps = checkpoints.step(checkpoints.find(stopped)[0]) + 256
    config = dataclasses.replace(runs.load_config(stopped), steps=steps)
    finish(config, stopped)
    assert_same(finish(config, begin(tmp_path, 'whole', config)), stopped)


def test_a_full_disk_is_said_and_leaves_the_run_and_its_last_checkpoint_alone(
    tmp_path, monkeypatch, caplog
):
    # The whole file may be written or nothing: no file may be longer than this.
    config = make_config('CartPole-v1', checkpoint_every=128, log_every=128)
    run = begin(tmp_path, 'full', config)
    update, former = Trainer.update, resource.getrlimit(resource.RLIMIT_FSIZE)

    def fill(trainer):
        size = {384: 200, 640: former[0]}.get(trainer.step)
        if size is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (size, former[1]))
        update(trainer)

    monkeypatch.setattr(Trainer, 'update', fill)
    try:
        finish(config, run)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, former)
    text = '\n'.join(caplog.messages)
    assert 'The checkpoint of step 512 cannot be written: ' in text
    assert 'metrics.jsonl cannot be written: ' in text
    names = [path.name for path in checkpoints.find(run)]
    assert names == ['step-768', 'step-384', 'step-256', 'step-128']
    assert all(checkpoints.find_damage(path) is None for path in checkpoints.find(run))
    # The lines that did not fit came later.
    assert [row['step'] for row in metrics(run)] == [128, 256, 384, 512, 640, 768, 768]
