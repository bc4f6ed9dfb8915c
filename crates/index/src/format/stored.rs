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
            && loss.distance_error.is_finite();
        require(sound, "the loss of the stored vectors cannot have been measured")
    }
}

impl StoredEntry {
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
