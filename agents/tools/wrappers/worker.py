"""Runs environments in a process of its own, on behalf of the process that started it.

Imports neither TensorFlow nor the script that started the parent. Ends when asked to, and soon
after its parent ended in whatever way: the pipe of commands then hangs up, and the parent's process
identifier changes.
"""

import contextlib
import os
import pickle
import select
import signal
import struct
import threading
import time
import warnings
from collections.abc import Callable
from typing import Any, NoReturn

import cloudpickle
import gymnasium

from agents.tools import spaces
from agents.tools.local_batch import LocalBatch
from agents.tools.wrappers import messages, shared_memory

# Hanging up shows that the parent died, unless another process inherited its end.
_CHECK_MILLISECONDS = 1000
_CLOSE_SECONDS = 2.0  # Time to close environments after the parent died.


class _Stopped(BaseException):
    """The process must end; not an Exception, so that environments do not catch it by mistake."""


def main(description: bytes, memory: int, commands: int, replies: int) -> None:
    """Make the environments and serve commands until asked to close.

    Args:
        description: Pickled constructors and task specifications.
        memory: Descriptor of the block for the arrays.
        commands: Descriptor to read commands from.
        replies: Descriptor to write replies to.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # A terminal sends it to all; the parent decides.
    signal.signal(signal.SIGTERM, _stop)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT, signal.SIGTERM})
    threading.Thread(target=_watch_parent, args=(commands, memory), daemon=True).start()
    envs: list[gymnasium.Env] = []
    batch, asked = None, False
    with contextlib.suppress(_Stopped):
        batch = _prepare(description, memory, replies, envs)
        asked = _serve(batch, commands, replies)
    with contextlib.suppress(_Stopped):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # Closing is not interrupted.
    errors = batch.close() if batch else _close(envs)
    if asked:
        reply = messages.pack_error(errors[0]) if errors else messages.pack(messages.VALUE, None)
        _write(replies, reply)


def _prepare(
    description: bytes, memory: int, replies: int, envs: list[gymnasium.Env]
) -> LocalBatch | None:
    """Make the environments, report their spaces, and allocate the arrays.

    Args:
        description: Pickled constructors and task specifications.
        memory: Descriptor of the block for the arrays.
        replies: Descriptor to write the report to.
        envs: Empty list that receives the environments as soon as they exist.

    Returns:
        Batch of the environments, or None if that failed, which was reported.
    """
    try:
        fields = pickle.loads(description)
        _register(fields['specs'])
        constructors = pickle.loads(fields['constructors'])
        for constructor in constructors:
            envs.append(_construct(constructor))
    except _Stopped:
        raise
    except BaseException as error:
        _write(replies, messages.pack_error(error, len(envs)))
        return None
    pairs = _spaces(envs)
    batch = None
    # The parent checks them, too, and words its error with the numbers that environments have
    # there.
    with contextlib.suppress(TypeError, ValueError):
        spaces.check_equal(pairs)
        os.ftruncate(memory, 0)
        os.ftruncate(memory, shared_memory.size(*pairs[0], len(envs)))
        batch = LocalBatch(envs, shared_memory.map_arrays(memory, *pairs[0], len(envs)))
        batch.constructors = constructors
    _write(replies, messages.pack(messages.VALUE, pairs))
    return batch


def _serve(batch: LocalBatch | None, commands: int, replies: int) -> bool:
    """Answer commands until asked to close, or until the parent is gone.

    Args:
        batch: Environments, None if there is nothing to do but to close.
        commands: Descriptor to read commands from.
        replies: Descriptor to write replies to.

    Returns:
        Whether the parent asked to close and waits for a reply.
    """
    poll = select.poll()
    poll.register(commands, select.POLLIN)
    while True:
        messages.spin(poll)
        kind = os.read(commands, 1)
        if batch is None or kind in (messages.CLOSE, b''):
            return kind == messages.CLOSE
        try:
            if kind == messages.STEP:
                batch.step_async(batch.arrays.action)
                reply = messages.ENDED if batch.step_wait() else messages.DONE
            else:
                reply = messages.pack(messages.VALUE, _answer(batch, _read_request(commands)))
        except _Stopped:
            raise
        except BaseException as error:  # An environment may also call sys.exit().
            reply = messages.pack_error(error)
        _write(replies, reply)


def _answer(batch: LocalBatch, request: bytes) -> Any:
    name, first_index, args = pickle.loads(request)
    batch.first_index = first_index
    if name == 'reset':
        batch.reset_async(*args)
        return batch.reset_wait()
    batch.call_async(*args)
    return batch.call_wait()


def _construct(constructor: Callable[[], gymnasium.Env]) -> gymnasium.Env:
    env = constructor()
    if not isinstance(env, gymnasium.Env):
        raise TypeError(f'Constructor must return a gymnasium.Env, got {type(env)}.')
    return env


def _spaces(envs: list[gymnasium.Env]) -> list[spaces.Spaces]:
    """Return the spaces of all environments, equal ones as the same objects, which pickle once."""
    pairs = [(env.observation_space, env.action_space) for env in envs]
    return [pairs[0] if pair == pairs[0] else pair for pair in pairs]


def _register(specs: dict[str, bytes]) -> None:
    """Add tasks that are registered in the parent and that a fresh import of Gymnasium lacks."""
    for name, body in specs.items():
        known = gymnasium.registry.get(name)
        if known is not None and cloudpickle.dumps(known) == body:
            continue
        try:
            gymnasium.registry[name] = pickle.loads(body)
        except Exception as error:  # It may never be asked for.
            warnings.warn(f'Task {name!r} is not known in the worker: {error!r}', stacklevel=1)


def _close(envs: list[gymnasium.Env]) -> list[Exception]:
    errors = []
    for env in envs:
        try:
            env.close()
        except Exception as error:
            errors.append(error)
    return errors


def _read_request(commands: int) -> bytes:
    """Read what follows the first byte of a request."""
    (length,) = struct.unpack('=Q', _read(commands, 8))
    return _read(commands, length)


def _read(descriptor: int, length: int) -> bytes:
    body = bytearray()
    while len(body) < length:
        chunk = os.read(descriptor, length - len(body))
        if not chunk:
            raise _Stopped
        body += chunk
    return bytes(body)


def _write(descriptor: int, message: bytes) -> None:
    try:
        while message:
            message = message[os.write(descriptor, message) :]
    except BrokenPipeError:
        raise _Stopped from None


def _stop(signum: int, frame: Any) -> NoReturn:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise _Stopped


def _watch_parent(commands: int, memory: int) -> None:
    """End the process when the parent is gone, also from within a long step."""
    parent = os.getppid()
    poll = select.poll()
    poll.register(commands, 0)  # Reports hanging up only.
    while os.getppid() == parent and not poll.poll(_CHECK_MILLISECONDS):
        shared_memory.note_usage(memory)
    # Also ends the sleep of an environment, which an exception set from another thread would not.
    signal.pthread_kill(threading.main_thread().ident, signal.SIGTERM)  # type: ignore[arg-type]
    time.sleep(_CLOSE_SECONDS)
    os._exit(1)
