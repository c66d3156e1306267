"""Writes a policy in other formats, and runs what was written."""

import pathlib
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.framework.convert_to_constants import convert_variables_to_constants_v2

from agents.parts.normalize import StreamingNormalize
from agents.scripts.mistakes import UserError
from agents.scripts.policies import Policy
from agents.tools import spaces
from agents.tools.transition import Nest

Run = Callable[[dict[str, np.ndarray]], dict[str, np.ndarray]]


class Exported:
    """What was written, run by its own library, with its memory kept between calls.

    Attributes:
        inputs: Specifications of what it takes, by name.
        outputs: Specifications of what it returns, by name.
    """

    def __init__(self, run: Run, inputs: dict, outputs: dict, policy: Policy):
        """Take over a function.

        Args:
            run: Function of inputs by name that returns outputs by name.
            inputs: Specifications by name.
            outputs: Specifications by name.
            policy: What was written.
        """
        self.inputs, self.outputs = inputs, outputs
        self._run = run
        self._initial: Callable[[int], Any] = policy.algorithm.initial
        self._names = names('action', spaces.structure(policy.action_space))
        self.reset(1)

    def reset(self, rows: int) -> None:
        """Begin new episodes, as many as there are rows."""
        self._carry = [np.asarray(leaf) for leaf in tf.nest.flatten(self._initial(rows))]

    def __call__(self, obs: Nest, first: np.ndarray) -> Nest:
        """Choose actions.

        Args:
            obs: Observations, nest [B, ...].
            first: Whether an episode begins with each, bool [B].

        Returns:
            Actions, nest [B, ...].
        """
        inputs = named('obs', obs)
        if self._carry:
            inputs['first'] = first
        inputs |= {f'carry_{i}': leaf for i, leaf in enumerate(self._carry)}
        outputs = self._run(inputs)
        self._carry = [outputs[f'next_carry_{i}'] for i in range(len(self._carry))]
        return spaces.map_parts(outputs.__getitem__, self._names)


def write(policy: Policy, kind: str, path: pathlib.Path) -> Exported:
    """Write a policy.

    Args:
        policy: What to write. It has been traced, so it acts as before; do not train it further.
        kind: 'savedmodel', 'onnx' or 'tflite'.
        path: Where to.

    Returns:
        What was written, loaded again.
    """
    if kind == 'tflite':
        # TFLite's own operations know no float64.
        for part in policy.algorithm.submodules:
            if isinstance(part, StreamingNormalize):
                part.freeze()
    signature = _signature(policy)
    function, module = _make_module(policy, signature)
    writers = {'savedmodel': _write_savedmodel, 'onnx': _write_onnx, 'tflite': _write_tflite}
    run = writers[kind](function, module, path)
    return Exported(run, signature, function.structured_outputs, policy)


def names(what: str, nest: Nest) -> Nest:
    """Name every part of a nest by its keys and numbers, like 'obs_arm_0'; all of it is 'obs'.

    Args:
        what: What the nest is.
        nest: Nest of anything.

    Raises:
        UserError: Two parts would have the same name.
    """
    paths = [path for path, _ in spaces.parts(nest)]
    words = ['_'.join([what, *re.findall(r'\w+', path)]) for path in paths]
    if len(set(words)) < len(words):
        raise UserError(
            f'Parts of the {what} must have names that differ in letters, digits or _, got '
            f'{", ".join(paths)}. Rename them with a wrapper.'
        )
    remaining = iter(words)
    return spaces.map_parts(lambda _: next(remaining), nest)


def named(what: str, nest: Nest) -> dict[str, Any]:
    """Return the parts of a nest by their names."""
    pairs = spaces.parts(names(what, nest)), spaces.parts(nest)
    return {name: part for (_, name), (_, part) in zip(*pairs, strict=True)}


def _signature(policy: Policy) -> dict[str, tf.TensorSpec]:
    """Name what goes in; `first` matters only where there is something to clear."""
    signature = {
        name: tf.TensorSpec([None, *zero.shape], zero.dtype, name)
        for name, zero in named('obs', spaces.zeros(policy.observation_space)).items()
    }
    for index, leaf in enumerate(tf.nest.flatten(policy.algorithm.initial(1))):
        signature['first'] = tf.TensorSpec([None], tf.bool, 'first')
        name = f'carry_{index}'
        signature[name] = tf.TensorSpec([None, *leaf.shape[1:]], leaf.dtype, name)
    return signature


def _make_module(policy: Policy, signature: dict[str, tf.TensorSpec]) -> tuple[Any, tf.Module]:
    """Make a function of named tensors; the module holds its variables and no others."""
    carry = policy.algorithm.initial(1)
    leaves = tf.nest.flatten(carry)
    obs_names = names('obs', spaces.structure(policy.observation_space))

    def act(**inputs: tf.Tensor) -> dict[str, tf.Tensor]:
        memory = [inputs[f'carry_{index}'] for index in range(len(leaves))]
        obs = spaces.map_parts(inputs.__getitem__, obs_names)
        size = tf.shape(tf.nest.flatten(obs)[0])[:1]
        first = inputs['first'] if 'first' in inputs else tf.ones(size, tf.bool)
        action, _, memory = policy.algorithm.perform(
            obs,
            first,
            tf.nest.pack_sequence_as(carry, memory),
            tf.zeros([2], tf.int32),
            training=False,
        )
        outputs = {f'next_carry_{i}': x for i, x in enumerate(tf.nest.flatten(memory))}
        return {**named('action', action), **outputs}

    module = tf.Module()
    module.act = tf.function(act, autograph=False)
    function = module.act.get_concrete_function(**signature)
    module.state = list(function.graph.variables)
    return function, module


def _write_savedmodel(function: Any, module: tf.Module, path: pathlib.Path) -> Run:
    tf.saved_model.save(module, str(path), signatures=function)
    loaded = tf.saved_model.load(str(path)).signatures['serving_default']

    def run(inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        return {name: value.numpy() for name, value in loaded(**inputs).items()}

    return run


def _write_onnx(function: Any, module: tf.Module, path: pathlib.Path) -> Run:
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


def _write_tflite(function: Any, module: tf.Module, path: pathlib.Path) -> Run:
    from ai_edge_litert.interpreter import Interpreter

    signature = function.structured_input_signature[1]
    # The converter leaves variables that an optimizer could change, and nobody initialises them.
    constant = convert_variables_to_constants_v2(function)
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
