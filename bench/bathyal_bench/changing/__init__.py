"""Collections whose rows are added, changed and deleted, with conditions, compared with LanceDB, Chroma,
Milvus Lite and hnswlib.

Searches are compared at the effort at which a system finds 0.95 of the neighbours among all rows. Rows that
Bathyal and Chroma have written are on the device when the call returns. LanceDB leaves syncing to the
operating system: it makes no call that syncs (checked by strace, version 0.40). Milvus Lite was not checked.
Both are filled once more with a sync of the disk after each call. hnswlib is in memory, and is saved as a
whole. Qdrant is left out: its server is no Python package, and its client alone compares all rows in Python.
Systems that are not installed are left out, too.
"""
