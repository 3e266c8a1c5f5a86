"""``python -m chairlift`` is the ``chairlift`` command."""

from chairlift.cli.main import main

if __name__ == "__main__":
    main()
