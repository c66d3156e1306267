import gc
import glob
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time

import gymnasium
import numpy as np
import psutil
import pytest

from agents.tools import BatchEnv, interrupts, make_batch_env
from agents.tools.wrappers.external_process import (
    ExternalProcess,
    WorkerDied,
    WorkerError,
    WorkerTimeout,
)
from tests.tools import fakes

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(__file__))))


def until(condition, seconds=5.0):
    """Return how long it took until the condition held; fail if it does not in time."""
    start = time.monotonic()
    while not condition():
        assert time.monotonic() - start < seconds, 'It took too long.'
        time.sleep(0.01)
    return time.monotonic() - start


def patiently(function, *arguments):
    """Call again while the time is over, as it may be for a worker that only starts."""
    while True:
        try:
            return function(*arguments)
        except WorkerTimeout:
            continue


def gone(pid):
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def sleeping(pid):
    """Whether a process waits, as for its environment's sleep, with all its threads."""
    return psutil.Process(pid).status() == psutil.STATUS_SLEEPING


def python(code, *arguments, **options):
    """Start a script of its own, with lines of output to read."""
    return subprocess.Popen(
        [sys.executable, '-c', textwrap.dedent(code), *map(str, arguments)],
        env={**os.environ, 'PYTHONPATH': ROOT},
        stdout=subprocess.PIPE,
        text=True,
        **options,
    )


def trouble(kind, where='step', count=1, timeout=60.0, index=0):
    """A process of environments of which the one at `index` gets into trouble."""
    makes = [lambda i=i: fakes.Trouble(kind if i == index else '', where) for i in range(count)]
    return ExternalProcess(makes if count > 1 else makes[0], timeout)


# What it does


def test_it_steps_and_resets_as_the_environment_does():
    with ExternalProcess(lambda: fakes.Counting(length=2)) as env:
        assert env.num_envs == 1
        assert env.observation_space == fakes.Counting().observation_space
        assert env.action_space == fakes.Counting().action_space
        np.testing.assert_array_equal(env.reset(), [[1, 0]])
        assert env.step([0]).reward.tolist() == [11]
        result = env.step([1])
        np.testing.assert_array_equal(result.obs, [[2, 0]])
        np.testing.assert_array_equal(result.next_obs, [[1, 2]])
        assert result.terminated.tolist() == [True]


def test_the_constructor_does_not_wait_for_the_environments(tmp_path):
    gate = tmp_path / 'gate'

    def make():
        env = fakes.Trouble('wait', where='reset')
        env.gate = str(gate)
        env.reset()
        return env

    with ExternalProcess(make) as env:
        gate.touch()  # Would wait for ever if the constructor waited for the environment.
        np.testing.assert_array_equal(env.reset(), [[2, 0]])


def test_workers_step_at_the_same_time(tmp_path):
    class Meeting(fakes.Counting):
        """Finishes its first step only when the other environment has begun its own."""

        def __init__(self, name, other):
            super().__init__()
            self.name, self.other = tmp_path / name, tmp_path / other

        def step(self, action):
            self.name.touch()
            until(self.other.exists)
            return super().step(action)

    inner = ExternalProcess(lambda: Meeting('b', 'a'))
    with BatchEnv([ExternalProcess(lambda: Meeting('a', 'b')), BatchEnv([inner])]) as env:
        env.reset()
        env.step([0, 0])


def test_environments_are_called_and_render_in_their_process():
    with ExternalProcess([fakes.Trouble] * 2) as env:
        env.reset()
        assert env.call('pid') == (env.pid, env.pid)
        assert env.render() == ('frame 1 0',) * 2
        assert env.call('double', 2, plus=3) == (7, 7)
        with pytest.raises(AttributeError, match='nothing_such'):
            env.get_attr('nothing_such')
        with pytest.raises(TypeError, match='lock'):
            env.call('lock')  # Its result cannot be sent.
        env.step([0, 0])


def test_messages_larger_than_a_pipe_go_both_ways():
    value = np.arange(1_000_000)
    with ExternalProcess(fakes.Trouble) as env:
        np.testing.assert_array_equal(env.call('double', value)[0], 2 * value)


def test_a_constructor_larger_than_a_pipe_does_not_block():
    value = np.arange(1_000_000)
    with ExternalProcess(lambda: fakes.Trouble(trouble=str(value.sum()))) as env:
        assert env.get_attr('trouble') == (str(value.sum()),)


def test_workers_are_small_without_tensorflow_and_use_one_thread():
    with ExternalProcess(lambda: gymnasium.make('CartPole-v1')) as env:
        env.reset()
        assert psutil.Process(env.pid).memory_info().rss < 120e6
    with ExternalProcess(fakes.Trouble) as env:
        modules = {name.partition('.')[0] for name in env.call('modules')[0]}
        assert 'agents' in modules
        assert not modules & {'tensorflow', 'keras', 'torch', 'jax', 'pytest'}
        names = (
            'OMP_NUM_THREADS',
            'OPENBLAS_NUM_THREADS',
            'MKL_NUM_THREADS',
            'NUMEXPR_NUM_THREADS',
        )
        assert env.call('environ', *names) == (['1'] * 4,)


def test_it_starts_with_the_path_and_the_directory_of_its_parent(tmp_path, monkeypatch):
    (tmp_path / 'module_of_a_user.py').write_text('from tests.tools.fakes import Trouble as Env\n')
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.chdir(tmp_path)

    def make():
        import module_of_a_user

        env = module_of_a_user.Env()
        env.directory = os.getcwd()
        return env

    with ExternalProcess(make) as env:
        assert env.get_attr('directory') == (str(tmp_path),)


def test_tasks_that_only_the_parent_registered_are_known():
    class Local(fakes.Counting):
        pass

    gymnasium.register('OnlyHere-v0', entry_point=Local, max_episode_steps=2)
    try:
        with ExternalProcess(lambda: gymnasium.make('OnlyHere-v0', length=9)) as env:
            env.reset()
            env.step([0])
            assert env.step([0]).truncated.tolist() == [True]
    finally:
        del gymnasium.registry['OnlyHere-v0']


def test_a_task_that_cannot_be_sent_is_named_in_a_warning():
    lock = threading.Lock()
    gymnasium.register('Locked-v0', entry_point=lambda: lock)
    try:
        with pytest.warns(UserWarning, match="Task 'Locked-v0' must be picklable") as warned:
            env = ExternalProcess(fakes.Counting)
        assert warned[0].filename == __file__
        with env:
            env.reset()
    finally:
        del gymnasium.registry['Locked-v0']


# What is asked of constructors


def test_a_constructor_must_be_a_function():
    with pytest.raises(TypeError, match=r'got .*Counting.* at index 0.*lambda: gymnasium.make'):
        ExternalProcess(fakes.Counting())
    with pytest.raises(TypeError, match="got 'CartPole-v1' at index 1"):
        ExternalProcess([fakes.Counting, 'CartPole-v1'])
    with pytest.raises(ValueError, match='at least one, got an empty list'):
        ExternalProcess([])
    with pytest.raises(ValueError, match='must be positive, got timeout=0'):
        ExternalProcess(fakes.Counting, timeout=0)


def test_a_constructor_that_cannot_be_pickled_is_named():
    lock = threading.Lock()
    with pytest.raises(TypeError, match=r'picklable, got .*<lambda>.* at index 1'):
        ExternalProcess([fakes.Counting, lambda: lock])


def test_a_constructor_that_fails_gives_its_own_error():
    def make():
        raise fakes.Special(3, 'in constructor')

    env = ExternalProcess([fakes.Counting, make])
    env.first_index = 5
    for _ in range(2):
        with pytest.raises(fakes.Special, match='special 3: in constructor') as info:
            env.reset()
        notes = '\n'.join(info.value.__notes__)
        assert 'Raised when environment 6 was made.' in notes
        assert 'in make' in notes and f'worker process {env.pid}' in notes
    env.close()
    assert gone(env.pid)


def test_a_constructor_must_make_an_environment():
    message = "must return a gymnasium.Env, got <class 'int'>"
    with ExternalProcess(lambda: 5) as env, pytest.raises(TypeError, match=message):
        env.reset()


# Errors of environments


def test_an_error_comes_back_as_its_own_type_and_the_worker_lives_on():
    with trouble('raise', count=3, index=2) as env:
        env.first_index = 4
        env.reset()
        with pytest.raises(ZeroDivisionError, match='one over nothing') as info:
            env.step([0, 1, 1])
        note, remote = info.value.__notes__
        assert note == 'Raised by environment 6 in step, last action: 1.'
        assert f'Traceback of worker process {env.pid}' in remote
        assert 'in do_raise' in remote
        with pytest.raises(RuntimeError, match='again after an error'):
            env.step([0, 0, 0])
        env.set_attr('trouble', '')
        env.reset()
        env.step([0, 0, 0])


@pytest.mark.parametrize(
    ('kind', 'error', 'message'),
    [
        ('special', fakes.Special, '^special 7: of its own'),
        ('unpicklable', RuntimeError, 'fakes.Unpicklable: cannot travel'),
        ('system_exit', RuntimeError, 'SystemExit: 4'),
    ],
)
def test_errors_that_pickle_cannot_rebuild_come_back_too(kind, error, message):
    with trouble(kind) as env:
        env.reset()
        with pytest.raises(error, match=message) as info:
            env.step([1])
        assert type(info.value) is error
        assert getattr(info.value, 'code', 7) == 7
        assert info.value.__notes__[0] == 'Raised by environment 0 in step, last action: 1.'
        assert f'do_{kind}' in info.value.__notes__[1]
        assert env.call('pid') == (env.pid,)


# Death


@pytest.mark.parametrize(
    ('kind', 'message'),
    [
        ('exit', 'exited with code 3'),
        ('kill', 'ended by SIGKILL. Was the machine out of memory'),
        ('segfault', 'ended by SIGSEGV'),
    ],
)
@pytest.mark.parametrize('where', ['step', 'reset'])
def test_a_worker_that_dies_is_reported_at_once(kind, message, where):
    with trouble(kind, where, count=2) as env:
        env.first_index = 3
        pid = env.pid
        if where == 'step':
            env.reset()
        start = time.monotonic()
        with pytest.raises(WorkerDied, match=f'process {pid} of environments 3 to 4 .*{message}'):
            env.step([0, 0]) if where == 'step' else env.reset()
        assert time.monotonic() - start < 5
        with pytest.raises(WorkerDied, match=message):
            env.reset()


def test_a_worker_that_dies_while_it_is_made_is_reported():
    message = 'environment 0 exited with code 3'
    with ExternalProcess(lambda: os._exit(3)) as env, pytest.raises(WorkerDied, match=message):
        env.reset()


def test_a_worker_that_dies_idle_is_reported_by_the_next_step():
    with make_batch_env(fakes.Trouble, 3, num_workers=3) as env:
        pids = env.call('pid')
        env.reset()
        os.kill(pids[1], signal.SIGKILL)
        until(lambda: gone(pids[1]))
        with pytest.raises(WorkerDied, match=f'process {pids[1]} of environment 1 .*SIGKILL'):
            env.step([0, 0, 0])


def test_a_worker_that_is_killed_in_a_step_is_reported():
    with trouble('hang') as env:
        env.reset()
        env.step_async([0])
        until(lambda: sleeping(env.pid))
        os.kill(env.pid, signal.SIGKILL)
        start = time.monotonic()
        with pytest.raises(WorkerDied, match='SIGKILL'):
            env.step_wait()
        assert time.monotonic() - start < 5


def test_a_death_is_seen_although_another_process_holds_the_pipe(tmp_path):
    class Env(fakes.Trouble):
        def step(self, action):
            holder = os.fork()
            if not holder:
                time.sleep(30)
                os._exit(0)
            (tmp_path / 'holder').write_text(str(holder))
            os._exit(5)

    with ExternalProcess(Env) as env:
        env.reset()
        start = time.monotonic()
        with pytest.raises(WorkerDied, match='exited with code 5'):
            env.step([0])
        assert time.monotonic() - start < 5
        os.kill(int((tmp_path / 'holder').read_text()), signal.SIGKILL)


# Waiting


def test_a_hanging_worker_is_reported_after_the_timeout():
    with trouble('hang', count=2, timeout=0.5) as env:
        env.first_index = 8
        patiently(env.reset)
        with pytest.raises(
            WorkerTimeout, match=r'environments 8 to 9.*timeout=0.5.*larger'
        ) as info:
            env.step([0, 0])
        assert isinstance(info.value, TimeoutError) and isinstance(info.value, WorkerError)
    assert gone(env.pid)


def test_a_late_reply_is_dropped_before_the_next_command(tmp_path):
    gate = tmp_path / 'gate'
    with trouble('wait', timeout=0.5) as env:
        patiently(env.set_attr, 'gate', str(gate))
        patiently(env.reset)
        with pytest.raises(WorkerTimeout):
            env.step([0])
        with pytest.raises(WorkerTimeout):
            env.reset()  # The step still takes.
        gate.touch()
        np.testing.assert_array_equal(env.reset(), [[2, 0]])
        np.testing.assert_array_equal(env.step([0]).obs, [[2, 1]])
        assert env.call('double', 4) == (8,)


def test_a_signal_interrupts_waiting_and_the_reply_is_dropped(tmp_path):
    gate = tmp_path / 'gate'
    seen = []
    former = signal.signal(signal.SIGTERM, lambda *_: seen.append(True))
    try:
        with trouble('wait', count=2) as env:
            env.set_attr('gate', str(gate))
            env.reset()
            env.step_async([0, 0])
            with interrupts.watch():
                os.kill(os.getpid(), signal.SIGTERM)
                with pytest.raises(interrupts.Interrupted):
                    env.step_wait()
            assert seen == [True]
            with pytest.raises(RuntimeError, match='again after an error'):
                env.step([0, 0])
            gate.touch()
            np.testing.assert_array_equal(env.reset(), [[2, 0], [2, 0]])
            np.testing.assert_array_equal(env.step([0, 0]).obs, [[2, 1], [2, 1]])
    finally:
        signal.signal(signal.SIGTERM, former)


def test_workers_ignore_sigint():
    with ExternalProcess(fakes.Trouble) as env:
        env.reset()
        os.kill(env.pid, signal.SIGINT)
        np.testing.assert_array_equal(env.step([0]).obs, [[1, 1]])


@pytest.mark.parametrize('kind', ['hang', 'hang_in_c'])
def test_control_c_ends_a_process_whose_step_hangs(kind):
    parent = python(
        f"""
        from agents.tools.wrappers import ExternalProcess
        from tests.tools import fakes
        env = ExternalProcess(lambda: fakes.Trouble('{kind}'))
        env.reset()
        print(env.pid, flush=True)
        env.step([0])
        """,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    worker = int(parent.stdout.readline())
    until(lambda: sleeping(parent.pid) and sleeping(worker))
    os.killpg(parent.pid, signal.SIGINT)
    start = time.monotonic()
    _, errors = parent.communicate(timeout=10)
    assert time.monotonic() - start < 4
    assert errors.count('KeyboardInterrupt') == 1  # Of the parent, none of the worker.
    until(lambda: gone(worker))


# The end


def test_closing_closes_the_environments_and_happens_once(tmp_path):
    class Env(fakes.Counting):
        def close(self):
            with open(tmp_path / 'closed', 'a') as file:
                file.write('closed ')

    env = ExternalProcess([Env, Env])
    env.reset()
    env.close()
    env.close()
    assert (tmp_path / 'closed').read_text() == 'closed closed '
    assert gone(env.pid)
    with pytest.raises(RuntimeError, match='after it was closed'):
        env.step([0, 0])


def test_an_error_in_closing_is_raised():
    env = trouble('raise', where='close', count=2, index=1)
    env.reset()
    with pytest.raises(ZeroDivisionError) as info:
        env.close()
    assert 'environment 1 in close' in info.value.__notes__[0]
    assert gone(env.pid)


def test_closing_before_the_first_use_takes_no_time():
    start = time.monotonic()
    envs = [ExternalProcess(fakes.Counting) for _ in range(2)]
    for env in envs:
        env.close()
        assert gone(env.pid)
    assert time.monotonic() - start < 4


@pytest.mark.parametrize('busy', [False, True])
def test_closing_stopped_workers_is_bounded_for_all_of_them_together(busy):
    env = make_batch_env(fakes.Trouble, 3, num_workers=3)
    env.reset()
    pids = env.call('pid')
    if busy:
        env.step_async([0, 0, 0])
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    start = time.monotonic()
    env.close(timeout=0.5)
    assert time.monotonic() - start < 3
    assert all(map(gone, pids))


def test_a_worker_in_a_long_step_closes_its_environments(tmp_path):
    class Env(fakes.Trouble):
        def close(self):
            (tmp_path / 'closed').touch()

    env = ExternalProcess(lambda: Env('hang'))
    env.reset()
    env.step_async([0])
    until(lambda: sleeping(env.pid))
    env.close()
    assert (tmp_path / 'closed').exists()
    assert gone(env.pid)


def test_a_worker_ends_with_the_last_reference_to_it():
    env = ExternalProcess(fakes.Counting)
    env.reset()
    pid = env.pid
    del env
    gc.collect()
    assert gone(pid)


def test_a_forked_child_does_not_end_the_workers_of_its_parent():
    with ExternalProcess(fakes.Counting) as env:
        env.reset()
        child = os.fork()
        if not child:
            env.close()
            os._exit(0)
        os.waitpid(child, 0)
        np.testing.assert_array_equal(env.step([0]).obs, [[1, 1]])


def test_nothing_is_left_behind():
    def state():
        return len(os.listdir('/proc/self/fd')), len(psutil.Process().children())

    def blocks():
        with open('/proc/self/maps') as file:
            return file.read().count('memfd:agents')

    def play():
        with ExternalProcess([fakes.Counting] * 2) as env:
            env.reset()
            env.step([0, 0])
            assert blocks() == maps + 1
            assert glob.glob('/dev/shm/*') == shared

    gc.collect()
    shared, maps = glob.glob('/dev/shm/*'), blocks()
    before = state()
    for _ in range(20):
        play()
    assert state() == before
    assert blocks() == maps
    assert glob.glob('/dev/shm/*') == shared


def test_failures_leave_no_descriptors_behind():
    def fail():
        raise ValueError('cannot be made')

    gc.collect()
    before = len(os.listdir('/proc/self/fd'))
    for make in (fail, lambda: os._exit(1)):
        env = ExternalProcess(make)
        with pytest.raises((ValueError, WorkerDied)):
            env.reset()
        del env
        gc.collect()
    lock = threading.Lock()
    with pytest.raises(TypeError):
        ExternalProcess(lambda: lock)
    assert len(os.listdir('/proc/self/fd')) == before


@pytest.mark.parametrize('state', ['idle', 'hang', 'making'])
@pytest.mark.parametrize('death', ['kill', 'exit', 'segfault'])
def test_workers_do_not_outlive_their_parent(state, death):
    code = """
        import ctypes, os, sys, time
        from agents.tools.wrappers import ExternalProcess
        from tests.tools import fakes
        state, death = sys.argv[1:]
        make = (lambda: time.sleep(1000)) if state == 'making' else lambda: fakes.Trouble(state)
        env = ExternalProcess(make)
        if state != 'making':
            env.reset()
        if state == 'hang':
            env.step_async([0])
        print(env.pid, flush=True)
        sys.stdin.readline()
        if death == 'exit':
            os._exit(1)
        ctypes.string_at(0)
        """
    state = {'idle': ''}.get(state, state)
    parent = python(code, state, death, stdin=subprocess.PIPE)
    worker = int(parent.stdout.readline())
    until(lambda: sleeping(worker))
    if death == 'kill':
        parent.kill()
    else:
        parent.communicate('\n')
    parent.wait()
    until(lambda: gone(worker), 5)


def test_a_script_that_does_not_close_exits_quickly_and_leaves_nothing():
    parent = python(
        """
        import time
        from agents.tools import make_batch_env
        from tests.tools import fakes
        env = make_batch_env(fakes.Trouble, 4, num_workers=2)
        env.reset()
        print(*env.call('pid'), flush=True)
        print(time.time(), flush=True)
        """
    )
    output, _ = parent.communicate(timeout=20)
    now = time.time()
    pids, ended = output.splitlines()
    assert parent.returncode == 0
    assert now - float(ended) < 2
    assert all(gone(int(pid)) for pid in pids.split())


# Where it is used


SCRIPT = """
    import sys
    import gymnasium
    import numpy as np
    from agents.tools.wrappers import ExternalProcess

    class OfMain(Exception):
        pass

    class Env(gymnasium.Env):
        observation_space = gymnasium.spaces.Box(-1, 1, (1,))
        action_space = gymnasium.spaces.Discrete(2)

        def reset(self, *, seed=None, options=None):
            return np.zeros(1, np.float32), {}

        def step(self, action):
            raise OfMain('from main')

    def play(amount=1):
        with ExternalProcess([Env, lambda: Env()]) as env:
            obs = env.reset()
            try:
                env.step([0, 1])
            except OfMain as error:
                print(obs.shape, error)
    """


def test_it_works_without_a_file_in_main_and_without_a_guard():
    output, _ = python(SCRIPT + '\n    play()').communicate(timeout=20)
    assert output == '(2, 1) from main\n'


def test_it_works_with_classes_of_a_script(tmp_path):
    script = tmp_path / 'script.py'
    script.write_text(textwrap.dedent(SCRIPT + '\n    play()'))
    options = {'env': {**os.environ, 'PYTHONPATH': ROOT}, 'timeout': 20, 'text': True}
    output = subprocess.run([sys.executable, script], stdout=subprocess.PIPE, **options).stdout
    assert output == '(2, 1) from main\n'


def test_it_works_in_a_notebook():
    client = pytest.importorskip('nbclient')
    pytest.importorskip('ipykernel')
    import nbformat

    cells = [f'import sys; sys.path.insert(0, {ROOT!r})', textwrap.dedent(SCRIPT), 'play()']
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    notebook.metadata.kernelspec = {'name': 'python3', 'display_name': 'Python 3'}
    client.NotebookClient(notebook, timeout=30).execute()
    assert notebook.cells[-1].outputs[0].text == '(2, 1) from main\n'


def test_it_works_from_a_thread():
    results = []

    def play():
        with ExternalProcess(fakes.Counting) as env:
            env.reset()
            results.append(env.step([0]).obs.tolist())

    thread = threading.Thread(target=play)
    thread.start()
    thread.join()
    assert results == [[[1, 1]]]


def test_many_environments_start_side_by_side():
    start = time.monotonic()
    with make_batch_env(lambda: gymnasium.make('CartPole-v1'), 32, num_workers=2) as env:
        env.reset(seed=0)
        assert time.monotonic() - start < 3
