//! Indexes from outside: what each family and all of them keep to. One program, since each would link everything again.
//!
//! Beside it stand the tests that need a process of their own: `allocations` and `mutations` count what the allocator is asked for,
//! `callers` forks, `callers` and `numa` count the threads of their process, and `nodes` maps more memory of nodes than one process may
//! beside the families.

mod bits;
mod cards;
mod cards_build;
mod cards_exact;
mod cards_lost;
mod changes;
mod cluster;
mod cluster_damage;
mod cluster_memory;
mod cluster_scope;
mod cluster_tiers;
mod clustered;
mod damage;
mod extremes;
mod families;
mod features;
mod golden;
mod growing;
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
mod publishing;
mod relayout;
mod resume;
mod rewriting;
mod shared;
mod spann_build;
mod spann_codes;
mod stops;
mod stripes;
mod swaps;
mod tiers;
mod vamana;
mod vamana_parts;
mod versions;
mod whole;
mod within;
