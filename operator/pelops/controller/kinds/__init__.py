"""The managed kinds: what a pass of each does, and the loops beside the passes."""
