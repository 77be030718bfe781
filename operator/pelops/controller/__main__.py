"""The operator: `pelops-operator`, or `python -m pelops.controller`."""

import sys

from pelops.domain.site import page_url


def main() -> None:
    """Run the operator. Exits with a sentence if its packages are not installed."""
    try:
        from pelops.controller.replica import main as run
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing == "pelops":
            raise
        sys.exit(
            f"pelops-operator: the package {missing} is not installed. Install Pelops with the "
            f"extra [operator]: {page_url('guides/command-line')}"
        )
    run()


if __name__ == "__main__":
    main()
