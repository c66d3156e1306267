import pytest

from benchmarks import soak


def test_growth_is_the_slope_after_warming_up():
    # 100 steps a second; the parent grows by 2 MB per 100 steps but for the first sample.
    samples = [soak.Sample(0, 0.0, 0.0, 7.0, 3, 2)]
    samples += [soak.Sample(100 * t, t, 50.0 + 2 * t, 7.0, 3 + t, 2) for t in range(2, 11)]
    grown = soak.growth(samples)
    assert grown['parent'] == pytest.approx(2 / 100 * 1e6)
    assert grown['workers'] == pytest.approx(0, abs=1e-6)
    assert (grown['files'], grown['shared']) == (8, 0)
    assert grown['slowdown'] == pytest.approx(1)


def test_a_slower_end_is_a_slowdown():
    times = [0, 1, 2, 3, 5, 7, 9]  # Twice as long for 100 steps, after the third of them.
    samples = [soak.Sample(100 * i, t, 1.0, 1.0, 1, 1) for i, t in enumerate(times)]
    assert soak.growth(samples)['slowdown'] == pytest.approx(2)


def test_training_in_workers_grows_in_nothing():
    samples = list(soak.soak(15.0, num_envs=64, num_workers=2))
    assert samples[-1].steps > 10_000
    grown = soak.growth(samples)
    assert (grown['files'], grown['shared']) == (0, 0)
    kept = samples[len(samples) // 2 :]
    assert kept[-1].workers - kept[0].workers < 2  # MB
    assert kept[-1].parent - kept[0].parent < 20
