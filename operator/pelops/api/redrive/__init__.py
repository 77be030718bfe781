"""The kind `StreamRedrive`: what users write, and what is reported."""
