"""From a config to environments; used by every script.

A worker process imports this module, so it must not import TensorFlow.
"""

import functools
import importlib.util
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import gymnasium

from agents.scripts import engines
from agents.scripts.config import Config
from agents.scripts.mistakes import UserError, import_module, import_object, nearest

if TYPE_CHECKING:
    from agents.tools import BatchEnv, InGraphBatchEnv

Wrapper = str | Mapping[str, Mapping[str, Any]]

# Extras that bring what tasks need: where the tasks are from, and what must be importable.
_EXTRAS = {
    'mujoco': ('gymnasium.envs.mujoco', ('mujoco',)),
    'box2d': ('gymnasium.envs.box2d', ('Box2D',)),
    'atari': ('ale_py', ('ale_py', 'cv2')),
    'dm_control': ('shimmy', ('shimmy', 'dm_control')),
}


def make_env(
    env: str,
    env_kwargs: Mapping[str, Any] | None = None,
    wrappers: Sequence[Wrapper] = (),
    innermost: Callable[[gymnasium.Env], gymnasium.Env] | None = None,
) -> gymnasium.Env:
    """Make one environment.

    Args:
        env: Id of a registered Gymnasium task; `module:Task-v0` imports the module first, also from
            the working directory.
        env_kwargs: Keyword arguments of the task.
        wrappers: Wrappers, innermost first: `Name` or `{Name: {argument: value}}`. A name is looked
            up in `agents.tools.wrappers` and `gymnasium.wrappers`, or written `module:Name`.
        innermost: Puts one more wrapper around the task, inside of all others.

    Raises:
        UserError: There is no such task, module or wrapper, or something else must be installed.
    """
    task = find_task(env)
    constructors: list[Callable] = [find_wrapper(spec) for spec in wrappers]
    try:
        # Observations and actions are checked by the batch, for less time at each step.
        result = gymnasium.make(task, disable_env_checker=True, **(env_kwargs or {}))
        for constructor in ([innermost] if innermost else []) + constructors:
            result = constructor(result)
    except gymnasium.error.DependencyNotInstalled as error:
        raise UserError(f'The task {env} needs what is not installed: {error}') from None
    return result


def check(config: Config) -> None:
    """Find mistakes about the environments before any is made.

    Raises:
        UserError: There is no such task or wrapper, or the engine does not have it.
    """
    if config.engine != 'process':
        engines.check(config)
        return
    find_task(config.env)
    for wrapper in config.wrappers:
        find_wrapper(wrapper)


def make_batch(config: Config, num_envs: int) -> 'InGraphBatchEnv':
    """Make a batch of the config's environments and put it into the graph.

    Args:
        config: Says which task, and in how many processes.
        num_envs: Number of environments.

    Raises:
        UserError: As `make_env`.
    """
    from agents import tools  # Not above: this imports TensorFlow.

    if config.engine != 'process':
        return engines.make_batch(config, num_envs)
    batch_env = make_host_batch(config, num_envs, on_worker_failure=config.on_worker_failure)
    try:
        return tools.InGraphBatchEnv(batch_env)
    except BaseException:
        batch_env.close()
        raise


def make_host_batch(
    config: Config,
    num_envs: int,
    innermost: Callable[[gymnasium.Env], gymnasium.Env] | None = None,
    on_worker_failure: str = 'raise',
) -> 'BatchEnv':
    """Make a batch of the config's environments as Python objects.

    Args:
        config: Says which task, and in how many processes.
        num_envs: Number of environments.
        innermost: Puts one more wrapper around each task, inside of all others.
        on_worker_failure: 'raise', 'restart' or 'restart_all'; see `make_batch_env`.

    Raises:
        UserError: As `make_env`.
    """
    from agents import tools

    make = functools.partial(make_env, config.env, config.env_kwargs, config.wrappers, innermost)
    num_workers = None if config.num_workers < 0 else min(config.num_workers, num_envs)
    return tools.make_batch_env(
        make, num_envs, num_workers, config.worker_timeout, on_worker_failure
    )


def find_task(env: str) -> str:
    """Return the registered id of a task, after importing the module that registers it.

    Args:
        env: Id, or `module:id`.

    Raises:
        UserError: There is no such module or task, or what it needs is not installed.
    """
    module, _, task = env.rpartition(':')
    if module:
        _check_installed(module, task)
        import_module(module, f'the task {task}')
    try:
        spec = gymnasium.spec(task)
    except gymnasium.error.Error:
        raise UserError(f'There is no task {env!r}. {_hint(task, module)}') from None
    if isinstance(spec.entry_point, str):
        _check_installed(spec.entry_point, task)
    return task


def find_wrapper(spec: Wrapper) -> functools.partial:
    """Return what wraps an environment.

    Args:
        spec: `Name` or `{Name: {argument: value}}`.

    Raises:
        UserError: There is no such wrapper, or it is none.
    """
    name, kwargs = (spec, {}) if isinstance(spec, str) else next(iter(spec.items()))
    if ':' in name:
        value = import_object(name, 'wrapper')
        # Nothing else is called, since configs also come with other people's runs.
        if not (isinstance(value, type) and issubclass(value, gymnasium.Wrapper)):
            raise UserError(f'The wrapper {name} must be a class derived from gymnasium.Wrapper.')
        return functools.partial(value, **kwargs)
    from agents.tools import wrappers

    # This package's own go before Gymnasium's of the same name.
    for module in (wrappers, gymnasium.wrappers):
        value = getattr(module, name) if name in module.__all__ else None
        if isinstance(value, type) and issubclass(value, gymnasium.Wrapper):
            return functools.partial(value, **kwargs)
    known = [*wrappers.__all__, *gymnasium.wrappers.__all__]
    raise UserError(f'There is no wrapper {name!r}. {nearest(name, known)}')


def _check_installed(place: str, task: str) -> None:
    """Name the extra that is missing, for tasks that need one."""
    for extra, (source, modules) in _EXTRAS.items():
        for module in modules if place.startswith(source) else ():
            if importlib.util.find_spec(module) is None:
                raise UserError(
                    f'The task {task} needs {module}, which is not installed: '
                    f"pip install 'batch-agents[{extra}]'."
                )


def _hint(task: str, module: str) -> str:
    """Name the tasks that were probably meant, or the package that is missing."""
    from agents.scripts import engines  # Not above: it imports this package's environments.

    if having := engines.engines_of(task):
        return (
            f'It is one of engine={" or ".join(having)}. Processes, which also film, need a task '
            'of Gymnasium.'
        )
    namespace = task.rpartition('/')[0]
    namespaces = {spec.namespace for spec in gymnasium.registry.values()}
    if namespace and namespace not in namespaces:
        return (
            f'No package has registered tasks of {namespace}/. Install it, and write module:Task '
            'if it must be imported first.'
        )
    hint = nearest(task, gymnasium.registry)
    return f'The module {module} does not register it. {hint}' if module else hint
