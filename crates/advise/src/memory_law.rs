//! The sizes of the whole index: its files by the plan of the build, and the parts of its memory, each of
//! which is in proportion to a file, to the number of vectors, or to nothing.

use crate::interval::Interval;
use crate::pilot::PilotFile;
use bathyal_index::{BuildPlan, PlannedFile};

/// The uncertainty of a file's place between the bounds of its plan, as a share of their distance, besides
/// the difference between pilots.
const PLACE_ERROR: f64 = 0.02;

/// The files of a pilot, with the plan of its build.
pub(crate) struct PilotFiles<'a> {
    pub(crate) files: &'a [PilotFile],
    pub(crate) plan: &'a BuildPlan,
}

/// A part of the memory of the pilots, smallest pilot first.
pub(crate) struct PilotPart {
    pub(crate) bytes: Vec<f64>,
}

/// A quantity to which a part of memory may be in proportion: of the pilots, and of the whole index.
struct Basis {
    pilots: Vec<f64>,
    whole: Interval,
}

/// The predicted files of an index.
#[derive(Debug)]
pub(crate) struct PredictedFiles {
    files: Vec<(String, Interval)>,
}

impl PredictedFiles {
    /// Predicts the files of `plan`. The bytes of a file that depends on the vectors lie at the same place
    /// between its bounds as those of the pilots.
    pub(crate) fn new(plan: &BuildPlan, pilots: &[PilotFiles<'_>]) -> PredictedFiles {
        let files = plan.files.iter().map(|file| (file.name.to_owned(), predicted(file, pilots)));
        PredictedFiles { files: files.collect() }
    }

    /// Returns the bytes of all files.
    pub(crate) fn total(&self) -> Interval {
        self.files.iter().fold(Interval::exactly(0.0), |sum, (_, bytes)| sum.plus(bytes))
    }

    /// Returns the bytes of a part of the memory of an index of `vectors` vectors, by the quantity of which
    /// the part is the same share in all pilots.
    pub(crate) fn part(
        &self,
        part: &PilotPart,
        sizes: &[f64],
        pilots: &[PilotFiles<'_>],
        vectors: f64,
    ) -> Interval {
        let of_file = |name: &str, pilot: &PilotFiles<'_>| {
            pilot.files.iter().find(|file| file.name == name).map_or(0.0, |file| file.bytes as f64)
        };
        let mut bases = vec![
            Basis { pilots: vec![1.0; sizes.len()], whole: Interval::exactly(1.0) },
            Basis { pilots: sizes.to_vec(), whole: Interval::exactly(vectors) },
        ];
        bases.extend(self.files.iter().map(|(name, whole)| Basis {
            pilots: pilots.iter().map(|pilot| of_file(name, pilot)).collect(),
            whole: *whole,
        }));
        let candidates = bases.iter().filter_map(|basis| Some((shares(part, basis)?, basis)));
        let best = candidates.min_by(|(a, _), (b, _)| a.spread().total_cmp(&b.spread()));
        best.map_or(Interval::exactly(0.0), |(shares, basis)| {
            let at = |share: f64, bytes: f64| share * bytes;
            Interval {
                value: at(shares.last, basis.whole.value),
                low: at(shares.least, basis.whole.low),
                high: at(shares.most, basis.whole.high),
            }
        })
    }
}

/// The shares of a part in a basis.
struct Shares {
    least: f64,
    most: f64,
    last: f64,
}

impl Shares {
    fn spread(&self) -> f64 {
        (self.most - self.least) / self.most
    }
}

/// Returns the shares of the pilots' part in a basis; `None` where either is 0.
fn shares(part: &PilotPart, basis: &Basis) -> Option<Shares> {
    let shares: Vec<f64> = part.bytes.iter().zip(&basis.pilots).map(|(bytes, of)| bytes / of).collect();
    let usable = !shares.is_empty() && shares.iter().all(|share| share.is_finite() && *share > 0.0);
    usable.then(|| Shares {
        least: shares.iter().copied().fold(f64::INFINITY, f64::min),
        most: shares.iter().copied().fold(0.0, f64::max),
        last: shares.last().copied().unwrap_or(0.0),
    })
}

/// Returns the bytes of a planned file.
fn predicted(file: &PlannedFile, pilots: &[PilotFiles<'_>]) -> Interval {
    let (least, most) = (file.least_bytes as f64, file.most_bytes as f64);
    if file.least_bytes == file.most_bytes {
        return Interval::exactly(least);
    }
    let places: Vec<f64> = pilots.iter().filter_map(|pilot| place(file.name, pilot)).collect();
    let Some(last) = places.last() else {
        return Interval { value: (least + most) / 2.0, low: least, high: most };
    };
    let furthest = places.iter().map(|place| (place - last).abs()).fold(0.0, f64::max) + PLACE_ERROR;
    let at = |place: f64| least + place.clamp(0.0, 1.0) * (most - least);
    Interval { value: at(*last), low: at(last - furthest), high: at(last + furthest) }
}

/// Returns the place of a pilot's file between the bounds of its own plan, 0 to 1.
fn place(name: &str, pilot: &PilotFiles<'_>) -> Option<f64> {
    let planned = pilot.plan.files.iter().find(|file| file.name == name)?;
    let built = pilot.files.iter().find(|file| file.name == name)?;
    let range = planned.most_bytes.saturating_sub(planned.least_bytes) as f64;
    let above = built.bytes.saturating_sub(planned.least_bytes) as f64;
    (range > 0.0).then_some(above / range)
}
