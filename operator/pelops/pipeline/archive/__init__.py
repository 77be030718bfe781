"""The archive: its layout, files, windows, and what a run reads into it."""
