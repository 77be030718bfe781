"""Records that are stored in Redis or in files: their fields, and how they are read and written."""
