"""What the command line shows: groups and workloads as facts, tables, gauges, durations, YAML."""
