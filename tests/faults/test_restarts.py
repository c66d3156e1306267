import gc
import os
import signal

import gymnasium
import numpy as np
import psutil
import pytest

from agents.tools import BatchEnv, interrupts, make_batch_env
from agents.tools.wrappers import ExternalProcess, WorkerDied, WorkerError, restarting_batch
from tests.faults.faulty import Faulty, gone, make_all, pids, until
from tests.tools import fakes

ACTION = [0, 1, 2, 0]
SLEEP = interrupts.sleep


@pytest.fixture(autouse=True)
def pauses(monkeypatch):
    """Restart without waiting; holds the seconds that would have been waited."""
    waited = []
    monkeypatch.setattr(interrupts, 'sleep', waited.append)
    return waited


def make(folder, trouble='raise', where='step', timeout=60.0):
    """Four environments in two processes."""
    return make_batch_env(make_all(folder, 4, trouble, where), 4, 2, timeout, 'restart')


def kill(env, worker, signum=signal.SIGKILL):
    pid = pids(env)[worker]
    os.kill(pid, signum)
    if signum == signal.SIGKILL:
        until(lambda: gone(pid))


# What the batch returns


@pytest.mark.parametrize(
    'trouble, message',
    [
        ('kill', 'was ended by SIGKILL'),
        ('segfault', 'was ended by SIGSEGV'),
        ('exit', 'exited with code 3'),
        ('raise', 'ZeroDivisionError: one over nothing Raised by environment 2 in step'),
        ('system_exit', 'SystemExit: 4'),
    ],
)
def test_a_step_that_fails_is_not_valid_and_the_others_of_it_are_kept(
    tmp_path, trouble, message, caplog
):
    with make(tmp_path, trouble) as env, make(tmp_path / 'none') as undisturbed:
        before, first = pids(env), env.reset(seed=3)
        undisturbed.reset(seed=3)
        for number in range(6):
            if number == 2:
                (tmp_path / '2').touch()
            found, expected = env.step(ACTION), undisturbed.step(ACTION)
            for x, y in zip(found, expected, strict=True):
                np.testing.assert_array_equal(x[:2], y[:2])
            assert found.valid.tolist() == [True, True, number != 2, number != 2]
            if number == 2:
                assert found.reward[2:].tolist() == [0, 0]
                assert not (found.terminated | found.truncated)[2:].any()
                np.testing.assert_array_equal(found.obs[2:], found.next_obs[2:])
                assert not np.isclose(found.obs[2:], first[2:]).any()  # Fresh seeds.
        assert env.worker_failures == 1
        assert pids(env)[0] == before[0] and pids(env)[1] != before[1] and gone(before[1])
    (record,) = caplog.records
    line = record.getMessage()
    assert line.startswith('Restarting environments 2 to 3 after a failed step: ')
    assert message in line and '\n' not in line
    assert 'alive for ' in line and 'last action [2, 0]' in line


@pytest.mark.parametrize('trouble', ['kill', 'raise'])
def test_a_reset_that_fails_is_made_again_with_other_seeds(tmp_path, trouble):
    with make(tmp_path, trouble, 'reset') as env:
        (tmp_path / '1').touch()
        env.reset(seed=[1, 2, 3, 4])
        assert env.step(ACTION).valid.all()
        seeds = env.get_attr('seeds')
        assert [x[0] for x in seeds[2:]] == [3, 4]
        assert not {x[0] for x in seeds[:2]} & {1, 2, 3, 4, None}
        assert env.worker_failures == 1


def test_a_worker_that_dies_between_steps_is_noticed_in_the_next_one(tmp_path):
    with make(tmp_path) as env:
        env.reset(seed=0)
        kill(env, 0)
        assert env.step(ACTION).valid.tolist() == [False, False, True, True]
        assert env.step(ACTION).valid.all()
        kill(env, 1)
        env.reset(seed=0)  # Nothing was lost, so no row is invalid.
        assert env.step(ACTION).valid.all()
        assert env.worker_failures == 2


@pytest.mark.parametrize('during', [False, True])
def test_a_worker_that_is_stopped_is_killed_after_the_timeout_and_restarted(tmp_path, during):
    with make(tmp_path, timeout=4.0) as env:
        env.reset(seed=0)
        stopped = pids(env)[1]
        if during:
            env.step_async(ACTION)
        kill(env, 1, signal.SIGSTOP)
        if not during:
            env.step_async(ACTION)
        # In the first case it may have finished the step before it was stopped.
        valid = env.step_wait().valid
        if valid.all():
            valid = env.step(ACTION).valid
        assert valid.tolist() == [True, True, False, False]
        assert gone(stopped)
        assert env.step(ACTION).valid.all()


def test_a_step_that_hangs_is_restarted(tmp_path):
    with make(tmp_path, 'hang', timeout=4.0) as env:
        env.reset(seed=0)
        (tmp_path / '0').touch()
        assert env.step(ACTION).valid.tolist() == [False, False, True, True]
        assert env.step(ACTION).valid.all()


def test_values_that_are_not_finite_are_raised_unless_they_are_to_be_failures_too():
    makes = [lambda: fakes.Constant(reward=np.nan), fakes.Constant]
    with make_batch_env(makes, 2, 2, on_worker_failure='restart') as env:
        env.reset()
        with pytest.raises(FloatingPointError, match='reward=nan at index 0'):
            env.step([0, 0])
        assert env.worker_failures == 0
    with make_batch_env(makes, 2, 2, on_worker_failure='restart_all') as env:
        env.reset()
        assert env.step([0, 0]).valid.tolist() == [False, True]
        assert env.worker_failures == 1


def test_results_after_a_failure_depend_on_seed_and_number_of_failures_only(tmp_path):
    tapes = []
    for seed in (5, 5, 6):
        with make(tmp_path) as env:
            tape = [env.reset(seed)]
            for number in range(12):
                if number in (3, 7):
                    kill(env, 1)
                tape += env.step(ACTION)
            seeds = env.get_attr('seeds')
            tapes.append(tape)
        # Each process knows the seed that it began with, then its own generator goes on.
        assert [x[0] is not None and set(x[1:]) <= {None} for x in seeds] == [True] * 4
        assert len({x[0] for x in seeds}) == 4
    for first, again in zip(tapes[0], tapes[1], strict=True):
        np.testing.assert_array_equal(first, again)
    assert not np.array_equal(tapes[0][0], tapes[2][0])


def test_a_seed_is_never_used_twice(tmp_path):
    with make(tmp_path) as env:
        env.reset(seed=[1, 2, 3, 4])
        used = {1, 2, 3, 4}
        for number in range(1, 4):
            kill(env, 0)
            env.step(ACTION)
            used |= {x[0] for x in env.get_attr('seeds')[:2]}
            assert len(used) == 4 + 2 * number
        # They are folded from the seeds of the last reset that had any.
        env.reset(seed=[1, 2, 3, 4])
        env.reset()
        kill(env, 0)
        env.step(ACTION)
        again = [x[0] for x in env.get_attr('seeds')[:2]]
        assert set(again) < used and not set(again) & {1, 2, 3, 4}


def test_restarting_workers_and_local_environments_are_joined(tmp_path):
    remote = ExternalProcess(make_all(tmp_path, 2), on_failure='restart')
    with BatchEnv([fakes.Walk(), remote, fakes.Walk()]) as env:
        env.reset(seed=0)
        (tmp_path / '1').touch()
        assert env.step(ACTION).valid.tolist() == [True, False, False, True]
        assert env.step(ACTION).valid.all()


def test_a_worker_is_restarted_on_its_own_cores(tmp_path):
    with make(tmp_path) as env:
        env.reset()
        before = os.sched_getaffinity(pids(env)[1])
        kill(env, 1)
        env.step(ACTION)
        assert os.sched_getaffinity(pids(env)[1]) == before


def test_the_memory_of_a_dead_worker_is_told(tmp_path, caplog):
    with make(tmp_path) as env:
        env.reset()
        worker = env._batches[0].worker
        until(lambda: worker.memory_usage)
        size = psutil.Process(worker.pid).memory_info().rss
        assert worker.memory_usage == pytest.approx(size, rel=0.2)
        kill(env, 0)
        usage = worker.memory_usage
        env.step(ACTION)
    assert f'{usage / 1e6:.0f} MB of memory' in caplog.text


# Giving up


def test_what_fails_again_at_once_waits_longer_and_longer_and_ends_with_its_cause(tmp_path, pauses):
    def fail():
        if (tmp_path / 'broken').exists():
            raise ZeroDivisionError('cannot be made')
        return Faulty(tmp_path / '0')

    with make_batch_env(fail, 2, 1, on_worker_failure='restart') as env:
        env.reset(seed=0)
        (tmp_path / 'broken').touch()
        kill(env, 0)
        message = r'100 steps between failures, .* environments 0 to 1 failed 5 times.*cannot be'
        with pytest.raises(WorkerError, match=message) as info:
            env.step([0, 0])
        assert isinstance(info.value.__cause__, ZeroDivisionError)
        assert 'Raised when environment 0 was made.' in info.value.__cause__.__notes__
        assert pauses == [0, 1, 2, 4]
        assert env.worker_failures == 5
        with pytest.raises(RuntimeError, match='again after an error'):
            env.step([0, 0])


def test_a_constructor_that_fails_for_some_time_is_waited_for(tmp_path, pauses):
    def fail():
        for number in range(3):
            if (tmp_path / f'broken{number}').exists():
                (tmp_path / f'broken{number}').unlink()
                raise ZeroDivisionError('cannot be made')
        return Faulty(tmp_path / '0')

    with make_batch_env(fail, 1, 1, on_worker_failure='restart') as env:
        env.reset(seed=0)
        for number in range(3):
            (tmp_path / f'broken{number}').touch()
        kill(env, 0)
        assert not env.step([0]).valid.any()
        assert env.step([0]).valid.all()
        assert pauses == [0, 1, 2, 4]
        assert env.worker_failures == 4


def test_good_steps_make_a_failure_the_first_one_again(tmp_path, pauses, monkeypatch):
    monkeypatch.setattr(restarting_batch, 'GOOD_STEPS', 3)
    with make(tmp_path) as env:
        env.reset(seed=0)
        for good_steps in (2, 3, 2):
            for _ in range(good_steps):
                env.step(ACTION)
            (tmp_path / '0').touch()
            assert not env.step(ACTION).valid.all()
    assert pauses == [0, 0, 1]


def test_an_environment_that_cannot_be_made_at_first_is_an_error_at_once():
    def fail():
        raise ZeroDivisionError('cannot be made')

    with pytest.raises(ZeroDivisionError, match='cannot be made'):
        make_batch_env(fail, 2, 1, on_worker_failure='restart')


def test_environments_must_keep_their_spaces(tmp_path):
    def other():
        env = Faulty(tmp_path / '0')
        if (tmp_path / 'other').exists():
            env.action_space = gymnasium.spaces.Discrete(5)
        return env

    with make_batch_env(other, 1, 1, on_worker_failure='restart') as env:
        env.reset()
        (tmp_path / 'other').touch()
        kill(env, 0)
        with pytest.raises(WorkerError, match=r'keep their spaces .* got .*Discrete\(5\)'):
            env.step([0])


def test_failures_are_raised_unless_asked_otherwise(tmp_path):
    with make_batch_env(make_all(tmp_path, 2), 2, 1) as env:
        env.reset()
        kill(env, 0)
        with pytest.raises(WorkerDied, match='SIGKILL'):
            env.step([0, 0])
        assert env.worker_failures == 0
    with pytest.raises(ValueError, match="one of raise, restart, restart_all, got 'ignore'"):
        make_batch_env(make_all(tmp_path, 2), 2, 1, on_worker_failure='ignore')


# Leaving


def test_many_restarts_leave_nothing_behind(tmp_path, monkeypatch):
    monkeypatch.setattr(restarting_batch, 'GOOD_STEPS', 1)

    def state():
        gc.collect()
        with open('/proc/self/maps') as file:
            blocks = file.read().count('memfd:agents')
        return len(os.listdir('/proc/self/fd')), blocks, len(psutil.Process().children())

    with make(tmp_path) as env:
        env.reset(seed=0)
        before = state()
        for number in range(30):
            kill(env, number % 2)
            assert env.step(ACTION).valid.sum() == 2
            assert env.step(ACTION).valid.all()
        assert state() == before
        assert env.worker_failures == 30
        last = pids(env)
    assert all(map(gone, last))


def test_a_signal_ends_the_wait_before_a_restart_and_a_reset_goes_on(tmp_path, monkeypatch):
    def interrupted(seconds):
        os.kill(os.getpid(), signal.SIGTERM)
        SLEEP(1000)

    former = signal.signal(signal.SIGTERM, lambda *_: None)
    try:
        with make(tmp_path) as env:
            env.reset(seed=0)
            kill(env, 0)
            with monkeypatch.context() as patch, interrupts.watch():
                patch.setattr(interrupts, 'sleep', interrupted)
                with pytest.raises(interrupts.Interrupted):
                    env.step(ACTION)
            env.reset(seed=0)
            assert env.step(ACTION).valid.all()
            last = pids(env)
        assert all(map(gone, last))
    finally:
        signal.signal(signal.SIGTERM, former)
