"""How a stage's work is spread. Same stage function, same rows out."""
