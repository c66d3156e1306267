"""What an environment must do to be fit for training in batches and processes."""

from typing import NamedTuple


class Check(NamedTuple):
    """One of the checks.

    Attributes:
        name: Name.
        rule: What must hold.
        advice: What to do if it does not.
        needs: Checks that must be passed before.
    """

    name: str
    rule: str
    advice: str
    needs: tuple[str, ...] = ()


_SEEDED = 'Draw every random number from self.np_random, which super().reset(seed=seed) seeds'
_PLAYED = ('episodes',)
_COMPARED = ('episodes', 'observations', 'rewards', 'globals', 'instances')

CHECKS = (
    Check(
        'constructor',
        'It can be made in another process.',
        'Call the function yourself to see the whole traceback. What cannot be sent to a process, '
        'such as locks and open files, must be made inside the function.',
    ),
    Check(
        'spaces',
        'Batches can hold its spaces.',
        '',
        ('constructor',),
    ),
    Check(
        'episodes',
        'Random actions raise no error.',
        'Mend the error; every action of the action space must be allowed. If observations say '
        'which are, add the wrapper OnlyAllowed for this check.',
        ('spaces',),
    ),
    Check(
        'observations',
        'They fit the observation space and are finite.',
        'Return what observation_space says, or correct that: shape, dtype, low and high.',
        _PLAYED,
    ),
    Check('rewards', 'They are finite numbers.', 'Return float(reward).', _PLAYED),
    Check('flags', 'terminated and truncated are bools.', 'Return bool(flag).', _PLAYED),
    Check('buffers', 'Observations need not be fresh arrays.', '', _PLAYED),
    Check(
        'repetition',
        'Reset with the same seed, it does the same again.',
        f'{_SEEDED}, and let reset forget all of the episode before.',
        _PLAYED,
    ),
    Check(
        'globals',
        'It leaves the global random state alone.',
        f'{_SEEDED}, none from the modules random and numpy.random: environments of one process '
        'share these.',
        ('repetition',),
    ),
    Check(
        'instances',
        'Another instance does the same.',
        'Keep nothing in variables of the class or module, such as counters.',
        ('repetition',),
    ),
    Check(
        'process',
        'In another process it does the same.',
        'Depend on nothing that differs there: process id, hash() of text, order of sets, time.',
        _COMPARED,
    ),
    Check(
        'batch',
        'Among others that are stepped in between, too.',
        'Share nothing that changes between instances: no variables of the class or module, no '
        'common simulator.',
        _COMPARED,
    ),
    Check(
        'time limit',
        'An episode at its time limit is truncated.',
        'Return truncated=True and terminated=False where only the time is up; '
        'gymnasium.make(..., max_episode_steps=N) does it. A limit that counts as the end of the '
        'world teaches wrong values.',
        _PLAYED,
    ),
    Check(
        'memory',
        'It does not grow with steps.',
        'Look for lists and caches that are never emptied, and for what is made anew in reset '
        'without freeing the former.',
        _PLAYED,
    ),
    Check('speed', 'Measured in one process.', '', _PLAYED),
    Check(
        'gymnasium',
        "Gymnasium's own checker finds no fault.",
        'See https://gymnasium.farama.org/introduction/create_custom_env/.',
        _PLAYED,
    ),
    Check(
        'closing',
        'It can be closed, closed twice, and made anew.',
        'Let close do nothing the second time, and free all that reset needs.',
        _PLAYED,
    ),
)
