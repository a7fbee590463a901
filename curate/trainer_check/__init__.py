"""What a trainer would do with a file of rows, before it does it: one module a trainer's reading."""
