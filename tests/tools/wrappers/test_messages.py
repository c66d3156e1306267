import pytest

from agents.tools.wrappers import messages
from tests.tools import fakes


class Garbled(Exception):
    """Pickle rebuilds it from its arguments, but with another text."""

    def __init__(self, name):
        super().__init__(f'bad {name}')


def travel(error):
    buffer = bytearray(messages.pack_error(error, index=2))
    kind, body = messages.unpack(buffer)
    assert kind == messages.FAILURE and not buffer
    return messages.unpack_error(body, pid=5)


def test_messages_are_taken_out_one_by_one_once_they_are_complete():
    stream = messages.DONE + messages.pack(messages.VALUE, [1, 2]) + messages.ENDED
    buffer, kinds = bytearray(), []
    for byte in stream:
        buffer.append(byte)
        message = messages.unpack(buffer)
        if message:
            kinds.append(message[0])
            assert not buffer
    assert kinds == [messages.DONE, messages.VALUE, messages.ENDED]
    assert messages.unpack(buffer) is None


@pytest.mark.parametrize(
    'error', [ValueError('a', 1), Garbled('x'), fakes.Special(1, 'y'), OSError(2, 'z')]
)
def test_errors_keep_type_text_and_arguments(error):
    received, index = travel(error)
    assert type(received) is type(error)
    assert str(received) == str(error)
    assert received.args == error.args
    assert index == 2
    assert 'worker process 5' in received.__notes__[0]


def test_notes_arrive_once_and_before_the_traceback():
    error = ValueError('text')
    error.add_note('A note.')
    received, _ = travel(error)
    assert received.__notes__[0] == 'A note.'
    assert len(received.__notes__) == 2
    assert 'A note.' not in received.__notes__[1]


def test_the_cause_is_part_of_the_traceback():
    try:
        try:
            raise KeyError('first')
        except KeyError as cause:
            raise ValueError('second') from cause
    except ValueError as error:
        received, _ = travel(error)
    assert "KeyError: 'first'" in received.__notes__[0]


@pytest.mark.parametrize('error', [fakes.Unpicklable('text'), KeyboardInterrupt('text')])
def test_what_cannot_travel_becomes_a_runtime_error_with_its_text(error):
    received, _ = travel(error)
    assert type(received) is RuntimeError
    assert str(received).endswith(f'{type(error).__name__}: text')
