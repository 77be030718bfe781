"""The engines that work on a window: Spark, or Arrow tables in this process."""
