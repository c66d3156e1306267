"""PPO in one file of PyTorch, in CleanRL's design: an opponent for acting, training and updating.

The design is that of CleanRL's ppo.py and ppo_continuous_action.py (Huang et al. 2022, JMLR):
a plain loop over a vector environment of Gymnasium, tensors of [T, B] as storage, a Python loop for
advantages, and for each minibatch one forward pass, one backward pass and one step of Adam.
"""

import dataclasses
import time
from typing import Any, NamedTuple

import gymnasium
import numpy as np
import torch
from torch import nn

DISCOUNT, GAE_LAMBDA, CLIP, GRADIENT = 0.99, 0.95, 0.2, 0.5
ENTROPY, VALUE = 0.0, 0.5


class Storage(NamedTuple):
    """What is kept of a rollout, each [T, B, ...]."""

    obs: torch.Tensor
    action: torch.Tensor
    log_prob: torch.Tensor
    reward: torch.Tensor
    done: torch.Tensor
    value: torch.Tensor


class Agent(nn.Module):
    """Separate policy and value networks with two hidden tanh layers."""

    def __init__(
        self, observation_space: gymnasium.Space, action_space: gymnasium.Space, width: int = 64
    ) -> None:
        super().__init__()
        self.discrete = isinstance(action_space, gymnasium.spaces.Discrete)
        inputs = int(np.prod(observation_space.shape))
        outputs = int(action_space.n if self.discrete else np.prod(action_space.shape))
        self.critic = _perceptron(inputs, width, 1, 1.0)
        self.actor = _perceptron(inputs, width, outputs, 0.01)
        self.log_std = nn.Parameter(torch.zeros(1, outputs)) if not self.discrete else None

    def distribution(self, obs: torch.Tensor) -> Any:
        outputs = self.actor(obs)
        if self.log_std is None:
            return torch.distributions.Categorical(logits=outputs)
        return torch.distributions.Normal(outputs, self.log_std.expand_as(outputs).exp())

    def evaluate(self, obs: torch.Tensor, action: torch.Tensor | None = None) -> tuple:
        """Return action, its log probability, the entropy and the value."""
        policy = self.distribution(obs)
        if action is None:
            action = policy.sample()
        log_prob, entropy = policy.log_prob(action), policy.entropy()
        if self.log_std is not None:
            log_prob, entropy = log_prob.sum(1), entropy.sum(1)
        return action, log_prob, entropy, self.critic(obs)[:, 0]


@dataclasses.dataclass
class PPO:
    """A vector environment and what learns in it.

    Attributes:
        env: Vector environment; resets in the next step, as Gymnasium's do by default.
        agent: Networks.
        horizon: Steps of each environment before an update.
        minibatch: Rows of a minibatch.
        epochs: Passes over the rows.
    """

    env: Any
    agent: Agent
    horizon: int
    minibatch: int
    epochs: int

    def __post_init__(self) -> None:
        self.optimizer = torch.optim.Adam(self.agent.parameters(), lr=3e-4, eps=1e-5)
        if self.env is not None:
            self.next_obs = self._tensor(self.env.reset(seed=0)[0])
            self.next_done = torch.zeros(self.env.num_envs)

    @torch.no_grad()
    def collect(self) -> Storage:
        """Act in all environments."""
        rows: list[tuple] = []
        for _ in range(self.horizon):
            obs, done = self.next_obs, self.next_done
            action, log_prob, _, value = self.agent.evaluate(obs)
            given = action.numpy()
            if not self.agent.discrete:
                space = self.env.single_action_space
                given = np.clip(given, space.low, space.high)
            following, reward, terminated, truncated, _ = self.env.step(given)
            self.next_obs = self._tensor(following)
            self.next_done = torch.as_tensor(np.logical_or(terminated, truncated)).float()
            reward = torch.as_tensor(reward, dtype=torch.float32)
            rows.append((obs, action, log_prob, reward, done, value))
        return Storage(*(torch.stack(column) for column in zip(*rows, strict=True)))

    @torch.no_grad()
    def advantages(
        self, storage: Storage, next_obs: torch.Tensor, next_done: torch.Tensor
    ) -> torch.Tensor:
        advantages = torch.zeros_like(storage.reward)
        next_value, goes_on = self.agent.critic(next_obs)[:, 0], 1.0 - next_done
        last = torch.zeros_like(next_value)
        for t in reversed(range(len(storage.reward))):
            delta = storage.reward[t] + DISCOUNT * next_value * goes_on - storage.value[t]
            advantages[t] = last = delta + DISCOUNT * GAE_LAMBDA * goes_on * last
            next_value, goes_on = storage.value[t], 1.0 - storage.done[t]
        return advantages

    def improve(self, storage: Storage, next_obs: torch.Tensor, next_done: torch.Tensor) -> None:
        """Make the gradient steps of all epochs."""
        advantage = self.advantages(storage, next_obs, next_done)
        target = advantage + storage.value
        obs, action, log_prob, advantage, target = (
            x.flatten(0, 1)
            for x in (storage.obs, storage.action, storage.log_prob, advantage, target)
        )
        indices = np.arange(len(obs))
        for _ in range(self.epochs):
            np.random.shuffle(indices)
            for start in range(0, len(indices), self.minibatch):
                rows = indices[start : start + self.minibatch]
                self._descend(
                    obs[rows], action[rows], log_prob[rows], advantage[rows], target[rows]
                )

    def iterate(self) -> None:
        """Collect and improve."""
        storage = self.collect()
        self.improve(storage, self.next_obs, self.next_done)

    def _descend(
        self,
        obs: torch.Tensor,
        action: torch.Tensor,
        old_log_prob: torch.Tensor,
        advantage: torch.Tensor,
        target: torch.Tensor,
    ) -> None:
        _, log_prob, entropy, value = self.agent.evaluate(obs, action)
        ratio = (log_prob - old_log_prob).exp()
        advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
        clipped = ratio.clamp(1 - CLIP, 1 + CLIP)
        policy_loss = torch.max(-advantage * ratio, -advantage * clipped).mean()
        value_loss = 0.5 * ((value - target) ** 2).mean()
        loss = policy_loss - ENTROPY * entropy.mean() + VALUE * value_loss
        self.optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.agent.parameters(), GRADIENT)
        self.optimizer.step()

    def _tensor(self, obs: np.ndarray) -> torch.Tensor:
        return torch.as_tensor(obs, dtype=torch.float32)


def time_update(num_envs: int, horizon: int, minibatch: int, epochs: int, repeats: int) -> float:
    """Return the seconds of an update on random rows of CartPole's shape.

    Args:
        num_envs: Environments that the rows would come from.
        horizon: Steps of each.
        minibatch: Rows of a minibatch.
        epochs: Passes over the rows.
        repeats: Updates that are measured, after one that is not.
    """
    obs_space = gymnasium.spaces.Box(-np.inf, np.inf, (4,), np.float32)
    agent = Agent(obs_space, gymnasium.spaces.Discrete(2))
    ppo = PPO(None, agent, horizon, minibatch, epochs)
    obs = torch.randn(horizon + 1, num_envs, 4)
    with torch.no_grad():
        action, log_prob, _, value = agent.evaluate(obs[:-1].flatten(0, 1))
    columns = (x.reshape(horizon, num_envs) for x in (action, log_prob, value))
    action, log_prob, value = columns
    reward, done = torch.ones(horizon, num_envs), (torch.rand(horizon, num_envs) < 0.02).float()
    storage = Storage(obs[:-1], action, log_prob, reward, done, value)
    ppo.improve(storage, obs[-1], done[-1])
    begin = time.perf_counter()
    for _ in range(repeats):
        ppo.improve(storage, obs[-1], done[-1])
    return (time.perf_counter() - begin) / repeats


def _perceptron(inputs: int, width: int, outputs: int, scale: float) -> nn.Sequential:
    layers: list[nn.Module] = []
    for n, m, gain in ((inputs, width, 2**0.5), (width, width, 2**0.5), (width, outputs, scale)):
        layer = nn.Linear(n, m)
        nn.init.orthogonal_(layer.weight, gain)
        nn.init.zeros_(layer.bias)
        layers += [layer, nn.Tanh()]
    return nn.Sequential(*layers[:-1])
