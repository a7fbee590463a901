"""Preference pairs: forked and verified, or already in the data."""
