"""Second-tier-memory: the graph, the posting lists, and the comparison of both."""
