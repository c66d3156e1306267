"""Each kind of space in a task whose best score is known, which PPO must reach."""

import gymnasium
import numpy as np
import pytest
import tensorflow as tf
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Tuple

from agents import tools
from agents.algorithms import PPO, ActorCritic, Hyperparameters

STEPS = 10  # Of an episode; each is a question of its own, whose best answer earns 1.


class Questions(gymnasium.Env):
    """Shows a random observation and judges the action that answers it."""

    def __init__(self):
        self.steps = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        self.question = self.ask()
        return self.question, {}

    def step(self, action):
        reward = float(self.judge(action))
        self.steps += 1
        self.question = self.ask()
        return self.question, reward, self.steps == STEPS, False, {}


class Named(Questions):
    """One entry names a number in another one; the action is its sign."""

    observation_space = Dict(
        numbers=Tuple([Box(-9, 9, (1,), np.float32), Box(-1, 1, (1,))]), which=Discrete(2, start=5)
    )
    action_space = Discrete(2)

    def ask(self):
        scales = (9, 1)
        numbers = tuple(np.float32(scale * self.np_random.uniform(-1, 1, (1,))) for scale in scales)
        return {'which': self.np_random.integers(5, 7), 'numbers': numbers}

    def judge(self, action):
        return action == (self.question['numbers'][self.question['which'] - 5][0] > 0)


class Copied(Questions):
    """Every number is to be repeated, by actions that count from elsewhere."""

    observation_space = MultiDiscrete([3, 2], start=[1, 0])
    action_space = Dict(
        digits=MultiDiscrete([[3], [2]], start=[[-1], [7]]),
        more=Tuple([MultiBinary(2), Box(0, 2, (1,))]),
    )

    def ask(self):
        return np.array([self.np_random.integers(1, 4), self.np_random.integers(2)])

    def judge(self, action):
        assert self.action_space.contains(action)
        first, second = action['digits'][:, 0] - [-1, 7]
        bits, (number,) = action['more']
        right = first == self.question[0] - 1, second == self.question[1]
        right += tuple(bits == self.question[1])
        return (sum(right) + 1 - abs(number - self.question[1])) / 5


class Masked(Questions):
    """The largest number that is allowed is the best, and others are not to be tried."""

    observation_space = Dict(action_mask=MultiBinary(5), nothing=Discrete(1))
    action_space = Discrete(5, start=3)

    def ask(self):
        mask = np.int8(self.np_random.random(5) < 0.5)
        mask[self.np_random.integers(5)] = 1
        return {'nothing': 0, 'action_mask': mask}

    def judge(self, action):
        mask = self.question['action_mask']
        assert mask[action - 3] == 1
        return (action - 3 + 1) / (np.flatnonzero(mask).max() + 1)


class Bright(Questions):
    """A bright square is somewhere in the left half or in the right one."""

    observation_space = Box(0, 255, (1, 36, 36), np.uint8)
    action_space = Discrete(2)

    def ask(self):
        image = np.zeros((1, 36, 36), np.uint8)
        row, column = self.np_random.integers(27, size=2)
        image[0, row : row + 9, column : column + 9] = 255
        self.right = column > 13
        return image

    def judge(self, action):
        return action == self.right


def train(task, updates, algorithm=PPO, num_envs=16, horizon=32, **kwargs):
    """Return the mean score of an evaluation, and the algorithm."""
    env = tools.InGraphBatchEnv(tools.make_batch_env(task, num_envs, 0))
    hyper = Hyperparameters(
        **{
            'learning_rate': 3e-3,
            'discount': 0.0,
            'epochs': 4,
            'policy_layers': (32,),
            'value_layers': (32,),
            'normalize_rewards': False,
        }
        | kwargs
    )
    learner = algorithm(env.observation_space, env.action_space, num_envs, hyper)
    simulation = tools.simulate(env, learner, horizon)
    for _ in range(updates):
        simulation()
    eval_env = tools.InGraphBatchEnv(tools.make_batch_env(task, num_envs, 0))
    return tools.evaluate(eval_env, learner)(range(num_envs)).score.mean(), learner


def test_parts_of_an_observation_are_put_together():
    score, learner = train(Named, 30)
    assert score > 0.9 * STEPS  # A policy that overlooks which number is named gets 3/4 at most.
    # Statistics of the Boxes only, uniform on (-9, 9) and (-1, 1): (2 · 9)² / 12 = 27 and 1/3.
    variances = [x.variance.numpy() for x in learner.normalize_obs.submodules]
    assert np.ravel(variances) == pytest.approx([27, 1 / 3], rel=0.05)


def test_actions_of_many_parts_are_learned_together():
    score, _ = train(Copied, 40, share_layers=True, entropy_coef=0.0)
    # Guessing gets (1/3 + 1/2 + 2 · 1/2 + 1/2) / 5 = 0.47 of it.
    assert score > 0.93 * STEPS


@pytest.mark.parametrize('algorithm', [PPO, ActorCritic])
def test_only_allowed_actions_are_taken_and_the_best_of_them_learned(algorithm):
    score, _ = train(Masked, 30, algorithm, action_mask='action_mask', learning_rate=0.02)
    assert score == pytest.approx(STEPS)


def test_what_is_in_an_image_is_learned():
    score, learner = train(
        Bright, 12, network='nature', share_layers=True, learning_rate=1e-3, activation='relu'
    )
    assert score > 0.9 * STEPS
    assert not learner.can_compile and learner.normalize_obs is None


@pytest.mark.parametrize('distribution', ['tanh_normal', 'beta'])
def test_bounded_distributions_reach_an_action_inside_the_bounds(distribution):
    class Target(Questions):
        observation_space = Discrete(2)
        action_space = Box(2, 4, (1,))

        def ask(self):
            return self.np_random.integers(2)

        def judge(self, action):
            return 1 - abs(action[0] - (2.5 if self.question else 3.75))

    score, _ = train(Target, 15, distribution=distribution, state_dependent_std=True)
    assert score > 0.9 * STEPS


def test_workers_and_the_graph_change_nothing_about_nested_values():
    # Copied judges in the worker; what it got wrong would change the rewards.
    def rollout(workers):
        env = tools.InGraphBatchEnv(tools.make_batch_env(Copied, 2, workers))
        env.reset(3)
        random = np.random.default_rng(0)
        results = []
        for _ in range(STEPS + 2):
            action = {
                'more': (random.integers(0, 2, (2, 2)), random.uniform(0, 2, (2, 1))),
                'digits': np.stack(
                    [random.integers(-1, 2, (2, 1)), random.integers(7, 9, (2, 1))], 1
                ),
            }
            zeros = tools.spaces.zeros(Copied.action_space, (2,))
            cast = tf.nest.map_structure(
                lambda x, zero: tf.constant(x, zero.dtype), action, dict(zeros)
            )
            transition = env.step(cast)
            results += [transition.obs.numpy(), transition.reward.numpy()]
        env.close()
        return np.concatenate([np.ravel(x) for x in results])

    here = rollout(0)
    np.testing.assert_array_equal(here, rollout(1))
    assert len(set(here.tolist())) > 10
