"""Writes a policy in other formats, and runs what was written."""

import pathlib
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.framework.convert_to_constants import convert_variables_to_constants_v2

from agents.parts.normalize import StreamingNormalize
from agents.scripts.policies import Policy
from agents.tools import spaces


class Exported:
    """What was written, run by its own library, with its memory kept between calls."""

    def __init__(self, run: Callable[[dict[str, np.ndarray]], dict[str, np.ndarray]], carry: Any):
        """Take over a function.

        Args:
            run: Function of inputs by name that returns outputs by name.
            carry: Memory to begin with, leaves [1, ...].
        """
        self._run = run
        self._carry = [np.asarray(leaf) for leaf in carry]

    def __call__(self, obs: np.ndarray, first: np.ndarray) -> np.ndarray:
        """Choose an action.

        Args:
            obs: Observation, [1, ...].
            first: Whether the episode begins with it, bool [1].
        """
        inputs = {'obs': obs}
        if self._carry:
            inputs['first'] = first
        inputs |= {f'carry_{i}': leaf for i, leaf in enumerate(self._carry)}
        outputs = self._run(inputs)
        self._carry = [outputs[f'next_carry_{i}'] for i in range(len(self._carry))]
        return outputs['action']


def write(policy: Policy, kind: str, path: pathlib.Path) -> Exported:
    """Write a policy.

    Args:
        policy: What to write; not to be used any more.
        kind: 'savedmodel', 'onnx' or 'tflite'.
        path: Where to.

    Returns:
        What was written, loaded again.
    """
    function, module = _make_module(policy)
    carry = tf.nest.flatten(policy.algorithm.initial(1))
    writers = {'savedmodel': _write_savedmodel, 'onnx': _write_onnx, 'tflite': _write_tflite}
    return Exported(writers[kind](function, module, path), carry)


def _make_module(policy: Policy) -> tuple[Any, tf.Module]:
    """Make a function of named tensors; the module holds its variables."""
    carry = policy.algorithm.initial(1)
    zero = spaces.zeros(policy.observation_space)
    signature = {'obs': tf.TensorSpec([None, *zero.shape], zero.dtype, 'obs')}
    leaves = tf.nest.flatten(carry)
    if leaves:
        signature['first'] = tf.TensorSpec([None], tf.bool, 'first')
    for index, leaf in enumerate(leaves):
        name = f'carry_{index}'
        signature[name] = tf.TensorSpec([None, *leaf.shape[1:]], leaf.dtype, name)

    def act(**inputs: tf.Tensor) -> dict[str, tf.Tensor]:
        memory = [inputs[f'carry_{index}'] for index in range(len(leaves))]
        first = inputs.get('first', tf.ones(tf.shape(inputs['obs'])[:1], tf.bool))
        action, _, memory = policy.algorithm.perform(
            inputs['obs'],
            first,
            tf.nest.pack_sequence_as(carry, memory),
            tf.zeros([2], tf.int32),
            training=False,
        )
        outputs = {f'next_carry_{i}': x for i, x in enumerate(tf.nest.flatten(memory))}
        return {'action': action, **outputs}

    module = tf.Module()
    module.algorithm = policy.algorithm
    module.act = tf.function(act, autograph=False)
    return module.act.get_concrete_function(**signature), module


def _write_savedmodel(function: Any, module: tf.Module, path: pathlib.Path) -> Callable:
    tf.saved_model.save(module, str(path), signatures=function)
    loaded = tf.saved_model.load(str(path)).signatures['serving_default']

    def run(inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        outputs = loaded(**{name: tf.constant(value) for name, value in inputs.items()})
        return {name: value.numpy() for name, value in outputs.items()}

    return run


def _write_onnx(function: Any, module: tf.Module, path: pathlib.Path) -> Callable:
    import onnxruntime
    import tf2onnx

    specs = list(function.structured_input_signature[1].values())

    def call(*inputs: tf.Tensor) -> dict[str, tf.Tensor]:
        return module.act(**{spec.name: x for spec, x in zip(specs, inputs, strict=True)})

    plain = tf.function(call, input_signature=specs, autograph=False)
    tf2onnx.convert.from_function(plain, specs, opset=18, output_path=str(path))
    session = onnxruntime.InferenceSession(str(path), providers=['CPUExecutionProvider'])
    names = [output.name for output in session.get_outputs()]

    def run(inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        return dict(zip(names, session.run(names, inputs), strict=True))

    return run


def _write_tflite(function: Any, module: Any, path: pathlib.Path) -> Callable:
    from ai_edge_litert.interpreter import Interpreter

    # TFLite's own operations know no float64.
    for part in module.submodules:
        if isinstance(part, StreamingNormalize):
            part.freeze()
    signature = function.structured_input_signature[1]
    act = tf.function(module.act.python_function, autograph=False)
    # The converter leaves variables that an optimizer could change, and nobody initialises them.
    constant = convert_variables_to_constants_v2(act.get_concrete_function(**signature))
    names = [spec.name for spec in constant.inputs]
    outputs = list(function.structured_outputs)

    def call(**inputs: tf.Tensor) -> dict[str, tf.Tensor]:
        results = constant(*(inputs[name.partition(':')[0]] for name in names))
        return dict(zip(outputs, results, strict=True))

    plain = tf.function(call, autograph=False).get_concrete_function(**signature)
    converter = tf.lite.TFLiteConverter.from_concrete_functions([plain], tf.Module())
    path.write_bytes(converter.convert())
    interpreter = Interpreter(model_path=str(path))
    interpreter.allocate_tensors()  # Here, where what it prints is held back.
    runner = interpreter.get_signature_runner()
    return lambda inputs: runner(**inputs)
