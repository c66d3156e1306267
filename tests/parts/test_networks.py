import math

import gymnasium
import keras
import numpy as np
import pytest
import tensorflow as tf

from agents.algorithms.hyperparameters import Hyperparameters
from agents.parts import networks
from agents.parts.distributions import Categorical, DiagNormal
from tests import twins
from tests.modes import in_every_mode

spaces = gymnasium.spaces
OBS = spaces.Box(-np.inf, np.inf, (5,), np.float32)
BOX = spaces.Box(-1, 1, (3,), np.float32)
BATCH = np.random.default_rng(0).normal(size=(7, 5)).astype(np.float32)


def build(observation_space=OBS, action_space=BOX, **kwargs):
    kwargs = {'policy_layers': (8, 6), 'value_layers': (4,), **kwargs}
    return networks.feed_forward(observation_space, action_space, Hyperparameters(**kwargs))


def numbers(network):
    return [weight.numpy() for weight in network.weights]


@in_every_mode
def test_networks_compute_dense_layers(mode):
    policy, value = build(activation='tanh', init_std=0.5, init_output_factor=1.0)
    mean, log_std = mode(lambda obs: (policy(obs).mean, policy(obs).log_std))(tf.constant(BATCH))
    *weights, _ = numbers(policy)
    np.testing.assert_allclose(mean, twins.dense_network(BATCH, weights, np.tanh), atol=1e-6)
    np.testing.assert_allclose(log_std, np.full(3, -0.693147), rtol=1e-6)  # log 0.5
    expected = twins.dense_network(BATCH, numbers(value), np.tanh)[:, 0]
    np.testing.assert_allclose(mode(value)(tf.constant(BATCH)), expected, atol=1e-6)


@pytest.mark.parametrize(
    ('observation_space', 'obs', 'vectors'),
    [
        # Pixels and integers become float32, in the order of memory.
        (spaces.Box(0, 255, (2, 2), np.uint8), [[[1, 2], [3, 255]]], [[1, 2, 3, 255]]),
        (spaces.Box(-9, 9, (2,), np.float64), [[0.5, -9.0]], [[0.5, -9.0]]),
        (spaces.Box(-9, 9, (), np.float32), [0.5, -9.0], [[0.5], [-9.0]]),
        (spaces.Discrete(3), [0, 2], [[1, 0, 0], [0, 0, 1]]),
        (spaces.Discrete(3, start=-1), [-1, 0], [[1, 0, 0], [0, 1, 0]]),
    ],
)
def test_observations_become_vectors(observation_space, obs, vectors):
    obs = tf.constant(obs, tf.as_dtype(observation_space.dtype))
    encoded = networks.encode(obs, observation_space)
    assert encoded.dtype == tf.float32
    np.testing.assert_array_equal(encoded, vectors)
    assert networks.input_size(observation_space) == len(vectors[0])
    policy, value = build(observation_space)
    assert policy(obs).mean.shape == (len(vectors), 3) and value(obs).shape == (len(vectors),)


def test_a_normalised_observation_needs_no_flat_shape():
    policy, _ = build(spaces.Box(0, 255, (2, 2), np.uint8))
    obs = tf.random.stateless_uniform([6, 2, 2], [0, 0])
    np.testing.assert_array_equal(policy(obs).mean, policy(tf.reshape(obs, [6, 4])).mean)


def test_kind_and_size_of_the_distribution_follow_the_action_space():
    normal = build(action_space=spaces.Box(-1, 1, (2, 3)))[0](BATCH)
    assert isinstance(normal, DiagNormal) and normal.mean.shape == (7, 6)
    assert normal.sample([0, 0]).shape == (7, 6)
    categorical = build(action_space=spaces.Discrete(4, start=2))[0](BATCH)
    assert isinstance(categorical, Categorical) and categorical.logits.shape == (7, 4)


def test_weights_are_all_trainable_variables():
    policy, value = build()
    # 5 → 8 → 6 → 3 and a deviation for each of 3 actions; 5 → 4 → 1.
    shapes = [weight.shape for weight in policy.weights]
    assert shapes == [(5, 8), (8,), (8, 6), (6,), (6, 3), (3,), (3,)]
    assert [weight.shape for weight in value.weights] == [(5, 4), (4,), (4, 1), (1,)]
    assert all(weight.trainable for weight in [*policy.weights, *value.weights])
    discrete, _ = build(action_space=spaces.Discrete(4))
    assert [weight.shape for weight in discrete.weights][-2:] == [(6, 4), (4,)]


def test_every_weight_gets_a_gradient():
    policy, value = build(init_output_factor=1.0)
    with tf.GradientTape() as tape:
        log_prob = policy(BATCH).log_prob(tf.ones([7, 3]))
        loss = tf.reduce_sum(log_prob) + tf.reduce_sum(value(BATCH))
    variables = [weight.value for weight in [*policy.weights, *value.weights]]
    for gradient in tape.gradient(loss, variables):
        assert np.any(gradient != 0)


def test_equal_seeds_give_equal_weights_and_other_seeds_other_ones():
    for init in networks.INITS:
        first, again, other = (build(seed=seed, init=init)[0] for seed in (1, 1, 2))
        for one, two, three in zip(*map(numbers, (first, again, other)), strict=True):
            np.testing.assert_array_equal(one, two)
            assert one.ndim == 1 or not np.any(one == three)


def test_layers_of_one_shape_start_with_different_weights():
    policy, value = build(OBS, spaces.Box(-1, 1, (5,)), policy_layers=(5, 5), value_layers=(5, 5))
    kernels = [weight for weight in [*numbers(policy), *numbers(value)] if weight.shape == (5, 5)]
    assert len(kernels) == 5
    for index, kernel in enumerate(kernels):
        assert not any(np.any(kernel == other) for other in kernels[:index])


def test_orthogonal_weights_are_orthogonal_and_scaled():
    policy, value = build(policy_layers=(4,), init='orthogonal', init_output_factor=0.01)
    hidden, hidden_bias, output, output_bias, _ = numbers(policy)
    np.testing.assert_allclose(hidden.T @ hidden, 2 * np.eye(4), atol=1e-6)  # √2 squared
    np.testing.assert_allclose(output.T @ output, 1e-4 * np.eye(3), atol=1e-9)
    assert not hidden_bias.any() and not output_bias.any()
    # The value's output has a gain of 1, whatever that of the policy.
    np.testing.assert_allclose(np.linalg.norm(numbers(value)[2]), 1.0, rtol=1e-6)


def test_variance_scaling_weights_have_their_variance():
    policy, value = build(
        policy_layers=(300,),
        value_layers=(3000,),
        action_space=spaces.Box(-1, 1, (100,)),
        init='variance_scaling',
        init_output_factor=0.1,
    )
    hidden, _, output, _, _ = numbers(policy)
    # Uniform with variance 2 / (5 + 300), so within ±√(3 · 2 / 305) = ±0.14026.
    assert 0.138 < np.abs(hidden).max() <= 0.14026
    np.testing.assert_allclose(hidden.var(), 2 / 305, rtol=0.1)
    np.testing.assert_allclose(output.var(), 0.1 / 300, rtol=0.05)
    np.testing.assert_allclose(numbers(value)[2].var(), 1 / 3000, rtol=0.1)


def test_a_checkpoint_restores_weights_and_optimizer_exactly(tmp_path):
    def state(seed):
        policy, value = build(seed=seed)
        optimizer = keras.optimizers.Adam(0.1)
        optimizer.build([*policy.weights, *value.weights])
        return policy, value, optimizer

    def learn(policy, value, optimizer):
        variables = [*policy.weights, *value.weights]
        with tf.GradientTape() as tape:
            log_prob = policy(BATCH).log_prob(tf.ones([7, 3]))
            loss = tf.reduce_sum(log_prob) + tf.reduce_sum(value(BATCH))
        gradients = tape.gradient(loss, [variable.value for variable in variables])
        optimizer.apply_gradients(zip(gradients, variables, strict=True))
        return [*numbers(policy), *numbers(value)]

    def checkpoint(policy, value, optimizer):
        return tf.train.Checkpoint(policy=policy, value=value, optimizer=optimizer)

    trained, fresh = state(1), state(2)
    learn(*trained)
    path = checkpoint(*trained).save(str(tmp_path / 'checkpoint'))
    expected = learn(*trained)
    checkpoint(*fresh).restore(path).assert_consumed()
    for one, other in zip(learn(*fresh), expected, strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_forward_pass_is_nothing_but_its_dense_layers():
    discrete, _ = build(action_space=spaces.Discrete(4))
    continuous, _ = build()

    def operations(function):
        function = tf.function(function, input_signature=[tf.TensorSpec([16, 5])])
        types = [op.type for op in function.get_concrete_function().graph.get_operations()]
        free = ('Placeholder', 'Const', 'NoOp', 'Identity')  # Identity: the function's own results.
        return [kind for kind in types if kind not in free]

    layer = ['ReadVariableOp', 'MatMul', 'ReadVariableOp', 'BiasAdd']
    expected = [*layer, 'Tanh', *layer, 'Tanh', *layer]
    assert operations(lambda obs: discrete(obs).logits) == expected
    # Log std, key (2), bits, floats (4), erf⁻¹, √2, exp, and mean + std · noise (2).
    sampling = operations(lambda obs: continuous(obs).sample(tf.constant([1, 2])))
    assert len(sampling) - len(expected) == 13


def test_layers_stay_float32_under_another_keras_policy():
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy('float64')
    try:
        policy, value = build()
    finally:
        keras.config.set_dtype_policy(before)
    assert policy(BATCH).mean.dtype == tf.float32 and value(BATCH).dtype == tf.float32


@pytest.mark.parametrize('layers', [(), (3, 0)])
def test_no_hidden_layers_are_possible_and_empty_layers_are_not(layers):
    if not layers:
        _, value = build(policy_layers=layers, value_layers=layers)
        assert [weight.shape for weight in value.weights] == [(5, 1), (1,)]
        return
    with pytest.raises(ValueError, match=r'Layers of the policy .* units=0 at index 1'):
        build(policy_layers=layers)


@pytest.mark.parametrize('space', [spaces.Text(3), spaces.Sequence(spaces.Discrete(2))])
def test_an_unsupported_space_is_named_together_with_what_is_possible(space):
    with pytest.raises(
        TypeError, match=r'actions must be Box or Discrete.*' + type(space).__name__
    ):
        build(action_space=space)
    with pytest.raises(
        TypeError, match=r'observations must be Box or Disc.*' + type(space).__name__
    ):
        build(observation_space=space)


def test_an_unknown_name_is_answered_by_the_possible_ones():
    with pytest.raises(ValueError, match=r"one of .*elu, .*relu, .*tanh, .*got activation='tahn'"):
        build(activation='tahn')
    with pytest.raises(ValueError, match=r"one of orthogonal, variance_scaling, got init='zeros'"):
        build(init='zeros')


@pytest.mark.parametrize('std', [0.0, -1.0, math.nan])
def test_a_deviation_that_is_not_positive_is_refused(std):
    with pytest.raises(ValueError, match=f'init_std must be > 0, got init_std={std}'):
        build(init_std=std)
