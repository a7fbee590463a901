"""Training files in the shapes that trainers read, one module a trainer."""
