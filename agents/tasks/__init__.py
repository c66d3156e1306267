"""Small tasks of kinds that Gymnasium has none of; importing this package registers them."""

import gymnasium

for _name in ('Cards', 'Lock', 'Recall', 'Target'):
    # By name: what runs in a worker process imports only the task that it needs.
    gymnasium.register(f'{_name}-v0', entry_point=f'agents.tasks.{_name.lower()}:{_name}')
