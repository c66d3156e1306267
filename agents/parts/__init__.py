"""Building blocks for algorithms: distributions, networks, normalisation, returns, minibatches."""
