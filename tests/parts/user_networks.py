"""What a user's module with networks may look like."""

import keras


def wide(observation_space, hyper):
    """Map observations to 40 features, each part by layers of its own."""
    inputs = {
        'image': keras.Input((8, 8, 1), name='image'),
        'speed': keras.Input((2,), name='speed'),
        'gear': keras.Input((3,), name='gear'),
    }
    image = keras.layers.Conv2D(8, 3, activation='relu')(inputs['image'])
    parts = [keras.layers.Flatten()(image), inputs['speed'], inputs['gear']]
    features = keras.layers.Dense(40, 'relu')(keras.layers.concatenate(parts))
    return keras.Model(inputs, features)


def layers(observation_space, hyper):
    """Map vectors to features, with units as the hyperparameters say."""
    return keras.Sequential([keras.layers.Dense(n, 'relu') for n in hyper.policy_layers])


def unflattened(observation_space, hyper):
    """Forget to flatten what the layer gives."""
    return keras.Sequential([keras.layers.Reshape((5, 1))])
