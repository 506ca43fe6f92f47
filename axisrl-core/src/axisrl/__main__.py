"""``python -m axisrl``: the same as the ``axisrl`` command."""

from axisrl.cli.main import main

if __name__ == "__main__":
    main()
