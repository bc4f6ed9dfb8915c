//! Random damage of files: flipped bits, cut and repeated pieces, extreme numbers.

use rand::Rng;
use rand::rngs::StdRng;

/// Integers at which computations with lengths and counts often overflow.
const EXTREMES: [u64; 14] = [
    0,
    1,
    2,
    127,
    128,
    255,
    0x7fff,
    0xffff,
    0x1_0000,
    0x7fff_ffff,
    0x8000_0000,
    0xffff_ffff,
    0x7fff_ffff_ffff_ffff,
    u64::MAX,
];

/// Most bytes of a piece that is removed, repeated or inserted.
const PIECE_BYTES: usize = 64;

/// Returns one of `seeds`, damaged one to four times.
pub fn mutated(seeds: &[Vec<u8>], rng: &mut StdRng) -> Vec<u8> {
    let mut bytes = seeds[rng.random_range(0..seeds.len())].clone();
    for _ in 0..rng.random_range(1..=4) {
        damage(&mut bytes, seeds, rng);
    }
    bytes
}

fn damage(bytes: &mut Vec<u8>, seeds: &[Vec<u8>], rng: &mut StdRng) {
    if bytes.is_empty() {
        bytes.push(rng.random());
        return;
    }
    // Readers depend most on the short headers, so half of all damage is in the first bytes.
    let reach = if rng.random() { bytes.len().min(32) } else { bytes.len() };
    let at = rng.random_range(0..reach);
    let piece = rng.random_range(1..=PIECE_BYTES).min(bytes.len() - at);
    match rng.random_range(0..9) {
        0 => bytes[at] ^= 1 << rng.random_range(0..8),
        1 => bytes[at] = rng.random(),
        2 => bytes.truncate(at),
        3 => bytes.extend((0..piece).map(|_| 0u8)),
        4 => {
            bytes.drain(at..at + piece);
        }
        5 => {
            let double = bytes[at..at + piece].to_vec();
            bytes.splice(at..at, double);
        }
        6 => {
            let other = &seeds[rng.random_range(0..seeds.len())];
            let from = rng.random_range(0..other.len());
            let end = (from + piece).min(other.len());
            let replaced = at..(at + rng.random_range(0..=piece)).min(bytes.len());
            bytes.splice(replaced, other[from..end].iter().copied());
        }
        7 => {
            // Replaces a number in text, as in manifests and .npy headers.
            let number = EXTREMES[rng.random_range(0..EXTREMES.len())].to_string();
            let digits = bytes[at..].iter().take_while(|b| b.is_ascii_digit()).count();
            bytes.splice(at..at + digits, number.into_bytes());
        }
        _ => {
            let width = [1, 2, 4, 8][rng.random_range(0..4)];
            // Most fields are aligned to their width.
            let at = if rng.random() { at - at % width } else { at };
            let value = EXTREMES[rng.random_range(0..EXTREMES.len())];
            let value = value.wrapping_add(rng.random_range(0..3)).wrapping_sub(1).to_le_bytes();
            for (byte, new) in bytes[at..].iter_mut().zip(&value[..width]) {
                *byte = *new;
            }
        }
    }
}
