//! Joins the pieces of a file that a query requests into few reads.

use bathyal_tier::Span;
use std::ops::Range;

/// A requested range of bytes, and its purpose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct GatherPiece<W> {
    start: u64,
    len: u32,
    pub(super) contents: W,
}

impl<W> GatherPiece<W> {
    /// Returns the offset of the piece in the bytes of its read.
    #[inline]
    pub(super) fn offset_in(&self, span: &Span) -> usize {
        (self.start - span.offset) as usize
    }

    /// Returns the bytes of the piece, from those of its read.
    #[inline]
    pub(super) fn slice<'b>(&self, span: &Span, bytes: &'b [u8]) -> &'b [u8] {
        let start = self.offset_in(span);
        bytes.get(start..start + self.len as usize).unwrap_or_default()
    }
}

/// The rules for joining pieces.
#[derive(Debug, Clone, Copy)]
pub(super) struct JoinRules {
    /// Reads begin and end at multiples of this, in bytes. Pieces that share a unit share a read.
    pub(super) unit: u64,
    /// The length of the file in bytes, at which the last read ends.
    pub(super) end: u64,
    /// The longest read to which pieces are joined.
    pub(super) most: u64,
    /// The most bytes between two pieces of one read, which are read without need.
    pub(super) gap: u64,
}

/// The pieces of a round of reads, and the reads.
#[derive(Debug, Clone)]
pub(super) struct Gather<W> {
    pieces: Vec<GatherPiece<W>>,
    spans: Vec<Span>,
    /// The first piece of each read.
    firsts: Vec<u32>,
}

impl<W: Copy> Gather<W> {
    pub(super) fn new() -> Gather<W> {
        Gather { pieces: Vec::new(), spans: Vec::new(), firsts: Vec::new() }
    }

    /// Removes all pieces and reads.
    pub(super) fn clear(&mut self) {
        self.pieces.clear();
        self.spans.clear();
        self.firsts.clear();
    }

    /// Requests a range, unless it is empty.
    pub(super) fn request(&mut self, range: Range<u64>, contents: W) {
        if range.end > range.start {
            let len = (range.end - range.start) as u32;
            self.pieces.push(GatherPiece { start: range.start, len, contents });
        }
    }

    /// Sorts the pieces in the order of the file, and joins those that are adjacent or nearly so.
    pub(super) fn join(&mut self, rules: JoinRules) {
        let JoinRules { unit, end, most, gap } = rules;
        self.pieces.sort_unstable_by_key(|piece| (piece.start, piece.len));
        self.spans.clear();
        self.firsts.clear();
        for (at, piece) in self.pieces.iter().enumerate() {
            let start = piece.start / unit * unit;
            let stop = (piece.start + u64::from(piece.len)).next_multiple_of(unit).min(end);
            let joined = match self.spans.last_mut() {
                Some(last) if start <= last.offset + u64::from(last.len) + gap => {
                    let stop = stop.max(last.offset + u64::from(last.len));
                    let fits = stop - last.offset <= most;
                    if fits {
                        last.len = (stop - last.offset) as u32;
                    }
                    fits
                }
                _ => false,
            };
            if !joined {
                self.spans.push(Span { offset: start, len: (stop - start) as u32 });
                self.firsts.push(at as u32);
            }
        }
    }

    /// Returns the reads of the round, in ascending order.
    pub(super) fn spans(&self) -> &[Span] {
        &self.spans
    }

    /// Returns the pieces of a read.
    pub(super) fn pieces_of(&self, read: usize) -> Range<usize> {
        let end = self.firsts.get(read + 1).map_or(self.pieces.len(), |first| *first as usize);
        self.firsts[read] as usize..end
    }

    /// Returns a piece, by its position in the order of the file.
    #[inline]
    pub(super) fn piece(&self, at: usize) -> GatherPiece<W> {
        self.pieces[at]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{Rng, SeedableRng};

    #[test]
    fn every_piece_is_in_its_read_and_reads_are_units() {
        let mut random = rand::rngs::StdRng::seed_from_u64(3);
        for unit in [1_u64, 64, 4096] {
            for most in [4096, 8192, 1 << 20] {
                let end = 100_000_u64;
                let mut gather = Gather::new();
                let mut requested = Vec::new();
                for contents in 0..200_u32 {
                    let start = random.random_range(0..end - 2000);
                    let stop = start + random.random_range(0..2000);
                    gather.request(start..stop, contents);
                    requested.push((start, stop));
                }
                let longest = (2000 / unit + 2) * unit;
                gather.join(JoinRules { unit, end, most: most.max(longest), gap: most / 16 });
                let file: Vec<u8> = (0..end).map(|i| (i % 251) as u8).collect();
                let mut seen = 0;
                for (read, span) in gather.spans().iter().enumerate() {
                    let stop = span.offset + u64::from(span.len);
                    assert!(span.offset.is_multiple_of(unit) && (stop.is_multiple_of(unit) || stop == end));
                    assert!(u64::from(span.len) <= most.max(longest));
                    let bytes = &file[span.offset as usize..stop as usize];
                    for piece in gather.pieces_of(read).map(|at| gather.piece(at)) {
                        let (start, stop) = requested[piece.contents as usize];
                        assert_eq!(piece.slice(span, bytes), &file[start as usize..stop as usize]);
                        seen += 1;
                    }
                }
                assert_eq!(seen, requested.iter().filter(|(start, stop)| stop > start).count());
            }
        }
    }

    #[test]
    fn neighbours_share_a_read() {
        let mut gather = Gather::new();
        gather.request(128..256, 'b');
        gather.request(0..128, 'a');
        gather.request(300..310, 'c');
        gather.request(5..5, 'd');
        gather.join(JoinRules { unit: 1, end: 1000, most: 1000, gap: 44 });
        assert_eq!(gather.spans(), [Span { offset: 0, len: 310 }]);
        gather.join(JoinRules { unit: 1, end: 1000, most: 300, gap: 44 });
        assert_eq!(gather.spans(), [Span { offset: 0, len: 256 }, Span { offset: 300, len: 10 }]);
        gather.join(JoinRules { unit: 1, end: 1000, most: 1000, gap: 43 });
        assert_eq!(gather.spans(), [Span { offset: 0, len: 256 }, Span { offset: 300, len: 10 }]);
        assert_eq!(gather.pieces_of(0).map(|at| gather.piece(at).contents).collect::<Vec<_>>(), ['a', 'b']);
        gather.clear();
        assert!(gather.spans().is_empty());
    }
}
