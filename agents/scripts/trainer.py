"""What is built for a training run, and the phases that `train` puts in order."""

import contextlib
import logging
import time

import numpy as np

from agents import tools
from agents.scripts import (
    camera,
    environments,
    policies,
    recording,
    runs,
    saved_spaces,
    signals,
    summaries,
)
from agents.scripts.config import Config
from agents.scripts.mistakes import UserError
from agents.scripts.progress import Progress
from agents.tools import packing

_logger = logging.getLogger(__name__)

# What seeds of evaluations are spawned for: 'eval' in ASCII. Training spawns none.
_EVAL = 0x6576616C

# How long a call of a compiled program should take: signals wait for its end.
_CALL_SECONDS = 1.0

# How long a rollout may go on after a signal: one that ends leaves environments at a known place.
# Container runtimes kill ten seconds after SIGTERM.
_GRACE_SECONDS = 3.0


class Trainer:
    """Environments, algorithm, operations and records of a run, from one start to one stop.

    Attributes:
        algorithm: What learns.
        counters: Where the run is; from its newest checkpoint if there is one.
        close: Close files, and environments with their processes.
    """

    def __init__(self, config: Config, run: runs.Run | None, progress: Progress):
        """Build everything, and restore the newest checkpoint.

        Args:
            config: What to train.
            run: Where to store checkpoints and metrics; None for nowhere.
            progress: Shows how far the training is.

        Raises:
            UserError: What the config asks for is not there.
        """
        self._config = config
        self._progress = progress
        with contextlib.ExitStack() as stack:
            stack.enter_context(progress.warnings())
            env = environments.make_batch(config, config.num_envs)
            stack.callback(env.close)
            eval_env = environments.make_batch(config, config.eval_envs)
            stack.callback(eval_env.close)
            self._envs = (env, eval_env)
            pair = (env.observation_space, env.action_space)
            self._run = run
            try:
                self._write_description()
            except OSError as error:
                raise UserError(f'The run folder must be writable: {error}.') from None
            self.algorithm = policies.make_algorithm(config, *pair)
            self._simulation = tools.simulate(
                env, self.algorithm, config.horizon, config.seed, config.max_rolled_back
            )
            self._evaluation = tools.evaluate(
                eval_env, self.algorithm, config.max_eval_steps or None
            )
            self._recorder = recording.Recorder(
                run, algorithm=self.algorithm, simulation=self._simulation
            )
            stack.callback(self._recorder.close)
            self._camera = None
            if run and config.video_every:
                self._camera = camera.Camera(run, self.algorithm, progress.say)
                stack.callback(self._camera.close)
            self.close = stack.pop_all().close
        self.counters = self._recorder.counters
        self._collected: list[dict[str, float]] = []
        self._iteration_seconds = _CALL_SECONDS  # Not known before the first one is made.
        self._failures_before = self.counters['worker_failures']
        self._saved = self._moment
        self._tried_at = self.step
        self._resumable = True
        self._time = time.monotonic()
        progress.begin(self.step, self.finished)
        self._show_scores()
        if self._recorder.restored and not self.finished:
            self._continue(self._recorder.continuation)

    @property
    def step(self) -> int:
        """Steps trained so far, before a resume as well."""
        return int(self._simulation.steps.numpy())

    @property
    def worker_failures(self) -> int:
        """How often processes of environments were started anew, before a resume as well."""
        return self._failures_before + sum(env.worker_failures for env in self._envs)

    @property
    def done(self) -> bool:
        """Whether all updates are made, or an evaluation has reached the score to stop at."""
        stop = self._config.stop_at_score
        if stop is not None and self.counters['interim_score'] >= stop:
            return True
        return int(self._simulation.iteration.numpy()) >= self._config.updates

    @property
    def finished(self) -> bool:
        """Whether the evaluation at the end is made as well."""
        return self.done and self.counters['finished_at'] == self.step > 0

    @property
    def evaluation_is_due(self) -> bool:
        """Whether a multiple of `eval_every` has passed since the last evaluation."""
        return self._is_due(self._config.eval_every, self.counters['evaluated_at'])

    @property
    def checkpoint_is_due(self) -> bool:
        """Whether a multiple of `checkpoint_every` has passed since the last checkpoint."""
        return self._is_due(self._config.checkpoint_every, self._tried_at)

    def update(self) -> None:
        """Collect experience, learn from it, and record metrics where they are due."""
        signals.check()
        with signals.deferred():
            begin = time.monotonic()
            metrics = self._simulation.run(self._iterations(), _GRACE_SECONDS)
            seconds = time.monotonic() - begin
            self._iteration_seconds = seconds / len(metrics)
            self._collected += metrics
            self._tick()
            step = self.step
            self._progress.advance(step, summaries.average(metrics)['score'], seconds)
            last = self.done and self._config.log_every > 0
            if last or self._is_due(self._config.log_every, self.counters['logged_at']):
                self._record('train', summaries.average(self._collected))
                self._collected.clear()
                self.counters.assign(logged_at=step)
            if self._is_due(self._config.histograms_every, self.counters['drawn_at']):
                weights = recording.weights(self.algorithm)
                self._recorder.histograms(step, {**self._simulation.histograms, **weights})
                self.counters.assign(drawn_at=step)
            if self._camera and self._is_due(self._config.video_every, self.counters['filmed_at']):
                self._camera.film(step)
                self.counters.assign(filmed_at=step)

    def evaluate(self, final: bool = False) -> float:
        """Play episodes with fresh seeds, one in each environment at a time.

        Args:
            final: Whether it is the evaluation at the end, with its own number of episodes.

        Returns:
            Mean score.
        """
        config = self._config
        count = config.final_eval_episodes if final else config.eval_envs
        number = self.counters['evaluations']
        rounds = []
        for start in range(0, count, config.eval_envs):
            signals.check()
            indices = range(start, start + config.eval_envs)
            seeds = [eval_seed(config.seed, number, index) for index in indices]
            with signals.deferred():
                rounds.append(self._evaluation(seeds))
        # The first `count` seeds, not the first to finish, which would favour short episodes.
        episodes = [np.concatenate(values)[:count] for values in zip(*rounds, strict=True)]
        values = summaries.summarize(*episodes)
        with signals.deferred():
            self._tick()
            self._record('eval', {**values, 'final': final})
            score, best = values['score'], self.counters['best_score']
            self.counters.assign(
                evaluations=number + 1,
                evaluated_at=self.step,
                score=score,
                best_score=np.fmax(best, score),
                **{'finished_at': self.step} if final else {'interim_score': score},
            )
            if not score <= best:
                self.counters.assign(best_step=self.step)
                self._recorder.save(self.step, best=True)
            self._show_scores()
        return score

    def finish(self) -> None:
        """Let a video be finished that is still being made, and see that all is stored.

        Raises:
            UserError: The disk did not take the last checkpoint or metrics.
        """
        if self._camera:
            self._camera.wait()
        if self._run and not (self._recorder.write_lines() and self._saved == self._moment):
            raise UserError(
                f'The end of the run must be stored, but the disk of {self._run.folder} does not '
                'take it. See to that, and then make up for what is missing: '
                f'{self._run.resume_command}'
            )

    def save(self) -> None:
        """Write a checkpoint, unless the newest one is of this moment."""
        moment = self._moment
        if moment != self._saved:
            self._keep_folder()
            self.counters.assign(worker_failures=self.worker_failures)
            self._tried_at = self.step
            if self._recorder.save(self.step, continuation=self._continuation()):
                self._saved = moment

    @property
    def _moment(self) -> tuple[int, int]:
        """What tells this moment of the run from those of other checkpoints."""
        return self.step, self.counters['evaluations']

    def _keep_folder(self) -> None:
        """Make the run folder anew if somebody removed it, or its disk went away."""
        if not self._run or (self._run.folder / 'config.yaml').exists():
            return
        self._recorder.renew()
        try:
            self._run.folder.mkdir(parents=True, exist_ok=True)
            self._write_description()
            _logger.warning(
                'The run folder %s was gone, with all that was in it, and is made anew.',
                self._run.folder,
            )
        except OSError as error:
            _logger.warning(
                'The run folder %s is gone, and cannot be made anew: %s. Training goes on. See to '
                'it before the end.',
                self._run.folder,
                error,
            )

    def _write_description(self) -> None:
        """Write what must be known to use what the run stores."""
        if self._run:
            runs.save_config(self._run, self._config)
            env = self._envs[0]
            saved_spaces.save(self._run, env.observation_space, env.action_space)

    def _continuation(self) -> bytes:
        """Pack what a run needs to go on as if it had never stopped, besides variables."""
        simulation = self._simulation
        states, env = None, self._envs[0]
        if not env.state_in_variables:
            try:
                states = list(env.get_state())
                packing.pack(states)
            except Exception as error:  # Of a user's environment: no reason to save nothing.
                states = None
                if self._resumable:
                    _logger.warning(
                        'If this run is stopped, it will go on with new episodes: %s', error
                    )
                self._resumable = False
        return packing.pack(
            {
                'collected': self._collected,
                'rolled_back': simulation.rolled_back,
                'rolled_back_in_a_row': simulation.rolled_back_in_a_row,
                'envs': states,
            }
        )

    def _continue(self, continuation: bytes) -> None:
        """Go on where a checkpoint left off; with new episodes if it does not say where."""
        simulation, env = self._simulation, self._envs[0]
        try:
            state = packing.unpack(continuation) if continuation else {}
            self._collected = state.get('collected', [])
            simulation.rolled_back = state.get('rolled_back', 0)
            simulation.rolled_back_in_a_row = state.get('rolled_back_in_a_row', 0)
            if env.state_in_variables:
                return
            if state.get('envs') is None:
                raise ValueError('The checkpoint does not have the state of its environments.')
            env.set_state(state['envs'])
        except Exception as error:  # Of a user's environment, or of a file that was changed.
            _logger.warning('New episodes begin: %s', error)

    def _iterations(self) -> int:
        """Choose how many iterations of a compiled program to make at once: about a second's.

        None of them goes past a step at which something is due; so the choice changes no result.
        """
        if not self._simulation.compiled:
            return 1
        config, size = self._config, self._config.num_envs * self._config.horizon
        left = [config.updates - int(self._simulation.iteration.numpy()), tools.MOST_ITERATIONS]
        for every in (
            config.log_every,
            config.histograms_every,
            config.video_every,
            config.eval_every,
            config.checkpoint_every,
        ):
            if every:
                left.append(-(-(every - self.step % every) // size))
        return max(1, min(*left, int(_CALL_SECONDS / self._iteration_seconds)))

    def _is_due(self, every: int, last: int) -> bool:
        return every > 0 and self.step // every > last // every

    def _record(self, phase: str, values: dict[str, float]) -> None:
        self._keep_folder()
        values = {**values, 'worker_failures': self.worker_failures}
        values['rolled_back'] = self._simulation.rolled_back
        self._recorder.record(phase, self.step, values)
        self._progress.record(phase, self.step, values)

    def _show_scores(self) -> None:
        self._progress.scores(*(self.counters[x] for x in ('score', 'best_score', 'best_step')))

    def _tick(self) -> None:
        """Count the time since the last call."""
        now = time.monotonic()
        self.counters.seconds.assign_add(now - self._time)
        self._time = now


def eval_seed(seed: int, number: int, episode: int) -> int:
    """Fold the seed of one episode of one evaluation.

    Args:
        seed: Seed of the run.
        number: Number of the evaluation.
        episode: Number of the episode.
    """
    sequence = np.random.SeedSequence(seed, spawn_key=(_EVAL, number, episode))
    return int(sequence.generate_state(1)[0])
