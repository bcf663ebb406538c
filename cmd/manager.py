"""The manager: ``CONTROLLER_MANAGER_POD_NAMESPACE=… python cmd/manager.py --help``."""

from arc_controller.cli.manager import main

if __name__ == "__main__":
    main()
