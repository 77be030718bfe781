"""Dead letters in clusters of one cause each, and a plan to redrive them."""
