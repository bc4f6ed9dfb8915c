"""The indexes that are compared, and how they are asked."""

from __future__ import annotations

GRAPH_ALONE, GRAPH, GROUPS = "graph-beam-1", "graph", "cluster"
# Those that a card searches, in the order of plots; it does not score pages of near vectors.
ON_CARD = (GRAPH_ALONE, GRAPH, GROUPS)
# The least of the recalls that indexes are asked for: what is varied is varied at this one.
LEAST_RECALL = 0.9
