"""Stand-ins for `BatchEnv` and for an algorithm, whose every number is known."""

import gymnasium
import numpy as np
import tensorflow as tf

from agents.tools.transition import StepResult


class FakeBatch:
    """Environment i counts its steps; its episodes last `lengths[i]` steps.

    The observation is [i, step of the episode]; the reward is 10 ** i. A step (number, environment)
    that is invalid begins a new episode.
    """

    def __init__(self, lengths, ends='terminated', invalid=(), tape=None):
        self.num_envs = len(lengths)
        self.observation_space = gymnasium.spaces.Box(-1, 1000, (2,), np.float32)
        self.action_space = gymnasium.spaces.Discrete(3)
        self.actions = []
        self._lengths = np.array(lengths)
        self._ends = ends
        self._invalid = set(invalid)
        self._tape = tape if tape is not None else []
        self._time = np.zeros(self.num_envs, int)
        self.steps = 0

    def reset(self, seed=None):
        self._tape.append('reset')
        self.seed = seed
        self._time = np.zeros(self.num_envs, int)
        return self._obs()

    def step(self, action):
        self._tape.append('step')
        self.actions.append(np.array(action))
        valid = np.array([(self.steps, i) not in self._invalid for i in range(self.num_envs)])
        self.steps += 1
        self._time = np.where(valid, self._time + 1, 0)
        ended = (self._time == self._lengths) & valid
        next_obs = self._obs()
        self._time[ended] = 0
        none = np.zeros(self.num_envs, bool)
        return StepResult(
            obs=self._obs(),
            reward=np.where(valid, 10.0 ** np.arange(self.num_envs), np.nan).astype(np.float32),
            terminated=ended if self._ends == 'terminated' else none,
            truncated=ended if self._ends == 'truncated' else none,
            next_obs=next_obs,
            valid=valid,
        )

    def close(self):
        self._tape.append('close')

    def _obs(self):
        return np.stack([np.arange(self.num_envs), self._time], -1).astype(np.float32)


class Recorder(tf.Module):
    """An algorithm that only remembers: `given` is what the last update was given."""

    failure_names = ('heart', 'lung')

    def __init__(self, tape=None, failure=None):
        super().__init__()
        self._tape = tape
        self._failure = failure
        self.given = None

    def initial(self, num_envs):
        return tf.zeros([num_envs], tf.int32)

    def perform(self, obs, first, carry, seed, training):
        self._note('perform')
        carry = tf.where(first, 0, carry) + 1
        action = tf.random.stateless_uniform(
            [obs.shape[0]], seed, maxval=3, dtype=tf.int64, alg='philox'
        )
        return (action if training else 2 + 0 * action), {'carry': carry, 'seed': seed}, carry

    def experience(self, transition, extras):
        self._note('experience')
        seed = tf.tile(extras['seed'][None], [transition.obs.shape[0], 1])
        return {'transition': transition, 'carry': extras['carry'], 'seed': seed}

    def update(self, records, last_obs, carry, seed):
        self._note('update')
        given = {'records': records, 'last_obs': last_obs, 'carry': carry, 'seed': seed}

        def keep(*leaves):
            # Copied, since TensorFlow lends its memory for the time of the call only.
            self.given = tf.nest.pack_sequence_as(given, [np.array(leaf) for leaf in leaves])

        tf.numpy_function(keep, tf.nest.flatten(given), [])
        metrics = {'answer': tf.constant(42.0)}
        if self._failure is not None:
            metrics['failure'] = tf.constant(self._failure)
        return metrics

    def _note(self, word):
        if self._tape is not None:
            tf.numpy_function(lambda: self._tape.append(word), [], [])
