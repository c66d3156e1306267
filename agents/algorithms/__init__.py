"""Learning algorithms on the same verbs: initial, perform, experience, update."""

from typing import TYPE_CHECKING

import lazy_loader

if TYPE_CHECKING:
    from agents.algorithms.actor_critic import ActorCritic
    from agents.algorithms.algorithm import Algorithm
    from agents.algorithms.hyperparameters import Hyperparameters
    from agents.algorithms.ppo import PPO

__getattr__, __dir__, __all__ = lazy_loader.attach(
    __name__,
    submod_attrs={
        'actor_critic': ['ActorCritic'],
        'algorithm': ['Algorithm'],
        'hyperparameters': ['Hyperparameters'],
        'ppo': ['PPO'],
    },
)
