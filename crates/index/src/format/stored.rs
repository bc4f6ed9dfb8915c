//! The manifest's entry of vectors that are stored in another form than the data's.

use super::manifest::require;
use bathyal_kernels::{Element, Metric};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// Scales of accepted data, whose largest values are from 1e-12 to 1e15.
const SCALES: std::ops::RangeInclusive<f32> = 1e-15..=1e15;
/// Most neighbours by which a loss is measured.
const MOST_K: u32 = 10;

/// The form in which an index stores vectors that are given as f32.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StoreAs {
    /// 16-bit floats: half the size, with hardly any loss of neighbours.
    F16,
    /// Signed bytes with a scale: a quarter of the size, with a loss of some neighbours.
    I8,
}

impl StoreAs {
    /// Returns the name used on the command line, in Python and in manifests: `f16` or `i8`.
    pub const fn name(self) -> &'static str {
        self.element().name()
    }

    /// Returns the element of the stored components.
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
        let found = [StoreAs::F16, StoreAs::I8].into_iter().find(|form| form.name() == name);
        found.ok_or_else(|| format!("unknown form '{name}': vectors of f32 can be stored as f16 or i8"))
    }
}

/// The form in which the vectors are stored, and its loss.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct StoredEntry {
    /// The form of the stored vectors.
    pub element: StoreAs,
    /// The value of a stored component of 1; 1 under cosine, where only directions are stored.
    pub scale: f32,
    /// The loss that the build measured; `None` if there were fewer than two vectors.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loss: Option<Loss>,
}

/// The loss of exact search that the stored form alone causes. No effort of a search restores it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Loss {
    /// Number of measured queries.
    pub queries: u32,
    /// Number of neighbours per query: 10, or as many as there are.
    pub k: u32,
    /// Share of the true neighbours in the original vectors that exact search of the stored vectors finds.
    pub recall: f32,
    /// Mean error of the distances of the true neighbours, as a share of their mean distance.
    pub distance_error: f32,
    /// Root mean square error of the components of a vector, in the units of the data; under cosine, of
    /// vectors of length 1. It is the median over a thousand vectors. It includes the error that vectors had
    /// before a compaction or a merge. Absent from indexes of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub component_error: Option<f32>,
}

/// The rounding that vectors of an index or a segment already have when they are stored again.
///
/// Only the rounded vectors are left, not the originals. This struct bounds their distance to the originals,
/// so that the next store neither loses more than it must nor reports less loss than there is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StoredBefore {
    /// The scale of the bytes that the vectors come from, or that they are stored beside. Their scale becomes
    /// this one times a power of two. `None` if there are no bytes yet: the scale then fits the vectors, with
    /// some headroom.
    pub scale: Option<f32>,
    /// Root mean square error that the components of most vectors already have, in the units of the data.
    pub component_error: f32,
}

impl StoredBefore {
    /// The value for vectors that were never rounded.
    pub const NEVER: StoredBefore = StoredBefore { scale: None, component_error: 0.0 };

    /// Refuses numbers that no index has, and a build that does not store vectors in a smaller form.
    ///
    /// # Errors
    /// A sentence that states what is wrong.
    pub(crate) fn check(&self, store_as: Option<StoreAs>) -> Result<(), String> {
        require(store_as.is_some(), "stored_before requires store_as")?;
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
    /// A sentence that states what is wrong.
    pub(super) fn check(&self, given: Element, metric: Metric) -> Result<(), String> {
        require(given == Element::F32, "only vectors of f32 can have a stored form")?;
        require(SCALES.contains(&self.scale), "the scale of the stored vectors is out of range")?;
        require(
            metric != Metric::Cosine || self.scale == 1.0,
            "vectors under cosine are stored with a scale other than 1",
        )?;
        let Some(loss) = self.loss else { return Ok(()) };
        let sound = loss.queries > 0
            && (1..=MOST_K).contains(&loss.k)
            && (0.0..=1.0).contains(&loss.recall)
            && loss.distance_error >= 0.0
            && loss.distance_error.is_finite()
            && loss.component_error.is_none_or(|error| error >= 0.0 && error.is_finite());
        require(sound, "the loss of the stored vectors has numbers out of range")
    }
}

impl StoredEntry {
    /// Returns the rounding of the vectors, for a build that stores them again; `metric` is the metric of the
    /// index.
    pub fn before(&self, metric: Metric) -> StoredBefore {
        let error = self.loss.and_then(|loss| loss.component_error);
        let scale = (self.element == StoreAs::I8 && metric != Metric::Cosine).then_some(self.scale);
        StoredBefore { scale, component_error: error.unwrap_or_else(|| self.rounding(metric)) }
    }

    /// Returns the root mean square error of a component that is rounded once, for an index without a
    /// measured loss.
    fn rounding(&self, metric: Metric) -> f32 {
        match self.element {
            // The errors are uniformly distributed over a step.
            StoreAs::I8 if metric != Metric::Cosine => self.scale / 12.0_f32.sqrt(),
            // A step is a fraction of the largest component of a vector, which is at most its length.
            StoreAs::I8 => 1.0 / 127.0 / 12.0_f32.sqrt(),
            StoreAs::F16 => 0.0,
        }
    }

    /// Returns why no effort reaches a recall, if the stored form prevents it.
    pub(crate) fn falls_short(&self, recall: f32) -> Option<String> {
        let loss = self.loss.filter(|loss| loss.recall < recall)?;
        let instead = match self.element {
            StoreAs::F16 => "without store_as",
            StoreAs::I8 => "with store_as f16, or without",
        };
        Some(format!(
            "the vectors are stored as {}: even exact search finds only {:.4} of the {} nearest; for a \
             higher recall build the index {instead}",
            self.element, loss.recall, loss.k
        ))
    }
}

impl fmt::Display for StoredEntry {
    /// Writes the form and its loss, for people.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}", self.element)?;
        match self.loss {
            Some(loss) => write!(
                formatter,
                "; exact search of them finds {:.4} of the {} nearest of the vectors as given, distances are \
                 off by {:.3}%",
                loss.recall,
                loss.k,
                100.0 * loss.distance_error
            ),
            None => write!(formatter, "; there are too few vectors to measure the loss"),
        }
    }
}
