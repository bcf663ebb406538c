"""The four controllers of runner scale sets, and what they make.

`add_controllers` puts them into a manager; `ControllerConfig` is what they are told;
`ActionsClients` is how they reach the service; `cache_scopes` is what a manager's cache holds for
them. ::

    manager = Manager(transport, SCHEME, options=ManagerOptions(scopes=cache_scopes(config)))
    add_controllers(manager, config, ActionsClients(Inputs(manager.api_reader)))
    await manager.run()
"""

from arc_controller.controllers.config import ControllerConfig
from arc_controller.controllers.inputs import InputError, Inputs
from arc_controller.controllers.scopes import cache_scopes, cache_transforms
from arc_controller.controllers.service import ActionsClients
from arc_controller.controllers.wiring import add_controllers

__all__ = [
    "ActionsClients",
    "ControllerConfig",
    "InputError",
    "Inputs",
    "add_controllers",
    "cache_scopes",
    "cache_transforms",
]
