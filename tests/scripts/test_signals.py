import os
import signal
import threading

import pytest

from agents.scripts import signals


def send(signum):
    # Python runs the handler before the next line of the main thread.
    os.kill(os.getpid(), signum)


@pytest.mark.parametrize('signum', [signal.SIGINT, signal.SIGTERM])
def test_a_signal_raises_an_exception_that_knows_it(signum):
    before = signal.getsignal(signum)
    with pytest.raises(signals.Stop, match=f'Stopped by {signum.name}') as info, signals.handled():
        send(signum)
    assert info.value.signum == signum
    assert isinstance(info.value, KeyboardInterrupt)
    assert signal.getsignal(signum) is before


def test_only_the_first_signal_counts():
    with signals.handled():
        with pytest.raises(signals.Stop):
            send(signal.SIGTERM)
        send(signal.SIGTERM)
        send(signal.SIGINT)
        with pytest.raises(signals.Stop) as info:
            signals.check()
    assert info.value.signum == signal.SIGTERM


def test_a_deferred_signal_arrives_at_the_end_of_the_outermost_block():
    done = []
    with signals.handled(), pytest.raises(signals.Stop):
        with signals.deferred():
            with signals.deferred():
                send(signal.SIGINT)
                done.append('inner')
            done.append('outer')
        done.append('never')
    assert done == ['inner', 'outer']


def test_what_runs_because_of_a_signal_is_not_stopped_by_it_again():
    with signals.handled():
        with pytest.raises(signals.Stop):
            send(signal.SIGINT)
        with signals.deferred():
            send(signal.SIGINT)


def test_an_exception_goes_before_a_deferred_signal():
    with signals.handled(), pytest.raises(ValueError, match='first'), signals.deferred():
        send(signal.SIGINT)
        raise ValueError('first')


def test_an_interrupted_operation_learns_which_signal_it_was():
    with signals.handled(), pytest.raises(signals.Stop, match='SIGTERM'), signals.deferred():
        send(signal.SIGTERM)
        raise KeyboardInterrupt('A signal asked to stop.')
    with signals.handled(), pytest.raises(KeyboardInterrupt) as info, signals.deferred():
        raise KeyboardInterrupt('Something else.')
    assert not isinstance(info.value, signals.Stop)


def test_nothing_remains_for_the_next_time():
    with pytest.raises(signals.Stop), signals.handled():
        send(signal.SIGINT)
    signals.check()
    with signals.handled():
        signals.check()


def test_other_threads_are_left_alone():
    before = signal.getsignal(signal.SIGINT)
    seen = []

    def work():
        with signals.handled(), signals.deferred():
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [before]
