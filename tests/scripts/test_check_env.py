import os
import signal
import subprocess
import sys

import gymnasium
import pytest

from agents.scripts import check_env


def test_a_task_that_is_fit_gives_0_and_one_line_for_each_check(capsys):
    assert check_env.main(['--env=Pendulum-v1', '--seconds=0.5']) == 0
    out, err = capsys.readouterr()
    *lines, empty, conclusion = out.splitlines()
    assert len(lines) == 17 and {line[:2] for line in lines} == {'✓ '}
    assert conclusion == 'Fit for training in batches and processes: 17 checks passed.'
    assert (empty, err) == ('', '')


def test_keyword_arguments_and_wrappers_are_checked_too(capsys):
    wrappers = '--wrappers=[{TimeLimit: {max_episode_steps: 7}}]'
    flags = ['--env=FrozenLake-v1', '--env_kwargs={is_slippery: false}', '--seconds=0.5', wrappers]
    assert check_env.main(flags) == 0
    assert 'an episode was cut after 7 steps' in capsys.readouterr().out


def test_a_check_that_fails_gives_1(capsys):
    # Rewards become text.
    wrappers = '--wrappers={TransformReward: {func: abc}}'
    assert check_env.main(['--env=CartPole-v1', '--seconds=0.5', wrappers]) == 1
    out = capsys.readouterr().out
    assert '✗ episodes      Random actions raise no error.\n' in out
    assert "Seen: TypeError: 'str' object is not callable" in out
    assert 'Not fit for training yet: 1 of 17 checks failed.' in out


@pytest.mark.parametrize(
    ('flags', 'message'),
    [
        ([], '--env must be given'),
        (['--env=CartPole-v7'], "There is no task 'CartPole-v7'. Did you mean CartPole-v1"),
        (['--env=CartPole-v1', '--wrappers=TimeLimits'], "There is no wrapper 'TimeLimits'"),
        (['--env=CartPole-v1', '--seconds=0'], 'seconds must be above 0, got seconds=0'),
        (['--env=CartPole-v1', '--seed=-1'], 'seed must be at least 0, got seed=-1'),
        (['--env=CartPole-v1', '--env_kwargs=3'], 'env_kwargs must be a mapping'),
        (['--nonsense=1'], 'There is no flag --nonsense'),
        (['--env=Needs-v0'], 'The task Needs-v0 needs what is not installed: try pip'),
    ],
)
def test_mistakes_are_told_in_one_line(capsys, monkeypatch, flags, message):
    def make():
        raise gymnasium.error.DependencyNotInstalled('try pip')

    spec = gymnasium.envs.registration.EnvSpec('Needs-v0', entry_point=make)
    monkeypatch.setitem(gymnasium.registry, 'Needs-v0', spec)
    assert check_env.main(flags) == 2
    out, err = capsys.readouterr()
    (line,) = err.splitlines()
    assert line.startswith('check_env: error: ') and message in line
    assert out == ''


def test_help_shows_the_flags(capsys):
    assert check_env.main(['--help']) == 0
    out = capsys.readouterr().out
    assert all(f'  --{name}=' in out for name in ('env', 'env_kwargs', 'wrappers', 'seconds'))


def test_the_command_needs_no_tensorflow_and_ends_at_a_signal():
    code = (
        'import sys\n'
        "sys.modules['tensorflow'] = None  # Any import of it fails.\n"
        'from agents.scripts import check_env\n'
        "sys.exit(check_env.main(['--env=CartPole-v1', '--seconds=60']))"
    )
    process = subprocess.Popen(
        [sys.executable, '-c', code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    with process:
        lines = [process.stdout.readline() for _ in range(12)]  # Before the time limit.
        os.kill(process.pid, signal.SIGTERM)
        _, err = process.communicate(timeout=20)
    assert [line[0] for line in lines] == 12 * ['✓']
    assert (process.returncode, err) == (128 + signal.SIGTERM, 'Stopped.\n')
