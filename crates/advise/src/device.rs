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
        let profile = if place.is_dir() { measure(place, progress)? } else { TierProfile::from_file(place)? };
        Ok(AdviceTier::file(name, profile))
    }
}

/// Measures the device of a folder in a few seconds.
fn measure(folder: &Path, progress: &dyn Progress) -> Result<TierProfile, IndexError> {
    let options = ProbeOptions {
        file_bytes: PROBE_BYTES,
        write_time: PROBE_WRITE_TIME,
        read_time: PROBE_READ_TIME,
        ..ProbeOptions::from(Mode::Quick)
    };
    progress.stage("measuring the device", STEPS);
    let go_on = |share: f64| {
        progress.advance((share * STEPS as f64) as u64);
        !progress.cancelled()
    };
    match probe_directory_with(folder, &options, &go_on) {
        Ok(report) => Ok(report.profile),
        Err(TierError::Cancelled) => Err(IndexError::Cancelled),
        Err(error) => Err(error.into()),
    }
}
