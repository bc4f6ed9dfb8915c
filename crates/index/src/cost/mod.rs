//! The cost model, which predicts a search of any family: the demand of a query ([`demand`]), the device
//! ([`device`]) and the processor ([`processor`]), and which of the two limits the speed.
//!
//! The models of the papers are here, each once: counters of graphs and of posting lists ([`counters`]),
//! object stores ([`store`]), graphics cards ([`card`]), hash tables on storage ([`storage`]), queries that
//! wait for each other ([`queueing`]), and the segments of collections ([`merging`]). [`deviation`] judges a
//! prediction by what was measured.
//!
//! Each family computes the demand of its queries (`families/*/cost.rs`). The effort for a recall, the
//! queries in flight and the prediction of `explain` follow from it. No prediction reads a file or a clock;
//! the constants of the processor are measured once (`measure`) and cached (`processor_cache`).

pub mod card;
pub mod counters;
pub mod demand;
pub mod deviation;
pub mod device;
pub mod layout;
mod measure;
pub mod merging;
pub mod processor;
pub(crate) mod processor_cache;
pub mod queueing;
pub mod storage;
pub mod store;
pub mod work;

use bathyal_tier::TierProfile;

/// The machine of searches: the device that is read, and the processor.
#[derive(Debug, Clone, Copy)]
pub struct Machine<'a> {
    /// The profile of the device, with measured values if there are any.
    pub profile: &'a TierProfile,
    /// The processor.
    pub processor: &'a processor::Processor,
}

impl Machine<'_> {
    /// Returns the times of the device. For values that were not measured, those of the processor and assumed
    /// ones are used.
    pub fn device(&self) -> device::Device {
        device::Device::on(self.profile, self.processor)
    }
}
