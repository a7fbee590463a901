"""What a trainer would do with a file of rows: checks by the facts about it, and replay through its own code."""
