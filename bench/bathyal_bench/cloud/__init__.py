"""Indexes in an object store: Bathyal's beside LanceDB's, through one relay (``bench/cloud.py``)."""
