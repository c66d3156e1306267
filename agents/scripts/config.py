"""What a run is made of: one frozen dataclass."""

import dataclasses
import math
import numbers
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any

from agents.algorithms.hyperparameters import Hyperparameters, field
from agents.scripts.mistakes import UserError, nearest


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config(Hyperparameters):
    """Everything that a run depends on, as plain data; a misspelt name is a TypeError.

    A *step* is one step of one environment: 8 environments stepped once are 8 steps.

    Raises:
        UserError: A value has the wrong type or is out of range.
    """

    # Task.
    env: str = field('CartPole-v1', 'Registered task, or module:Task-v0 to import a module first.')
    env_kwargs: dict[str, Any] = dataclasses.field(
        default_factory=dict, metadata={'help': 'Keyword arguments of the task, like {g: 9.8}.'}
    )
    wrappers: tuple[Any, ...] = field(
        (), 'Wrappers, innermost first: Name, module:Name, or {Name: {argument: value}}.'
    )
    engine: str = field(
        'process',
        'What runs it: process, tensorflow, jax, envpool or vector; see docs/engines.md.',
    )
    # Algorithm.
    algorithm: str = field('ppo', 'What learns: ppo, actor_critic, or module:Class of your own.')
    decay_learning_rate: bool = field(False, 'Let the learning rate fall to 0 over the run.')
    # Amounts.
    steps: int = field(1_000_000, 'Steps to train for, at most; whole updates are made.')
    num_envs: int = field(16, 'Environments to train on, >= 1.')
    horizon: int = field(128, 'Steps of each environment between two updates, >= 1.')
    stop_at_score: float | None = field(
        None, 'End early after an evaluation with this mean score; none: never.'
    )
    # Evaluation.
    eval_every: int = field(50_000, 'Steps between evaluations; 0: only at the end.')
    eval_envs: int = field(16, 'Episodes of an evaluation, one in each environment, >= 1.')
    final_eval_episodes: int = field(100, 'Episodes of the evaluation at the end, >= 1.')
    max_eval_steps: int = field(0, "Steps after which it cuts an episode; 0: the task's own limit.")
    # Records.
    log_every: int = field(10_000, 'Steps between records of metrics; 0: never.')
    histograms_every: int = field(100_000, 'Steps between histograms; 0: never.')
    video_every: int = field(
        0, 'Steps between videos of an episode, of its first 1000 frames; 0: never.'
    )
    checkpoint_every: int = field(50_000, 'Steps between checkpoints; 0: only at the end.')
    # Machine.
    num_workers: int = field(-1, 'Processes of environments; -1: one per core, 0: in this one.')
    worker_timeout: float = field(60.0, 'Seconds that an environment may take for a step, > 0.')
    on_worker_failure: str = field(
        'restart', 'When one fails: raise, restart, or restart_all (also for values not finite).'
    )
    max_rolled_back: int = field(
        3, 'Updates in a row that are undone for values that are not finite; then it ends.'
    )
    threads: int = field(
        0, "Threads within an operation; 0: TensorFlow's choice. Results depend on it."
    )

    @property
    def updates(self) -> int:
        """Updates that the run makes, so that it has at most the wanted steps."""
        return self.steps // (self.num_envs * self.horizon)

    def __post_init__(self) -> None:
        """Convert to plain data of the declared types, and check it."""
        for name, annotation in annotations(type(self)).items():
            value = convert(name, getattr(self, name), annotation)
            object.__setattr__(self, name, value)
            _check(name, value)
        object.__setattr__(self, 'wrappers', tuple(_wrapper(spec) for spec in self.wrappers))
        for key in self.env_kwargs:
            _check_keyword('env_kwargs', key)
        if self.recurrent != 'none':
            self._check_recurrent()
        if not self.updates:
            raise UserError(
                f'steps must be at least one update, num_envs * horizon = '
                f'{self.num_envs * self.horizon}, got steps={self.steps}.'
            )

    def _check_recurrent(self) -> None:
        """Check what must fit together for a policy with memory."""
        if self.algorithm == 'actor_critic':
            raise UserError(
                f'The algorithm actor_critic has no memory, got recurrent={self.recurrent}. Use '
                'ppo.'
            )
        for name in ('horizon', 'minibatch'):
            if getattr(self, name) % self.sequence_length:
                raise UserError(
                    f'{name} must be a multiple of sequence_length={self.sequence_length} for '
                    f'recurrent={self.recurrent}, got {name}={getattr(self, name)}.'
                )


def annotations(cls: type) -> dict[str, Any]:
    """Return the types of a dataclass's fields by name."""
    hints = typing.get_type_hints(cls)
    return {field.name: hints[field.name] for field in dataclasses.fields(cls)}


def convert(name: str, value: Any, annotation: Any) -> Any:
    """Convert a value to a field's type where nothing is lost.

    Args:
        name: Name of the field, for the error.
        value: Plain value, such as a safe YAML loader gives.
        annotation: One of bool, int, float, str, dict[str, Any], tuple[type, ...] or `type | None`.

    Raises:
        UserError: The value is of another type.
    """
    if typing.get_origin(annotation) in (types.UnionType, typing.Union):
        annotation = typing.get_args(annotation)[0]
        if value is None or (isinstance(value, numbers.Real) and math.isnan(value)):
            return None
    kind = typing.get_origin(annotation) or annotation
    number = isinstance(value, numbers.Real) and not isinstance(value, bool)
    if kind is tuple:
        values = value if isinstance(value, list | tuple) else (value,)
        inner = typing.get_args(annotation)[0]
        return tuple(convert(name, item, inner) for item in values)
    if kind is int and number and math.isfinite(value) and value == int(value):
        return int(value)
    if kind is float and number:
        return float(value)
    if kind is dict and isinstance(value, Mapping):
        return _plain(name, value)
    if kind is Any:
        return _plain(name, value)
    if kind in (bool, str) and isinstance(value, kind):
        return value
    words = {int: 'a whole number', float: 'a number', bool: 'true or false', str: 'text'}
    expected = words.get(kind, 'a mapping like {name: value}')
    raise UserError(f'{name} must be {expected}, got {name}={value!r}.')


ALGORITHMS = {'ppo': 'PPO', 'actor_critic': 'ActorCritic'}
NETWORKS = ('feed_forward', 'nature', 'impala')

# Rules of values: the words of the error, what must hold, and the fields that it must hold for.
_RULES: tuple[tuple[str, Callable[[Any], bool], str], ...] = (
    (
        'at least 1',
        lambda x: x >= 1,
        'policy_layers value_layers recurrent_units sequence_length epochs minibatch steps '
        'num_envs horizon eval_envs final_eval_episodes max_rolled_back',
    ),
    (
        'at least 0',
        lambda x: x >= 0,
        'seed clip_range kl_target kl_cutoff_factor kl_cutoff_coef entropy_coef value_coef '
        'value_clip_range decay_updates gradient_clip early_stop_kl max_eval_steps eval_every '
        'log_every histograms_every video_every checkpoint_every threads',
    ),
    (
        'above 0',
        lambda x: x > 0,
        'init_output_factor init_std obs_clip reward_clip learning_rate adam_epsilon '
        'worker_timeout',
    ),
    ('in [0, 1]', lambda x: 0 <= x <= 1, 'discount gae_lambda'),
    ('in [0.001, 1000]', lambda x: 0.001 <= x <= 1000, 'kl_init_penalty'),
    ('at least -1', lambda x: x >= -1, 'num_workers'),
)
_CHOICES = {
    'on_worker_failure': ('raise', 'restart', 'restart_all'),
    'engine': ('process', 'tensorflow', 'jax', 'envpool', 'vector'),
    'recurrent': ('none', 'gru', 'lstm'),
    'distribution': ('normal', 'tanh_normal', 'beta'),
    'init': ('orthogonal', 'variance_scaling'),
    'normalize_advantages': ('batch', 'minibatch', 'off'),
    'objective': ('clip', 'kl_penalty'),
    'compile': ('auto', 'update', 'minibatch', 'off'),
}


def _check(name: str, value: Any) -> None:
    """Check the range of a value that has its type."""
    for item in value if isinstance(value, tuple) else (value,):
        if isinstance(item, float) and not math.isfinite(item):
            raise UserError(f'{name} must be finite, got {name}={value!r}.')
        for words, holds, names in _RULES:
            if name in names.split() and not holds(item):
                raise UserError(f'{name} must be {words}, got {name}={value!r}.')
    if name == 'algorithm' and value not in ALGORITHMS and ':' not in value:
        hint = nearest(value, ALGORITHMS)
        raise UserError(f'There is no algorithm {value!r}. {hint} Your own is module:Class.')
    if name == 'network' and value not in NETWORKS and ':' not in value:
        hint = nearest(value, NETWORKS)
        raise UserError(f'There is no network {value!r}. {hint} Your own is module:function.')
    if name in _CHOICES and value not in _CHOICES[name]:
        choices = ', '.join(_CHOICES[name])
        raise UserError(f'{name} must be one of {choices}, got {name}={value!r}.')


def _plain(name: str, value: Any) -> Any:
    """Copy nested plain data, so that it is saved and read back as it is."""
    if isinstance(value, Mapping):
        return {_text_key(name, key): _plain(name, item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(name, item) for item in value]
    if value is None or type(value) in (bool, int, float, str):
        return value
    raise UserError(
        f'{name} must be plain data (numbers, text, lists, mappings), got {value!r} in it.'
    )


def _text_key(name: str, key: Any) -> str:
    if not isinstance(key, str):
        raise UserError(f'{name} must have text as keys, got the key {key!r}.')
    return key


def _check_keyword(name: str, key: str) -> None:
    if not key.isidentifier():
        raise UserError(
            f'{name} must be keyword arguments, got {key!r}. Write {{name: value}}, with a space '
            'after the colon.'
        )


def _wrapper(spec: Any) -> str | dict[str, dict[str, Any]]:
    """Bring a wrapper to the form Name or {Name: {argument: value}}."""
    if isinstance(spec, str):
        return spec
    if not isinstance(spec, dict) or len(spec) != 1:
        raise UserError(f'Wrappers must be Name or {{Name: {{argument: value}}}}, got {spec!r}.')
    ((name, kwargs),) = spec.items()
    if kwargs is not None and not isinstance(kwargs, dict):
        raise UserError(f'The wrapper {name} must have named arguments, got {kwargs!r}.')
    for key in kwargs or ():
        _check_keyword(f'The arguments of {name}', key)
    return {name: kwargs} if kwargs else name
