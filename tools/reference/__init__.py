"""The generated parts of the documentation.

A page says where a part belongs, and a renderer says what it holds:

    <!-- generated: script table, operator -->
    ...
    <!-- end of generated -->

Everything outside of these marks is written by hand. Pages are found by their marks, wherever they
are in `docs`. `make reference` writes the parts, and `make check` compares them.
"""
