import gymnasium
import numpy as np
import pytest
import tensorflow as tf

from agents.algorithms import PPO, Hyperparameters
from agents.algorithms.ppo import Record
from tests import twins

T, B = 6, 4
OBS_SPACE = gymnasium.spaces.Box(-np.inf, np.inf, (3,), np.float32)
ACTION_SPACE = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
PLAIN = {
    'normalize_obs': False,
    'normalize_rewards': False,
    'normalize_advantages': 'off',
    'policy_layers': (5,),
    'value_layers': (5,),
    'minibatch': T * B,
    'epochs': 1,
    'compile': 'off',
}


def make(action_space=ACTION_SPACE, **kwargs):
    return PPO(OBS_SPACE, action_space, B, Hyperparameters(**{**PLAIN, **kwargs}))


def records(seed=0, discrete=False, **kwargs):
    random = np.random.default_rng(seed)
    sample = random.normal(size=(T, B, 2)).astype(np.float32)
    if discrete:
        sample = random.integers(0, 3, (T, B)).astype(np.int32)
    flags = random.random((2, T, B)) < 0.15
    bootstrap = np.where(flags[1] & ~flags[0], random.normal(size=(T, B)), 0)
    fields = {
        'obs': random.normal(size=(T, B, 3)).astype(np.float32),
        'sample': sample,
        'reward': random.normal(size=(T, B)).astype(np.float32),
        'terminated': flags[0],
        'truncated': flags[1],
        'bootstrap': bootstrap.astype(np.float32),
        'valid': np.ones((T, B), bool),
    }
    fields.update(kwargs)
    return Record(**{name: tf.constant(value) for name, value in fields.items()})


def update(ppo, given=None, seed=0, last_obs=None):
    given = records() if given is None else given
    last_obs = tf.ones([B, 3]) if last_obs is None else last_obs
    metrics = ppo.update(given, last_obs, (), tf.constant([seed, 1]))
    return {name: value.numpy() for name, value in metrics.items() if name != 'histograms'}


def weights(ppo):
    return [variable.numpy() for variable in ppo.policy.weights + ppo.value.weights]


def same(first, second):
    return all(np.array_equal(x, y) for x, y in zip(first, second, strict=True))


def close(first, second, tolerance=1e-6):
    pairs = zip(first, second, strict=True)
    return all(np.allclose(x, y, rtol=0, atol=tolerance) for x, y in pairs)


# What an update computes.


@pytest.mark.parametrize('compile', ['off', 'minibatch', 'update'])
@pytest.mark.parametrize('objective', ['clip', 'kl_penalty'])
def test_the_first_minibatch_has_ratio_one_and_kl_zero(objective, compile):
    # Stopped when the KL passes a billionth: so the first minibatch was below it, and the second,
    # after one step of the optimizer, was not.
    ppo = make(
        objective=objective, compile=compile, epochs=5, early_stop_kl=1e-9, learning_rate=1e-3
    )
    assert update(ppo)['minibatches'] == 2
    # With ratio 1 the surrogate is the mean advantage, which standardising makes 0.
    ppo = make(objective=objective, compile=compile, normalize_advantages='batch')
    metrics = update(ppo)
    assert metrics['policy_loss'] == pytest.approx(0, abs=1e-6)
    assert metrics['kl'] > 0


def test_the_metrics_of_one_step_agree_with_a_numpy_twin():
    ppo = make(discount=0.9, gae_lambda=0.8)
    given, last_obs = records(), tf.ones([B, 3])
    obs = np.concatenate([given.obs, last_obs[None]], 0)
    value = ppo.value(tf.constant(obs.reshape(-1, 3))).numpy().reshape(T + 1, B)
    ended = (given.terminated | given.truncated).numpy()
    advantage = twins.lambda_advantage(
        given.reward.numpy(),
        value[:-1],
        np.where(ended, given.bootstrap, value[1:]),
        ~ended,
        0.9,
        0.8,
    )
    entropy = 2 * 0.5 * np.log(2 * np.pi * np.e)  # Two dimensions of deviation 1.
    metrics = update(ppo, given)
    assert metrics['policy_loss'] == pytest.approx(-advantage.mean(), abs=1e-5)
    assert metrics['value_loss'] == pytest.approx(0.5 * (advantage**2).mean(), rel=1e-5)
    assert metrics['entropy'] == pytest.approx(entropy, rel=1e-6)
    assert metrics['clip_fraction'] == 0
    return_ = advantage + value[:-1]
    explained = 1 - advantage.var() / return_.var()
    assert metrics['explained_variance'] == pytest.approx(explained, abs=1e-4)
    # Adam's first step is the learning rate in every direction, at most.
    assert metrics['action_std'] == pytest.approx(1, abs=1e-3)


@pytest.mark.parametrize(('objective', 'discrete'), [('clip', True), ('kl_penalty', False)])
def test_all_ways_to_compile_agree(objective, discrete):
    space = gymnasium.spaces.Discrete(3) if discrete else ACTION_SPACE
    results = []
    for mode in ('off', 'minibatch', 'update', 'auto'):
        ppo = make(space, objective=objective, compile=mode, epochs=3, minibatch=5, seed=4)
        for seed in range(2):
            metrics = update(ppo, records(seed, discrete), seed)
        results.append([*weights(ppo), metrics['kl'], metrics['policy_loss']])
    assert all(close(results[0], other, 2e-5) for other in results[1:])


def test_one_minibatch_of_everything_equals_a_larger_size():
    exact, larger = make(), make(minibatch=1000)
    update(exact)
    update(larger)
    assert close(weights(exact), weights(larger))


def test_the_order_of_environments_changes_nothing():
    order = np.array([2, 0, 3, 1])
    given, last_obs = records(), np.random.default_rng(1).normal(size=(B, 3)).astype(np.float32)
    shuffled = tf.nest.map_structure(lambda x: tf.gather(x, order, axis=1), given)
    plain, other = make(), make()
    update(plain, given, last_obs=tf.constant(last_obs))
    update(other, shuffled, last_obs=tf.constant(last_obs[order]))
    assert close(weights(plain), weights(other))


def test_junk_in_invalid_rows_changes_nothing():
    valid = np.ones((T, B), bool)
    valid[2, 1] = valid[0, 0] = valid[5, 3] = False
    hyper = {
        'normalize_obs': True,
        'normalize_rewards': True,
        'normalize_advantages': 'batch',
        'epochs': 2,
        'minibatch': 7,
    }
    results = []
    for junk in (0.0, 7.0, np.nan, np.inf):
        ppo = make(**hyper)
        for seed in range(3):
            given = records(seed, valid=valid)
            given = given._replace(
                reward=tf.where(valid, given.reward, junk),
                bootstrap=tf.where(valid, given.bootstrap, junk),
                sample=tf.where(valid[..., None], given.sample, junk),
                terminated=tf.where(valid, given.terminated, junk == 7),
                truncated=tf.where(valid, given.truncated, junk == 0),
            )
            metrics = update(ppo, given, seed)
        results.append([*(x.numpy() for x in ppo.variables), *metrics.values()])
    assert all(close(results[0], other) for other in results[1:])
    assert np.isfinite(results[0][0]).all()


def test_advantages_are_cut_before_an_invalid_row_and_bootstrapped_from_what_was_acted_on():
    ppo = make(gae_lambda=1.0, discount=0.5)
    none = np.zeros((T, B), bool)
    valid = np.ones((T, B), bool)
    valid[2] = False
    given = records(
        terminated=none, truncated=none, valid=valid, reward=np.ones((T, B), np.float32)
    )
    value = ppo.value(tf.reshape(given.obs, [-1, 3])).numpy().reshape(T, B)
    everything = tf.concat([given.obs, tf.ones([1, B, 3])], 0)
    return_ = ppo._advantages(given, everything, given.reward)['return_'].numpy().reshape(T, B)
    # R(1) = 1 + 0.5 V(o(2)), R(0) = 1 + 0.5 R(1); the rows after the invalid one are on their own.
    assert return_[1] == pytest.approx(1 + 0.5 * value[2], abs=1e-6)
    assert return_[0] == pytest.approx(1.5 + 0.25 * value[2], abs=1e-6)
    last = ppo.value(tf.ones([B, 3])).numpy()
    assert return_[3] == pytest.approx(1.75 + 0.125 * last, abs=1e-6)


def test_advantages_can_be_computed_again_before_each_epoch():
    once, again = make(epochs=1), make(epochs=1, recompute_advantages=True)
    update(once)
    update(again)
    assert close(weights(once), weights(again))
    # From the second epoch on the value has changed, and with it the advantages.
    once, again = make(epochs=4), make(epochs=4, recompute_advantages=True)
    update(once)
    update(again)
    assert not close(weights(once), weights(again))


def test_standardising_advantages_ignores_their_scale():
    def learned(scale, **kwargs):
        ppo = make(value_coef=0.0, gradient_clip=0.0, gae_lambda=0.0, discount=0.0, **kwargs)
        for layer in ppo.value.weights:
            layer.assign(np.zeros(layer.shape))
        given = records()
        return update(ppo, given._replace(reward=scale * given.reward))['gradient_norm']

    for mode in ('batch', 'minibatch'):
        assert learned(10.0, normalize_advantages=mode) == pytest.approx(
            learned(1.0, normalize_advantages=mode), rel=1e-4
        )
    assert learned(10.0) == pytest.approx(10 * learned(1.0), rel=1e-4)


def test_the_gradient_is_clipped_to_its_bound():
    # One step of Adam does not depend on the scale of the gradient, but its memory does: the first
    # moment is (1 - β₁) = 0.1 times the clipped gradient.
    ppo = make(gradient_clip=0.01)
    assert update(ppo)['gradient_norm'] > 0.01
    moments = [v.numpy() for v in ppo.steps.optimizer.variables if 'momentum' in v.path]
    norm = np.sqrt(sum(np.square(x).sum() for x in moments))
    assert len(moments) == len(weights(ppo))
    assert norm == pytest.approx(0.1 * 0.01, rel=1e-4)


def test_a_bonus_for_entropy_widens_the_policy():
    narrow, wide = make(entropy_coef=0.0, epochs=20), make(entropy_coef=1.0, epochs=20)
    assert update(wide)['action_std'] > 1 > update(narrow)['action_std'] - 0.01


# Penalty, cutoff and early stop.


def test_the_penalty_grows_after_a_large_kl_and_falls_after_a_small_one():
    large = make(objective='kl_penalty', learning_rate=0.1, kl_cutoff_coef=0.0, epochs=5)
    metrics = update(large)
    assert metrics['kl'] > 1.3 * 0.01
    assert metrics['penalty'] == pytest.approx(1.5)
    small = make(objective='kl_penalty', learning_rate=1e-6)
    metrics = update(small)
    assert metrics['kl'] < 0.7 * 0.01
    assert metrics['penalty'] == pytest.approx(1 / 1.5)
    for seed in range(25):
        metrics = update(small, seed=seed)
    # 1.5 ** -18 is below a thousandth, where it ends.
    assert metrics['penalty'] == pytest.approx(1e-3)


def test_the_penalty_and_the_cutoff_hold_the_policy_back():
    def kl(**kwargs):
        common = {'objective': 'kl_penalty', 'epochs': 30, 'learning_rate': 0.01}
        return update(make(**common, **kwargs))['kl']

    free = kl(kl_init_penalty=1e-3, kl_cutoff_coef=0.0)
    penalised = kl(kl_init_penalty=100.0, kl_cutoff_coef=0.0)
    cut_off = kl(kl_init_penalty=1e-3, kl_cutoff_coef=1000.0)
    assert penalised < 0.3 * free
    assert cut_off < 0.5 * free


def test_an_update_stops_early_when_the_kl_passes_the_bound():
    free = update(make(epochs=30, learning_rate=0.05))
    stopped = update(make(epochs=30, learning_rate=0.05, early_stop_kl=0.02))
    assert free['minibatches'] == 30
    assert stopped['minibatches'] < 10
    assert stopped['kl'] < free['kl']


# Statistics.


def test_the_first_rollout_only_begins_the_statistics():
    ppo = make(normalize_obs=True, normalize_rewards=True)
    before = weights(ppo)
    metrics = update(ppo)
    assert metrics['minibatches'] == 0
    assert same(before, weights(ppo))
    mean = records().obs.numpy().reshape(-1, 3).mean(0)
    assert ppo.normalize_obs.mean.numpy() == pytest.approx(mean, abs=1e-6)
    assert update(ppo)['minibatches'] == 1
    assert not same(before, weights(ppo))


def test_statistics_take_in_raw_rows_after_the_update_and_not_while_acting():
    ppo = make(normalize_obs=True)
    given = records(obs=np.full((T, B, 3), 5, np.float32))
    update(ppo, given)
    assert ppo.normalize_obs.mean.numpy() == pytest.approx(5)
    for training in (True, False):
        ppo.perform(tf.ones([B, 3]), tf.ones([B], tf.bool), (), tf.constant([0, 0]), training)
    assert ppo.normalize_obs.count.numpy() == T * B


def test_rewards_are_divided_by_the_deviation_of_running_returns_and_not_shifted():
    ppo = make(normalize_rewards=True, discount=0.9)
    given = records()
    update(ppo, given)
    ended = (given.terminated | given.truncated).numpy()
    running, last = twins.running_return(given.reward.numpy(), ended, np.zeros(B), 0.9)
    assert ppo.running_return.numpy() == pytest.approx(last, abs=1e-6)
    scaled, _ = ppo._scale_rewards(given)
    expected = given.reward.numpy() / np.sqrt(running.var() + 1e-8)
    assert scaled.numpy() == pytest.approx(expected, rel=1e-5)


def test_the_returns_behind_reward_scaling_go_on_over_rollouts():
    whole = records(3)
    ppo = make(normalize_rewards=True, discount=0.9)
    for half in (slice(0, 3), slice(3, 6)):
        update(ppo, tf.nest.map_structure(lambda x, half=half: x[half], whole))
    single = make(normalize_rewards=True, discount=0.9)
    update(single, whole)
    assert close(
        [x.numpy() for x in ppo.normalize_reward.variables],
        [x.numpy() for x in single.normalize_reward.variables],
    )


# Learning rate, failures, restarts.


def test_the_learning_rate_falls_linearly_to_zero():
    ppo = make(learning_rate=0.4, decay_updates=4)
    rates = [update(ppo)['learning_rate'] for _ in range(6)]
    assert rates == pytest.approx([0.4, 0.3, 0.2, 0.1, 0, 0])


@pytest.mark.parametrize('compile', ['off', 'update'])
def test_an_update_that_meets_a_non_finite_loss_is_undone(compile):
    ppo = make(compile=compile, epochs=3, minibatch=8, normalize_obs=True)
    update(ppo)
    update(ppo)
    before = [variable.numpy() for variable in ppo.steps.state]
    statistics = [variable.numpy() for variable in ppo.normalize_obs.variables]
    sample = records().sample.numpy()
    sample[2, 3] = np.nan
    failure = update(ppo, records(sample=sample))['failure']
    assert ppo.failure_names[failure[0] - 1] == 'policy loss'
    # Row t = 2, environment 3; it is in one of the three minibatches of the first epoch.
    assert failure[1] < 3
    assert failure[2:].tolist() == [2, 3]
    assert same(before, [variable.numpy() for variable in ppo.steps.state])
    assert same(statistics, [variable.numpy() for variable in ppo.normalize_obs.variables])
    assert update(ppo)['failure'].tolist() == [0, 0, 0, 0]
    assert not same(before, [variable.numpy() for variable in ppo.steps.state])


def test_a_gradient_that_overflows_is_reported_without_a_row():
    ppo = make(gradient_clip=0.0, value_coef=1e3)
    # Losses of 0.5 · (1e18)² fit into float32, the square of a gradient of 1e3 · 1e18 does not.
    given = records(
        reward=np.full((T, B), 1e18, np.float32), bootstrap=np.zeros((T, B), np.float32)
    )
    before = weights(ppo)
    failure = update(ppo, given)['failure']
    assert ppo.failure_names[failure[0] - 1] == 'gradient'
    assert failure[2:].tolist() == [-1, -1]
    assert same(before, weights(ppo))


def test_a_restored_checkpoint_goes_on_bit_by_bit(tmp_path):
    hyper = {
        'normalize_obs': True,
        'normalize_rewards': True,
        'objective': 'kl_penalty',
        'epochs': 2,
        'minibatch': 7,
        'compile': 'update',
        'decay_updates': 9,
    }
    straight = make(**hyper)
    for seed in range(4):
        update(straight, records(seed), seed)
    first = make(**hyper)
    for seed in range(2):
        update(first, records(seed), seed)
    path = tf.train.Checkpoint(algorithm=first).save(str(tmp_path / 'checkpoint'))
    second = make(**hyper, seed=99)
    tf.train.Checkpoint(algorithm=second).restore(path).assert_consumed()
    for seed in range(2, 4):
        update(second, records(seed), seed)
    assert same([x.numpy() for x in straight.variables], [x.numpy() for x in second.variables])
    assert same([x.numpy() for x in straight.steps.state], [x.numpy() for x in second.steps.state])


@pytest.mark.parametrize('name', ['objective', 'compile', 'normalize_advantages'])
def test_an_unknown_choice_is_an_error_that_lists_the_possible_ones(name):
    with pytest.raises(ValueError, match=f"{name} must be one of .*, got {name}='nonsense'"):
        make(**{name: 'nonsense'})


@pytest.mark.parametrize('compiled', ['off', 'update'])
def test_histograms_have_what_was_learned_from_but_no_invalid_rows(compiled):
    ppo = make(compile=compiled, normalize_obs=True, normalize_advantages='batch')
    valid = np.ones([T, B], bool)
    valid[1, 0] = False
    given = records(valid=valid)
    for _ in range(2):  # The first one begins the statistics.
        histograms = ppo.update(given, tf.ones([B, 3]), (), tf.constant([0, 1]))['histograms']
    histograms = {name: values.numpy() for name, values in histograms.items()}
    assert set(histograms) == {'action', 'normalized_obs', 'value', 'advantage'}
    for values in histograms.values():
        known = np.isfinite(values.reshape(valid.size, -1)).all(1)
        np.testing.assert_array_equal(known, valid.reshape(-1))
    # By the statistics of these very observations; and advantages are those of one batch.
    obs = histograms['normalized_obs'].reshape(valid.size, -1)
    np.testing.assert_allclose(np.nanmean(obs, 0), 0, atol=1e-5)
    np.testing.assert_allclose(np.nanstd(obs, 0), 1, atol=1e-3)
    assert abs(np.nanmean(histograms['advantage'])) < 1e-5
