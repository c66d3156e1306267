import numpy as np
import pytest
import scipy.integrate
import scipy.stats
import tensorflow as tf

from agents.parts.bounded import Beta, TanhNormal, gamma
from agents.parts.distributions import DiagNormal
from tests.modes import in_every_mode

N = 50_000


def test_the_density_after_tanh_is_that_of_the_base_divided_by_the_slope():
    p = TanhNormal(tf.constant([[0.3, -0.2]]), tf.constant([0.1, -0.5]))
    u = np.array([[0.7, -1.1]])
    base = scipy.stats.norm([0.3, -0.2], np.exp([0.1, -0.5])).logpdf(u)
    expected = (base - np.log(1 - np.tanh(u) ** 2)).sum(-1)
    np.testing.assert_allclose(p.log_prob(tf.constant(u, tf.float32)), expected, rtol=1e-5)


@in_every_mode
def test_the_density_is_exact_where_tanh_rounds_to_one(mode):
    # log(1 - tanh² 50) = 2 log 2 - 100, far below what 1 - 1 could tell; with -½ · 50² - ½ log 2π.
    p = TanhNormal(tf.zeros([1, 1]), tf.zeros([1]))

    def numbers(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            log_prob = p.log_prob(x)
        return log_prob, tape.gradient(log_prob, x)

    log_prob, gradient = mode(numbers)(tf.constant([[50.0]]))
    np.testing.assert_allclose(log_prob, [-1250 - 0.918939 + 100 - 1.386294], rtol=1e-6)
    np.testing.assert_allclose(gradient, [[-50 + 2]], rtol=1e-6)


@pytest.mark.parametrize(
    ('mean', 'std', 'tolerance'),
    [(0.0, 1.0, 1e-3), (1.5, 0.5, 1e-3), (-3.0, 1.0, 1e-3), (2.0, 3.0, 0.01), (0.0, 5.0, 0.11)],
)
def test_the_entropy_after_tanh_is_the_integral(mean, std, tolerance):
    normal = scipy.stats.norm(mean, std)
    slope, _ = scipy.integrate.quad(
        lambda u: normal.pdf(u) * 2 * (np.log(2) - u - np.logaddexp(0, -2 * u)),
        mean - 12 * std,
        mean + 12 * std,
        points=[0],
        limit=500,
    )
    p = TanhNormal(tf.constant([[mean]]), tf.math.log([std]))
    np.testing.assert_allclose(p.entropy(), [normal.entropy() + slope], atol=tolerance)


def test_one_bijection_changes_no_divergence():
    means, log_stds = ([[0.1, 2.0]], [[1.0, -1.0]]), ([0.3, 0.1], [-0.2, 0.0])
    after, before = (
        [kind(tf.constant(m), tf.constant(s)) for m, s in zip(means, log_stds, strict=True)]
        for kind in (TanhNormal, DiagNormal)
    )
    np.testing.assert_array_equal(after[0].kl(after[1]), before[0].kl(before[1]))


@pytest.mark.parametrize(('alpha', 'beta'), [(1.0, 1.0), (1.0, 3.0), (2.0, 5.0), (60.0, 4.0)])
def test_beta_samples_have_its_distribution(alpha, beta):
    p = Beta(tf.fill([N, 1], alpha), tf.fill([N, 1], beta))
    x = tf.function(p.sample, jit_compile=True)(tf.constant([3, 4])).numpy().ravel()
    exact = scipy.stats.beta(alpha, beta)
    # Four deviations of the mean; the largest distance of distributions for a p-value of 0.001.
    assert abs(x.mean() - exact.mean()) < 4 * exact.std() / np.sqrt(N)
    assert scipy.stats.kstest(x.astype(float), exact.cdf).statistic < 1.95 / np.sqrt(N)


def test_samples_under_xla_are_the_same_but_where_rounding_decides():
    p = Beta(tf.fill([N, 1], 1.5), tf.fill([N, 1], 2.0))
    seed = tf.constant([1, 2])
    difference = np.abs(tf.function(p.sample, jit_compile=True)(seed) - p.sample(seed))
    assert np.mean(difference > 1e-4) < 1e-4


def test_gamma_samples_have_mean_and_variance_of_their_shape():
    shape = tf.repeat(tf.constant([[1.0, 2.5, 40.0]]), N, 0)
    x = gamma(shape, tf.constant([5, 6])).numpy().astype(float)
    # Both are the shape. Deviations are √(a / N) and, with a kurtosis of 3 + 6 / a,
    # √((2 a² + 6 a) / N).
    a = shape[0].numpy()
    assert np.all(np.abs(x.mean(0) - a) < 4 * np.sqrt(a / N))
    assert np.all(np.abs(x.var(0) - a) < 4 * np.sqrt((2 * a**2 + 6 * a) / N))
    assert np.abs(np.corrcoef(x.T) - np.eye(3)).max() < 4 / np.sqrt(N)


@in_every_mode
def test_beta_agrees_with_scipy(mode):
    alpha, beta = np.array([[1.2, 3.0]]), np.array([[2.5, 1.0]])
    p, q = Beta(*tf.constant([alpha, beta], tf.float32)), Beta(*tf.fill([2, 1, 2], 2.0))
    exact = scipy.stats.beta(alpha, beta)
    x = np.array([[0.3, 0.9]])
    log_prob = mode(p.log_prob)(tf.constant(x, tf.float32))
    np.testing.assert_allclose(log_prob, exact.logpdf(x).sum(-1), rtol=1e-5)
    np.testing.assert_allclose(mode(p.entropy)(), exact.entropy().sum(-1), rtol=1e-5)
    kl = sum(
        scipy.integrate.quad(
            lambda x, a=a, b=b: (
                scipy.stats.beta.pdf(x, a, b)
                * (scipy.stats.beta.logpdf(x, a, b) - scipy.stats.beta.logpdf(x, 2, 2))
            ),
            0,
            1,
        )[0]
        for a, b in zip(alpha[0], beta[0], strict=True)
    )
    np.testing.assert_allclose(mode(lambda: p.kl(q))(), [kl], rtol=1e-4)
    # (α - 1) / (α + β - 2): 0.2 / 1.7, and 2 / 2.
    np.testing.assert_allclose(mode(p.mode)(), [[0.117647, 1.0]], rtol=1e-5)


@in_every_mode
def test_gradients_of_beta_are_its_differences(mode):
    def entropy(alpha):
        return tf.reduce_sum(Beta(alpha, 2.0 * alpha).entropy())

    def gradient(alpha):
        with tf.GradientTape() as tape:
            tape.watch(alpha)
            total = entropy(alpha)
        return tape.gradient(total, alpha)

    exact = scipy.stats.beta
    step = 1e-4
    alphas = np.array([[1.3, 5.0]])
    expected = [
        (exact.entropy(a + step, 2 * (a + step)) - exact.entropy(a - step, 2 * (a - step)))
        / (2 * step)
        for a in alphas[0]
    ]
    result = mode(gradient)(tf.constant(alphas, tf.float32))
    np.testing.assert_allclose(result[0], expected, rtol=1e-3)
