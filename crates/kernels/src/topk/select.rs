//! The nearest of many, in no order: what candidates are cut down to again and again while codes are scanned.

use super::Neighbor;
#[cfg(target_arch = "x86_64")]
use super::select_avx512;
#[cfg(target_arch = "x86_64")]
use crate::distance::Isa;

/// So few are left to the standard library.
#[cfg(target_arch = "x86_64")]
const LEAST: usize = 96;
/// Of so many of them, evenly spread, two are chosen between which the last of the wanted ones lies as a rule: of few, of many.
#[cfg(target_arch = "x86_64")]
const SAMPLES: [usize; 2] = [32, 128];
/// From here on they are many.
#[cfg(target_arch = "x86_64")]
const MANY: usize = 2048;
/// How far these two are from where it should lie, in sampled ones.
#[cfg(target_arch = "x86_64")]
const MARGIN: usize = 3;

/// Keeps the `wanted` nearest of `found`, in no order that could be relied on. Returns the distance of the farthest of them;
/// infinity where fewer were found.
///
/// # Panics
/// If none is wanted.
pub fn keep_nearest(found: &mut Vec<Neighbor>, wanted: usize) -> f32 {
    assert!(wanted > 0, "none is wanted");
    if found.len() < wanted {
        return f32::INFINITY;
    }
    #[cfg(target_arch = "x86_64")]
    if found.len() >= LEAST && wanted < found.len() && matches!(Isa::best(), Isa::Avx512 | Isa::Avx512Vnni) {
        let (low, high) = bracket(found, wanted);
        // SAFETY: the CPU has the instructions.
        if let Some(worst) = unsafe { select_avx512::keep_nearest(found, wanted, low, high) } {
            return worst;
        }
    }
    let (_, worst, _) = found.select_nth_unstable(wanted - 1);
    let worst = worst.distance;
    found.truncate(wanted);
    worst
}

/// Two keys, the first below the second, between which that of the last wanted one should lie: by a sample.
#[cfg(target_arch = "x86_64")]
fn bracket(found: &[Neighbor], wanted: usize) -> (u64, u64) {
    let mut sample = [0; SAMPLES[1]];
    let sample = &mut sample[..SAMPLES[usize::from(found.len() >= MANY)]];
    let of = sample.len();
    sample.iter_mut().enumerate().for_each(|(i, key)| *key = found[i * found.len() / of].key());
    sample.sort_unstable();
    let at = wanted * of / found.len();
    let low = at.checked_sub(MARGIN).map_or(0, |at| sample[at]);
    let high = sample.get(at + MARGIN).copied().unwrap_or(u64::MAX);
    (low, high)
}
