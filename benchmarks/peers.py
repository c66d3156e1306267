"""Batches of environments as others make them; each steps with `reset()`, `step()`, `close()`."""

import sys
from typing import Any

import gymnasium

from benchmarks import tasks
from benchmarks.contest import Contender

# Above this many environments no peer that needs a process for each of them is measured.
MOST_PROCESSES = 64


def make_gymnasium(task: str, num_envs: int, mode: str) -> Any:
    """Make Gymnasium's AsyncVectorEnv, with shared memory as by default, or SyncVectorEnv."""
    kind = {'async': gymnasium.vector.AsyncVectorEnv, 'sync': gymnasium.vector.SyncVectorEnv}[mode]
    return kind([tasks.maker(task)] * num_envs)


def make_stable_baselines3(task: str, num_envs: int, mode: str) -> Any:
    """Make Stable-Baselines3's SubprocVecEnv or DummyVecEnv."""
    without_tensorflow()
    from stable_baselines3.common import vec_env

    kind = {'Subproc': vec_env.SubprocVecEnv, 'Dummy': vec_env.DummyVecEnv}[mode]
    # Forked, for else each process imports PyTorch, which takes long but is not what is measured.
    options = {'start_method': 'fork'} if mode == 'Subproc' else {}
    return kind([tasks.maker(task)] * num_envs, **options)


def make_envpool(task: str, num_envs: int) -> Any:
    """Make EnvPool's environments with its Gymnasium interface, synchronous."""
    import envpool

    return envpool.make(tasks.IN_ENVPOOL[task], 'gymnasium', num_envs=num_envs)


def without_tensorflow() -> None:
    """Keep TensorFlow out of this process, which TensorBoard would load beside PyTorch.

    Peers that use TensorBoard do well without it, and both together can crash.
    """
    sys.modules.setdefault('tensorflow', None)  # type: ignore[arg-type]


MAKERS = {
    'Gymnasium': make_gymnasium,
    'Stable-Baselines3': make_stable_baselines3,
    'EnvPool': make_envpool,
}


def make(peer: str, task: str, num_envs: int, **kwargs: Any) -> Any:
    """Make a peer's batch; `peer` is a name of MAKERS."""
    return MAKERS[peer](task, num_envs, **kwargs)


def contenders(function: Any, task: str, num_envs: int, **kwargs: Any) -> list[Contender]:
    """List the peers that step a task.

    Args:
        function: Measures, given `peer`, `mode` where there is one, `task` and `num_envs`.
        task: Name of the task.
        num_envs: Number of environments.
        **kwargs: Further arguments of the function.
    """
    kwargs = {'task': task, 'num_envs': num_envs, **kwargs}
    found = []
    for peer, mode, name, needs in (
        ('Gymnasium', 'async', 'Gymnasium async', tasks.NEEDS.get(task, '')),
        ('Gymnasium', 'sync', 'Gymnasium sync', tasks.NEEDS.get(task, '')),
        ('Stable-Baselines3', 'Subproc', 'SB3 SubprocVecEnv', 'stable_baselines3'),
        ('Stable-Baselines3', 'Dummy', 'SB3 DummyVecEnv', 'stable_baselines3'),
        ('EnvPool', '', 'EnvPool', 'envpool'),
    ):
        if mode in ('async', 'Subproc') and num_envs > MOST_PROCESSES:
            continue
        if peer == 'EnvPool' and not tasks.IN_ENVPOOL[task]:
            continue
        given = {'peer': peer, **({'mode': mode} if mode else {}), **kwargs}
        found.append(Contender(name, function, given, needs=needs))
    return found
