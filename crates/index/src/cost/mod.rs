//! What a search will cost before it is run, whatever the family: what a query asks for ([`demand`]), of which device
//! ([`device`]) and of which processor ([`processor`]), and which of them decides how fast it is.
//!
//! What a query of a family asks for is said by the family (`families/*/cost.rs`). From that follow the effort for a
//! recall, the queries in flight and what `explain` predicts. No prediction reads a file or a clock; the constants of the
//! processor are measured once (`measure`) and kept (`kept`).

pub mod demand;
pub mod device;
pub(crate) mod kept;
mod measure;
pub mod processor;
pub mod storage;

use bathyal_tier::TierProfile;

/// Where searches run: the device that is read, and the processor.
#[derive(Debug, Clone, Copy)]
pub struct Machine<'a> {
    /// The device, with whatever has been measured of it.
    pub profile: &'a TierProfile,
    /// The processor.
    pub processor: &'a processor::Processor,
}

impl Machine<'_> {
    /// What the device takes, with assumptions in place of what nobody has measured.
    pub fn device(&self) -> device::Device {
        device::Device::of(self.profile)
    }
}
