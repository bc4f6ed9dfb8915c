//! Files of range search results: any number of neighbours for each query.

use std::path::Path;

use super::error::VectorError;
use super::writer::AtomicFile;

/// Writes the results of a range search to `path` (`.rbin`), whole or not at all.
///
/// The layout is that of big-ann-benchmarks: u32 queries, u32 neighbours of all queries together, then a u32
/// count for each query, all u32 ids, all f32 distances. The neighbours of query `q` are
/// `ids[offsets[q]..offsets[q + 1]]`.
///
/// # Errors
/// [`VectorError::UnknownExtension`]; [`VectorError::Argument`] if `offsets`, `ids` and `distances` do not
/// match, or if a count does not fit 32 bits; [`VectorError::Io`].
pub fn write_ranges(
    path: impl AsRef<Path>,
    offsets: &[usize],
    ids: &[u32],
    distances: &[f32],
) -> Result<(), VectorError> {
    let path = path.as_ref();
    check_range_path(path)?;
    let consistent = offsets.first() == Some(&0)
        && offsets.is_sorted()
        && offsets.last() == Some(&ids.len())
        && ids.len() == distances.len();
    let (Ok(queries), Ok(total)) = (u32::try_from(offsets.len().wrapping_sub(1)), u32::try_from(ids.len()))
    else {
        let reason = format!("got {} neighbours in total, more than a 32-bit count can hold", ids.len());
        return Err(VectorError::Argument { path: path.to_path_buf(), reason });
    };
    if !consistent {
        let reason = format!(
            "{} ids and {} distances do not match each other or the offsets",
            ids.len(),
            distances.len()
        );
        return Err(VectorError::Argument { path: path.to_path_buf(), reason });
    }
    let mut output = AtomicFile::create(path)?;
    output.append(&[queries.to_le_bytes(), total.to_le_bytes()].concat())?;
    offsets.windows(2).try_for_each(|w| output.append(&((w[1] - w[0]) as u32).to_le_bytes()))?;
    ids.iter().try_for_each(|id| output.append(&id.to_le_bytes()))?;
    distances.iter().try_for_each(|distance| output.append(&distance.to_le_bytes()))?;
    output.finish(&[])?;
    Ok(())
}

/// Checks that the extension of `path` is the one that [`write_ranges`] writes.
///
/// # Errors
/// [`VectorError::UnknownExtension`] if it is not `.rbin`.
pub fn check_range_path(path: &Path) -> Result<(), VectorError> {
    let found = path.extension().map(|e| e.to_string_lossy().to_ascii_lowercase()).unwrap_or_default();
    if found == "rbin" {
        return Ok(());
    }
    Err(VectorError::UnknownExtension {
        path: path.to_path_buf(),
        found,
        expected: ".rbin",
        advice: "a range search finds a different number of neighbours for each query",
    })
}
