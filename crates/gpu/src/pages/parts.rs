//! The links of many pages in parts that a launch has room for.

use std::ops::Range;

/// A part of the links of a hop.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// Which of all.
    pub links: Range<usize>,
    /// Whether its first page had links in the part before.
    pub continues: bool,
    /// Whether it is the last.
    pub is_last: bool,
}

/// Divides links of pages, of which each ends at one of `ends`.
#[derive(Debug)]
pub struct Parts<'a> {
    ends: &'a [u32],
    room: usize,
    page: usize,
    first: usize,
    continues: bool,
}

impl<'a> Parts<'a> {
    /// Into parts of up to `room` links and ends of pages, at least 2.
    pub fn new(ends: &'a [u32], room: usize) -> Parts<'a> {
        Parts { ends, room: room.max(2), page: 0, first: 0, continues: false }
    }

    /// The next part, of whose pages `ends` gets the ends: counted from its own first link on.
    pub fn next(&mut self, ends: &mut Vec<u32>) -> Part {
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
        Part { links: start..self.first, continues, is_last: self.page == self.ends.len() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_have_all_links_of_all_pages_in_order() {
        for ends in [&[][..], &[0], &[5], &[3, 3, 10, 11, 40], &[1, 2, 3, 4, 5, 6, 7], &[100, 100]] {
            for room in 2..50 {
                let (mut parts, mut own, mut page, mut link) = (Parts::new(ends, room), Vec::new(), 0, 0);
                for number in 0.. {
                    let part = parts.next(&mut own);
                    assert!(own.len() + part.links.len() <= room, "{ends:?}, {room}: {part:?}");
                    assert!(part.links.start == link && (number == 0 || !own.is_empty()));
                    // Each of its pages ends where it does, but for the last, which the next part may continue.
                    for (at, end) in own.iter().enumerate() {
                        link = part.links.start + *end as usize;
                        assert!(link <= ends[page] as usize);
                        page += usize::from(
                            link == ends[page] as usize && !(part_is_cut(&parts) && at + 1 == own.len()),
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
