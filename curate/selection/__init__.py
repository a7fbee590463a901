"""Selection: which dialogues train, which are rejected and why, which a human should see."""
