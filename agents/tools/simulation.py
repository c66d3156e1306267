"""Environment steps and agent updates fused into one operation."""

import logging
import math
import time
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import tensorflow as tf

from agents.tools import memory
from agents.tools.in_graph_batch_env import EnvState, InGraphBatchEnv, LastStep
from agents.tools.transition import Nest

if TYPE_CHECKING:
    from agents.algorithms.algorithm import Algorithm

# Iterations of one call of a compiled program: its results need arrays of a static size.
MOST_ITERATIONS = 256

_logger = logging.getLogger(__name__)


def simulate(
    env: InGraphBatchEnv,
    algorithm: 'Algorithm',
    horizon: int = 256,
    seed: int = 0,
    max_rolled_back: int = 1,
) -> 'Simulation':
    """Fuse a rollout and an update into one operation.

    Args:
        env: Batch of environments in the graph.
        algorithm: What acts in them and learns.
        horizon: Steps of each environment between two updates, >= 1.
        seed: Seed of the environments and of everything random in the algorithm's verbs.
        max_rolled_back: How many updates in a row may meet something that is not finite until that
            is raised, >= 1. Each of them is undone, and the next one has other random numbers.

    Returns:
        The operation. Each call makes `horizon` × `num_envs` steps and one update.

    Raises:
        ValueError: The horizon or the number of updates is not positive.
    """
    if horizon < 1:
        raise ValueError(f'The horizon must be at least 1, got horizon={horizon}.')
    if max_rolled_back < 1:
        raise ValueError(
            'Updates rolled back in a row must be at least 1 to raise, got '
            f'max_rolled_back={max_rolled_back}.'
        )
    return Simulation(env, algorithm, horizon, seed, max_rolled_back)


class Tally(NamedTuple):
    """Scores and lengths of the running episodes, and sums over those that ended.

    Attributes:
        score: Undiscounted sum of rewards so far, float32 [B].
        length: Steps so far, int32 [B].
        steps: Number of real steps, int64 [].
        episodes: Number of episodes that ended, float32 [].
        score_sum: Sum of their scores, float32 [].
        length_sum: Sum of their lengths, in steps, float32 [].
    """

    score: tf.Tensor
    length: tf.Tensor
    steps: tf.Tensor
    episodes: tf.Tensor
    score_sum: tf.Tensor
    length_sum: tf.Tensor


def count_episodes(
    score: tf.Tensor, length: tf.Tensor, reward: tf.Tensor, ended: tf.Tensor, valid: tf.Tensor
) -> Tally:
    """Count the episodes of a rollout at once; fewer operations than a count at each step.

    The scores of all episodes of an environment that ended add up to everything until its last end;
    what comes after that belongs to the running one. Invalid rows count for nothing, and an episode
    that one of them cuts neither: at such a row a new one begins.

    Args:
        score: Score of the episode that runs at the start, float32 [B].
        length: Its steps so far, int32 [B].
        reward: Rewards, float32 [T, B].
        ended: Episodes that ended with this row, bool [T, B].
        valid: Rows that are real steps, bool [T, B].

    Returns:
        Sums, and the episodes that run at the end.
    """
    ended &= valid
    rows = tf.cast(valid, tf.int32)
    reward = tf.where(valid, reward, 0.0)
    first = tf.concat([[tf.equal(length, 0)], (ended | ~valid)[:-1]], 0)
    cut = ~valid & ~first
    left = tf.cumsum(tf.cast(ended | cut, tf.int32), 0, reverse=True) > 0
    closed = tf.cond(
        tf.reduce_any(cut),
        lambda: tf.scan(
            lambda closed, row: row[0] | (closed & ~row[1]),
            (ended, cut),
            tf.zeros_like(ended[0]),
            reverse=True,
        ),
        lambda: left,
    )

    def split(start: tf.Tensor, x: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        zero = tf.zeros([], x.dtype)
        over = tf.reduce_sum(tf.where(closed, x, zero), 0) + tf.where(closed[0], start, zero)
        runs = tf.reduce_sum(tf.where(left, zero, x), 0) + tf.where(left[0], zero, start)
        return tf.reduce_sum(tf.cast(over, tf.float32)), runs

    (score_sum, score), (length_sum, length) = split(score, reward), split(length, rows)
    episodes = tf.reduce_sum(tf.cast(ended, tf.float32))
    steps = tf.reduce_sum(tf.cast(rows, tf.int64))
    return Tally(score, length, steps, episodes, score_sum, length_sum)


class Simulation(tf.Module):
    """The operation that `simulate()` returns; keeps what must survive between its calls.

    Attributes:
        iteration: Number of rollouts so far; every seed is folded from it, int64 variable [].
        steps: Number of real steps so far, int64 variable [].
        histograms: What the last update returned under this name.
        rolled_back: How many updates were undone so far.
        rolled_back_in_a_row: How many of the last ones were, without one that was not.
        traces: How often TensorFlow has traced the operation; stays 1.
    """

    def __init__(
        self,
        env: InGraphBatchEnv,
        algorithm: 'Algorithm',
        horizon: int,
        seed: int,
        max_rolled_back: int = 1,
    ):
        super().__init__(name='simulation')
        self._env = env
        self._algorithm = algorithm
        self._horizon = horizon
        self._seed = seed
        self._max_rolled_back = max_rolled_back
        self.rolled_back = self.rolled_back_in_a_row = 0
        self.iteration = tf.Variable(0, dtype=tf.int64, trainable=False, name='iteration')
        self.steps = tf.Variable(0, dtype=tf.int64, trainable=False, name='steps')
        self.score = tf.Variable(tf.zeros(env.num_envs), trainable=False, name='score')
        self.length = tf.Variable(tf.zeros(env.num_envs, tf.int32), trainable=False, name='length')
        self.carry = tf.nest.map_structure(
            lambda x: tf.Variable(x, trainable=False), algorithm.initial(env.num_envs)
        )
        self.compiled = env.can_compile and getattr(algorithm, 'can_compile', False)
        function = self._iterate_many if self.compiled else self._iterate
        self.histograms: dict[str, tf.Tensor] = {}
        self._run = tf.function(function, autograph=False, jit_compile=self.compiled)

    @property
    def traces(self) -> int:
        """How often TensorFlow has traced the operation."""
        return self._run.experimental_get_tracing_count()

    def reset(self, seed: int | list[int] | None = None) -> None:
        """Begin new episodes; happens by itself before the first call and after an exception.

        Args:
            seed: Seed of the environments; by default folded from the run's seed and the iteration.
        """
        if seed is None:
            key = (self._seed, int(self.iteration.numpy()))
            seed = int(np.random.SeedSequence(key).generate_state(1)[0])
        with self._env.own_errors():
            self._env.reset(seed)
        self.score.assign(tf.zeros_like(self.score))
        self.length.assign(tf.zeros_like(self.length))

    def __call__(self) -> dict[str, float]:
        """Make `horizon` × `num_envs` steps and one update.

        Returns:
            `score` and `length`, means over the episodes that ended, NaN if none did; `episodes`,
            how many ended; `steps_per_second`, and split `simulate_steps_per_second` and
            `update_steps_per_second`; `simulate_seconds` and `update_seconds`; and what the
            algorithm's update returns.

        Raises:
            FloatingPointError: As many updates in a row as allowed met something that is not
                finite; each was undone.
            Exception: Whatever an environment raised, as its own type.
        """
        return self.run(1)[0]

    def run(self, iterations: int, grace: float = 0.0) -> list[dict[str, float]]:
        """Make several iterations; in one XLA program where everything can be compiled.

        Args:
            iterations: How many, up to `MOST_ITERATIONS` of them in one call of the program.
            grace: How long a rollout may go on after a signal until it is cut, seconds.

        Returns:
            Metrics of each iteration, as `__call__` returns them.

        Raises:
            FloatingPointError: As many updates in a row as allowed met something that is not
                finite; each was undone.
            Exception: Whatever an environment raised, as its own type.
        """
        if not self._env.ready:
            self.reset()
        if not self.compiled:
            return [self._run_once(grace) for _ in range(iterations)]
        metrics: list[dict[str, float]] = []
        while len(metrics) < iterations:
            metrics += self._run_program(min(iterations - len(metrics), MOST_ITERATIONS))
        return metrics

    def _run_program(self, iterations: int) -> list[dict[str, float]]:
        begin = time.perf_counter()
        results, histograms, done = self._run(tf.constant(iterations))
        done = int(done)
        seconds = (time.perf_counter() - begin) / done
        speed = self._horizon * self._env.num_envs / seconds
        rows = tf.nest.map_structure(lambda x: x.numpy()[:done], results)
        if 'failure' not in rows or not rows['failure'][-1][0]:
            self.histograms = histograms
        first = int(self.iteration.numpy()) - done + 1
        return [
            self._read({name: values[i] for name, values in rows.items()}, first + i)
            | {'steps_per_second': speed}
            for i in range(done)
        ]

    def _run_once(self, grace: float) -> dict[str, float]:
        with self._env.own_errors(grace):
            results = self._run()
        histograms = results.pop('histograms', {})
        if 'failure' not in results or not results['failure'][0]:
            self.histograms = histograms
        return self._read(results, int(self.iteration.numpy()))

    def _read(self, results: dict[str, Any], update: int) -> dict[str, float]:
        """Turn the results of an iteration into numbers; say or raise what they report."""
        failure = results.pop('failure', None)
        metrics = {name: float(value) for name, value in results.items()}
        if failure is None or not failure[0]:
            self.rolled_back_in_a_row = 0
            return metrics
        self.rolled_back += 1
        self.rolled_back_in_a_row += 1
        text = self._describe([int(x) for x in failure], update)
        if self.rolled_back_in_a_row >= self._max_rolled_back:
            # Whoever goes on after this, perhaps with other hyperparameters, begins to count anew.
            number, self.rolled_back_in_a_row = self.rolled_back_in_a_row, 0
            last = ', '.join(f'{name}={value:g}' for name, value in metrics.items())
            raise FloatingPointError(
                f'{text} Updates rolled back in a row: {number}. Last metrics: {last}.'
            )
        _logger.warning(
            'Rolled back, %d of at most %d in a row: %s',
            self.rolled_back_in_a_row,
            self._max_rolled_back,
            text,
        )
        return {name: x if math.isfinite(x) else math.nan for name, x in metrics.items()}

    def _iterate_many(
        self, count: tf.Tensor
    ) -> tuple[dict[str, tf.Tensor], dict[str, tf.Tensor], tf.Tensor]:
        """Iterate until something fails, in the graph; of the results the first `done` hold."""
        traced = tf.function(self._iterate, autograph=False).get_concrete_function()
        spec = dict(traced.structured_outputs)
        last = {name: tf.zeros(x.shape, x.dtype) for name, x in spec.pop('histograms', {}).items()}
        arrays = {
            name: tf.TensorArray(x.dtype, MOST_ITERATIONS, element_shape=x.shape)
            for name, x in spec.items()
        }

        def body(index: tf.Tensor, ok: tf.Tensor, last: Any, arrays: Any) -> Any:
            metrics = self._iterate()
            last = metrics.pop('histograms', {})
            ok = tf.equal(metrics['failure'][0], 0) if 'failure' in metrics else ok
            arrays = {name: array.write(index, metrics[name]) for name, array in arrays.items()}
            return index + 1, ok, last, arrays

        done, _, last, arrays = tf.while_loop(
            lambda index, ok, *_: ok & (index < count), body, (0, tf.constant(True), last, arrays)
        )
        return {name: array.stack() for name, array in arrays.items()}, last, done

    def _iterate(self) -> dict[str, Any]:
        """One rollout and one update, in the graph."""
        # A time stamp touches no tensor, so that only control dependencies say when it is taken.
        begin = self._stamp(())
        with tf.control_dependencies([begin]):
            rollout_seed, update_seed = self._fold_seeds()
        carry = tf.nest.map_structure(lambda variable: variable.read_value(), self.carry)
        records, last_obs, tally = self._rollout(carry, rollout_seed)
        middle = self._stamp(tally)
        metrics = dict(self._algorithm.update(records, last_obs, carry, update_seed))
        end = self._stamp(metrics)
        self.iteration.assign_add(1)
        metrics.update(
            score=tally.score_sum / tally.episodes,
            length=tally.length_sum / tally.episodes,
            episodes=tally.episodes,
        )
        if not self.compiled:
            steps = tf.cast(tally.steps, end.dtype)
            metrics.update(
                simulate_seconds=middle - begin,
                update_seconds=end - middle,
                simulate_steps_per_second=steps / (middle - begin),
                update_steps_per_second=steps / (end - middle),
                steps_per_second=steps / (end - begin),
            )
        return metrics

    def _stamp(self, after: Nest) -> tf.Tensor:
        """Return the time when some tensors are ready, seconds; XLA has no clock."""
        if self.compiled:
            return tf.zeros([], tf.float64)
        with tf.control_dependencies(tf.nest.flatten(after)):
            return tf.timestamp()

    def _rollout(self, carry: Nest, seed: tf.Tensor) -> tuple[Nest, Nest, Tally]:
        """Step the environments; everything travels as loop values and is assigned once after."""
        seeds = tf.random.stateless_uniform(
            [self._horizon, 2], seed, None, None, tf.int32, alg='philox'
        )
        state = self._env.state()
        spec, slots = self._trace_step(state, carry, seed)
        # At least: what is recorded, the same as rows to learn from, and those shuffled.
        memory.check(
            tf.nest.flatten(spec.record),
            3 * self._horizon,
            f'{self._horizon} steps of {self._env.num_envs:,} environments',
            'Use fewer environments (num_envs), or fewer steps of each (horizon).',
        )
        arrays = [
            tf.TensorArray(x.dtype, self._horizon, element_shape=x.shape)
            for x in dict(zip(slots, tf.nest.flatten(spec), strict=True)).values()
        ]

        def body(t: Any, state: EnvState, carry: Nest, arrays: Any) -> Any:
            state, carry, kept = self._step(state, carry, tf.gather(seeds, t))
            rows = _distinct(kept).values()
            arrays = [array.write(t, row) for array, row in zip(arrays, rows, strict=True)]
            return t + 1, state, carry, arrays

        _, state, carry, arrays = tf.while_loop(
            lambda t, *_: t < self._horizon,
            body,
            (tf.constant(0), state, carry, arrays),
            maximum_iterations=self._horizon,
        )
        stacked = [array.stack() for array in arrays]
        kept = tf.nest.pack_sequence_as(spec, [stacked[slot] for slot in slots])
        last = tf.nest.map_structure(lambda x: x[-1], kept.last)
        self._env.assign(state, last)
        tf.nest.map_structure(lambda variable, x: variable.assign(x), self.carry, carry)
        ended = kept.last.terminated | kept.last.truncated
        tally = count_episodes(self.score, self.length, kept.last.reward, ended, kept.valid)
        self.steps.assign_add(tally.steps)
        self.score.assign(tally.score)
        self.length.assign(tally.length)
        return kept.record, state.obs, tally

    def _step(self, state: EnvState, carry: Nest, seed: tf.Tensor) -> Any:
        """The algorithm acts, the environments step, the algorithm says what to keep."""
        action, extras, carry = self._algorithm.perform(
            state.obs, state.first, carry, seed, training=True
        )
        state, transition = self._env.advance(state, action)
        kept = _Kept(
            record=self._algorithm.experience(transition, extras),
            last=LastStep(
                transition.action, transition.reward, transition.terminated, transition.truncated
            ),
            valid=transition.valid,
        )
        return state, carry, kept

    def _trace_step(
        self, state: EnvState, carry: Nest, seed: tf.Tensor
    ) -> tuple['_Kept', list[int]]:
        """Trace one step aside, to know what the loop's arrays must hold.

        Returns:
            Shapes and dtypes of what is kept, and for each of its leaves the number of the array
            that holds it: most of an algorithm's record is what is kept anyway, and every array
            costs the loop some operations at each step.
        """
        slots: list[int] = []

        def step(state: EnvState, carry: Nest, seed: tf.Tensor) -> _Kept:
            kept = self._step(state, carry, seed)[-1]
            numbers = list(_distinct(kept))
            slots[:] = [numbers.index(id(leaf)) for leaf in tf.nest.flatten(kept)]
            return kept

        traced = tf.function(step, autograph=False).get_concrete_function(state, carry, seed)
        return traced.structured_outputs, slots

    def _fold_seeds(self) -> tuple[tf.Tensor, tf.Tensor]:
        """Fold the seeds of this rollout and of its update."""
        base = np.random.SeedSequence((self._seed, 1)).generate_state(2).astype(np.int32)
        seed = _fold_in(tf.constant(base), self.iteration)
        return _fold_in(seed, 0), _fold_in(seed, 1)

    def _describe(self, failure: list[int], update: int) -> str:
        which, minibatch, step, environment = failure
        name = self._algorithm.failure_names[which - 1]
        where = f'minibatch {minibatch}'
        if step >= 0:
            where += f', step {step} of the rollout, environment {environment}'
        return (
            f'The {name} must be finite, got a value that is not in update '
            f'{update}, {where}. The weights are those from before this '
            'update. Lower the learning rate, or look for extreme observations and rewards.'
        )


class _Kept(NamedTuple):
    """What is kept of a step, nests [B, ...], then stacked to [T, B, ...]."""

    record: Nest
    last: LastStep
    valid: tf.Tensor


def _distinct(nest: Nest) -> dict[int, tf.Tensor]:
    """Return each tensor of a nest once, in order, by its identity."""
    return {id(leaf): leaf for leaf in tf.nest.flatten(nest)}


def _fold_in(seed: tf.Tensor, data: Any) -> tf.Tensor:
    return tf.random.experimental.stateless_fold_in(seed, data, alg='philox')
