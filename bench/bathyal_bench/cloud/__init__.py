"""Indexes in an object store: Bathyal's and LanceDB's, measured through one relay (``bench/cloud.py``)."""
