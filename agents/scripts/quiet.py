"""Import TensorFlow without its notes."""

import contextlib
import os
import re
import sys
import tempfile
from collections.abc import Iterator

# Notes about oneDNN and CUDA, written before any setting could hold them back.
_NOTES = re.compile(rb'^(WARNING: All log messages before absl|I\d{4} [\d:.]+).*\n', re.MULTILINE)


@contextlib.contextmanager
def notes() -> Iterator[None]:
    """Hold back what is written to standard error, and let all of it out at the end but notes."""
    try:
        descriptor = sys.stderr.fileno()
    except (AttributeError, OSError):  # Somebody replaced it, as pytest and notebooks do.
        yield
        return
    sys.stderr.flush()
    former = os.dup(descriptor)
    with tempfile.TemporaryFile() as file:
        os.dup2(file.fileno(), descriptor)
        try:
            yield
        finally:
            sys.stderr.flush()
            os.dup2(former, descriptor)
            os.close(former)
            file.seek(0)
            with open(descriptor, 'wb', closefd=False) as stderr:
                stderr.write(_NOTES.sub(b'', file.read()))
