//! An open index whose bytes are in DRAM, with devices emulated on top of it.

use std::sync::{Arc, Mutex, PoisonError};

use bathyal_console::Failure;
use bathyal_index::{Index, OpenOptions, TierChoice};
use bathyal_tier::layer::delay::{DelayProfile, DelayTier};
use bathyal_tier::layer::switch::SwitchTier;
use bathyal_tier::{Tier, TierProfile};

use crate::second_tier::subjects::Subject;

/// The name of plain DRAM in records.
pub(crate) const DRAM: &str = "dram";

/// The name of the file tier in records.
pub(crate) const FILE: &str = "file";

/// The name of an emulated device in records.
pub(crate) fn emulated(device: &DelayProfile) -> String {
    format!("emulated {}", device.name)
}

/// A switch between tiers, and their profiles.
type SwitchAndProfiles = (SwitchTier, Vec<TierProfile>);

/// One open index for all devices, so that measurements differ in the device only.
pub(crate) struct SwitchedIndex {
    pub(crate) index: Index,
    switch: SwitchTier,
    /// Profiles of DRAM and of each device.
    pub(crate) profiles: Vec<TierProfile>,
}

impl SwitchedIndex {
    /// Opens `subject` on DRAM, which is device number 0, and on `devices`.
    pub(crate) fn open(subject: &Subject, devices: &[DelayProfile]) -> Result<SwitchedIndex, Failure> {
        let made: Arc<Mutex<Option<SwitchAndProfiles>>> = Arc::default();
        let (slot, devices) = (made.clone(), devices.to_vec());
        let wrap = move |dram: Arc<dyn Tier>| {
            let slow = devices
                .iter()
                .map(|device| Arc::new(DelayTier::new(dram.clone(), device.clone())) as Arc<dyn Tier>);
            let tiers: Vec<Arc<dyn Tier>> = std::iter::once(dram.clone()).chain(slow).collect();
            let profiles = tiers.iter().map(|tier| tier.profile().clone()).collect();
            let switch = SwitchTier::new(tiers)?;
            *slot.lock().unwrap_or_else(PoisonError::into_inner) = Some((switch.clone(), profiles));
            Ok(Arc::new(switch) as Arc<dyn Tier>)
        };
        let options =
            OpenOptions { tier: TierChoice::Dram, wrap: Some(Arc::new(wrap)), ..OpenOptions::default() };
        let index = Index::open(&subject.path, &options)?;
        let made = made.lock().unwrap_or_else(PoisonError::into_inner).take();
        let (switch, profiles) = made.ok_or_else(|| Failure::new("the index opened no tier"))?;
        Ok(SwitchedIndex { index, switch, profiles })
    }

    /// Makes searches read from device number `device`.
    pub(crate) fn choose(&self, device: usize) {
        self.switch.choose(device);
    }
}
