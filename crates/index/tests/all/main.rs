//! Tests of indexes through the public interface. They are one program, because every further program links
//! all crates again.
//!
//! Tests that need a process of their own are beside it: `allocations` and `mutations` count allocations,
//! `callers` forks, `callers` and `numa` count the threads of their process, and `nodes` maps so much memory
//! of memory nodes that the families would not fit beside it.

mod bits;
mod cards;
mod cards_build;
mod cards_exact;
mod cards_lost;
mod cases;
mod changes;
mod cluster;
mod cluster_memory;
mod cluster_scope;
mod cluster_tiers;
mod clustered;
mod damage;
mod extremes;
mod families;
mod features;
mod files;
mod golden;
mod growing;
mod kept_plan;
mod knobs;
mod lies;
mod lone;
mod lsh;
mod mapped;
mod memory_named;
mod object_cache;
mod objects;
mod partitioned;
mod pipes;
mod plan;
mod positions;
mod progress;
mod publishing;
mod relayout;
mod resume;
mod rewriting;
mod shared;
mod spann;
mod stripes;
mod swaps;
mod tiers;
mod vamana;
mod vamana_parts;
mod versions;
mod within;
