"""`make demo`: the whole system on this machine, at work on real input, with a checked result."""
