//! Efforts that are named in part.

/// Groups that are scanned for a candidate list when neither probes nor a recall were named: enough that the list,
/// not the probes, limits the recall.
pub(crate) fn probes_for(search_list: u32, groups: u32) -> u32 {
    search_list.saturating_mul(16).clamp(64, groups.max(64))
}
