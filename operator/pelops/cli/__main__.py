"""The `pelops` command: `python -m pelops.cli`."""

from pelops.cli.main import main

if __name__ == "__main__":
    main()
