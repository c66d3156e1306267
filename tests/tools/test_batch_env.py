import os

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete, Text

from agents.tools import batch_env, make_batch_env
from agents.tools.batch_env import BatchEnv
from agents.tools.wrappers.external_process import ExternalProcess
from tests.tools import fakes


def actions(env, steps, seed=0):
    rng = np.random.default_rng(seed)
    space, shape = env.action_space, (steps, env.num_envs, *env.action_space.shape)
    if isinstance(space, Discrete):
        return rng.integers(space.start, space.start + space.n, shape)
    return rng.uniform(space.low, space.high, shape).astype(space.dtype)


def play(env, steps=30, seeds=(3, None, 5)):
    """Return everything that a batch returns over several resets, and copies of it made at once."""
    results, copies = [], []
    with env:
        for number, seed in enumerate(seeds):
            results.append(env.reset(seed=seed))
            copies.append(results[-1].copy())
            for action in actions(env, steps, seed=number):
                for array in env.step(action):
                    results.append(array)
                    copies.append(array.copy())
    return results, copies


def nested(make, num_envs):
    """A batch of a process, an environment here, and a batch of two here and two processes."""
    inner = [make(), ExternalProcess(make), make(), ExternalProcess([make] * (num_envs - 6))]
    return BatchEnv([ExternalProcess([make, make]), make(), BatchEnv(inner)])


def cart_pole():
    return gymnasium.make('CartPole-v1')


def pendulum():
    return gymnasium.make('Pendulum-v1', max_episode_steps=20)


MAKERS = {
    'cart_pole': cart_pole,
    'pendulum': pendulum,
    'walk': fakes.Walk,
    'float64': lambda: fakes.Walk('float64', Box(-1, 1, (2,), np.float64)),
    'image': lambda: fakes.Walk('image'),
    'discrete': lambda: fakes.Walk('discrete', Discrete(4, start=-1)),
}


@pytest.mark.parametrize('name', MAKERS)
def test_trajectories_do_not_depend_on_how_environments_are_spread(name):
    make, num_envs = MAKERS[name], 7
    expected, _ = play(make_batch_env(make, num_envs, num_workers=0))
    for index in range(1, num_envs):  # Environments must differ, or mixing them up would go unseen.
        for other in range(index):
            assert any(not np.array_equal(x[index], x[other]) for x in expected)
    workers = (1, 2, 3, num_envs) if name in ('cart_pole', 'pendulum', 'walk') else (2,)
    batches = [make_batch_env(make, num_envs, num_workers=n) for n in workers]
    for env in [*batches, nested(make, num_envs)]:
        assert env.num_envs == num_envs
        actual, _ = play(env)
        for x, y in zip(expected, actual, strict=True):
            assert x.dtype == y.dtype
            np.testing.assert_array_equal(x, y)


@pytest.mark.parametrize('num_workers', [0, 2])
@pytest.mark.parametrize('name', ['walk', 'image'])
def test_returned_arrays_are_never_written_again(name, num_workers):
    for array, copy in zip(*play(make_batch_env(MAKERS[name], 5, num_workers)), strict=True):
        np.testing.assert_array_equal(array, copy)


@pytest.mark.parametrize('num_workers', [0, 2])
def test_next_observations_are_the_last_ones_where_episodes_end(num_workers):
    makes = [lambda n=n: fakes.Counting(length=n, truncate=n == 3) for n in (1, 2, 3)]
    with make_batch_env(makes, 3, num_workers) as env:
        env.reset()
        # Observations are [episode, step], rewards 10 * episode + step. All use one buffer each.
        first, second, third = (env.step([0, 0, 0]) for _ in range(3))
    np.testing.assert_array_equal(first.obs, [[2, 0], [1, 1], [1, 1]])
    np.testing.assert_array_equal(first.next_obs, [[1, 1], [1, 1], [1, 1]])
    assert first.terminated.tolist() == [True, False, False]
    np.testing.assert_array_equal(second.obs, [[3, 0], [2, 0], [1, 2]])
    np.testing.assert_array_equal(second.next_obs, [[2, 1], [1, 2], [1, 2]])
    assert second.reward.tolist() == [21, 12, 12]
    np.testing.assert_array_equal(third.obs, [[4, 0], [2, 1], [2, 0]])
    np.testing.assert_array_equal(third.next_obs, [[3, 1], [2, 1], [1, 3]])
    assert third.terminated.tolist() == [True, False, False]
    assert third.truncated.tolist() == [False, False, True]
    assert first.valid.tolist() == [True] * 3


def test_next_observations_are_the_same_array_when_no_episode_ends():
    env = BatchEnv([fakes.Counting(length=9)])
    env.reset()
    result = env.step([0])
    assert result.next_obs is result.obs


def test_each_environment_gets_one_seed_of_the_sequence_also_when_nested():
    class Env(fakes.Counting):
        def reset(self, *, seed=None, options=None):
            self.seed = seed
            return super().reset(seed=seed)

    expected = np.random.SeedSequence(7).generate_state(6).tolist()
    assert len(set(expected)) == 6
    with nested(Env, 7) as env:
        env.reset(seed=7)
        assert list(env.get_attr('seed'))[:6] == expected
        env.reset(seed=[1, 2, 3, None, 5, 6, np.int64(7)])
        assert env.get_attr('seed') == (1, 2, 3, None, 5, 6, 7)
        env.reset()
        assert env.get_attr('seed') == (None,) * 7


def test_seeds_must_be_one_for_each_environment():
    env = BatchEnv([fakes.Counting(), fakes.Counting()])
    with pytest.raises(ValueError, match='one for each of 2 environments, got 3'):
        env.reset(seed=[1, 2, 3])


def test_different_spaces_are_named():
    class Other(fakes.Counting):
        def __init__(self):
            super().__init__()
            self.observation_space = Box(-1, 1, (3,), np.float32)

    class Acting(fakes.Counting):
        def __init__(self):
            super().__init__()
            self.action_space = Discrete(5)

    with pytest.raises(ValueError, match=r'Observation space .* \(3,\).* at index 2 .* index 0'):
        BatchEnv([fakes.Counting(), fakes.Counting(), Other()])
    with pytest.raises(ValueError, match=r'Action space .* Discrete\(5\) at index 1'):
        BatchEnv([fakes.Counting(), Acting()])
    message = r'Action space .*Discrete\(5\) at index 3 .* at index 2'
    with ExternalProcess([fakes.Counting, Acting]) as env, pytest.raises(ValueError, match=message):
        BatchEnv([fakes.Counting(), fakes.Counting(), env])
    message = 'Observation space .* at index 1 .* at index 0'
    with ExternalProcess(Other) as env, pytest.raises(ValueError, match=message):
        BatchEnv([fakes.Counting(), env])


def test_spaces_of_unknown_kinds_are_named():
    class Env(fakes.Counting):
        def __init__(self):
            super().__init__()
            self.observation_space = Text(3)

    with pytest.raises(TypeError, match=r'Observation space .* Text\(1, 3, .*\) at index 0'):
        BatchEnv([Env()])
    with pytest.raises(TypeError, match=r'Observation space .* Text\(1, 3, .*\) at index 0'):
        make_batch_env(Env, 2, num_workers=1)


def test_a_batch_of_nothing_or_of_something_else_is_an_error():
    with pytest.raises(ValueError, match='at least one, got an empty list'):
        BatchEnv([])
    with pytest.raises(TypeError, match=r'must be gymnasium.Env.*got 5 at index 1'):
        BatchEnv([fakes.Counting(), 5])
    env = fakes.Counting()
    with pytest.raises(ValueError, match='got one of them twice'):
        BatchEnv([env, env])


def test_actions_are_checked_before_any_environment_is_stepped():
    env = BatchEnv([fakes.Counting(), fakes.Counting()])
    env.reset()
    with pytest.raises(ValueError, match=r'in \[0, 2\), got action=2 at index 1'):
        env.step([0, 2])
    with pytest.raises(
        ValueError, match=r'shape \(2,\), one row per environment, got shape=\(3,\)'
    ):
        env.step([0, 1, 1])
    np.testing.assert_array_equal(env.step([0, 1]).obs, [[1, 1], [1, 1]])


@pytest.mark.parametrize('num_workers', [0, 2])
def test_an_observation_or_reward_that_is_not_finite_names_the_environment(num_workers):
    nan = np.array([0, np.nan], np.float32)
    with make_batch_env([fakes.Constant, lambda: fakes.Constant(obs=nan)], 2, num_workers) as env:
        env.reset()
        with pytest.raises(
            FloatingPointError, match=r'Observation .*=nan in element \(1,\) at index 1'
        ):
            env.step([0, 0])
        with pytest.raises(RuntimeError, match='again after an error'):
            env.step([0, 0])
    makes = [fakes.Constant, lambda: fakes.Constant(reward=-np.inf)]
    with make_batch_env(makes, 2, num_workers) as env:
        env.reset()
        with pytest.raises(FloatingPointError, match=r'Reward .* reward=-inf at index 1'):
            env.step([0, 0])


def test_a_last_observation_that_is_not_finite_is_seen_too():
    class Env(fakes.Counting):
        def step(self, action):
            obs, *rest = super().step(action)
            return obs * np.nan, *rest

    env = BatchEnv([Env(length=1)])
    env.reset()
    with pytest.raises(FloatingPointError, match=r'Observation must be finite.*index 0'):
        env.step([0])


def test_a_step_needs_a_reset_first():
    env = BatchEnv([fakes.Counting()])
    with pytest.raises(RuntimeError, match='must be reset before it is stepped'):
        env.step([0])


@pytest.mark.parametrize('num_workers', [0, 1, 3])
def test_the_first_error_is_raised_with_the_number_of_its_environment(num_workers):
    makes = [fakes.Trouble, *[lambda: fakes.Trouble('raise')] * 3]
    with make_batch_env(makes, 4, num_workers) as env:
        env.reset()
        with pytest.raises(ZeroDivisionError) as info:
            env.step([0, 1, 0, 0])
        assert 'Raised by environment 1 in step, last action: 1.' in info.value.__notes__
        with pytest.raises(RuntimeError, match='again after an error'):
            env.step([0, 0, 0, 0])
        env.set_attr('trouble', '')
        env.reset()
        # The reset before and this one: second episode, first step, in every environment.
        np.testing.assert_array_equal(env.step([0, 0, 0, 0]).obs, [[2, 1]] * 4)


@pytest.mark.parametrize('num_workers', [0, 2])
def test_methods_and_attributes_of_environments_are_reached_through_wrappers(num_workers):
    def make():
        return gymnasium.wrappers.TimeLimit(fakes.Trouble(), 10)

    with make_batch_env(make, 3, num_workers) as env:
        assert env.call('double', 4, plus=1) == (9, 9, 9)
        env.set_attr('length', 8)
        assert env.get_attr('length') == (8, 8, 8)
        assert env.call('get_wrapper_attr', 'length') == (8, 8, 8)
        env.reset()
        assert env.render() == ('frame 1 0',) * 3
        with pytest.raises(AttributeError, match='nothing_such'):
            env.get_attr('nothing_such')
        with pytest.raises(KeyError, match='in a call') as info:
            env.call('crash')
        assert "environment 0 in call 'crash'" in info.value.__notes__[0]
        env.step([0, 0, 0])


def test_halves_must_be_used_in_pairs():
    env = BatchEnv([fakes.Counting()])
    with pytest.raises(RuntimeError, match=r'Call step_async\(\) first'):
        env.step_wait()
    env.reset_async()
    with pytest.raises(RuntimeError, match=r'Call reset_wait\(\)'):
        env.step_async([0])
    with pytest.raises(RuntimeError, match=r'Call reset_wait\(\)'):
        env.call_async('render')
    env.reset_wait()
    env.step_async([0])
    np.testing.assert_array_equal(env.step_wait().obs, [[1, 1]])


def test_closing_goes_on_past_an_error_and_happens_once():
    envs = [fakes.Trouble('raise', where='close'), fakes.Trouble('special', where='close')]
    closed = []

    class Last(fakes.Counting):
        def close(self):
            closed.append(self)

    process = ExternalProcess(lambda: fakes.Trouble('raise', where='close'))
    env = BatchEnv([*envs, process, Last()])
    with pytest.raises(ZeroDivisionError) as info:
        env.close()
    assert 'environment 0 in close' in info.value.__notes__[0]
    assert len(closed) == 1
    env.close()
    with pytest.raises(RuntimeError, match='after it was closed'):
        env.reset()
    with pytest.raises(RuntimeError, match='was closed'):
        process.reset()


@pytest.mark.parametrize(
    ('num_envs', 'num_workers', 'sizes'),
    [(7, 3, [2, 2, 3]), (2, 5, [1, 1]), (4, 1, [4]), (5, 2, [2, 3])],
)
def test_environments_are_shared_out_evenly_and_in_order(num_envs, num_workers, sizes):
    makes = [lambda i=i: fakes.Trouble(str(i)) for i in range(num_envs)]
    with make_batch_env(makes, num_envs, num_workers) as env:
        pids = env.call('pid')
        assert env.get_attr('trouble') == tuple(str(i) for i in range(num_envs))
    assert [pids.count(pid) for pid in dict.fromkeys(pids)] == sizes
    assert os.getpid() not in pids


def test_there_is_one_worker_for_each_usable_core_by_default(monkeypatch):
    monkeypatch.setattr(os, 'sched_getaffinity', lambda pid: {0, 5, 7})
    with make_batch_env(fakes.Trouble, 4) as env:
        assert len(set(env.call('pid'))) == 3
    monkeypatch.delattr(os, 'sched_getaffinity')
    monkeypatch.setattr(os, 'cpu_count', lambda: 2)
    with make_batch_env(fakes.Trouble, 4) as env:
        assert len(set(env.call('pid'))) == 2


def test_workers_share_the_usable_cores():
    cores = os.sched_getaffinity(0)
    with make_batch_env(fakes.Trouble, len(cores), num_workers=len(cores)) as env:
        shares = [os.sched_getaffinity(pid) for pid in env.call('pid')]
    assert [len(share) for share in shares] == [1] * len(cores)
    assert set.union(*shares) == cores
    with make_batch_env(fakes.Trouble, 1, num_workers=1) as env:
        assert os.sched_getaffinity(env.call('pid')[0]) == cores
    with make_batch_env(fakes.Trouble, len(cores) + 1, num_workers=len(cores) + 1) as env:
        assert {*map(frozenset, map(os.sched_getaffinity, env.call('pid')))} == {frozenset(cores)}


def test_what_does_not_make_environments_is_named():
    with pytest.raises(TypeError, match=r"got 'CartPole-v1' at index 0.*lambda: gymnasium.make"):
        make_batch_env('CartPole-v1', 2)
    with pytest.raises(TypeError, match=r'got .*Counting.* at index 1'):
        make_batch_env([fakes.Counting, fakes.Counting()], 2, num_workers=0)
    with pytest.raises(ValueError, match='got num_envs=2 and 1 functions'):
        make_batch_env([fakes.Counting], 2)
    with pytest.raises(ValueError, match='got num_envs=0'):
        make_batch_env(fakes.Counting, 0)
    with pytest.raises(ValueError, match='got num_workers=-1'):
        make_batch_env(fakes.Counting, 1, num_workers=-1)


def test_what_was_made_is_closed_when_something_fails():
    closed = []

    class Env(fakes.Counting):
        def close(self):
            closed.append(self)

    def fail():
        raise ZeroDivisionError('cannot be made')

    with pytest.raises(ZeroDivisionError, match='cannot be made') as info:
        make_batch_env([Env, Env, fail], 3, num_workers=0)
    assert info.value.__notes__ == ['Raised when environment 2 was made.']
    assert len(closed) == 2
    with pytest.raises(ZeroDivisionError, match='cannot be made') as info:
        make_batch_env([fakes.Counting, fakes.Counting, fail], 3, num_workers=2)
    assert info.value.__notes__[-1] == 'Raised when environment 2 was made.'


def test_parts_of_a_batch_report_numbers_of_the_whole():
    parts = [BatchEnv([fakes.Trouble(), fakes.Trouble()]), fakes.Trouble()]
    env = BatchEnv([fakes.Trouble(), *parts])
    assert env.first_index == 0
    assert parts[0].first_index == 1
    env.first_index = 10
    env.reset()
    parts[1].trouble = 'raise'
    with pytest.raises(ZeroDivisionError) as info:
        env.step([0] * 4)
    assert info.value.__notes__ == ['Raised by environment 13 in step, last action: 0.']


def test_this_module_does_not_import_tensorflow():
    names = {name.partition('.')[0] for name in vars(batch_env)}
    assert 'tensorflow' not in names and 'tf' not in names
