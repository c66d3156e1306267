"""A batch of environments inside the TensorFlow graph: stepping it is an operation."""

import contextlib
import ctypes
import threading
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from agents.tools import env_state, interrupts, spaces
from agents.tools.batch_env import BatchEnv
from agents.tools.transition import Nest, StepResult, Transition


class EnvState(NamedTuple):
    """What a loop carries from step to step.

    Attributes:
        obs: Observation to act on, nest [B, ...].
        first: The episode begins with this observation, bool [B].
        inner: What an environment that is a tensor program consists of besides, nest [B, ...].
    """

    obs: Nest
    first: tf.Tensor
    inner: Nest = ()


class LastStep(NamedTuple):
    """What the variables tell about the step that was made last.

    Attributes:
        action: Action that the environment received, nest [B, ...].
        reward: Reward for it, float32 [B].
        terminated: The world ended, bool [B].
        truncated: The episode was cut, bool [B].
    """

    action: Nest
    reward: tf.Tensor
    terminated: tf.Tensor
    truncated: tf.Tensor


class InGraphBatchEnv(tf.Module):
    """Holds the current batch in variables; `reset` and `step` are TensorFlow operations.

    Inside a loop, state travels as loop values instead: `state()` before it, `advance()` in it and
    `assign()` after it. An episode that ends is reset within the same step, see `StepResult`; or in
    the next one, which is then not valid.

    Attributes:
        obs: Observation to act on, nest of variables [B, ...].
        first: The episode begins with `obs`, bool variable [B].
        action: Last action, nest of variables [B, ...].
        reward: Reward of the last step, float32 variable [B].
        terminated: The last step ended the world, bool variable [B].
        truncated: The last step cut the episode, bool variable [B].
        can_compile: Whether XLA can compile the step; Python environments never.
    """

    can_compile = False
    _batch_env: Any = None  # Tensor programs have none.

    def __init__(self, batch_env: BatchEnv):
        """Put a batch of environments into the graph.

        Args:
            batch_env: The environments; closed by `close()`.
        """
        super().__init__(name='in_graph_batch_env')
        self._batch_env = batch_env
        self._error: BaseException | None = None
        self._make_variables(
            batch_env.observation_space, batch_env.action_space, batch_env.num_envs
        )

    def _make_variables(self, observation_space: Any, action_space: Any, num_envs: int) -> None:
        self._ready = False
        self.num_envs = num_envs
        self.observation_space = observation_space
        self.action_space = action_space
        self._obs_zeros = spaces.zeros(observation_space, (num_envs,))
        self._action_zeros = spaces.zeros(action_space, (num_envs,))
        self.obs = _variables(self._obs_zeros, 'obs')
        self.action = _variables(self._action_zeros, 'action')
        self.first = tf.Variable(tf.ones(num_envs, tf.bool), trainable=False, name='first')
        self.reward = tf.Variable(tf.zeros(num_envs), trainable=False, name='reward')
        self.terminated = tf.Variable(tf.zeros(num_envs, tf.bool), trainable=False)
        self.truncated = tf.Variable(tf.zeros(num_envs, tf.bool), trainable=False)

    @property
    def worker_failures(self) -> int:
        """How often worker processes failed and were started anew."""
        return self._batch_env.worker_failures if self._batch_env else 0

    @property
    def ready(self) -> bool:
        """Whether the environments can be stepped: reset, and not failed since."""
        return self._ready

    def reset(self, seed: int | Sequence[int] | tf.Tensor | None = None) -> Nest:
        """Begin a new episode in every environment.

        Args:
            seed: One seed, expanded to a sequence, or one per environment, int [] or [B]; None goes
                on with the environments' own random streams.

        Returns:
            First observations, nest [B, ...].
        """
        seed = tf.zeros([0], tf.int64) if seed is None else tf.cast(seed, tf.int64)
        leaves = tf.nest.flatten(self._obs_zeros)
        outputs = tf.numpy_function(self._host_reset, [seed], [leaf.dtype for leaf in leaves])
        obs = self._restore(self._obs_zeros, tf.nest.flatten(outputs))
        self.assign(EnvState(obs, tf.ones_like(self.first)))
        self.reward.assign(tf.zeros_like(self.reward))
        self.terminated.assign(tf.zeros_like(self.terminated))
        self.truncated.assign(tf.zeros_like(self.truncated))
        return obs

    def step(self, action: Nest) -> Transition:
        """Step every environment once and keep the results in the variables.

        Args:
            action: Actions as the action space says, nest [B, ...].

        Returns:
            The transition; what to act on next is in `obs` afterwards.
        """
        state, transition = self.advance(self.state(), action)
        self.assign(state, transition)
        return transition

    def state(self) -> EnvState:
        """Read what a loop needs from the variables."""
        read = tf.nest.map_structure(lambda variable: variable.read_value(), self.obs)
        return EnvState(read, self.first.read_value())

    def advance(self, state: EnvState, action: Nest) -> tuple[EnvState, Transition]:
        """Step every environment once without touching the variables.

        Args:
            state: Where the environments are, from `state()` or the last `advance()`.
            action: Actions as the action space says, nest [B, ...].

        Returns:
            The next state and the transition.
        """
        obs_dtypes = [leaf.dtype for leaf in tf.nest.flatten(self._obs_zeros)]
        dtypes = [*obs_dtypes, tf.float32, tf.bool, tf.bool, *obs_dtypes, tf.bool]
        outputs = tf.numpy_function(self._host_step, tf.nest.flatten(action), dtypes)
        size = len(obs_dtypes)
        reward, terminated, truncated = (self._rows(x) for x in outputs[size : size + 3])
        next_obs = self._restore(self._obs_zeros, outputs[size + 3 : -1])
        valid = self._rows(outputs[-1])
        # No episode goes on through a row that is not valid, such as a reset.
        next_state = EnvState(
            self._restore(self._obs_zeros, outputs[:size]), terminated | truncated | ~valid
        )
        transition = Transition(
            obs=state.obs,
            action=action,
            reward=reward,
            terminated=terminated,
            truncated=truncated,
            next_obs=next_obs,
            first=state.first,
            valid=valid,
        )
        return next_state, transition

    def assign(self, state: EnvState, last: LastStep | Transition | None = None) -> None:
        """Store where a loop has arrived.

        Args:
            state: Last state of the loop.
            last: Its last step, if it made one.
        """
        tf.nest.map_structure(lambda variable, x: variable.assign(x), self.obs, state.obs)
        self.first.assign(state.first)
        if last is not None:
            tf.nest.map_structure(lambda variable, x: variable.assign(x), self.action, last.action)
            self.reward.assign(last.reward)
            self.terminated.assign(last.terminated)
            self.truncated.assign(last.truncated)

    @property
    def state_in_variables(self) -> bool:
        """Whether the variables hold everything, so that a checkpoint has it."""
        return self._batch_env is None

    def get_state(self) -> tuple:
        """Return what the variables do not hold; see `BatchEnv.get_state`."""
        if not self._ready or not hasattr(self._batch_env, 'get_state'):
            raise env_state.Unsupported('The environments were stopped in the middle of a rollout.')
        return self._batch_env.get_state()

    def set_state(self, states: Sequence[Any]) -> None:
        """Go on from where the variables are, which were restored from the same moment.

        Args:
            states: What `get_state` returned then.
        """
        self._batch_env.set_state(states)
        self._ready = True

    @contextlib.contextmanager
    def own_errors(self, grace: float = 0.0) -> Iterator[None]:
        """Run operations inside this to get the environment's own exceptions out of them.

        TensorFlow only keeps their text. A signal ends the operation within one step.

        Args:
            grace: How long the operation may go on after a signal, seconds.

        Raises:
            KeyboardInterrupt: A signal ended the operation, and its handler raised nothing itself.
        """
        self._error = None
        try:
            with interrupts.watch(grace):
                yield
        # A signal handler that raises while TensorFlow makes its exception yields a RuntimeError.
        except (tf.errors.OpError, RuntimeError):
            error, self._error = self._error, None
            if isinstance(error, interrupts.Interrupted):
                raise KeyboardInterrupt(str(error)) from None
            if error is not None:
                raise error from error.__cause__
            raise

    def close(self) -> None:
        """Close the environments and end their processes."""
        self._batch_env.close()

    def _host_reset(self, seed: np.ndarray) -> list[np.ndarray]:
        """Reset in Python; an empty seed stands for none."""
        try:
            interrupts.check()
            value = seed.tolist() if seed.shape != (0,) else None
            obs = self._batch_env.reset(value)
        except BaseException as error:
            self._fail(error)
            raise
        self._ready = True
        return tf.nest.flatten(obs)

    def _host_step(self, *leaves: np.ndarray) -> list[np.ndarray]:
        """Step in Python, from leaves of actions to leaves of results."""
        _keep_thread_state()
        try:
            interrupts.check()
            action = tf.nest.pack_sequence_as(self._action_zeros, leaves)
            result: StepResult = self._batch_env.step(action)
        except BaseException as error:
            self._fail(error)
            raise
        return [
            *tf.nest.flatten(result.obs),
            result.reward,
            result.terminated,
            result.truncated,
            *tf.nest.flatten(result.next_obs),
            result.valid,
        ]

    def _fail(self, error: BaseException) -> None:
        self._error = error
        self._ready = False

    def _rows(self, tensor: tf.Tensor) -> tf.Tensor:
        tensor.set_shape([self.num_envs])
        return tensor

    def _restore(self, zeros: Nest, leaves: Sequence[tf.Tensor]) -> Nest:
        """Give the leaves back their structure and static shapes, which `numpy_function` loses."""
        for leaf, zero in zip(leaves, tf.nest.flatten(zeros), strict=True):
            leaf.set_shape(zero.shape)
        return tf.nest.pack_sequence_as(zeros, list(leaves))


_thread = threading.local()


def _keep_thread_state() -> None:
    """Let Python remember the present thread, which is one of TensorFlow's.

    Python makes a state for a foreign thread whenever it enters, and frees it when it leaves, which
    costs some 80 µs, more than everything else about calling Python from the graph. The state lives
    as long as somebody has entered more often than left.
    """
    if not hasattr(_thread, 'kept'):
        ctypes.pythonapi.PyGILState_Ensure()
        _thread.kept = True


def _variables(zeros: Nest, name: str) -> Any:
    return tf.nest.map_structure(
        lambda zero: tf.Variable(tf.constant(zero), trainable=False, name=name), zeros
    )
