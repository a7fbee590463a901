"""How far a score can be trusted: agreement with labels, and the uncertainty of every such figure."""
