"""The compared indexes, and the recall at which parameters vary."""

from __future__ import annotations

GRAPH_ALONE, GRAPH, GROUPS = "graph-beam-1", "graph", "cluster"
# Indexes that a card searches, in the order of plots; a card does not score pages of near vectors.
ON_CARD = (GRAPH_ALONE, GRAPH, GROUPS)
# The lowest of the requested recalls; parameters vary at this one.
LEAST_RECALL = 0.9
