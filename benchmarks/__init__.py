"""What the project promises in numbers, measured: `python -m benchmarks.NAME`."""
