//! Loading of the table of lists.

use super::section::SpannEntry;
use crate::error::{IndexError, Unreadable};
use crate::format::loading::load;
use crate::format::manifest::Manifest;
use crate::format::postings::{PostingLayout, Postings};
use bathyal_store::Generation;

/// Loads the table of lists and compares it with the manifest.
pub(crate) fn open_table(
    directory: &dyn Generation,
    manifest: &Manifest,
    entry: &SpannEntry,
) -> Result<Postings, IndexError> {
    let table = load(directory, manifest, &entry.lists)?;
    parse_table(&table, manifest, entry)
        .map_err(|error| error.at(directory.address().join(&entry.lists.name), "the table of lists"))
}

fn parse_table(table: &[u8], manifest: &Manifest, entry: &SpannEntry) -> Result<Postings, Unreadable> {
    let layout: PostingLayout = entry.layout.parse()?;
    let row_bytes = manifest.stored_row_bytes()?;
    let postings = match &entry.list_codes {
        Some(codes) => {
            Postings::coded_from_bytes(row_bytes, codes.code_bytes as usize, manifest.vectors, table)?
        }
        None => Postings::from_bytes(layout, row_bytes, manifest.vectors, table)?,
    };
    let expect = |quantity: &str, found: u64, recorded: u64| {
        if found == recorded {
            Ok(())
        } else {
            Err(format!("{quantity} are {found}, the manifest records {recorded}"))
        }
    };
    expect("the bytes of its lists", postings.file_bytes(), entry.file.bytes)?;
    expect("the entries of its lists", postings.copies(), entry.copies)?;
    expect("the bytes of its longest list", postings.longest() as u64, u64::from(entry.longest_bytes))?;
    Ok(postings)
}
