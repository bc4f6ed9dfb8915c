use super::*;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

fn entry(stored: u32, members: u32, member_bytes: u32) -> ListEntry {
    ListEntry { stored, members, member_bytes }
}

fn table(entries: &[ListEntry]) -> Vec<u8> {
    entries.iter().flat_map(|entry| entry.to_bytes()).collect()
}

fn read(
    layout: PostingLayout,
    row_bytes: usize,
    vectors: u64,
    entries: &[ListEntry],
) -> Result<Postings, Unreadable> {
    Postings::from_bytes(layout, row_bytes, vectors, &table(entries))
}

#[test]
fn names_of_layouts_round_trip() {
    for layout in [PostingLayout::Coupled, PostingLayout::Decoupled, PostingLayout::Grouped] {
        assert_eq!(layout.name().parse(), Ok(layout));
    }
    assert!("resident".parse::<PostingLayout>().is_err());
}

#[test]
fn members_of_grouped_lists_follow_the_rows_by_place() {
    let entries = [entry(100, 3, 7), entry(0, 0, 0), entry(0, 2, 6), entry(50, 0, 0)];
    let postings = read(PostingLayout::Grouped, 100, 150, &entries).expect("a sound table");
    assert_eq!((postings.lists(), postings.copies(), postings.longest()), (4, 155, 10_000));
    let first: Vec<_> = (0..5).map(|list| postings.first_place(list)).collect();
    assert_eq!(first, [Some(0), Some(100), Some(100), Some(100), None]);
    let rows: Vec<_> = (0..4).map(|list| postings.rows_range(list)).collect();
    assert_eq!(rows, [0..10_000, 10_000..10_000, 10_000..10_000, 10_000..15_000]);
    // 15000 bytes of rows end within the fourth block.
    let members: Vec<_> = (0..4).map(|list| postings.members_range(list)).collect();
    assert_eq!(members, [16_384..16_391, 16_391..16_391, 16_391..16_397, 16_397..16_397]);
    assert_eq!(postings.file_bytes(), 16_397);
    assert_eq!((postings.vectors_of(0), postings.stored_of(0), postings.members_of(0)), (103, 100, 3));
    assert_eq!(postings.places_range(149, 1), 14_900..15_000);
}

#[test]
fn decoupled_lists_store_no_row() {
    let entries = [entry(0, 60, 20), entry(0, 50, 20)];
    let postings = read(PostingLayout::Decoupled, 8, 100, &entries).expect("a sound table");
    assert_eq!((postings.copies(), postings.longest(), postings.file_bytes()), (110, 20, 4096 + 40));
    assert_eq!(postings.rows_range(1), 0..0);
    assert_eq!(postings.members_range(1), 4116..4136);
    assert_eq!(postings.first_place(0), None);
}

#[test]
fn a_coupled_list_touches_no_block_more_than_it_must() {
    let row_bytes = 60;
    let length = |stored: u32| u64::from(stored) * 64;
    // 32 rows are half a block, 48 three quarters; 64 a whole one, 100 more than one.
    for stored in [vec![32, 32, 48, 32, 16, 1], vec![64, 1, 64, 63, 100, 28, 100], vec![0, 1, 0, 200, 0]] {
        let entries: Vec<ListEntry> = stored.iter().map(|stored| entry(*stored, 0, 0)).collect();
        let vectors = stored.iter().map(|stored| u64::from(*stored)).sum();
        let postings = read(PostingLayout::Coupled, row_bytes, vectors, &entries).expect("a sound table");
        let mut end = 0;
        for (list, stored) in (0..).zip(&stored) {
            let range = postings.rows_range(list);
            assert_eq!(range.end - range.start, length(*stored));
            assert_eq!(postings.members_range(list), 0..0);
            let block = BLOCK_BYTES as u64;
            let blocks = range.end.div_ceil(block) - range.start / block;
            if *stored > 0 {
                assert_eq!(blocks, length(*stored).div_ceil(block), "{range:?}");
                // Gaps occur only before a list that begins at a block.
                assert!(
                    range.start == end || (range.start.is_multiple_of(block) && range.start - end < block)
                );
                end = range.end;
            }
        }
        assert_eq!(postings.file_bytes(), end);
        assert_eq!(postings.copies(), vectors);
    }
}

#[test]
fn invalid_tables_are_refused() {
    use PostingLayout::{Coupled, Decoupled, Grouped};
    let most = u32::MAX;
    let tables: [(PostingLayout, usize, u64, &[ListEntry]); 22] = [
        // Too few vectors, or too many, or none.
        (Coupled, 4, 10, &[entry(9, 0, 0)]),
        (Coupled, 4, 10, &[entry(81, 0, 0)]),
        (Coupled, 4, 10, &[]),
        (Grouped, 4, 10, &[]),
        (Decoupled, 4, 10, &[]),
        (Coupled, 4, 0, &[entry(0, 0, 0)]),
        (Coupled, 4, u64::MAX, &[entry(1, 0, 0)]),
        (Coupled, 0, 10, &[entry(10, 0, 0)]),
        (Coupled, usize::MAX, 10, &[entry(10, 0, 0)]),
        // Rows or members that the layout does not have.
        (Coupled, 4, 10, &[entry(10, 1, 2)]),
        (Coupled, 4, 10, &[entry(10, 0, 2)]),
        (Decoupled, 4, 10, &[entry(1, 9, 9)]),
        // Grouped: each row is stored with one list.
        (Grouped, 4, 10, &[entry(5, 5, 4), entry(4, 0, 0)]),
        (Grouped, 4, 10, &[entry(6, 0, 0), entry(5, 0, 0)]),
        // Members without a section, a section without members, more members than bits.
        (Grouped, 4, 10, &[entry(10, 1, 0)]),
        (Grouped, 4, 10, &[entry(10, 0, 1)]),
        (Grouped, 4, 10, &[entry(10, 0, 6)]),
        (Decoupled, 4, 10, &[entry(0, 10, 4)]),
        (Decoupled, 4, 10, &[entry(0, 10, 6)]),
        // Numbers whose sums overflow.
        (Coupled, 1 << 20, MAX_VECTORS, &[entry(most, 0, 0); 4]),
        (Grouped, 1 << 20, MAX_VECTORS, &[entry(most, most, most); 4]),
        (Decoupled, 4, MAX_VECTORS, &[entry(0, most, most); 4]),
    ];
    for (number, (layout, row_bytes, vectors, entries)) in tables.into_iter().enumerate() {
        let found = read(layout, row_bytes, vectors, entries);
        assert!(found.is_err(), "table {number}: {found:?}");
    }
    let sound = table(&[entry(10, 0, 0)]);
    for cut in 1..sound.len() {
        assert!(Postings::from_bytes(Coupled, 4, 10, &sound[..cut]).is_err());
    }
}

#[test]
fn the_longest_accepted_lists_do_not_overflow() {
    let longest = (MOST_LIST_BYTES / 8) as u32;
    let lists = vec![entry(longest, 0, 0); 520];
    let postings = read(PostingLayout::Coupled, 4, MAX_VECTORS, &lists).expect("long lists");
    assert_eq!(postings.file_bytes(), 520 * MOST_LIST_BYTES);
    assert!(read(PostingLayout::Coupled, 4, MAX_VECTORS, &[entry(longest + 1, 0, 0)]).is_err());
    let (section, members) = (MOST_LIST_BYTES as u32, (MOST_LIST_BYTES as u32 - 5) * 8 + 1);
    let lists = vec![entry(0, members, section); 9];
    let postings = read(PostingLayout::Decoupled, 1 << 20, MAX_VECTORS, &lists).expect("long sections");
    assert_eq!(postings.copies(), 9 * u64::from(members));
    assert_eq!(postings.file_bytes(), (MAX_VECTORS << 20) + 9 * MOST_LIST_BYTES);
}

#[test]
fn members_round_trip() {
    let mut random = StdRng::seed_from_u64(5);
    for (count, limit) in [(0, 1), (1, 1), (1, u32::MAX), (7, 8), (500, 1000), (500, 100_000_000)] {
        for _ in 0..20 {
            let mut places: Vec<u32> = (0..count).map(|_| random.random_range(0..limit)).collect();
            places.sort_unstable();
            places.dedup();
            let mut bytes = vec![9; 3];
            let length = encode_members(&places, &mut bytes);
            assert_eq!((bytes.len(), places.is_empty()), (3 + length, length == 0));
            let (section, members) = (&bytes[3..], places.len() as u32);
            let mut found = vec![1, 2];
            assert_eq!(decode_members(section, members, limit, &mut found), Ok(()));
            assert_eq!(found, places);
            if let Some(last) = places.last() {
                // A place beyond the limit, a member too few or too many, a byte too few or too many.
                assert!(decode_members(section, members, *last, &mut found).is_err());
                assert!(decode_members(section, members + 100, u32::MAX, &mut found).is_err());
                assert!(decode_members(&section[..length - 1], members, limit, &mut found).is_err());
                assert!(decode_members(&[section, &[0]].concat(), members, limit, &mut found).is_err());
            }
        }
    }
    let mut found = vec![1];
    assert_eq!(decode_members(&[], 0, 10, &mut found), Ok(()));
    assert!(found.is_empty());
    assert!(decode_members(&[], 1, 10, &mut found).is_err());
    assert_eq!(decode_members(&[0, 9, 0, 0, 0], 1, 10, &mut found), Ok(()));
    assert!(decode_members(&[0, 9, 0, 0, 0], 0, 10, &mut found).is_err(), "a member that is not counted");
    assert!(decode_members(&[0, 10, 0, 0, 0], 1, 10, &mut found).is_err(), "an invalid first member");
    assert!(decode_members(&[32, 1, 0, 0, 0], 1, 10, &mut found).is_err(), "more low bits than an id has");
    assert!(decode_members(&[0, 1, 0, 0, 0, 0x80], 2, 10, &mut found).is_err(), "a bit after the last");
    // Members that are close together take as few bits anywhere in the file.
    let near: Vec<u32> = (0..200).map(|i| i * 7).collect();
    let far: Vec<u32> = near.iter().map(|place| place + 4_000_000_000).collect();
    assert_eq!(encode_members(&near, &mut Vec::new()), encode_members(&far, &mut Vec::new()));
}

#[test]
fn ids_take_as_few_bits_as_the_largest() {
    let powers = [1_u64, 2, 3, 4, 5, 64, 65, 1024, 1025, 65_536, 65_537];
    for vectors in powers {
        let ids: Vec<u32> = (0..vectors as u32).map(|place| vectors as u32 - 1 - place).collect();
        let bytes = PackedIds::encode(ids.iter().copied());
        assert_eq!(bytes.len() as u64, PackedIds::file_bytes(vectors));
        let bits = vectors.next_power_of_two().trailing_zeros().max(1);
        assert_eq!(PackedIds::file_bytes(vectors), (vectors * u64::from(bits)).div_ceil(64) * 8 + 8);
        let packed = PackedIds::from_bytes(bytes.clone(), vectors).expect("sound ids");
        assert!((0..).zip(&ids).all(|(place, id)| packed.get(place) == *id));
        assert_eq!((packed.get(u32::MAX), PackedIds::default().get(0)), (0, 0));
        for cut in [0, 1, bytes.len() - 1] {
            assert!(PackedIds::from_bytes(bytes[..cut].to_vec(), vectors).is_err());
        }
        let mut tail = bytes.clone();
        *tail.last_mut().expect("a byte") = 1;
        assert!(PackedIds::from_bytes(tail, vectors).is_err(), "a bit after the last id");
        // All ones is an invalid id, unless every pattern of the bits is an id.
        let used = vectors as usize * bits as usize;
        let mut ones = vec![0; bytes.len()];
        (0..used).for_each(|bit| ones[bit / 8] |= 1 << (bit % 8));
        let all_patterns = vectors == 1 << bits;
        assert_eq!(PackedIds::from_bytes(ones, vectors).is_ok(), all_patterns, "{vectors}");
    }
    // The largest id takes all 32 bits, and more vectors than an index can have do not overflow.
    assert_eq!(PackedIds::file_bytes(MAX_VECTORS), (MAX_VECTORS * 32).div_ceil(64) * 8 + 8);
    for vectors in [MAX_VECTORS, MAX_VECTORS + 1, u64::MAX] {
        assert!(PackedIds::from_bytes(vec![0; 64], vectors).is_err());
    }
}

#[test]
fn blocks_are_checked_by_their_number() {
    let file: Vec<u8> = (0..BLOCK_BYTES * 2 + 100).map(|i| (i * i / 61) as u8).collect();
    let identity = Identity::of("lists");
    let sums: Vec<u8> = file.chunks(BLOCK_BYTES).flat_map(|b| identity.checksum(b).to_le_bytes()).collect();
    let length = file.len() as u64;
    let found = checksums(&sums, length).expect("sound checksums");
    assert_eq!(found.len(), 3);
    for wrong_length in [0, 1, BLOCK_BYTES as u64 * 2, BLOCK_BYTES as u64 * 3 + 1, u64::MAX] {
        assert!(checksums(&sums, wrong_length).is_err(), "{wrong_length}");
    }
    assert!(checksums(&sums[..11], length).is_err());
    assert_eq!(check_blocks(identity, &found, 0, &file), Ok(()));
    assert_eq!(check_blocks(Identity::NONE, &found, 0, &file), Err(0));
    assert_eq!(check_blocks(identity, &found, 1, &file[BLOCK_BYTES..]), Ok(()));
    assert_eq!(check_blocks(identity, &found, 2, &file[2 * BLOCK_BYTES..]), Ok(()));
    // The bytes of another block, blocks beyond the last, part of a block, a flipped bit.
    assert_eq!(check_blocks(identity, &found, 0, &file[BLOCK_BYTES..]), Err(0));
    assert_eq!(check_blocks(identity, &found, 2, &file[BLOCK_BYTES..]), Err(2));
    assert_eq!(check_blocks(identity, &found, 3, &file[..1]), Err(3));
    assert_eq!(check_blocks(identity, &found, 1, &file[BLOCK_BYTES..2 * BLOCK_BYTES - 1]), Err(1));
    for bit in (0..file.len() * 8).step_by(997) {
        let mut bytes = file.clone();
        bytes[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(check_blocks(identity, &found, 0, &bytes), Err(bit / 8 / BLOCK_BYTES));
    }
}
