"""Scalars that training programs print: named line formats, the choice among them, and the incremental reader."""
