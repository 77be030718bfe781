"""The parts of a running worker. Users import from `pelops.worker` alone."""
