"""Import Keras on its TensorFlow backend, or say how."""

import importlib
import os
from typing import Any


def import_keras() -> Any:
    """Import Keras and make sure that it runs on TensorFlow.

    Keras chooses its backend when it is imported first: by the environment variable KERAS_BACKEND,
    else by ~/.keras/keras.json. Models of another backend cannot be part of a TensorFlow operation.

    Returns:
        The module `keras`.

    Raises:
        ImportError: Another backend is asked for or already in use.
    """
    remedy = 'Set KERAS_BACKEND=tensorflow before Keras is imported.'
    # Asked first: the import itself fails for a backend that is not installed.
    backend = os.environ.get('KERAS_BACKEND') or 'tensorflow'
    if backend == 'tensorflow':
        try:
            keras = importlib.import_module('keras')
        except (ImportError, ValueError) as error:
            raise ImportError(f'Keras must be importable, got {error!r}. {remedy}') from error
        backend = keras.backend.backend()
    if backend != 'tensorflow':
        raise ImportError(f"Keras' backend must be tensorflow, got backend={backend!r}. {remedy}")
    return keras
