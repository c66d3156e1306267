import gymnasium
import numpy as np
import pytest
import tensorflow as tf
from gymnasium.spaces import Box, Dict, Discrete

from agents.algorithms import PPO, Hyperparameters
from agents.parts import networks

PIXELS = Box(0, 255, (36, 44, 2), np.uint8)
VECTOR = Box(-9, 9, (5,))
OWN = 'tests.parts.user_networks'


def build(observation_space, action_space=None, **kwargs):
    hyper = Hyperparameters(**{'policy_layers': (8, 6), 'value_layers': (4,), **kwargs})
    return networks.build(observation_space, action_space or Discrete(3), hyper)


def shapes(network):
    return [tuple(weight.shape) for weight in network.weights]


def test_the_nature_network_has_its_layers():
    policy, value = build(PIXELS, network='nature', share_layers=True)
    # 36 x 44 → 8 x 10 → 3 x 4 → 1 x 2, of 64 channels.
    convolutions = [(8, 8, 2, 32), (32,), (4, 4, 32, 64), (64,), (3, 3, 64, 64), (64,)]
    assert shapes(policy) == [*convolutions, (128, 512), (512,), (512, 3), (3,)]
    assert shapes(value) == [(512, 1), (1,)]
    assert not networks.compiles_well(policy, value)
    with pytest.raises(ValueError, match=r'at least 36 x 36 .* got 35 x 36\. Use network=impala'):
        build(Box(0, 255, (35, 36, 3), np.uint8), network='nature')


def test_images_get_convolutions_and_other_parts_are_joined():
    space = Dict(pixels=Box(0, 255, (1, 10, 12), np.uint8), speed=VECTOR, gear=Discrete(3))
    policy, _ = build(space, network='impala')
    kernels = [shape for shape in shapes(policy) if len(shape) == 4]
    channels = [(3, 3, 1, 16), *[(3, 3, 16, 16)] * 4, (3, 3, 16, 32)] + [(3, 3, 32, 32)] * 9
    assert kernels == channels
    # Pooled three times: 10 x 12 → 5 x 6 → 3 x 3 → 2 x 2, of 32 channels; and 5 + 3 numbers.
    assert (2 * 2 * 32 + 5 + 3, 256) in shapes(policy)
    obs = {
        'gear': tf.constant([0, 2]),
        'speed': tf.zeros([2, 5]),
        'pixels': tf.zeros([2, 1, 10, 12], tf.uint8),
    }
    before = policy(obs).logits.numpy()
    for key, change in (('gear', 1), ('speed', 1.0), ('pixels', 200)):
        other = policy({**obs, key: obs[key] + tf.cast(change, obs[key].dtype)}).logits
        assert np.all(np.any(other != before, 1) | (obs['gear'] == 2) & (key == 'gear'))


def test_networks_for_images_need_one():
    with pytest.raises(ValueError, match='must have an image for network=nature'):
        build(VECTOR, network='nature')


def test_an_unknown_network_is_answered_by_the_possible_ones():
    with pytest.raises(ValueError, match=r"feed_forward, nature, impala, .*got network='cnn'"):
        build(VECTOR, network='cnn')


def test_shared_layers_are_counted_once_and_learn_from_both():
    policy, value = build(VECTOR, share_layers=True)
    assert shapes(policy) == [(5, 8), (8,), (8, 6), (6,), (6, 3), (3,)]
    assert shapes(value) == [(6, 1), (1,)]
    obs = tf.random.stateless_normal([4, 5], [0, 1])
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(value(obs))
    assert all(np.any(x != 0) for x in tape.gradient(loss, [w.value for w in policy.weights[:4]]))
    distribution, values = networks.evaluate(policy, value, obs)
    np.testing.assert_array_equal(distribution.logits, policy(obs).logits)
    np.testing.assert_array_equal(values, value(obs))


def test_shared_layers_run_once():
    policy, value = build(VECTOR, share_layers=True)

    @tf.function(input_signature=[tf.TensorSpec([4, 5])])
    def both(obs):
        distribution, values = networks.evaluate(policy, value, obs)
        return distribution.logits, values

    types = [op.type for op in both.get_concrete_function().graph.get_operations()]
    assert types.count('MatMul') == 4  # Two shared layers and two outputs.


def test_no_layers_can_be_shared_as_well():
    policy, value = build(VECTOR, share_layers=True, policy_layers=())
    assert shapes(policy) == [(5, 3), (3,)] and shapes(value) == [(5, 1), (1,)]
    assert policy(tf.zeros([2, 5])).logits.shape == (2, 3)


def test_a_model_of_ones_own_needs_nothing_of_ours():
    space = Dict(image=Box(0, 255, (8, 8, 1), np.uint8), speed=Box(-9, 9, (2,)), gear=Discrete(3))
    policy, value = build(space, network=f'{OWN}:wide')
    # 6 x 6 pixels of 8 channels, 2 numbers, and one of 3.
    assert shapes(policy)[2] == (6 * 6 * 8 + 2 + 3, 40)
    assert shapes(value)[-2:] == [(40, 1), (1,)]
    assert not networks.compiles_well(policy)
    obs = {
        'image': tf.fill([2, 8, 8, 1], tf.constant(255, tf.uint8)),
        'speed': tf.ones([2, 2]),
        'gear': tf.constant([0, 1]),
    }
    assert value(obs).shape == (2,)
    again, _ = build(space, network=f'{OWN}:wide')
    other, _ = build(space, network=f'{OWN}:wide', seed=1)
    np.testing.assert_array_equal(policy(obs).logits, again(obs).logits)
    assert np.any(policy(obs).logits != other(obs).logits)


def test_a_model_of_ones_own_learns_with_both_networks():
    hyper = Hyperparameters(network=f'{OWN}:layers', policy_layers=(7,))
    ppo = PPO(VECTOR, Box(-1, 1, (2,)), 2, hyper)
    assert shapes(ppo.policy) == [(5, 7), (7,), (7, 2), (2,), (2,)]
    assert ppo.can_compile
    assert len(ppo.steps.optimizer.variables) == 2 + 2 * (5 + 4)


def test_features_must_be_vectors():
    with pytest.raises(TypeError, match=r'float32 \[N, F\], got .*\(1, 5, 1\)\. End it with'):
        build(VECTOR, network=f'{OWN}:unflattened')


@pytest.mark.parametrize('network', ['feed_forward', 'nature', f'{OWN}:layers'])
def test_a_checkpoint_restores_a_trunk(network, tmp_path):
    space = PIXELS if network == 'nature' else VECTOR
    first, second = (build(space, network=network, share_layers=True, seed=s) for s in (1, 2))
    path = tf.train.Checkpoint(networks=first).save(str(tmp_path / 'x'))
    tf.train.Checkpoint(networks=second).restore(path).assert_consumed()
    for one, other in zip(first[0].weights, second[0].weights, strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_mask_is_no_input_and_must_fit_the_actions():
    space = Dict(mask=Box(0, 1, (3,), np.int8), x=VECTOR)
    policy, value = build(space, action_mask='mask')
    assert shapes(policy)[0] == (5, 8) and shapes(value)[0] == (5, 4)
    obs = {'x': tf.zeros([3, 5]), 'mask': tf.constant([[1, 0, 1], [0, 1, 0], [0, 0, 0]], tf.int8)}
    probs = tf.exp(tf.stack([policy(obs).log_prob(tf.fill([3], i)) for i in range(3)], 1)).numpy()
    # What allows nothing counts as allowing all: something must be done.
    np.testing.assert_allclose(probs, [[0.5, 0, 0.5], [0, 1, 0], [1 / 3] * 3], atol=1e-6)
    assert probs[0, 1] == probs[1, 0] == 0
    with pytest.raises(ValueError, match=r'action_mask must have shape \(4,\)'):
        build(space, Discrete(4), action_mask='mask')
    with pytest.raises(TypeError, match='must be Discrete or MultiDiscrete to be masked'):
        build(space, gymnasium.spaces.MultiBinary(3), action_mask='mask')


def test_bounded_distributions_need_bounds():
    for distribution in ('tanh_normal', 'beta'):
        with pytest.raises(ValueError, match=f'finite bounds for distribution={distribution}'):
            build(VECTOR, Box(-np.inf, 1, (2,)), distribution=distribution)
    with pytest.raises(ValueError, match=r"one of normal, .*got distribution='gamma'"):
        build(VECTOR, Box(-1, 1, (2,)), distribution='gamma')


def test_deviations_that_depend_on_observations_begin_at_the_same_size():
    policy, _ = build(
        VECTOR,
        Dict(a=Box(-1, 1, (2,)), b=Box(-1, 1, (1,))),
        state_dependent_std=True,
        init_std=0.5,
        init_output_factor=1e-4,
    )
    obs = tf.random.stateless_normal([4, 5], [0, 1])
    for part in policy(obs).parts.values():
        np.testing.assert_allclose(tf.exp(part.log_std), np.full(part.mean.shape, 0.5), rtol=1e-3)
    assert shapes(policy)[-2:] == [(6, 6), (6,)]  # Means and deviations, 2 · (2 + 1).
