"""Side-by-side measurements against named peers; `python3 -m benchmarks` prints one table."""
