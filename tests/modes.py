"""The three ways in which TensorFlow runs a function; what holds in one must hold in all."""

import functools

import pytest
import tensorflow as tf

MODES = {
    'eager': lambda function: function,
    'graph': tf.function,
    'xla': functools.partial(tf.function, jit_compile=True),
}
in_every_mode = pytest.mark.parametrize('mode', MODES.values(), ids=MODES)
