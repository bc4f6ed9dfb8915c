//! The devices of a request: memory, a folder that is measured, or the profile of another machine.

use crate::request::AdviceTier;
use bathyal_index::IndexError;
use bathyal_tier::probe::{Mode, ProbeOptions, probe_directory_with};
use bathyal_tier::{TierError, TierProfile};
use bathyal_vectors::progress::Progress;
use std::path::Path;
use std::time::Duration;

/// Bytes of the file that measures a folder's device, and the longest times of writing and of reading it:
/// less than in a probe by itself, since an answer should take seconds.
const PROBE_BYTES: u64 = 256 << 20;
const PROBE_WRITE_TIME: Duration = Duration::from_millis(1_000);
const PROBE_READ_TIME: Duration = Duration::from_millis(2_500);
/// The same for the choice of a default: a few numbers in a fraction of a second.
const BRIEF_BYTES: u64 = 64 << 20;
const BRIEF_WRITE_TIME: Duration = Duration::from_millis(300);
const BRIEF_CELL_TIME: Duration = Duration::from_millis(25);
const BRIEF_BLOCKS: [u32; 2] = [4096, 1 << 20];
const BRIEF_DEPTHS: [u32; 3] = [1, 16, 128];
/// Steps of the progress of a measurement, which reports its progress as a share.
const STEPS: u64 = 1000;

impl AdviceTier {
    /// Returns the tier that `place` names: `dram`, a folder, whose device is measured, or the file of a
    /// profile that a probe wrote.
    ///
    /// # Errors
    /// Errors of the file or the folder; [`IndexError::Cancelled`].
    pub fn at(place: &Path, progress: &dyn Progress) -> Result<AdviceTier, IndexError> {
        if place == Path::new("dram") {
            return Ok(AdviceTier::dram());
        }
        let name = place.display().to_string();
        let profile = match place.is_dir() {
            true => measure(place, &usual(), progress)?,
            false => TierProfile::from_file(place)?,
        };
        Ok(AdviceTier::file(name, profile))
    }

    /// Returns the tier of a folder, whose device is measured in half a second: less exact than
    /// [`AdviceTier::at`].
    ///
    /// # Errors
    /// As [`AdviceTier::at`].
    pub(crate) fn briefly(folder: &Path, progress: &dyn Progress) -> Result<AdviceTier, IndexError> {
        let options = ProbeOptions {
            file_bytes: BRIEF_BYTES,
            write_time: BRIEF_WRITE_TIME,
            cell_time: BRIEF_CELL_TIME,
            blocks: BRIEF_BLOCKS.to_vec(),
            depths: BRIEF_DEPTHS.to_vec(),
            ..usual()
        };
        Ok(AdviceTier::file(folder.display().to_string(), measure(folder, &options, progress)?))
    }
}

/// Returns the options of a measurement for an advice.
fn usual() -> ProbeOptions {
    ProbeOptions {
        file_bytes: PROBE_BYTES,
        write_time: PROBE_WRITE_TIME,
        read_time: PROBE_READ_TIME,
        ..ProbeOptions::from(Mode::Quick)
    }
}

/// Measures the device of a folder.
fn measure(
    folder: &Path,
    options: &ProbeOptions,
    progress: &dyn Progress,
) -> Result<TierProfile, IndexError> {
    progress.stage("measuring the device", STEPS);
    let go_on = |share: f64| {
        progress.advance((share * STEPS as f64) as u64);
        !progress.cancelled()
    };
    match probe_directory_with(folder, options, &go_on) {
        Ok(report) => Ok(report.profile),
        Err(TierError::Cancelled) => Err(IndexError::Cancelled),
        Err(error) => Err(error.into()),
    }
}
