"""Joins of people's labels with a run: draws to label, agreement, certificates, fitted calibrations and curves."""
