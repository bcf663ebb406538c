"""One listener: ``LISTENER_CONFIG_PATH=config.json python cmd/ghalistener.py``."""

from arc_controller.cli.ghalistener import main

if __name__ == "__main__":
    main()
