"""Scalars that training programs leave on disk: one small reader per format, all with the same contract."""
