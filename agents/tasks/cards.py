"""A task in which only some actions are allowed."""

from typing import Any

import gymnasium
import numpy as np


class Cards(gymnasium.Env):
    """Beat cards with the cards in one's hand.

    Of 13 cards, 6 are dealt to the hand. In each step one of the others lies on the table, and one
    of the hand is played: the reward is 1 if it is higher, else 0. An episode ends when the hand is
    empty. To play the lowest card that is high enough, and the lowest of all if none is, is a good
    strategy.

    Observations: `table` in 0 … 12, `hand` with a 1 for each card that is held, and the same as
    `action_mask`. Actions: which card to play.

    Raises:
        ValueError: A card is played that is not held.
    """

    observation_space = gymnasium.spaces.Dict(
        action_mask=gymnasium.spaces.MultiBinary(13),
        hand=gymnasium.spaces.MultiBinary(13),
        table=gymnasium.spaces.Discrete(13),
    )
    action_space = gymnasium.spaces.Discrete(13)
    _HELD = 6

    def __init__(self) -> None:
        self._hand, self._others = np.zeros(13, np.int8), np.zeros(7, np.int64)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Deal."""
        super().reset(seed=seed)
        cards = self.np_random.permutation(13)
        self._hand = np.zeros(13, np.int8)
        self._hand[cards[: self._HELD]] = 1
        self._others = cards[self._HELD :]
        return self._observe(), {}

    def step(self, action: Any) -> tuple[dict[str, Any], float, bool, bool, dict[str, Any]]:
        """Play a card."""
        card = int(action)
        if not self._hand[card]:
            raise ValueError(f'Only cards in the hand can be played, got {card}. Use action_mask.')
        reward = float(card > self._others[0])
        self._hand[card] = 0
        self._others = self._others[1:]
        return self._observe(), reward, not self._hand.any(), False, {}

    def get_state(self) -> dict[str, Any]:
        """Return the cards."""
        return {'hand': self._hand.copy(), 'others': self._others}

    def set_state(self, state: dict[str, Any]) -> None:
        """Go on with these cards."""
        self._hand, self._others = state['hand'], state['others']

    def _observe(self) -> dict[str, Any]:
        # At the end no card can be played; the observation must still be one.
        mask = self._hand if self._hand.any() else np.ones(13, np.int8)
        return {
            'action_mask': mask.copy(),
            'hand': self._hand.copy(),
            'table': int(self._others[0]),
        }
