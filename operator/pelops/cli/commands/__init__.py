"""One module for each command of `pelops`; `pelops.cli.main` lists them."""
