import math

import numpy as np
import pytest
import scipy.integrate
import scipy.special
import scipy.stats
import tensorflow as tf

from agents.parts import philox
from agents.parts.bounded import Beta, TanhNormal
from agents.parts.distributions import (
    Bernoulli,
    Categorical,
    DiagNormal,
    Joint,
    MultiCategorical,
    rebuild,
)
from tests import twins
from tests.modes import MODES, in_every_mode

HUGE = 3e38  # Close to the largest float32.


def random_categorical(rows=(6,), n=5, seed=0):
    return Categorical(tf.random.stateless_normal([*rows, n], [seed, 1]) * 3)


def random_normal(rows=(6,), size=3, seed=0, shared=False):
    mean = tf.random.stateless_normal([*rows, size], [seed, 2])
    log_std = tf.random.stateless_normal([size] if shared else [*rows, size], [seed, 3])
    return DiagNormal(mean, log_std)


def random_multi(rows=(6,), seed=0, sizes=(2, 4, 3)):
    logits = tf.random.stateless_normal([*rows, sum(sizes)], [seed, 4])
    return MultiCategorical(logits, sizes)


def random_bits(rows=(6,), seed=0):
    return Bernoulli(tf.random.stateless_normal([*rows, 3], [seed, 5]) * 2)


def random_tanh(**kwargs):
    return TanhNormal(**random_normal(**kwargs).params())


def random_beta(rows=(6,), seed=0):
    return Beta(*tf.exp(tf.random.stateless_normal([2, *rows, 2], [seed, 6])) + 1)


def random_joint(**kwargs):
    return Joint(
        {'b': random_normal(**kwargs), 'a': (random_multi(**kwargs), random_bits(**kwargs))}
    )


KINDS = {
    'multi': random_multi,
    'multi_of_equal_sizes': lambda **kwargs: random_multi(sizes=(3, 3), **kwargs),
    'bits': random_bits,
    'tanh': random_tanh,
    'beta': random_beta,
    'categorical': random_categorical,
    'normal': random_normal,
    'normal_shared_std': lambda **kwargs: random_normal(shared=True, **kwargs),
}
of_every_kind = pytest.mark.parametrize('build', KINDS.values(), ids=KINDS)
# Rounding of Beta's functions differs between the modes.
EXACT = {name: build for name, build in KINDS.items() if name != 'beta'}
of_every_exact_kind = pytest.mark.parametrize('build', EXACT.values(), ids=EXACT)


# Categorical.


@in_every_mode
def test_categorical_by_hand(mode):
    # p = [1/4, 3/4], since logits are log p up to a constant.
    distribution = Categorical(tf.constant([[math.log(1), math.log(3)]]))
    log_prob = mode(lambda x: distribution.log_prob(x))(tf.constant([0]))
    np.testing.assert_allclose(log_prob, [-1.386294], rtol=1e-6)  # log 1/4
    # -(1/4 log 1/4 + 3/4 log 3/4) = 0.346574 + 0.215762
    np.testing.assert_allclose(mode(distribution.entropy)(), [0.562335], rtol=1e-5)
    # Against [1/2, 1/2]: 1/4 log 1/2 + 3/4 log 3/2 = -0.173287 + 0.304099
    uniform = Categorical(tf.zeros([1, 2]))
    kl = mode(lambda: distribution.kl(uniform))()
    np.testing.assert_allclose(kl, [0.130812], rtol=1e-5)
    np.testing.assert_array_equal(mode(distribution.mode)(), [1])


@in_every_mode
def test_categorical_agrees_with_scipy(mode):
    p, q = random_categorical(seed=1), random_categorical(seed=2)
    probs, others = twins.softmax(p.logits), twins.softmax(q.logits)
    x = np.arange(6) % 5
    expected = scipy.special.log_softmax(p.logits, -1)[np.arange(6), x]
    np.testing.assert_allclose(mode(p.log_prob)(tf.constant(x)), expected, rtol=1e-5)
    expected = scipy.stats.entropy(probs, axis=-1)
    np.testing.assert_allclose(mode(p.entropy)(), expected, rtol=1e-5)
    expected = scipy.stats.entropy(probs, others, axis=-1)
    np.testing.assert_allclose(mode(lambda: p.kl(q))(), expected, rtol=1e-5)


@in_every_mode
def test_categorical_samples_have_its_probabilities(mode):
    probs = np.array([0.5, 0.3, 0.15, 0.05])
    n = 100_000
    logits = tf.constant(np.log(probs) + 7, tf.float32)
    distribution = Categorical(tf.broadcast_to(logits, [n, 4]))
    samples = mode(distribution.sample)(tf.constant([1, 2]))
    assert samples.dtype == tf.int32 and samples.shape == [n]
    counts = np.bincount(samples, minlength=4)
    assert scipy.stats.chisquare(counts, n * probs).pvalue > 0.01


@pytest.mark.parametrize('bits', [-(2**31), 2**31 - 1])
def test_no_random_number_excludes_a_value_or_forces_one(monkeypatch, bits):
    # One value is e⁵⁰ times as likely. Even the most extreme bits, for it or against it, make a
    # finite Gumbel: -log(-log 2⁻²⁴) = -2.8, -log(-log(1 - 2⁻²⁴)) = 16.6.
    for others in (-bits - 1, 0):
        draw = tf.constant([[others, bits]], tf.int32)
        monkeypatch.setattr(philox, 'integers', lambda shape, seed, draw=draw: draw)
        for likely in (0, 1):
            logits = tf.constant([[0.0, 50.0] if likely else [50.0, 0.0]])
            np.testing.assert_array_equal(Categorical(logits).sample([0, 0]), [likely])


@in_every_mode
@pytest.mark.parametrize(
    'logits', [[0.0, 1000.0, -1000.0], [HUGE, -HUGE, 0.0], [0.0, -np.inf, 1.0], [-HUGE] * 3]
)
def test_categorical_is_finite_for_extreme_logits(mode, logits):
    logits, others = tf.constant([logits]), tf.constant([[0.5, -1.0, 2.0]])

    def numbers(logits, others):
        with tf.GradientTape() as tape:
            tape.watch([logits, others])
            p, q = Categorical(logits), Categorical(others)
            values = [p.entropy(), p.kl(q), q.kl(p) * 1e-30, p.log_prob(p.mode())]
            total = tf.add_n(values)
        return values, tape.gradient(total, [logits, others])

    for number in tf.nest.flatten(mode(numbers)(logits, others)):
        assert np.all(np.isfinite(number)), number
    assert mode(lambda x: Categorical(x).sample(tf.constant([1, 2])))(logits) in (0, 1, 2)


@in_every_mode
def test_a_logit_of_minus_infinity_is_never_drawn_and_adds_no_entropy(mode):
    logits = tf.constant([[0.0, -np.inf, 0.0]])
    many = Categorical(tf.repeat(logits, 10_000, 0))
    assert set(mode(many.sample)(tf.constant([1, 2])).numpy()) == {0, 2}
    # Two equal values are left: log 2.
    np.testing.assert_allclose(mode(Categorical(logits).entropy)(), [0.693147], rtol=1e-6)


# DiagNormal.


@in_every_mode
def test_normal_by_hand(mode):
    p = DiagNormal(tf.constant([[0.0, 1.0]]), tf.constant([[0.0, math.log(2)]]))
    # z = (1, 2 / 2): -½ (1 + 1) - log 2 - log 2π = -1 - 0.693147 - 1.837877
    log_prob = mode(p.log_prob)(tf.constant([[1.0, 3.0]]))
    np.testing.assert_allclose(log_prob, [-3.531024], rtol=1e-6)
    # 2 · ½ log 2πe + log 2 = 2.837877 + 0.693147
    np.testing.assert_allclose(mode(p.entropy)(), [3.531024], rtol=1e-6)
    # Against N(0, 1)²: only the second one differs, ½ (2² + 1² - 1) - log 2 = 2 - 0.693147
    q = DiagNormal(tf.zeros([1, 2]), tf.zeros([2]))
    np.testing.assert_allclose(mode(lambda: p.kl(q))(), [1.306853], rtol=1e-6)
    np.testing.assert_array_equal(mode(p.mode)(), [[0.0, 1.0]])


@in_every_mode
@pytest.mark.parametrize('shared', [False, True])
def test_normal_agrees_with_scipy(mode, shared):
    p = random_normal(seed=1, shared=shared)
    mean, std = np.float64(p.mean), np.exp(np.float64(p.log_std)) * np.ones((6, 1))
    x = np.random.default_rng(0).normal(size=(6, 3)).astype(np.float32)
    expected = scipy.stats.norm(mean, std).logpdf(x).sum(-1)
    np.testing.assert_allclose(mode(p.log_prob)(tf.constant(x)), expected, rtol=1e-5)
    expected = scipy.stats.norm(mean, std).entropy().sum(-1)
    np.testing.assert_allclose(mode(p.entropy)(), expected, rtol=1e-5)


@in_every_mode
def test_kl_of_normals_is_the_integral(mode):
    p = DiagNormal(tf.constant([[0.3]]), tf.constant([[-0.4]]))
    q = DiagNormal(tf.constant([[-0.5]]), tf.constant([[0.2]]))
    first, second = scipy.stats.norm(0.3, np.exp(-0.4)), scipy.stats.norm(-0.5, np.exp(0.2))
    expected, _ = scipy.integrate.quad(
        lambda x: first.pdf(x) * (first.logpdf(x) - second.logpdf(x)), -15, 15
    )
    np.testing.assert_allclose(mode(lambda: p.kl(q))(), [expected], rtol=1e-5)


@in_every_mode
def test_normal_samples_have_its_mean_and_std(mode):
    rows = 20_000
    mean = tf.repeat(tf.constant([[1.0, -2.0]]), rows, 0)
    distribution = DiagNormal(mean, tf.constant([0.0, math.log(3)]))
    samples = mode(distribution.sample)(tf.constant([1, 2])).numpy()
    assert samples.dtype == np.float32 and samples.shape == (rows, 2)
    assert scipy.stats.kstest(samples[:, 0], scipy.stats.norm(1, 1).cdf).pvalue > 0.01
    assert scipy.stats.kstest(samples[:, 1], scipy.stats.norm(-2, 3).cdf).pvalue > 0.01
    assert abs(np.corrcoef(samples.T)[0, 1]) < 0.03  # Four deviations of 1 / √20000.


def test_kl_of_normals_keeps_its_digits_for_small_differences():
    # Both terms are squares: ½ (2d² + d²) for a difference d of log std and of mean, std ≈ 1.
    d = 1e-3
    p = DiagNormal(tf.constant([[d]]), tf.constant([[d]]))
    kl = p.kl(DiagNormal(tf.zeros([1, 1]), tf.zeros([1, 1])))
    np.testing.assert_allclose(kl, [1.5e-6], rtol=2e-3)


# Several numbers, bits, and parts.


@in_every_mode
def test_several_numbers_are_as_many_categorical_distributions(mode):
    logits = tf.random.stateless_normal([5, 9], [0, 1])
    p, parts = MultiCategorical(logits, (2, 4, 3)), tf.split(logits, [2, 4, 3], -1)
    ones = [Categorical(part) for part in parts]
    x = mode(p.sample)(tf.constant([1, 2]))
    assert x.dtype == tf.int32 and x.shape == (5, 3)
    expected = sum(one.log_prob(x[:, i]) for i, one in enumerate(ones))
    np.testing.assert_allclose(mode(p.log_prob)(x), expected, rtol=1e-5)
    np.testing.assert_allclose(mode(p.entropy)(), sum(one.entropy() for one in ones), rtol=1e-5)
    modes = np.stack([one.mode() for one in ones], -1)
    np.testing.assert_array_equal(mode(p.mode)(), modes)


def test_samples_of_several_numbers_have_their_probabilities():
    logits = tf.math.log([[0.25, 0.75, 0.5, 0.3, 0.2]])
    x = MultiCategorical(tf.repeat(logits, 20_000, 0), (2, 3)).sample([1, 2]).numpy()
    # Deviations are at most √(1/4 / 20000) = 0.0035.
    np.testing.assert_allclose(np.bincount(x[:, 0]) / 20_000, [0.25, 0.75], atol=0.014)
    np.testing.assert_allclose(np.bincount(x[:, 1]) / 20_000, [0.5, 0.3, 0.2], atol=0.014)
    assert abs(np.corrcoef(x.T)[0, 1]) < 0.028


@in_every_mode
def test_masked_values_have_a_probability_of_exactly_zero_and_finite_gradients(mode):
    mask = tf.constant([[True, False, False, True, True]])
    others = tf.constant([[0.5, 3.0, 1.0, 0.0, 1.0]])

    def numbers(logits):
        with tf.GradientTape() as tape:
            tape.watch(logits)
            p, q = (MultiCategorical(tf.where(mask, x, -np.inf), (2, 3)) for x in (logits, others))
            values = [p.log_prob([[0, 2]]), p.entropy(), q.kl(p)]
            total = tf.add_n(values)
        return values, tape.gradient(total, logits), tf.exp(p.log_prob([[1, 2]]))

    (log_prob, entropy, kl), gradient, zero = mode(numbers)(tf.constant([[9.0, 8, 7, 1, 1]]))
    # The first number must be 0; the second is 1 or 2, equally likely: log 2 = 0.693147.
    np.testing.assert_allclose([log_prob[0], entropy[0]], [-0.693147, 0.693147], rtol=1e-6)
    # q's second number has p = 1 / (1 + e) = 0.268941: its entropy is 0.582203.
    np.testing.assert_allclose(kl, [0.693147 - 0.582203], rtol=1e-4)
    np.testing.assert_array_equal(zero, [0])
    assert np.all(np.isfinite(gradient)) and not np.any(gradient.numpy()[~mask.numpy()])


@in_every_mode
def test_bits_by_hand(mode):
    # p = 3/4 and 1/2.
    p = Bernoulli(tf.constant([[math.log(3), 0.0]]))
    log_prob = mode(p.log_prob)(tf.constant([[1, 0]]))
    np.testing.assert_allclose(log_prob, [math.log(3 / 8)], rtol=1e-6)
    # 0.562335 as above, and log 2.
    np.testing.assert_allclose(mode(p.entropy)(), [0.562335 + 0.693147], rtol=1e-6)
    q = Bernoulli(tf.zeros([1, 2]))
    np.testing.assert_allclose(mode(lambda: p.kl(q))(), [0.130812], rtol=1e-5)
    many = Bernoulli(tf.repeat(p.logits, 20_000, 0))
    samples = mode(many.sample)(tf.constant([1, 2])).numpy()
    np.testing.assert_allclose(samples.mean(0), [0.75, 0.5], atol=0.014)
    np.testing.assert_array_equal(mode(p.mode)(), [[1, 0]])


def test_a_joint_distribution_is_the_product_of_its_parts():
    p, q = random_joint(seed=1), random_joint(seed=2)
    x = p.sample(tf.constant([1, 2]))
    assert tf.nest.map_structure(lambda leaf: leaf.shape[1:], x) == {'b': (3,), 'a': ((3,), (3,))}
    values = tf.nest.flatten(x)
    pairs = list(zip(tf.nest.flatten(p.parts), tf.nest.flatten(q.parts), strict=True))
    log_prob = sum(one.log_prob(value) for (one, _), value in zip(pairs, values, strict=True))
    np.testing.assert_allclose(p.log_prob(x), log_prob, rtol=1e-6)
    np.testing.assert_allclose(p.entropy(), sum(one.entropy() for one, _ in pairs), rtol=1e-6)
    np.testing.assert_allclose(p.kl(q), sum(one.kl(two) for one, two in pairs), rtol=1e-6)
    again = rebuild(q, p.params())
    np.testing.assert_array_equal(again.kl(p), np.zeros(6))
    assert again.parts['a'][0].sizes == (2, 4, 3)


def test_parts_of_equal_distribution_are_drawn_independently():
    normal = DiagNormal(tf.zeros([20_000, 1]), tf.zeros([1]))
    first, second = Joint((normal, normal)).sample(tf.constant([1, 2]))
    assert abs(np.corrcoef(first[:, 0], second[:, 0])[0, 1]) < 0.028


# All of them.


@of_every_kind
@pytest.mark.parametrize('rows', [(6,), (4, 3), ()])
def test_results_have_one_number_per_row(build, rows):
    p, q = build(rows=rows, seed=1), build(rows=rows, seed=2)
    x = p.sample([1, 2])
    assert p.mode().shape == x.shape
    for number in (p.log_prob(x), p.entropy(), p.kl(q)):
        assert number.shape == rows and number.dtype == tf.float32


@of_every_exact_kind
def test_samples_and_modes_are_the_same_in_every_mode(build):
    distribution = build(rows=(5000,))
    seed = tf.constant([5, 6])
    results = [mode(distribution.sample)(seed).numpy() for mode in MODES.values()]
    for result in results[1:]:
        np.testing.assert_allclose(result, results[0], rtol=1e-5, atol=1e-5)
    assert np.any(distribution.sample([5, 7]) != results[0])
    for mode in MODES.values():
        np.testing.assert_array_equal(mode(distribution.mode)(), distribution.mode())


@in_every_mode
@of_every_exact_kind
def test_equal_distributions_have_a_kl_and_a_gradient_of_exactly_zero(mode, build):
    def kl_and_gradients():
        with tf.GradientTape() as tape:
            params = {key: tf.identity(value) for key, value in p.params().items()}
            tape.watch(params)
            kl = q.kl(rebuild(p, params))
        return kl, tape.gradient(kl, params)

    p, q = build(rows=(50,)), build(rows=(50,))
    kl, gradients = mode(kl_and_gradients)()
    np.testing.assert_array_equal(kl, np.zeros(50))
    for gradient in gradients.values():
        np.testing.assert_array_equal(gradient, np.zeros_like(gradient))


@of_every_kind
def test_kl_is_positive_and_the_mean_difference_of_log_probs(build):
    p, q = build(rows=(), seed=1), build(rows=(), seed=2)
    rows = 200_000
    many, others = (
        rebuild(one, {key: tf.repeat(value[None], rows, 0) for key, value in one.params().items()})
        for one in (p, q)
    )
    x = many.sample([1, 2])
    log_ratio = many.log_prob(x) - others.log_prob(x)
    assert p.kl(q) > 0
    error = 5 * np.std(log_ratio) / np.sqrt(rows)
    assert abs(p.kl(q) - np.mean(log_ratio)) < error


@of_every_kind
def test_params_hold_every_row_and_build_an_equal_distribution(build):
    p = build(rows=(6,))
    params = p.params()
    assert all(value.shape[0] == 6 for value in params.values())
    again = rebuild(p, params)
    np.testing.assert_array_equal(p.kl(again), np.zeros(6))
    np.testing.assert_array_equal(p.entropy(), again.entropy())
    # Rows can be gathered one by one.
    part = rebuild(p, {key: tf.gather(value, [4, 1]) for key, value in params.items()})
    np.testing.assert_allclose(part.entropy(), tf.gather(p.entropy(), [4, 1]), rtol=1e-6)


@of_every_kind
def test_an_unknown_number_of_rows_works_in_a_graph(build):
    distribution = build(rows=(6,))
    params = distribution.params()

    @tf.function(
        input_signature=[
            {key: tf.TensorSpec([None, value.shape[1]]) for key, value in params.items()}
        ]
    )
    def numbers(params):
        p = rebuild(distribution, params)
        x = p.sample(tf.constant([1, 2]))
        return x, p.log_prob(x), p.entropy(), p.params()

    x, log_prob, entropy, again = numbers(params)
    np.testing.assert_allclose(x, distribution.sample([1, 2]), rtol=1e-6)
    np.testing.assert_allclose(log_prob, distribution.log_prob(x), rtol=1e-5)
    np.testing.assert_allclose(entropy, distribution.entropy(), rtol=1e-6)
    for key, value in params.items():
        np.testing.assert_array_equal(again[key], value)
