"""Models become CustomResourceDefinitions and the field reference."""
