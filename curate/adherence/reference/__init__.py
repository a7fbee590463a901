"""Role adherence without a judge: how near a turn is to what would have been right.

These methods compare text with reference replies. They notice drift from the references, not a broken
role: a reply in the wrong tone that says the right things scores high.
"""
