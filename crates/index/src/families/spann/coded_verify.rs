//! The verification of all bytes of lists of codes.

use super::verify::{ListWalk, ROWS_AT_ONCE};
use crate::error::IndexError;
use crate::format::postings::BLOCK_BYTES;
use crate::format::walk::Marks;

impl ListWalk<'_> {
    /// Checks that rows have distinct ids, and that lists of codes have valid places, each once in a list.
    pub(crate) fn check_coded_lists(&mut self) -> Result<(), IndexError> {
        let end = self.check_rows_with_ids()?;
        let (mut bytes, mut places) = (Vec::new(), Vec::new());
        let mut end = end;
        for list in 0..self.postings.lists() as u32 {
            let range = self.postings.rows_range(list);
            self.check_zeros(end..range.start)?;
            end = range.end;
            self.read(range, &mut bytes)?;
            let codes = bytes.len() - 4 * self.postings.stored_of(list) as usize;
            places.clear();
            places.extend(bytes[codes..].as_chunks::<4>().0.iter().map(|place| u32::from_le_bytes(*place)));
            if !places.is_sorted_by(|a, b| a < b) {
                self.report.fault(format!("list {list}: its places are not in ascending order"));
            }
            for place in &places {
                if u64::from(*place) >= self.vectors {
                    self.report.fault(format!(
                        "list {list}: place {place} does not exist among {} places",
                        self.vectors
                    ));
                } else {
                    self.seen.mark(*place);
                }
            }
        }
        Ok(())
    }

    /// Checks the rows and their ids. Returns the offset of the lists.
    fn check_rows_with_ids(&mut self) -> Result<u64, IndexError> {
        let (mut bytes, mut ids) = (Vec::new(), Marks::new(self.vectors)?);
        for first in (0..self.vectors as u32).step_by(ROWS_AT_ONCE as usize) {
            let count = ROWS_AT_ONCE.min((self.vectors - u64::from(first)) as u32);
            self.read(self.postings.places_range(first, count), &mut bytes)?;
            for (place, row) in (first..).zip(bytes.chunks_exact(self.postings.place_bytes())) {
                let (row, id) = row.split_at(self.row_bytes);
                self.check_rows(&format!("place {place}"), row);
                let id = id.first_chunk().map_or(u32::MAX, |id| u32::from_le_bytes(*id));
                if u64::from(id) >= self.vectors {
                    self.report.fault(format!(
                        "place {place}: vector {id} does not exist among {} vectors",
                        self.vectors
                    ));
                } else if !ids.mark(id) {
                    self.report.fault(format!("place {place}: vector {id} is stored twice"));
                }
            }
        }
        let end = self.postings.places_range(self.vectors as u32, 0).end;
        let lists = end.next_multiple_of(BLOCK_BYTES as u64);
        self.check_zeros(end..lists)?;
        Ok(lists)
    }
}
