import dataclasses
import os
import subprocess

import pytest

from agents.scripts import autotune, configs, engines, runs, speed, train
from agents.scripts.config import Config

CARTPOLE = configs.get('cartpole')


@pytest.fixture
def measured(monkeypatch):
    """Measure by a table: engine, workers and environments; what is not in it fails."""
    table, tape = {}, []

    def measure(config):
        key = (config.engine, config.num_workers, config.num_envs)
        tape.append((*key, config.horizon))
        rate = table.get(key, 0.0)
        return rate, '' if rate else 'a reason'

    monkeypatch.setattr(autotune, 'measure', measure)
    monkeypatch.setattr(os, 'sched_getaffinity', lambda _: {0, 1})
    monkeypatch.setattr(autotune.importlib.util, 'find_spec', lambda name: None)
    monkeypatch.setattr(engines, 'engines_of', lambda task: ['process', 'tensorflow', 'vector'])
    return table, tape


def test_each_change_begins_with_the_fastest_so_far(measured, capsys):
    table, tape = measured
    table.update({('process', -1, 8): 100.0, ('process', 0, 8): 150.0, ('process', 1, 8): 50.0})
    table.update({('tensorflow', -1, 8): 90.0, ('vector', -1, 8): 80.0})
    table.update({('process', 0, 16): 200.0, ('process', 0, 32): 190.0})
    assert autotune.main(['--config=cartpole']) == 0
    assert tape == [
        ('process', -1, 8, 256),
        ('tensorflow', -1, 8, 256),
        ('vector', -1, 8, 256),
        ('process', 0, 8, 256),  # Two workers, one per core, were measured at first.
        ('process', 1, 8, 256),
        ('process', 0, 16, 128),
        ('process', 0, 32, 64),
    ]
    out = capsys.readouterr().out
    assert 'The fastest trains 2.00 × as fast' in out  # 200 / 100
    (command,) = [line for line in out.splitlines() if line.startswith('python3')]
    assert command == (
        'python3 -m agents.scripts.train --config=cartpole --num_workers=0 --num_envs=16 '
        '--horizon=128'
    )


def test_flags_that_were_given_are_in_the_command_which_train_understands(measured, capsys):
    table, _ = measured
    table[('tensorflow', -1, 8)] = 90.0
    assert autotune.main(['--config=cartpole', '--seed=3']) == 0
    out = capsys.readouterr().out
    assert 'failed: a reason' in out and '×' not in out
    words = out.splitlines()[-1].split()[3:]
    given = train.flags.parse(words, train.Arguments, Config)
    assert given == {'config': 'cartpole', 'seed': 3, 'engine': 'tensorflow'}


def test_nothing_is_begun_after_the_time(measured, monkeypatch):
    table, tape = measured
    table[('process', -1, 8)] = 100.0
    times = iter([0.0, 1.0, 60.0])
    monkeypatch.setattr(autotune.time, 'monotonic', lambda: next(times, 61.0))
    assert autotune.main(['--config=cartpole', '--seconds=60']) == 0
    assert len(tape) == 1


def test_if_nothing_can_be_trained_the_exit_code_says_so(measured, capsys):
    assert autotune.main(['--config=cartpole']) == 1
    assert 'Nothing could be trained.' in capsys.readouterr().err


@pytest.mark.parametrize(
    ('argv', 'message'),
    [
        ([], '--config must be given'),
        (['--config=cartpole', '--seconds=0'], 'got seconds=0'),
        (['--config=cartpol'], "no config 'cartpol'"),
        (['--config=cartpole', '--env=CartPol-v1'], "no task 'CartPol-v1'"),
    ],
)
def test_a_mistake_is_one_line(argv, message, capsys):
    assert autotune.main(argv) == 2
    assert message in capsys.readouterr().err


def test_short_rollouts_are_not_made_shorter():
    for num_envs, horizon, more in ((4, 32, [(8, 16)]), (4, 30, []), (4, 33, [])):
        config = dataclasses.replace(CARTPOLE, num_envs=num_envs, horizon=horizon)
        found = autotune._more_environments(config)
        assert [(x.num_envs, x.horizon) for x in found] == more


def test_wrappers_need_processes():
    config = dataclasses.replace(CARTPOLE, wrappers=('NormalizeReward',))
    assert autotune._engines(config) == []


def test_a_way_is_trained_in_a_process_of_its_own_and_a_failure_has_a_reason():
    config = dataclasses.replace(configs.get('debug'), compile='off')
    rate, problem = autotune.measure(config, 0.1)
    assert rate > 0 and problem == ''
    rate, problem = autotune.measure(dataclasses.replace(config, env='Nothing-v0'), 0.1)
    assert rate == 0 and 'Nothing-v0' in problem


def test_a_way_that_takes_too_long_is_left(monkeypatch):
    def run(*args, **kwargs):
        raise subprocess.TimeoutExpired(args, kwargs['timeout'])

    monkeypatch.setattr(autotune.subprocess, 'run', run)
    assert autotune.measure(CARTPOLE) == (0.0, 'took more than 120 seconds')


def test_a_config_survives_the_way_to_the_process():
    config = dataclasses.replace(CARTPOLE, env_kwargs={'sutton_barto_reward': True})
    plain = runs.to_plain(config)
    assert Config(**speed.YAML(typ='safe', pure=True).load(runs.to_yaml(plain))) == config
