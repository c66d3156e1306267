"""Import TensorFlow without its notes, and set it up as a run needs it."""

import contextlib
import glob
import os
import re
import sys
import tempfile
from collections.abc import Callable, Iterator

from agents.scripts.config import Config
from agents.scripts.mistakes import UserError

# Notes about oneDNN and CUDA, written before any setting could hold them back; and that there is no
# GPU, which TensorFlow takes for an error where a driver was installed all the same.
_NOTES = re.compile(
    rb'^(WARNING: All log messages before absl|I\d{4} [\d:.]+'
    + (rb'' if glob.glob('/dev/nvidia*') else rb'|E\d{4} [\d:.]+ .*failed call to cuInit')
    + rb').*\n',
    re.MULTILINE,
)


def notes() -> contextlib.AbstractContextManager[None]:
    """Hold back what is written to standard error, and let all of it out at the end but notes."""
    return _filtered(lambda text, _: _NOTES.sub(b'', text))


def output() -> contextlib.AbstractContextManager[None]:
    """Hold back what is written to standard error, and let it out only if something fails."""
    return _filtered(lambda text, failed: text if failed else b'')


@contextlib.contextmanager
def _filtered(choose: Callable[[bytes, bool], bytes]) -> Iterator[None]:
    """Hold back standard error; at the end write what is chosen of it, given whether it failed."""
    try:
        descriptor = sys.stderr.fileno()
    except (AttributeError, OSError):  # Somebody replaced it, as pytest and notebooks do.
        yield
        return
    sys.stderr.flush()
    former = os.dup(descriptor)
    failed = True
    with tempfile.TemporaryFile() as file:
        os.dup2(file.fileno(), descriptor)
        try:
            yield
            failed = False
        finally:
            sys.stderr.flush()
            os.dup2(former, descriptor)
            os.close(former)
            file.seek(0)
            with open(descriptor, 'wb', closefd=False) as stderr:
                stderr.write(choose(file.read(), failed))


def import_tensorflow(config: Config) -> None:
    """Import TensorFlow and Keras, and set what must be set before something is computed.

    Args:
        config: Says how many threads, and whether environments are in this process.

    Raises:
        UserError: Keras would not run on TensorFlow.
    """
    # Notes are no use to anyone who trains; errors still show.
    os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '2')
    # A run is one chain of operations, and handing it from thread to thread only costs time. But an
    # environment in this process may itself wait for TensorFlow, which takes a second thread.
    if config.num_workers:
        os.environ.setdefault('TF_NUM_INTEROP_THREADS', '1')
    with notes():
        from agents.parts.keras_backend import import_keras

        try:
            import_keras()
        except ImportError as error:
            raise UserError(str(error)) from None
        import tensorflow as tf

        gpus = tf.config.list_physical_devices('GPU')
    if config.threads:
        tf.config.threading.set_intra_op_parallelism_threads(config.threads)
    for gpu in gpus:
        tf.config.experimental.set_memory_growth(gpu, True)
