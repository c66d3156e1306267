import os
import select
import signal
import threading

import pytest

from agents.tools import interrupts


@pytest.fixture
def received():
    """Signals that the handler of SIGTERM got."""
    numbers = []
    former = signal.signal(signal.SIGTERM, lambda number, frame: numbers.append(number))
    yield numbers
    signal.signal(signal.SIGTERM, former)


def readable(descriptor):
    return bool(select.select([descriptor], [], [], 0)[0])


def test_nobody_watches_at_first():
    assert interrupts.fileno() is None
    interrupts.check()


def test_a_signal_makes_the_descriptor_readable_and_runs_its_handler(received):
    with interrupts.watch():
        assert not readable(interrupts.fileno())
        interrupts.check()
        os.kill(os.getpid(), signal.SIGTERM)
        assert readable(interrupts.fileno())
        with pytest.raises(interrupts.Interrupted, match='asked to stop'):
            interrupts.check()
        assert readable(interrupts.fileno())  # For all who wait.
    assert received == [signal.SIGTERM]
    assert interrupts.fileno() is None


def test_control_c_still_raises_keyboard_interrupt():
    with pytest.raises(KeyboardInterrupt), interrupts.watch():
        os.kill(os.getpid(), signal.SIGINT)
    assert interrupts.fileno() is None


def test_each_watch_begins_anew(received):
    with interrupts.watch():
        os.kill(os.getpid(), signal.SIGTERM)
    with interrupts.watch():
        assert not readable(interrupts.fileno())


def test_an_inner_watch_is_the_outer_one():
    with interrupts.watch():
        outer = interrupts.fileno()
        with interrupts.watch():
            assert interrupts.fileno() == outer
        assert interrupts.fileno() == outer


def test_signals_are_handed_on_to_who_watched_before(received):
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    former = signal.set_wakeup_fd(writer)
    try:
        with interrupts.watch():
            os.kill(os.getpid(), signal.SIGTERM)
            assert not readable(reader)
        assert os.read(reader, 10) == bytes([signal.SIGTERM])
        os.kill(os.getpid(), signal.SIGTERM)  # It watches again itself.
        assert os.read(reader, 10) == bytes([signal.SIGTERM])
    finally:
        assert signal.set_wakeup_fd(former) == writer
        os.close(reader)
        os.close(writer)


def test_another_thread_cannot_watch_but_can_wait(received):
    seen = []

    def watch():
        with interrupts.watch():
            seen.append(interrupts.fileno())

    def wait(descriptor):
        seen.append(bool(select.select([descriptor], [], [], 10)[0]))

    thread = threading.Thread(target=watch)
    thread.start()
    thread.join()
    assert seen == [None]
    with interrupts.watch():
        thread = threading.Thread(target=wait, args=(interrupts.fileno(),))
        thread.start()
        os.kill(os.getpid(), signal.SIGTERM)
        thread.join()
    assert seen == [None, True]


def test_a_watch_leaves_no_descriptor_open():
    before = len(os.listdir('/proc/self/fd'))
    with interrupts.watch():
        pass
    assert len(os.listdir('/proc/self/fd')) == before


def test_other_signals_that_the_program_handles_do_not_stop_it():
    former = signal.signal(signal.SIGUSR1, lambda number, frame: None)
    try:
        with interrupts.watch():
            os.kill(os.getpid(), signal.SIGUSR1)
            assert readable(interrupts.fileno())
            interrupts.check()
            assert not readable(interrupts.fileno())
    finally:
        signal.signal(signal.SIGUSR1, former)


def test_a_signal_ends_a_sleep(received):
    interrupts.sleep(0)
    with interrupts.watch():
        interrupts.sleep(0.001)
        os.kill(os.getpid(), signal.SIGTERM)
        with pytest.raises(interrupts.Interrupted):
            interrupts.sleep(1000)
