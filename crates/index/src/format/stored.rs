//! What the manifest says of vectors that are not stored as they were given.

use super::manifest::require;
use bathyal_kernels::{Element, Metric};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// Scales that come of sets that are taken: their largest values are from 1e-12 to 1e15.
const SCALES: std::ops::RangeInclusive<f32> = 1e-15..=1e15;
/// Most neighbours that a loss is measured by.
const MOST_K: u32 = 10;

/// As what an index stores vectors that are given as f32.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StoreAs {
    /// 16-bit floats: half the size, and hardly a neighbour lost.
    F16,
    /// Signed bytes with a scale: a quarter of the size, for some neighbours.
    I8,
}

impl StoreAs {
    /// The name used on the command line, in Python and in manifests: `f16` or `i8`.
    pub const fn name(self) -> &'static str {
        self.element().name()
    }

    /// The type of the stored components.
    pub const fn element(self) -> Element {
        match self {
            StoreAs::F16 => Element::F16,
            StoreAs::I8 => Element::I8,
        }
    }
}

impl fmt::Display for StoreAs {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(self.name())
    }
}

impl FromStr for StoreAs {
    type Err = String;

    fn from_str(name: &str) -> Result<StoreAs, String> {
        let of_name = [StoreAs::F16, StoreAs::I8].into_iter().find(|form| form.name() == name);
        of_name.ok_or_else(|| format!("unknown form '{name}': vectors of f32 can be stored as f16 or i8"))
    }
}

/// How the vectors are stored, and what that loses.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct StoredEntry {
    /// As what they are stored.
    pub element: StoreAs,
    /// What a stored component of 1 stands for; 1 under cosine, where only directions are stored.
    pub scale: f32,
    /// What was measured when the index was built; nothing where there were no two vectors.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loss: Option<Loss>,
}

/// What exact search loses by the form of the vectors alone, whatever the index: no effort finds more.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Loss {
    /// Queries measured.
    pub queries: u32,
    /// Neighbours looked for: 10, or as many as there are.
    pub k: u32,
    /// Share of the true neighbours, by the vectors as they were given, that exact search of the stored ones finds.
    pub recall: f32,
    /// Mean error of the distances of the true neighbours, as a share of their mean distance.
    pub distance_error: f32,
    /// Root mean square error of the components of a vector, in the units of the data; under cosine of vectors of length 1. It is
    /// that of the middle one of a thousand vectors. The error that vectors had before a compaction or a merge is part of it. Absent from indexes of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub component_error: Option<f32>,
}

/// What is known of vectors that an index or a segment has stored smaller than they were given, when they are stored again.
///
/// Of the original vectors only the rounded ones are left. This says how far these may be from the originals, so that what is
/// stored next neither loses more than it must nor claims to lose less than it does.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StoredBefore {
    /// The scale of bytes that they come from, or lie beside. Their scale is this one times a power of two. `None` if there are none yet:
    /// their scale fits them, with some room.
    pub scale: Option<f32>,
    /// Root mean square error that the components of most vectors already have, in the units of the data.
    pub component_error: f32,
}

impl StoredBefore {
    /// Of the first vectors that will be stored again.
    pub const NEVER: StoredBefore = StoredBefore { scale: None, component_error: 0.0 };

    /// Refuses what no index says of its vectors, or a build that does not store them smaller.
    ///
    /// # Errors
    /// A sentence.
    pub(crate) fn check(&self, store_as: Option<StoreAs>) -> Result<(), String> {
        require(store_as.is_some(), "stored_before is given without store_as, which it belongs to")?;
        let sound = self.scale.is_none_or(|scale| SCALES.contains(&scale))
            && self.component_error >= 0.0
            && self.component_error.is_finite();
        require(sound, "stored_before has a scale or an error that no index has")
    }
}

impl StoredEntry {
    /// Refuses numbers that no build writes.
    ///
    /// # Errors
    /// A sentence.
    pub(super) fn check(&self, given: Element, metric: Metric) -> Result<(), String> {
        require(given == Element::F32, "only vectors of f32 are stored as something else")?;
        require(SCALES.contains(&self.scale), "the scale of the stored vectors is out of range")?;
        require(metric != Metric::Cosine || self.scale == 1.0, "directions are stored with a scale")?;
        let Some(loss) = self.loss else { return Ok(()) };
        let sound = loss.queries > 0
            && (1..=MOST_K).contains(&loss.k)
            && (0.0..=1.0).contains(&loss.recall)
            && loss.distance_error >= 0.0
            && loss.distance_error.is_finite()
            && loss.component_error.is_none_or(|error| error >= 0.0 && error.is_finite());
        require(sound, "the loss of the stored vectors cannot have been measured")
    }
}

impl StoredEntry {
    /// What a build that stores the same vectors again is told; `metric` is that of the index.
    pub fn before(&self, metric: Metric) -> StoredBefore {
        let error = self.loss.and_then(|loss| loss.component_error);
        let scale = (self.element == StoreAs::I8 && metric != Metric::Cosine).then_some(self.scale);
        StoredBefore { scale, component_error: error.unwrap_or_else(|| self.rounding(metric)) }
    }

    /// Root mean square error of a component that is rounded once, where nothing was measured.
    fn rounding(&self, metric: Metric) -> f32 {
        match self.element {
            // The errors are spread evenly over a step.
            StoreAs::I8 if metric != Metric::Cosine => self.scale / 12.0_f32.sqrt(),
            // A step is a share of the largest component of a vector, which is below its length.
            StoreAs::I8 => 1.0 / 127.0 / 12.0_f32.sqrt(),
            StoreAs::F16 => 0.0,
        }
    }

    /// Why no effort reaches a recall, where that is for what was stored.
    pub(crate) fn falls_short(&self, recall: f32) -> Option<String> {
        let loss = self.loss.filter(|loss| loss.recall < recall)?;
        let instead = match self.element {
            StoreAs::F16 => "without store_as",
            StoreAs::I8 => "with store_as f16, or without",
        };
        Some(format!(
            "the vectors are stored as {}, of which even exact search finds {:.4} of the {} nearest; for more build the index \
             {instead}",
            self.element, loss.recall, loss.k
        ))
    }
}

impl fmt::Display for StoredEntry {
    /// In some words, for people.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}", self.element)?;
        match self.loss {
            Some(loss) => write!(
                formatter,
                "; exact search of them finds {:.4} of the {} nearest of the vectors as given, distances are off by {:.3}%",
                loss.recall,
                loss.k,
                100.0 * loss.distance_error
            ),
            None => write!(formatter, "; too few vectors to measure what that loses"),
        }
    }
}
