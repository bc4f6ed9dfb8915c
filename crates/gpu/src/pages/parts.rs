//! Splits the links of many pages into parts that fit a request.

use std::ops::Range;

/// A part of the links of a hop.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinkPart {
    /// Range of the part in all links.
    pub links: Range<usize>,
    /// True if its first page had links in the previous part.
    pub continues: bool,
    /// True for the last part.
    pub is_last: bool,
}

/// Iterator over the parts of the links of pages, whose ends are `ends`.
#[derive(Debug)]
pub struct Parts<'a> {
    ends: &'a [u32],
    room: usize,
    page: usize,
    first: usize,
    continues: bool,
}

impl<'a> Parts<'a> {
    /// Creates the iterator with parts of up to `room` links and ends of pages, at least 2.
    pub fn new(ends: &'a [u32], room: usize) -> Parts<'a> {
        Parts { ends, room: room.max(2), page: 0, first: 0, continues: false }
    }

    /// Returns the next part. Writes the ends of its pages to `ends`, relative to its first link.
    pub fn next(&mut self, ends: &mut Vec<u32>) -> LinkPart {
        ends.clear();
        let (start, continues) = (self.first, std::mem::take(&mut self.continues));
        while let Some(end) = self.ends.get(self.page).map(|end| *end as usize) {
            let Some(room) = self.room.checked_sub(ends.len() + 1) else { break };
            if end <= start + room {
                (self.first, self.page) = (end, self.page + 1);
                ends.push((end - start) as u32);
                continue;
            }
            if start + room > self.first {
                (self.first, self.continues) = (start + room, true);
                ends.push(room as u32);
            }
            break;
        }
        LinkPart { links: start..self.first, continues, is_last: self.page == self.ends.len() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_cover_all_links_of_all_pages_in_order() {
        for ends in [&[][..], &[0], &[5], &[3, 3, 10, 11, 40], &[1, 2, 3, 4, 5, 6, 7], &[100, 100]] {
            for room in 2..50 {
                let (mut parts, mut part_ends, mut page, mut link) =
                    (Parts::new(ends, room), Vec::new(), 0, 0);
                for number in 0.. {
                    let part = parts.next(&mut part_ends);
                    assert!(part_ends.len() + part.links.len() <= room, "{ends:?}, {room}: {part:?}");
                    assert!(part.links.start == link && (number == 0 || !part_ends.is_empty()));
                    // Each page of the part ends where it does in all links, except for a last page that the
                    // next part continues.
                    for (at, end) in part_ends.iter().enumerate() {
                        link = part.links.start + *end as usize;
                        assert!(link <= ends[page] as usize);
                        page += usize::from(
                            link == ends[page] as usize
                                && !(part_is_cut(&parts) && at + 1 == part_ends.len()),
                        );
                    }
                    assert_eq!(link, part.links.end);
                    if part.is_last {
                        break;
                    }
                }
                assert_eq!((page, link), (ends.len(), ends.last().map_or(0, |end| *end as usize)));
            }
        }
    }

    fn part_is_cut(parts: &Parts<'_>) -> bool {
        parts.continues
    }
}
