"""Published results of other systems, measured by their authors on their machines."""

from __future__ import annotations

PUBLISHED = """
## Published figures

Measured by their authors, on their machines and sets; nothing was measured here.

| system | set | recall@10 | pages per query | queries/s | memory per query on the card | $ per query/s |
|---|---|---:|---:|---:|---:|---:|
| GustANN, A100, 6 disks | SIFT100M | 0.9 | 31.8 | 380,793 | 40.22 KB | 0.097 |
| BANG, A100, index in DRAM | SIFT100M | 0.9 | - | 152,262 | 480 KB | 0.255 |
| DiskANN, 112 threads | SIFT100M | 0.9 | - | 56,782 | - | 0.404 |
| SPANN | SIFT100M | 0.9 | 147.9 | - | - | - |

Claims of their abstracts; `-` stands for what they do not state:

| system | claims | against | recall@10 | machine and sets | source |
|---|---|---|---:|---|---|
| FusionANNS: codes on the card, vectors on SSDs, re-ranking that stops early | 9.4 to 13.1 times the \
queries/s | SPANN | - | one entry-level card, SSDs; sets of a billion | FAST'25; arXiv 2409.16576 |
| FusionANNS | 2 to 4.9 times the queries/s | RUMMY, in memory | - | the same | the same |
| FlashANNS: a graph on SSDs that the card reads itself, overlapping reads and distances | 2.3 to 5.9 times the \
queries/s | SPANN, DiskANN, FusionANNS | 0.95 | a card, one SSD; sets of a billion | arXiv 2507.10070,
version 1 |
| FlashANNS | 2.7 to 12.2 times the queries/s | the same | 0.95 | a card, several SSDs | the same |
| FlashANNS | 2.7 to 5.9 times the queries/s | the same | 0.95 | - | arXiv 2507.10070, version 2 |
| cuVS IVF-RaBitQ: groups and codes on the card, no vectors for re-ranking | 2.2 times the queries/s, built \
7.7 times as fast | cuVS CAGRA | 0.95 | a card; several sets of cuVS Bench | arXiv 2602.23999 |
| cuVS IVF-RaBitQ | 2.7 times the queries/s | cuVS IVF-PQ | - | the same | the same |
| CAGRA: a graph and its vectors on the card | 33 to 77 times the queries/s in large batches | HNSW on a \
processor | 0.90 to 0.95 | - | ICDE'24; arXiv 2308.15136 |

`make bench-gpu` measures cuVS and Bathyal on an available card; the Python wheel of cuVS of October 2026
(26.10) has CAGRA and IVF-PQ, but no IVF-RaBitQ.
"""
