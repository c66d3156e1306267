import numpy as np

from agents.scripts import trainer


def test_every_episode_of_every_evaluation_has_a_seed_of_its_own():
    seeds = [
        trainer.eval_seed(seed, number, episode)
        for seed in range(3)
        for number in range(10)
        for episode in range(30)
    ]
    assert len(set(seeds)) == len(seeds)
    assert trainer.eval_seed(1, 2, 3) == trainer.eval_seed(1, 2, 3)


def test_evaluations_share_no_seed_with_training():
    evaluation = {
        trainer.eval_seed(0, number, episode) for number in range(10) for episode in range(30)
    }
    # What `simulate` and a batch of environments expand the run's seed to.
    for entropy in [0, *((0, iteration) for iteration in range(100))]:
        words = np.random.SeedSequence(entropy).generate_state(64).tolist()
        assert not evaluation & set(words)
