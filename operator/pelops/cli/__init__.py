"""The `pelops` command."""
