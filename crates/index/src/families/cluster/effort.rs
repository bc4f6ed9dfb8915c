//! The effort of a search that gives only a candidate list.

/// Returns the number of groups to scan for a candidate list, if the caller gives neither probes nor a
/// recall. It is large enough that the list, not the probes, limits the recall.
pub(crate) fn probes_for(search_list: u32, groups: u32) -> u32 {
    search_list.saturating_mul(16).clamp(64, groups.max(64))
}
