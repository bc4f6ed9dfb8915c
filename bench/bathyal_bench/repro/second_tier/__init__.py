"""Second-tier-memory: the graph, the posting lists, and both beside each other."""
