"""Makes an environment and checks it, in a worker process, which it may take down with it."""

import contextlib
import copy
import numbers
import pathlib
import random
import time
import traceback
import warnings
from collections.abc import Callable, Iterable
from typing import Any

import cloudpickle
import gymnasium
import numpy as np

from agents.tools import spaces
from agents.tools.batch_env import BatchEnv
from agents.tools.checking import gymnasium_checker, last_words, measurements, values
from agents.tools.checking.measurements import NotChecked, Unfit, count
from agents.tools.checking.trajectories import Moment, copy_action, play, play_batch
from agents.tools.wrappers.external_process import ExternalProcess

_MOST_STEPS = 1000  # Of a trajectory that is repeated.
_FEW_STEPS = 100  # Before it has these, it may take longer.
_MOST_BYTES = 64 * 1024**2  # Of its observations.
# Shares of the time that all takes. The trajectory is played seven times here, and once elsewhere.
_PLAY, _TIME_LIMIT, _MEMORY, _SPEED = 0.04, 0.1, 0.25, 0.05


class Examiner(gymnasium.Env):
    """Stands in a worker process for the environment that it checks, one check at a call."""

    observation_space = action_space = gymnasium.spaces.Discrete(1)

    def __init__(
        self, constructor: Callable[[], gymnasium.Env], seconds: float, seed: int, patience: float
    ) -> None:
        """Note what to check; nothing is made yet.

        Args:
            constructor: Function that makes the environment.
            seconds: How long all checks may take together, roughly.
            seed: Seed of the environment and of the actions.
            patience: After how many seconds a check that does not end counts as hanging.
        """
        self._constructor = constructor
        self._seconds = seconds
        self._seed = seed
        self._patience = patience
        self._envs: list[gymnasium.Env] = []
        self._actions: list[Any] = []
        self._reference: list[Moment] = []
        self._faults: dict[str, str] = {}

    @classmethod
    def begin(cls, output: str, *args: Any) -> 'Examiner':
        """Make one, and keep what this process prints in a file from now on."""
        last_words.keep(output)
        return cls(*args)

    def check(self, name: str) -> tuple[bool | None, str]:
        """Make one check.

        Args:
            name: Name of the check.

        Returns:
            Whether it was passed, None if it could not be made; and what was seen.
        """
        last_words.keep_after(0.8 * self._patience)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter('ignore')  # They are told with Gymnasium's own checks.
                return True, getattr(self, f'check_{name}')()
        except Unfit as fault:
            return False, str(fault)
        except NotChecked as reason:
            return None, str(reason)
        except (Exception, SystemExit, KeyboardInterrupt) as error:
            return False, _describe(error)

    def construct(self) -> tuple[bool, str]:
        """Make the environment; what that raises comes back as it is."""
        last_words.keep_after(0.8 * self._patience)
        with warnings.catch_warnings():
            warnings.simplefilter('ignore')
            env = self._make()
        if not isinstance(env, gymnasium.Env):
            return False, f'it returned {type(env).__name__}, which is no gymnasium.Env'
        try:
            cloudpickle.dumps(env)
        except Exception:
            return True, 'the environment itself cannot be pickled, and need not be'
        return True, ''

    def check_spaces(self) -> str:
        """Check that batches can hold observations and actions."""
        env = self._envs[0]
        try:
            spaces.check_equal([(env.observation_space, env.action_space)])
        except TypeError as error:
            raise Unfit(str(error).replace(' at index 0', '').removesuffix('.')) from None
        space = copy.deepcopy(env.action_space)
        space.seed(self._seed)
        discrete = isinstance(space, gymnasium.spaces.Discrete)
        sampled = (space.sample() for _ in range(_MOST_STEPS))
        self._actions = [int(action) if discrete else action for action in sampled]
        return ''

    def check_episodes(self) -> str:
        """Play at random, note what is wrong, and keep the trajectory for comparison."""
        _seed_globals(1)
        start, seconds = time.perf_counter(), _PLAY * self._seconds
        steps, episodes, size = 0, 1, 0
        former: Moment | None = None
        for moment in play(self._envs[0], self._actions, self._seed):
            self._inspect(moment)
            if former and values.share_memory(former.obs, moment.obs):
                self._faults.setdefault('buffers', moment.where)
            former = moment
            self._reference.append(moment._replace(obs=copy.deepcopy(moment.obs)))
            size += sum(array.nbytes for _, array in values.leaves(moment.obs))
            if moment.reward is not None:
                steps += 1
                patience = seconds if steps >= _FEW_STEPS else 5 * seconds
                if time.perf_counter() - start > patience or size > _MOST_BYTES:
                    break
            elif steps:
                episodes += 1
        del self._actions[steps:]
        return f'{count(steps, "step")}, {count(episodes, "episode")}'

    def check_observations(self) -> str:
        """Tell what was noted about observations."""
        return self._tell('observations')

    def check_rewards(self) -> str:
        """Tell what was noted about rewards."""
        return self._tell('rewards')

    def check_flags(self) -> str:
        """Tell what was noted about flags."""
        return self._tell('flags')

    def check_buffers(self) -> str:
        """Tell whether observations share memory, which does no harm here."""
        if 'buffers' in self._faults:
            return 'they are not: batches copy them'
        return 'they are'

    def check_repetition(self) -> str:
        """Play once more in the same environment."""
        _seed_globals(1)
        return self._compare(play(self._envs[0], self._actions, self._seed))

    def check_globals(self) -> str:
        """Play with other global random state, and see whether that is used or changed."""
        _seed_globals(2)
        before = _globals()
        moments = play(self._envs[0], self._actions, self._seed)
        for wanted, moment in zip(self._reference, moments, strict=False):
            after = _globals()
            changed = [name for name in before if not np.array_equal(before[name], after[name])]
            if changed:
                raise Unfit(f'{moment.where} draws from, or seeds, {" and ".join(changed)}')
            if text := wanted.difference(moment, cast=False):
                raise Unfit(f'with random and numpy.random in another state, {text}')
        return ''

    def check_instances(self) -> str:
        """Play in another environment."""
        _seed_globals(1)
        return self._compare(play(self._make(), self._actions, self._seed))

    def check_process(self) -> str:
        """Play in a process of its own."""
        constructor = _Quiet(self._constructor)
        batch = ExternalProcess(constructor, timeout=0.8 * self._patience)
        try:
            moments = play_batch(batch, self._actions, self._seed, row=0)
            return self._compare(moments, cast=True)
        finally:
            with contextlib.suppress(Exception):  # Has a check of its own.
                batch.close()

    def check_batch(self) -> str:
        """Play next to two others that take other actions."""
        batch = BatchEnv([self._make() for _ in range(3)])
        return self._compare(play_batch(batch, self._actions, self._seed, row=1), cast=True)

    def check_time_limit(self) -> str:
        """Look for an episode that lasts as long as it may."""
        env, seconds = self._envs[0], _TIME_LIMIT * self._seconds
        if limit := getattr(env.spec, 'max_episode_steps', None):
            return measurements.find_end(env, self._actions, self._seed, seconds, limit)
        raise NotChecked(f'it is registered without max_episode_steps{self._same_length()}')

    def check_memory(self) -> str:
        """Play many episodes and watch the memory of the process."""
        seconds = _MEMORY * self._seconds
        return measurements.find_growth(self._envs[0], self._actions, seconds)

    def check_speed(self) -> str:
        """Measure how long steps and resets take."""
        return measurements.measure_speed(self._envs[0], self._actions, _SPEED * self._seconds)

    def check_gymnasium(self) -> str:
        """Run Gymnasium's own checker and collect what it warns of."""
        return gymnasium_checker.run(self._make)

    def check_closing(self) -> str:
        """Close everything twice, and then make one more."""
        for env in self._envs:
            env.close()
            env.close()
        env = self._make()
        env.reset(seed=self._seed)
        env.step(copy_action(self._actions[0]))
        env.close()
        return ''

    def _make(self) -> Any:
        env = self._constructor()
        self._envs.append(env)
        return env

    def _inspect(self, moment: Moment) -> None:
        """Note the first fault of each kind."""
        space = self._envs[0].observation_space
        found = {'observations': values.mismatch(space, moment.obs, 'observation')}
        if moment.reward is not None:
            reward = moment.reward
            number = isinstance(reward, numbers.Real | np.bool_)
            if not number or not np.isfinite(reward):
                found['rewards'] = f'reward is {reward!r}'
            for name in ('terminated', 'truncated'):
                flag = getattr(moment, name)
                if not isinstance(flag, bool | np.bool_):
                    found['flags'] = f'{name} is {flag!r}, of type {type(flag).__name__}'
        for name, text in found.items():
            if text:
                self._faults.setdefault(name, f'at {moment.where}, {text}')

    def _tell(self, name: str) -> str:
        if name in self._faults:
            raise Unfit(self._faults[name])
        return ''

    def _compare(self, moments: Iterable[Moment], cast: bool = False) -> str:
        for wanted, moment in zip(self._reference, moments, strict=False):
            if text := wanted.difference(moment, cast):
                raise Unfit(text)
        return ''

    def _same_length(self) -> str:
        """Tell if all episodes were terminated after the same number of steps."""
        ends = [0]
        for step, moment in enumerate(x for x in self._reference if x.reward is not None):
            if moment.terminated:
                ends.append(step + 1)
        lengths = set(np.diff(ends).tolist())
        if len(ends) < 4 or len(lengths) > 1:
            return ''
        return (
            f'; but all {len(ends) - 1} episodes were terminated after {lengths.pop()} steps: if '
            'that is a time limit, it must be truncated'
        )


class _Quiet:
    """Makes an environment of which the warnings were told already."""

    def __init__(self, constructor: Callable[[], gymnasium.Env]) -> None:
        self._constructor = constructor

    def __call__(self) -> gymnasium.Env:
        warnings.simplefilter('ignore')
        return self._constructor()


def _seed_globals(seed: int) -> None:
    random.seed(seed)
    np.random.seed(seed)


def _globals() -> dict[str, Any]:
    _, keys, position, *_ = np.random.get_state()
    return {'random': random.getstate()[1], 'numpy.random': (*np.asarray(keys).tolist(), position)}


def _describe(error: BaseException) -> str:
    """Tell what was raised, and in which line."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    text = ' '.join(str(error).split())
    place = f'{pathlib.Path(frame.filename).name}:{frame.lineno}, in {frame.name}'
    return f'{type(error).__name__}: {text} ({place})'
