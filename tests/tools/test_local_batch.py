import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete

from agents.tools.local_batch import LocalBatch
from tests.tools import fakes


def make(*envs, first_index=0):
    batch = LocalBatch(envs, first_index=first_index)
    batch.reset_async([None] * len(envs))
    batch.reset_wait()
    return batch


def step(batch, action=None):
    batch.step_async(np.zeros(batch.num_envs, int) if action is None else np.asarray(action))
    return batch.step_wait()


def test_an_episode_that_ends_is_reset_in_the_same_step():
    batch = make(fakes.Counting(length=2), fakes.Counting(length=3, truncate=True))
    arrays = batch.arrays
    np.testing.assert_array_equal(arrays.obs, [[1, 0], [1, 0]])  # [episode, step]
    assert step(batch) is False
    np.testing.assert_array_equal(arrays.obs, [[1, 1], [1, 1]])
    np.testing.assert_array_equal(arrays.reward, [11, 11])
    assert step(batch) is True
    np.testing.assert_array_equal(arrays.obs, [[2, 0], [1, 2]])
    np.testing.assert_array_equal(arrays.last_obs[0], [1, 2])
    np.testing.assert_array_equal(arrays.reward, [12, 12])
    assert arrays.terminated.tolist() == [True, False]
    assert arrays.truncated.tolist() == [False, False]
    assert step(batch) is True
    np.testing.assert_array_equal(arrays.obs, [[2, 1], [2, 0]])
    np.testing.assert_array_equal(arrays.last_obs[1], [1, 3])
    assert arrays.terminated.tolist() == [False, False]
    assert arrays.truncated.tolist() == [False, True]


def test_the_reset_within_a_step_has_no_seed():
    seeds = []

    class Env(fakes.Counting):
        def reset(self, *, seed=None, options=None):
            seeds.append(seed)
            return super().reset(seed=seed)

    batch = LocalBatch([Env(length=1)])
    batch.reset_async([5])
    batch.reset_wait()
    step(batch)
    assert seeds == [5, None]


@pytest.mark.parametrize(
    'reward', [2, 2.0, np.float32(2), np.float64(2), np.int64(2), np.array(2.0), np.array([2.0])]
)
def test_a_reward_may_be_any_kind_of_number(reward):
    batch = make(fakes.Constant(reward=reward))
    step(batch)
    assert batch.arrays.reward.tolist() == [2.0]
    assert batch.arrays.reward.dtype == np.float32


def test_a_reward_with_two_elements_is_an_error():
    batch = make(fakes.Constant(reward=np.zeros(2)))
    with pytest.raises(ValueError, match='size 1'):
        step(batch)


@pytest.mark.parametrize('obs', [np.zeros(1, np.float32), np.zeros((1, 2), np.float32), 0.0])
def test_an_observation_of_another_shape_is_an_error_with_its_number(obs):
    batch = make(fakes.Constant(), fakes.Constant(obs=obs), first_index=4)
    with pytest.raises(ValueError, match=r'shape \(2,\), got shape=\(.*\) at index 5') as info:
        step(batch)
    assert 'environment 5 in step, last action: 0' in info.value.__notes__[0]


def test_observations_of_other_dtypes_are_cast_where_nothing_is_lost():
    batch = make(fakes.Constant(obs=np.array([0.5, 1.0])), fakes.Constant(obs=[1, 0]))
    step(batch)
    np.testing.assert_array_equal(batch.arrays.obs, [[0.5, 1], [1, 0]])
    space = Box(0, 255, (2,), np.uint8)
    batch = make(fakes.Constant(obs=np.array([0.5, 1.0]), observation_space=space))
    with pytest.raises(TypeError, match='must have dtype uint8, got dtype=float64 at index 0'):
        step(batch)


def test_discrete_observations_may_be_python_integers_or_arrays():
    space = Discrete(5, start=2)
    values = [3, np.int64(4), np.array(5)]
    batch = make(*(fakes.Constant(obs=value, observation_space=space) for value in values))
    step(batch)
    assert batch.arrays.obs.tolist() == [3, 4, 5]


def test_an_environment_that_keeps_its_actions_never_sees_them_change():
    env = fakes.Constant(action_space=Box(-1, 1, (2,), np.float32))
    batch = make(env)
    action = np.array([[0.25, 0.5]], np.float32)
    step(batch, action)
    action[:] = 0
    step(batch, action)
    np.testing.assert_array_equal(env.actions, [[0.25, 0.5], [0, 0]])


def test_discrete_actions_arrive_as_python_integers():
    env = fakes.Constant(action_space=Discrete(3, start=2))
    batch = make(env)
    step(batch, [4])
    assert env.actions == [4]
    assert type(env.actions[0]) is int


def test_an_error_in_a_step_keeps_its_type_and_names_environment_and_action():
    batch = make(fakes.Trouble(), fakes.Trouble('raise'), first_index=10)
    with pytest.raises(ZeroDivisionError, match='one over nothing') as info:
        step(batch, [0, 1])
    assert info.value.__notes__ == ['Raised by environment 11 in step, last action: 1.']


def test_an_error_in_the_reset_of_an_ended_episode_names_environment_and_action():
    env = fakes.Trouble(where='reset')
    batch = make(env)
    env.trouble, env.length = 'raise', 1
    with pytest.raises(ZeroDivisionError) as info:
        step(batch, [1])
    assert info.value.__notes__ == ['Raised by environment 0 in step, last action: 1.']


def test_an_error_in_a_reset_names_the_environment():
    batch = LocalBatch([fakes.Trouble(), fakes.Trouble('raise', where='reset')], first_index=2)
    batch.reset_async([1, 2])
    with pytest.raises(ZeroDivisionError) as info:
        batch.reset_wait()
    assert info.value.__notes__ == ['Raised by environment 3 in reset, last action: None.']


def test_after_an_error_the_batch_needs_a_reset():
    env = fakes.Trouble('raise')
    batch = make(env)
    with pytest.raises(ZeroDivisionError):
        step(batch)
    env.trouble = ''
    with pytest.raises(RuntimeError, match=r'must be reset .* again after an error'):
        step(batch)
    batch.reset_async([None])
    batch.reset_wait()
    step(batch)
    np.testing.assert_array_equal(batch.arrays.obs, [[2, 1]])


def test_a_step_before_the_first_reset_is_an_error():
    with pytest.raises(RuntimeError, match='must be reset before it is stepped'):
        step(LocalBatch([fakes.Counting()]))


def test_all_environments_are_closed_also_when_one_raises():
    closed = []

    class Env(fakes.Counting):
        def close(self):
            closed.append(self)
            raise OSError('cannot close')

    batch = LocalBatch([Env(), Env()])
    errors = batch.close()
    assert len(closed) == 2
    assert [type(error) for error in errors] == [OSError, OSError]
    assert 'environment 1 in close' in errors[1].__notes__[0]
    assert batch.close() == []
