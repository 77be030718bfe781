"""What the rows of a read are; one module for each view."""
