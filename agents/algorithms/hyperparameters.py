"""The numbers that an algorithm learns with; every one of them is a command line flag as well."""

import dataclasses
from typing import Any


def field(default: Any, help: str) -> Any:
    """Declare a field with its one line of help: meaning, unit and range.

    Args:
        default: Value unless set, a plain immutable value.
        help: Meaning, shown by `--help` and saved as a comment beside the value.
    """
    return dataclasses.field(default=default, metadata={'help': help})


@dataclasses.dataclass(frozen=True, kw_only=True)
class Hyperparameters:
    """Settings of the algorithms; a misspelt name is a TypeError from Python itself."""

    seed: int = field(0, 'Seed of weights, actions, minibatches and environments.')
    # Networks.
    network: str = field(
        'feed_forward',
        'Layers: feed_forward; nature or impala for images; or module:function of your own.',
    )
    share_layers: bool = field(False, 'Let policy and value network share all hidden layers.')
    policy_layers: tuple[int, ...] = field((64, 64), 'Units of the hidden layers of the policy.')
    value_layers: tuple[int, ...] = field(
        (64, 64), 'Units of the hidden layers of the value network.'
    )
    recurrent: str = field(
        'none', 'Memory of policy and value, which share all layers then: none, gru or lstm.'
    )
    recurrent_units: int = field(64, 'Units of the memory, >= 1.')
    sequence_length: int = field(
        16, 'Steps through which memory is trained, a divisor of horizon and of minibatch.'
    )
    activation: str = field('tanh', 'Activation of hidden layers, a Keras name: tanh, relu, elu, …')
    init: str = field('orthogonal', 'Initialisation of weights: orthogonal or variance_scaling.')
    init_output_factor: float = field(
        0.01, "Scale of the policy's output weights at the start, > 0."
    )
    init_std: float = field(1.0, 'Standard deviation of continuous actions at the start, > 0.')
    # Actions.
    distribution: str = field(
        'normal', 'Distribution of continuous actions: normal, tanh_normal or beta.'
    )
    state_dependent_std: bool = field(
        False, 'Let the deviation of continuous actions depend on the observation.'
    )
    action_mask: str = field(
        '', 'Key of a Dict observation that says which actions are allowed; empty: none.'
    )
    # Returns and advantages.
    discount: float = field(0.99, 'Discount of future rewards per step, in [0, 1].')
    gae_lambda: float = field(0.95, 'Decay of generalized advantage estimation, in [0, 1].')
    normalize_advantages: str = field(
        'batch', 'Standardise advantages over: batch, minibatch or off.'
    )
    recompute_advantages: bool = field(False, 'Compute advantages again before each epoch.')
    normalize_obs: bool = field(True, 'Standardise observations by running mean and deviation.')
    obs_clip: float = field(10.0, 'Bound of standardised observations, in standard deviations.')
    normalize_rewards: bool = field(True, 'Divide rewards by the running deviation of returns.')
    reward_clip: float = field(10.0, 'Bound of scaled rewards.')
    # Objective.
    objective: str = field('clip', 'Policy objective: clip or kl_penalty.')
    clip_range: float = field(0.2, 'Bound of the probability ratio minus 1, objective clip.')
    kl_target: float = field(0.01, 'Wanted KL divergence of an update, nats, objective kl_penalty.')
    kl_cutoff_factor: float = field(2.0, 'KL above this multiple of the target is cut off.')
    kl_cutoff_coef: float = field(1000.0, 'Weight of the squared KL above the cutoff.')
    kl_init_penalty: float = field(1.0, 'Weight of the KL at the start, in [0.001, 1000].')
    entropy_coef: float = field(0.0, 'Weight of the entropy bonus.')
    value_coef: float = field(0.5, 'Weight of the value loss.')
    value_clip_range: float = field(0.0, 'Bound of the change of values in an update; 0: none.')
    # Optimisation.
    learning_rate: float = field(3e-4, 'Step size of Adam at the start, > 0.')
    decay_updates: int = field(
        0, 'Updates over which the learning rate falls linearly to 0; 0: never.'
    )
    adam_epsilon: float = field(1e-5, "Adam's ε, > 0.")
    gradient_clip: float = field(0.5, 'Bound of the global norm of the gradient; 0: none.')
    epochs: int = field(10, 'Passes over the collected steps in an update, >= 1.')
    minibatch: int = field(64, 'Steps in a minibatch, >= 1.')
    early_stop_kl: float = field(0.0, 'End an update when its mean KL passes this, nats; 0: never.')
    compile: str = field('auto', 'What XLA compiles: auto, update, minibatch or off.')
