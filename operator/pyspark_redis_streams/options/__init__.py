"""The options of the data source: declared once, checked, documented."""
