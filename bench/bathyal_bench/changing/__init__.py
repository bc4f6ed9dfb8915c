"""Rows that come, change and go, under conditions: collections beside LanceDB, Chroma, Milvus Lite and hnswlib.

Searches are compared at the effort at which a system finds 0.95 of the neighbours among all rows. What Bathyal and
LanceDB have written is on the device when the call returns; Chroma and Milvus Lite write by SQLite and their own
logs; hnswlib is in memory, and saved as a whole. Qdrant's server is no Python package, and its client alone
compares all rows in Python: it is left out. A system that is not installed is left out as well.
"""
