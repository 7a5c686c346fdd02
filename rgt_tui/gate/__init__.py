"""The gate before every billing action: evidence in, a permit or all the reasons against it out.

`gather` makes the evidence, `evaluate` judges it (the only place that builds a permit), `review` says what a
person must see, `audit` keeps the record. All but the record are pure functions of their arguments.
"""
