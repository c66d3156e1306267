"""The complete state of an environment with its wrappers, as plain data.

What is known by name here: the classic tasks and the MuJoCo ones of Gymnasium, its wrappers, and
this package's. Any other environment or wrapper takes part that has two methods:

    get_state() -> None, numbers, text and arrays, in lists, tuples and dicts
    set_state(state)

Each of them speaks for its own layer only. The random generator `np_random` comes along by itself.
"""

import collections
import contextlib
import copy
import random
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import gymnasium
import numpy as np

from agents.tools import packing

# Attributes that the next steps depend on, by class.
_WRAPPERS: dict[str, tuple[str, ...]] = {
    'common:TimeLimit': ('_elapsed_steps',),
    'common:OrderEnforcing': ('_has_reset',),
    'common:Autoreset': ('autoreset',),
    # What else it has only decides whether it warns.
    'common:PassiveEnvChecker': (),
    # Not the time when the episode began: no clock goes on in another process.
    'common:RecordEpisodeStatistics': (
        'episode_count',
        'episode_returns',
        'episode_lengths',
        'time_queue',
        'return_queue',
        'length_queue',
    ),
    'stateful_action:StickyAction': (
        'last_action',
        'is_sticky_actions',
        'num_repeats',
        'repeats_taken',
    ),
    'stateful_action:RepeatAction': (),
    'stateful_observation:DelayObservation': ('observation_queue',),
    'stateful_observation:TimeAwareObservation': ('timesteps',),
    'stateful_observation:FrameStackObservation': ('obs_queue', 'padding_value'),
    'stateful_observation:NormalizeObservation': (
        'obs_rms.mean',
        'obs_rms.var',
        'obs_rms.count',
        '_update_running_mean',
    ),
    'stateful_observation:MaxAndSkipObservation': ('_obs_buffer',),
    'stateful_reward:NormalizeReward': (
        'return_rms.mean',
        'return_rms.var',
        'return_rms.count',
        'discounted_reward',
        '_update_running_mean',
    ),
    **dict.fromkeys(
        (
            'transform_action:ClipAction',
            'transform_action:RescaleAction',
            'transform_action:DiscretizeAction',
            'transform_observation:FilterObservation',
            'transform_observation:FlattenObservation',
            'transform_observation:GrayscaleObservation',
            'transform_observation:ResizeObservation',
            'transform_observation:ReshapeObservation',
            'transform_observation:RescaleObservation',
            'transform_observation:DtypeObservation',
            'transform_observation:DiscretizeObservation',
            'transform_reward:ClipReward',
        ),
        (),
    ),
}
_ATTRIBUTES: dict[str, tuple[str, ...]] = {
    **{f'gymnasium.wrappers.{name}': fields for name, fields in _WRAPPERS.items()},
    'agents.tools.wrappers.action_repeat:ActionRepeat': (),
    **{
        f'gymnasium.envs.classic_control.{name}': fields
        for name, fields in {
            'cartpole:CartPoleEnv': ('state', 'steps_beyond_terminated'),
            'pendulum:PendulumEnv': ('state', 'last_u'),
            'acrobot:AcrobotEnv': ('state',),
            'mountain_car:MountainCarEnv': ('state',),
            'continuous_mountain_car:Continuous_MountainCarEnv': ('state',),
        }.items()
    },
}
_MUJOCO = 'gymnasium.envs.mujoco.'
# What tasks keep besides the simulation.
_MUJOCO_FIELDS = ('goal', 'goal_pos', 'cylinder_pos')
# Computed by the simulation at the start of a step, and read by some tasks before the next one.
_MUJOCO_DERIVED = ('xpos', 'xquat', 'xmat', 'xipos', 'ximat', 'geom_xpos', 'site_xpos')
_GENERATORS = ('PCG64', 'PCG64DXSM', 'MT19937', 'Philox', 'SFC64')

_WARM_UP, _STEPS = 10, 30  # Of a proof.
_SECONDS = 2.0  # After which a part of it ends, however few steps were made.


class Unsupported(TypeError):
    """The state of an environment cannot be had."""


def get_state(env: gymnasium.Env) -> bytes:
    """Return everything that the next steps of an environment depend on.

    Args:
        env: Environment with its wrappers.

    Returns:
        Packed plain data, see `packing`.

    Raises:
        Unsupported: An environment or wrapper is not known and lacks the two methods.
    """
    return packing.pack([{'class': _name(layer), **_read(layer)} for layer in _layers(env)])


def set_state(env: gymnasium.Env, state: bytes) -> None:
    """Bring an environment to where another one was, which was made in the same way.

    Args:
        env: Environment with its wrappers; it was reset.
        state: What `get_state` returned.

    Raises:
        Unsupported: An environment or wrapper is not known and lacks the two methods.
        ValueError: The state is damaged, or of an environment with other wrappers.
    """
    layers, parts = _layers(env), packing.unpack(state)
    names = [part['class'] for part in parts]
    if names != [_name(layer) for layer in layers]:
        raise ValueError(
            f'The state must be of the same environment and wrappers, got one of {names} for '
            f'{[_name(layer) for layer in layers]}.'
        )
    for layer, part in zip(layers, parts, strict=True):
        _write(layer, part)


def prove(constructor: Callable[[], gymnasium.Env]) -> None:
    """Step an environment, and another one that got its state, with the same actions.

    Args:
        constructor: Makes an environment; called twice, so that those in use are left alone.

    Raises:
        Unsupported: They did not do the same, bit for bit, or there is no state.
    """
    with _same_global_streams():
        with contextlib.closing(constructor()) as env:
            space = copy.deepcopy(env.action_space)
            space.seed(0)
            actions = [space.sample() for _ in range(_WARM_UP + 2 * _STEPS)]
            env.reset(seed=1)
            _play(env, actions[:_WARM_UP])
            state = get_state(env)
            name = _name(env.unwrapped)
            first = _play(env, actions[_WARM_UP:])
        with contextlib.closing(constructor()) as env:
            env.reset(seed=2)
            set_state(env, state)
            if get_state(env) != state:
                raise Unsupported(f'set_state() of {name} does not set what get_state() returns.')
            second = _play(env, actions[_WARM_UP:])
    for number, (row, other) in enumerate(zip(first, second, strict=False)):
        if row != other:
            raise Unsupported(
                f'{name} with the state of another one does not do the same in step {number + 1}. '
                'Add what is missing to get_state() and set_state(state).'
            )


def _play(env: gymnasium.Env, actions: Sequence[Any]) -> list[bytes]:
    """Step, and reset where an episode ends and in the middle; return all that was seen."""
    seen = []
    end = time.monotonic() + _SECONDS
    for number, action in enumerate(actions):
        obs, reward, terminated, truncated, _ = env.step(action)
        seen.append(packing.pack([obs, reward, bool(terminated), bool(truncated)]))
        if terminated or truncated or number == _STEPS:
            seen.append(packing.pack(env.reset()[0]))
        if time.monotonic() > end:
            break
    return seen


@contextlib.contextmanager
def _same_global_streams() -> Iterator[None]:
    """Leave the global random generators as they were: environments in use may draw from them."""
    python, numpy = random.getstate(), np.random.get_state()
    try:
        yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)


def _layers(env: Any) -> list[Any]:
    """Return the wrappers from outside in, and the environment."""
    layers = [env]
    while isinstance(layers[-1], gymnasium.Wrapper):
        layers.append(layers[-1].env)
    return layers


def _name(layer: Any) -> str:
    return f'{type(layer).__module__}:{type(layer).__qualname__}'


def _speaks(layer: Any) -> bool:
    """Whether it has the two methods; MuJoCo's tasks have a `set_state` of another kind."""
    kind = type(layer)
    return callable(getattr(kind, 'get_state', None)) and callable(getattr(kind, 'set_state', None))


def _read(layer: Any) -> dict[str, Any]:
    result: dict[str, Any] = {}
    if _speaks(layer):
        result['own'] = layer.get_state()
    elif type(layer).__module__.startswith(_MUJOCO) and hasattr(layer, 'data'):
        result['mujoco'] = _read_mujoco(layer)
    elif _name(layer) in _ATTRIBUTES:
        fields = [field for field in _ATTRIBUTES[_name(layer)] if _has(layer, field)]
        result['fields'] = {field: _plain(_get(layer, field)) for field in fields}
    else:
        raise Unsupported(
            f'{_name(layer)} has no get_state() and set_state(state). Add both to it, for the '
            'state as numbers and arrays.'
        )
    if not isinstance(layer, gymnasium.Wrapper):
        generator = layer._np_random
        result['random'] = None if generator is None else generator.bit_generator.state
        result['random_seed'] = layer._np_random_seed
    return result


def _write(layer: Any, part: dict[str, Any]) -> None:
    if 'own' in part:
        layer.set_state(part['own'])
    for field, value in part.get('fields', {}).items():
        if field not in _ATTRIBUTES[_name(layer)]:
            raise ValueError(f'The state must be of {_name(layer)}, got one with {field!r}.')
        _set(layer, field, value)
    if 'mujoco' in part:
        _write_mujoco(layer, part['mujoco'])
    if type(layer) is gymnasium.wrappers.PassiveEnvChecker:
        layer.checked_reset = layer.checked_step = layer.checked_data_reuse = True
    if not isinstance(layer, gymnasium.Wrapper):
        if part['random'] is not None:
            _set_generator(layer, part['random'])
        layer._np_random_seed = part['random_seed']


def _read_mujoco(env: Any) -> dict[str, Any]:
    import mujoco

    kind = mujoco.mjtState.mjSTATE_INTEGRATION
    state = np.empty(mujoco.mj_stateSize(env.model, kind))
    mujoco.mj_getState(env.model, env.data, state, kind)
    return {
        'state': state,
        'derived': {name: getattr(env.data, name).copy() for name in _MUJOCO_DERIVED},
        'fields': {name: getattr(env, name) for name in _MUJOCO_FIELDS if hasattr(env, name)},
    }


def _write_mujoco(env: Any, part: dict[str, Any]) -> None:
    import mujoco

    mujoco.mj_setState(env.model, env.data, part['state'], mujoco.mjtState.mjSTATE_INTEGRATION)
    for name in _MUJOCO_DERIVED:
        getattr(env.data, name)[:] = part['derived'][name]
    for name in _MUJOCO_FIELDS:
        if name in part['fields']:
            setattr(env, name, part['fields'][name])


def _set_generator(env: Any, state: dict[str, Any]) -> None:
    name = state['bit_generator']
    if name not in _GENERATORS:
        raise ValueError(f'Random generator must be one of {_GENERATORS}, got {name!r}.')
    if type(env.np_random.bit_generator).__name__ != name:
        env._np_random = np.random.Generator(getattr(np.random, name)(0))
    env._np_random.bit_generator.state = state


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, collections.deque) else value


def _has(layer: Any, field: str) -> bool:
    return all(hasattr(part, name) for part, name in [_owner(layer, field)])


def _get(layer: Any, field: str) -> Any:
    return getattr(*_owner(layer, field))


def _set(layer: Any, field: str, value: Any) -> None:
    owner, name = _owner(layer, field)
    former = getattr(owner, name, None)
    if isinstance(former, collections.deque):
        value = collections.deque(value, former.maxlen)
    setattr(owner, name, value)


def _owner(layer: Any, field: str) -> tuple[Any, str]:
    """Return what holds an attribute whose name may have a dot in it."""
    outer, _, name = field.rpartition('.')
    return (getattr(layer, outer) if outer else layer), name
