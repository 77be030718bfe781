"""One status for every entry of a window, for each group."""
