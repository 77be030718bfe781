"""Facts: frozen records of what was seen and what was asked for. No I/O and no clock."""
