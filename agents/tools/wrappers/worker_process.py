"""The parent's side of one worker process: starting it, talking to it, seeing it die, ending it."""

import atexit
import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
import weakref
from collections.abc import Iterable

from agents.tools import interrupts
from agents.tools.wrappers import messages, shared_memory

# Reads what lies in the shared memory at first: one line with the module search path, then the
# description.
_BOOTSTRAP = """
import json, sys
memory, *pipes = map(int, sys.argv[1:])
with open(memory, 'rb', closefd=False) as file:
    file.seek(0)
    sys.path[:] = json.loads(file.readline())
    description = file.read()
del sys.argv[1:]
from agents.tools.wrappers import worker
worker.main(description, memory, *pipes)
"""
# One environment should use one core; many workers with many threads each would slow each other
# down.
_THREAD_LIMITS = (
    'BLIS_NUM_THREADS',
    'MKL_NUM_THREADS',
    'NUMBA_NUM_THREADS',
    'NUMEXPR_NUM_THREADS',
    'OMP_NUM_THREADS',
    'OPENBLAS_NUM_THREADS',
    'VECLIB_MAXIMUM_THREADS',
)
# End of file shows a death, unless another process inherited the pipe: so also look.
_CHECK_SECONDS = 1.0
_GRACE_SECONDS = 0.1  # The same after a signal, while its time of grace runs.
_BUSY_SECONDS = 0.5  # How long a worker that is not waiting for a command may take to close.
_TERMINATE_SECONDS = 1.0  # From SIGTERM, at which environments are closed, to SIGKILL.
_CHUNK = 1 << 16  # Bytes: a pipe holds no more, and a larger buffer would take longer to get.

_living: 'weakref.WeakSet[WorkerProcess]' = weakref.WeakSet()  # To be ended with the interpreter.


class WorkerError(RuntimeError):
    """A worker process cannot be used as asked."""


class WorkerDied(WorkerError):
    """A worker process ended without having been asked to."""


class WorkerTimeout(WorkerError, TimeoutError):
    """A worker process did not answer in time."""


class WorkerProcess:
    """A process that runs environments, and the two pipes to it.

    Every command has exactly one reply. A reply that was not waited for, since waiting was
    interrupted or took too long, is received and dropped before the next command, so that replies
    never go out of step.
    """

    def __init__(self, description: bytes, num_envs: int, timeout: float) -> None:
        """Start the process; it prepares its environments while this one goes on.

        Args:
            description: Pickled message about what to run.
            num_envs: Number of its environments, for error messages.
            timeout: Longest time to wait for a reply in seconds.
        """
        self.first_index = 0
        self.started = time.monotonic()
        self._num_envs = num_envs
        self._timeout = timeout
        self._owner = os.getpid()
        self._pending = 1  # Replies that are due; the first says that the worker is ready.
        self._incoming = bytearray()
        self._outgoing = memoryview(b'')
        self._deadline = 0.0
        self._give_up: float | None = None  # Until when to be patient, once asked to close.
        self._closed = False
        self.memory = shared_memory.create()
        commands, self._writer = os.pipe()
        self._reader, replies = os.pipe()
        try:
            with open(self.memory, 'wb', closefd=False) as file:
                path = [entry for entry in sys.path if isinstance(entry, str)]
                file.write(json.dumps(path).encode() + b'\n' + description)
            self._process = _spawn(self.memory, commands, replies)
        except BaseException:
            self._release()
            raise
        finally:
            os.close(commands)
            os.close(replies)
        os.set_blocking(self._writer, False)
        self._poll = select.poll()
        self._poll.register(self._reader, select.POLLIN)
        self._watched: int | None = None
        _living.add(self)

    @property
    def pid(self) -> int:
        """Process identifier of the worker."""
        return self._process.pid

    @property
    def envs(self) -> str:
        """Which environments it runs, for messages."""
        last = self.first_index + self._num_envs - 1
        if self._num_envs == 1:
            return f'environment {last}'
        return f'environments {self.first_index} to {last}'

    @property
    def memory_usage(self) -> int:
        """How many bytes of memory it took about a second ago, 0 if that is not known."""
        return 0 if self._closed else shared_memory.read_usage(self.memory)

    def send(self, message: bytes) -> None:
        """Send a command, after replies that are still due were received and dropped.

        Args:
            message: Packed command.

        Raises:
            WorkerDied: The process is gone.
            WorkerTimeout: It did not answer the previous command, or does not take this one.
            Interrupted: A signal asked to stop.
        """
        if self._closed:
            raise WorkerError(f'Worker process {self.pid} was closed. Make a new one.')
        while self._pending:
            self._deadline = time.monotonic() + self._timeout
            self.receive()
        self._deadline = time.monotonic() + self._timeout
        self._pending = 1
        self._outgoing = memoryview(message)
        self._flush()

    def receive(self) -> tuple[bytes, bytes]:
        """Wait for the reply to the last command.

        Returns:
            Kind and body of the message.

        Raises:
            WorkerDied: The process is gone.
            WorkerTimeout: It did not answer in time.
            Interrupted: A signal asked to stop.
        """
        if self._outgoing:
            self._flush()
        while (message := messages.unpack(self._incoming)) is None:
            self._wait()
            chunk = os.read(self._reader, _CHUNK)
            if not chunk:
                raise self._died()
            self._incoming += chunk
        self._pending -= 1
        return message

    def await_ready(self) -> tuple[bytes, bytes]:
        """Wait for the report of a new worker, counting the time from now."""
        if self._closed:
            raise WorkerError(f'Worker process {self.pid} was closed. Make a new one.')
        self._deadline = time.monotonic() + self._timeout
        return self.receive()

    def _wait(self) -> None:
        """Block until there is something to read, or raise what makes that hopeless."""
        watched = interrupts.fileno()
        if watched != self._watched:
            self._watch(watched)
        ready = dict(messages.spin(self._poll))
        while self._reader not in ready:
            if watched in ready or interrupts.noticed():
                interrupts.check()
            remaining = self._deadline - time.monotonic()
            longest = _GRACE_SECONDS if interrupts.noticed() else _CHECK_SECONDS
            ready = dict(self._poll.poll(1000 * max(0.0, min(longest, remaining))))
            if ready:
                continue
            if self._process.poll() is not None and not self._poll.poll(0):
                raise self._died()
            if remaining <= 0:
                raise self._late()

    def _watch(self, descriptor: int | None) -> None:
        if self._watched is not None:
            self._poll.unregister(self._watched)
        if descriptor is not None:
            self._poll.register(descriptor, select.POLLIN)
        self._watched = descriptor

    def _flush(self) -> None:
        """Write the rest of a command; a long one fills the pipe until the worker reads."""
        while self._outgoing:
            try:
                self._outgoing = self._outgoing[os.write(self._writer, self._outgoing) :]
            except BlockingIOError:
                poll = select.poll()
                poll.register(self._writer, select.POLLOUT)
                poll.poll(100)  # Short, to see interrupts as well.
                interrupts.check()
                if time.monotonic() > self._deadline:
                    raise self._late() from None
            except BrokenPipeError:
                raise self._died() from None

    def _died(self) -> WorkerDied:
        """Describe how the process ended."""
        try:
            code = self._process.wait(_TERMINATE_SECONDS)
        except subprocess.TimeoutExpired:  # Its environment closed our pipe: it is lost, too.
            self._process.kill()
            self._process.wait()
            return WorkerDied(f'Worker process {self.pid} of {self.envs} closed its pipe.')
        if code >= 0:
            return WorkerDied(f'Worker process {self.pid} of {self.envs} exited with code {code}.')
        try:
            name = signal.Signals(-code).name
        except ValueError:
            name = f'signal {-code}'
        hint = ' Was the machine out of memory?' if -code == signal.SIGKILL else ''
        return WorkerDied(f'Worker process {self.pid} of {self.envs} was ended by {name}.{hint}')

    def _late(self) -> WorkerTimeout:
        return WorkerTimeout(
            f'Worker process {self.pid} of {self.envs} must answer in time, got no reply within '
            f'timeout={self._timeout:g} seconds. Pass a larger timeout if its environments need it.'
        )

    def ask_to_close(self, timeout: float) -> None:
        """Ask the process to close its environments and to exit, without waiting for that."""
        if self._closed or self._give_up is not None or os.getpid() != self._owner:
            return
        busy = self._pending > 0
        self._give_up = time.monotonic() + (min(timeout, _BUSY_SECONDS) if busy else timeout)
        self._pending += 1
        with contextlib.suppress(OSError):
            if not self._outgoing:
                os.write(self._writer, messages.CLOSE)

    def await_exit(self, deadline: float) -> tuple[bytes, bytes] | None:
        """Wait for the process to exit and return its last reply, if it sent one."""
        last = None
        if self._closed or os.getpid() != self._owner:
            return last
        poll = select.poll()
        poll.register(self._reader, select.POLLIN)
        while (remaining := deadline - time.monotonic()) > 0 and self._process.poll() is None:
            if not poll.poll(1000 * min(0.1, remaining)):
                continue
            chunk = os.read(self._reader, _CHUNK)
            self._incoming += chunk
            if not chunk:  # End of file comes shortly before the exit.
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self._process.wait(remaining)
                break
        while poll.poll(0) and (chunk := os.read(self._reader, _CHUNK)):
            self._incoming += chunk
        while self._pending and (last := messages.unpack(self._incoming)):
            self._pending -= 1
        return None if self._pending else last

    def _release(self) -> None:
        if not self._closed:
            self._closed = True
            for descriptor in (self.memory, self._reader, self._writer):
                os.close(descriptor)


def shut_down(workers: Iterable[WorkerProcess], timeout: float = 5.0) -> list[Exception]:
    """End worker processes side by side: ask, then terminate, then kill.

    Takes little more than `timeout`, however many there are and whatever state they are in.

    Args:
        workers: Processes to end; those that ended already are ignored.
        timeout: How long their environments may take to close in seconds.

    Returns:
        What closing their environments raised.
    """
    workers = [worker for worker in workers if not worker._closed]
    own = [worker for worker in workers if worker._owner == os.getpid()]
    errors: list[Exception] = []
    try:
        for worker in own:
            worker.ask_to_close(timeout)
        for worker in own:
            reply = worker.await_exit(worker._give_up or 0.0)
            if reply and reply[0] == messages.FAILURE:
                errors.append(messages.unpack_error(reply[1], worker.pid)[0])
        for worker in own:
            worker._process.terminate()  # No effect on those that are gone.
        deadline = time.monotonic() + _TERMINATE_SECONDS
        for worker in own:
            worker.await_exit(deadline)
    finally:
        for worker in own:
            worker._process.kill()
            worker._process.wait()
        for worker in workers:
            worker._release()
    return errors


def _spawn(memory: int, commands: int, replies: int) -> subprocess.Popen:
    """Start Python with ends of the pipes and the shared memory, and with SIGINT held back."""
    arguments = [sys.executable, '-P', '-c', _BOOTSTRAP, str(memory), str(commands), str(replies)]
    environment = {**os.environ, **dict.fromkeys(_THREAD_LIMITS, '1')}
    # The mask is inherited. Until the worker ignores SIGINT, Ctrl-C would make Python's own start
    # fail noisily.
    former = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        return subprocess.Popen(arguments, env=environment, pass_fds=(memory, commands, replies))
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, former)


@atexit.register
def _shut_down_all() -> None:
    shut_down(list(_living))
