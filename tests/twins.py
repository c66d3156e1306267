"""The same mathematics once more, in NumPy: float64, from the definitions, not vectorised."""

import numpy as np


def rows_of_episode(goes_on, t, b):
    """Yield t and the following rows, up to the last one of the same episode in memory."""
    while True:
        yield t
        if t + 1 == len(goes_on) or not goes_on[t, b]:
            return
        t += 1


def lambda_advantage(reward, value, next_value, goes_on, discount, lambda_):
    advantage = np.zeros(reward.shape)
    for t, b in np.ndindex(*reward.shape):
        for k, row in enumerate(rows_of_episode(goes_on, t, b)):
            error = reward[row, b] + discount * next_value[row, b] - value[row, b]
            advantage[t, b] += (discount * lambda_) ** k * error
    return advantage


def discounted_return(reward, next_value, goes_on, discount):
    return_ = np.zeros(reward.shape)
    for t, b in np.ndindex(*reward.shape):
        rows = list(rows_of_episode(goes_on, t, b))
        return_[t, b] = sum(discount**k * reward[row, b] for k, row in enumerate(rows))
        return_[t, b] += discount ** len(rows) * next_value[rows[-1], b]
    return return_


def running_return(reward, ended, accumulator, discount):
    sums = np.zeros(reward.shape)
    for b in range(reward.shape[1]):
        before = accumulator[b]
        for t in range(len(reward)):
            sums[t, b] = reward[t, b] + discount * before
            before = 0.0 if ended[t, b] else sums[t, b]
        accumulator = np.array([*accumulator[:b], before, *accumulator[b + 1 :]])
    return sums, accumulator


def softmax(logits):
    exps = np.exp(np.float64(logits) - np.max(logits, -1, keepdims=True))
    return exps / exps.sum(-1, keepdims=True)


def dense_network(x, weights, activation):
    """Apply dense layers, kernel and bias in turn; the last one is linear."""
    layers = [np.float64(weight) for weight in weights]
    for kernel, bias in zip(layers[:-2:2], layers[1:-2:2], strict=True):
        x = activation(x @ kernel + bias)
    return x @ layers[-2] + layers[-1]
