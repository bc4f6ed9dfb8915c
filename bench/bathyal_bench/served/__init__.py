"""Servers over the same rows, asked by the same client: requests a second and latencies by the number of
connections, memory, and the time from the start of the process to the first answer.

Bathyal and Chroma have servers. LanceDB and Milvus Lite are libraries; each is behind the same small server in
Python, as a web service would have it. Every system searches with the least effort at which it finds 0.95 of
the neighbours, by the share of the rows that match; what the server answers is checked. Client and server
share the processors. Systems that are not installed are left out. Qdrant and Weaviate are, too: their servers
are no Python packages.
"""
