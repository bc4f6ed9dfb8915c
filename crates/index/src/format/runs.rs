//! The addresses of a grouped list: rows that are stored with other lists, list by list (second-tier-memory,
//! section 6).
//!
//! The lists that one query reads own most of each other's vectors. An address names the owning list, so a
//! search skips whole lists whose rows it reads anyway. The remaining cost is one check per list, not one per
//! vector.
//!
//! A section: a byte with the number of low bits of a coded gap, the first list (4 bytes), then bits, which
//! fill bytes from the lowest bit up. For each list: its distance to the previous list, less one (a Rice code
//! as in [`super::links`]; absent for the first list), the number of its rows that are members, less one, and
//! the ranks of these rows. The number and the ranks have as many bits as the largest rank in the list takes.
//! If one bit per row of the list takes fewer bits than the ranks do, such marks are stored instead of ranks.

use super::links::{self, MOST_LOW_BITS, WINDOW_BITS, window};

/// Bytes of a section before its bits.
#[cfg(test)]
const HEAD_BYTES: usize = 5;

/// Rows of one list whose addresses are in another list.
#[derive(Debug, Clone, Copy)]
pub struct Run<'a> {
    /// The list that stores them.
    pub list: u32,
    /// Number of the rows, at least 1.
    pub count: u32,
    /// Number of all rows of the list that stores them.
    pub stored: u32,
    /// The first place of that list.
    pub first: u32,
    bits: &'a [u8],
    /// The first bit of the ranks or marks.
    at: usize,
}

/// The code of ranks in a list of `stored` rows.
#[derive(Clone, Copy)]
struct Ranks {
    /// Bits of a rank.
    width: u32,
    /// True if the code is one bit per row instead of ranks.
    marks: bool,
}

impl Ranks {
    #[inline]
    fn new(stored: u32, count: u32) -> Ranks {
        let width = rank_bits(stored);
        Ranks { width, marks: u64::from(stored) < u64::from(count) * u64::from(width) }
    }

    #[inline]
    fn bits(self, stored: u32, count: u32) -> usize {
        if self.marks { stored as usize } else { count as usize * self.width as usize }
    }
}

/// Returns the bits of the largest rank among `stored` rows.
#[inline]
fn rank_bits(stored: u32) -> u32 {
    u32::BITS - stored.saturating_sub(1).leading_zeros()
}

/// A fault of a section.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SectionFault {
    /// A number of members that contradicts the number of bytes, which include the head.
    Head(u32, usize),
    /// A number of low bits that is larger than an id has.
    LowBits(u32),
    /// A list beyond the last.
    List(u64),
    /// A list with more members than it has rows, or than are left.
    Count(u32, u32),
    /// A list and a rank beyond its rows.
    Rank(u32, u64),
    /// A list, the number of its marks, and the number that was expected.
    Marks(u32, u32, u32),
    /// The bits end too early.
    Short,
    /// There are more bits than this number, which the members take.
    Rest(usize),
}

impl std::fmt::Display for SectionFault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            SectionFault::Head(members, bytes) => write!(f, "{members} members in {bytes} bytes"),
            SectionFault::LowBits(low) => write!(f, "its gaps have {low} low bits"),
            SectionFault::List(list) => {
                write!(f, "a member is stored with list {list}, which is beyond the last")
            }
            SectionFault::Count(list, count) => {
                write!(f, "{count} members are stored with list {list}, more than possible")
            }
            SectionFault::Rank(list, rank) => {
                write!(f, "a member is row {rank} of list {list}, which has fewer")
            }
            SectionFault::Marks(list, found, count) => {
                write!(f, "{found} rows of list {list} are members, not {count}")
            }
            SectionFault::Short => f.write_str("its members end too early"),
            SectionFault::Rest(bits) => write!(f, "its members end after {bits} bits, and something follows"),
        }
    }
}

/// Calls `take` with each run of a `section` with `members` addresses. List `i` has the places from
/// `firsts[i]` to `firsts[i + 1]`.
///
/// # Errors
/// The fault of the section, or the fault that `take` returns.
#[inline]
pub fn each_run<'a>(
    section: &'a [u8],
    members: u32,
    firsts: &[u32],
    mut take: impl FnMut(Run<'a>) -> Result<(), SectionFault>,
) -> Result<(), SectionFault> {
    let (low, mut list, bits) = match *section {
        [] if members == 0 => return Ok(()),
        [low, a, b, c, d, ref bits @ ..] if members > 0 => {
            (u32::from(low), u64::from(u32::from_le_bytes([a, b, c, d])), bits)
        }
        _ => return Err(SectionFault::Head(members, section.len())),
    };
    if low > MOST_LOW_BITS {
        return Err(SectionFault::LowBits(low));
    }
    let (mut at, mut left) = (0, members);
    loop {
        let Some([first, end]) = firsts.get(list as usize..).and_then(|rest| rest.first_chunk::<2>()) else {
            return Err(SectionFault::List(list));
        };
        let (first, stored) = (*first, end.saturating_sub(*first));
        let width = rank_bits(stored);
        let count = (window(bits, at) & ((1 << width) - 1)) as u32 + 1;
        at += width as usize;
        let run = Run { list: list as u32, count, stored, first, bits, at };
        if count > stored.min(left) {
            return Err(SectionFault::Count(run.list, count));
        }
        at += Ranks::new(stored, count).bits(stored, count);
        if at > bits.len() * 8 {
            return Err(SectionFault::Short);
        }
        take(run)?;
        left -= count;
        if left == 0 {
            break;
        }
        let (gap, taken) = links::gap(bits, at, low);
        (list, at) = (list + 1 + gap, at + taken);
    }
    if at.div_ceil(8) != bits.len() || !links::zero_from(bits, at) {
        return Err(SectionFault::Rest(at));
    }
    Ok(())
}

impl Run<'_> {
    /// Sets the bits of the run's rows in `marks`, which has one bit per row of the list, 64 per word.
    ///
    /// # Errors
    /// A fault if a rank is beyond the list, or if the number of marks is wrong.
    #[inline]
    pub fn mark(&self, marks: &mut [u64]) -> Result<(), SectionFault> {
        let ranks = Ranks::new(self.stored, self.count);
        if ranks.marks {
            return self.mark_all(marks);
        }
        let mask = (1 << ranks.width) - 1;
        // All ranks in a window are taken at once.
        let at_once = WINDOW_BITS / ranks.width.max(1);
        let (mut at, mut left) = (self.at, self.count);
        while left > 0 {
            let mut ahead = window(self.bits, at);
            let now = left.min(at_once);
            for _ in 0..now {
                let rank = ahead & mask;
                ahead >>= ranks.width;
                match marks.get_mut(rank as usize / 64) {
                    Some(word) if rank < u64::from(self.stored) => *word |= 1 << (rank % 64),
                    _ => return Err(SectionFault::Rank(self.list, rank)),
                }
            }
            left -= now;
            at += (now * ranks.width) as usize;
        }
        Ok(())
    }

    fn mark_all(&self, marks: &mut [u64]) -> Result<(), SectionFault> {
        let mut found = 0;
        for (number, word) in marks.iter_mut().enumerate() {
            // A window has fewer bits than a word.
            for part in [0, 32] {
                let from = number * 64 + part;
                let bits = (self.stored as usize).saturating_sub(from).min(32);
                let marked = window(self.bits, self.at + from) & ((1 << bits) - 1);
                *word |= marked << part;
                found += marked.count_ones();
            }
        }
        if found == self.count { Ok(()) } else { Err(SectionFault::Marks(self.list, found, self.count)) }
    }
}

/// Reads the places of a section with `members` addresses into `places`, which is emptied before.
///
/// # Errors
/// A sentence that states what is wrong with the section; a row that is named twice is a fault, too.
pub fn decode_section(
    section: &[u8],
    members: u32,
    firsts: &[u32],
    places: &mut Vec<u32>,
) -> Result<(), String> {
    places.clear();
    let mut marks = Vec::new();
    let outcome = each_run(section, members, firsts, |run| {
        marks.clear();
        marks.resize(run.stored.div_ceil(64) as usize, 0);
        run.mark(&mut marks)?;
        let before = places.len();
        let marked = (0..run.stored).filter(|rank| marks[*rank as usize / 64] >> (rank % 64) & 1 == 1);
        places.extend(marked.map(|rank| run.first + rank));
        let found = (places.len() - before) as u32;
        if found == run.count { Ok(()) } else { Err(SectionFault::Marks(run.list, found, run.count)) }
    });
    outcome.map_err(|fault| fault.to_string())
}

/// Writes bits, from the lowest bit of each byte up.
struct BitWriter<'a> {
    out: &'a mut Vec<u8>,
    /// Number of used bits of the last byte; 8 if there is none.
    used: u32,
}

impl BitWriter<'_> {
    fn push(&mut self, value: u64, bits: u32) {
        for bit in 0..bits {
            if self.used == 8 {
                self.out.push(0);
                self.used = 0;
            }
            if let Some(last) = self.out.last_mut() {
                *last |= ((value >> bit & 1) as u8) << self.used;
            }
            self.used += 1;
        }
    }
}

/// Returns the lists that own `places` (ascending), each with its places.
fn owners<'a>(places: &'a [u32], firsts: &'a [u32]) -> impl Iterator<Item = (usize, &'a [u32])> {
    let mut rest = places;
    std::iter::from_fn(move || {
        let place = *rest.first()?;
        // Lists without rows share the first place of the next list: the last of them owns the row.
        let list = firsts.partition_point(|first| *first <= place).checked_sub(1)?;
        let end = firsts.get(list + 1).copied().unwrap_or(u32::MAX);
        let (run, after) = rest.split_at(rest.partition_point(|place| *place < end));
        rest = after;
        Some((list, run))
    })
}

/// Appends the section for `places` (ascending) and returns its length. List `i` has the places from
/// `firsts[i]` to `firsts[i + 1]`.
pub fn encode_section(places: &[u32], firsts: &[u32], out: &mut Vec<u8>) -> usize {
    let before = out.len();
    let Some((first_list, _)) = owners(places, firsts).next() else { return 0 };
    let gaps: Vec<u32> =
        owners(places, firsts).skip(1).map(|(list, _)| (list - first_list - 1) as u32).collect();
    let low = links::encoded_bits(&gaps).1;
    out.push(low as u8);
    out.extend((first_list as u32).to_le_bytes());
    let mut bits = BitWriter { out, used: 8 };
    let mut next = first_list;
    for (list, run) in owners(places, firsts) {
        if list > first_list {
            let gap = (list - next) as u64;
            for _ in 0..gap >> low {
                bits.push(1, 1);
            }
            bits.push(0, 1);
            bits.push(gap & ((1 << low) - 1), low);
        }
        next = list + 1;
        let (first, count) = (firsts[list], run.len() as u32);
        let stored = firsts[next] - first;
        let ranks = Ranks::new(stored, count);
        bits.push(u64::from(count - 1), ranks.width);
        if ranks.marks {
            let mut members = run.iter().peekable();
            for place in first..first + stored {
                bits.push(u64::from(members.next_if(|member| **member == place).is_some()), 1);
            }
        } else {
            run.iter().for_each(|place| bits.push(u64::from(place - first), ranks.width));
        }
    }
    out.len() - before
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::rngs::StdRng;
    use rand::{Rng, SeedableRng};

    /// Returns the first places of lists, some of which own no rows.
    fn lists(random: &mut StdRng, count: usize, most: u32) -> Vec<u32> {
        let mut next = 0;
        let mut firsts = vec![0];
        for _ in 0..count {
            next += random.random_range(0..=most).saturating_sub(most / 4);
            firsts.push(next);
        }
        firsts
    }

    fn decoded(section: &[u8], members: u32, firsts: &[u32]) -> Result<Vec<u32>, String> {
        let mut places = Vec::new();
        decode_section(section, members, firsts, &mut places).map(|()| places)
    }

    #[test]
    fn sections_of_all_kinds_round_trip() {
        let mut random = StdRng::seed_from_u64(7);
        for (count, most) in [(1, 1), (1, 200), (40, 4), (300, 70), (3000, 300), (5, 5000)] {
            for share in [0.001, 0.05, 0.3, 1.0] {
                let firsts = lists(&mut random, count, most);
                let end = firsts[count];
                let places: Vec<u32> = (0..end).filter(|_| random.random_bool(share)).collect();
                let mut section = Vec::new();
                let bytes = encode_section(&places, &firsts, &mut section);
                assert_eq!(bytes, section.len());
                let members = places.len() as u32;
                let one_more = decoded(&section, members + 1, &firsts);
                assert!(one_more.is_err() || one_more.is_ok_and(|found| found.len() > places.len()));
                assert_eq!(decoded(&section, members, &firsts), Ok(places));
                if members > 0 {
                    assert!(decoded(&section, 0, &firsts).is_err());
                    assert!(decoded(&section[..section.len() - 1], members, &firsts).is_err());
                    section.push(0);
                    assert!(decoded(&section, members, &firsts).is_err());
                }
            }
        }
    }

    #[test]
    fn marks_replace_ranks_if_they_are_shorter() {
        let firsts = [0, 100];
        let few: Vec<u32> = (0..14).map(|rank| rank * 7).collect();
        let many: Vec<u32> = (0..15).map(|rank| rank * 6).collect();
        // A number of 7 bits, then 14 ranks of 7 bits, or 100 marks.
        assert_eq!(
            encode_section(&few, &firsts, &mut Vec::new()),
            HEAD_BYTES + (7 + 14 * 7_usize).div_ceil(8)
        );
        assert_eq!(encode_section(&many, &firsts, &mut Vec::new()), HEAD_BYTES + (7 + 100_usize).div_ceil(8));
    }

    #[test]
    fn invalid_sections_are_refused() {
        let firsts = [0, 0, 3, 3, 6];
        let mut section = Vec::new();
        encode_section(&[1, 4], &firsts, &mut section);
        assert_eq!(decoded(&section, 2, &firsts), Ok(vec![1, 4]));
        assert!(decoded(&[], 2, &firsts).is_err());
        assert!(decoded(&[0, 0, 0], 2, &firsts).is_err());
        assert!(decoded(&section, 2, &[]).is_err());
        // A list without rows, a list beyond the last, too many low bits, a rank beyond the list.
        assert!(decoded(&[0, 0, 0, 0, 0, 0], 1, &firsts).is_err());
        assert!(decoded(&[0, 4, 0, 0, 0, 0], 1, &firsts).is_err());
        assert!(decoded(&[0, 255, 255, 255, 255, 0], 1, &firsts).is_err());
        assert!(decoded(&[32, 1, 0, 0, 0, 0], 1, &firsts).is_err());
        assert_eq!(decoded(&[0, 1, 0, 0, 0, 0b1000], 1, &firsts), Ok(vec![2]));
        assert!(decoded(&[0, 1, 0, 0, 0, 0b1100], 1, &firsts).is_err());
    }

    #[test]
    fn arbitrary_bytes_never_panic() {
        let mut random = StdRng::seed_from_u64(2);
        for _ in 0..20_000 {
            let count = random.random_range(0..50);
            let firsts = lists(&mut random, count, 90);
            let bytes: Vec<u8> = (0..random.random_range(0..60))
                .map(|_| random.random::<u8>() & random.random::<u8>())
                .collect();
            let _ = decoded(&bytes, random.random_range(0..60), &firsts);
        }
    }
}
