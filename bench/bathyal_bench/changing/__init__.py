"""Rows that come, change and go, under conditions: collections beside LanceDB, Chroma, Milvus Lite and hnswlib.

Searches are compared at the effort at which a system finds 0.95 of the neighbours among all rows. What Bathyal and
Chroma have written is on the device when the call returns. LanceDB leaves it to the system: it makes no call that
syncs (seen by strace, version 0.40). Milvus Lite was not looked at. Both are filled once more with the disk synced
after each call. hnswlib is in memory, and saved as a whole.
Qdrant's server is no Python package, and its client alone compares all rows in Python: it is left out. A system
that is not installed is left out as well.
"""
