"""Facts: frozen records of observations and of requests. No I/O and no clock."""
