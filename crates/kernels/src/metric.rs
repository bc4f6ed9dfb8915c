//! Metrics: the definitions of distance.

use crate::element::Element;
use std::fmt;
use std::str::FromStr;

/// A metric. Its value is always a distance: smaller is nearer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Metric {
    /// Squared Euclidean distance. The root is never taken: it does not change the order.
    L2,
    /// Inner product, negated: `-a.b`. Not a metric in the mathematical sense; may be negative.
    InnerProduct,
    /// `1 - a.b / (|a| |b|)`, from 0 to 2; 1 if either vector has length 0.
    Cosine,
}

impl Metric {
    /// All metrics, in the order of their declaration.
    pub const ALL: [Metric; 3] = [Metric::L2, Metric::InnerProduct, Metric::Cosine];

    /// Returns the name used in files, on the command line and in Python: `l2`, `ip` or `cosine`.
    pub const fn name(self) -> &'static str {
        match self {
            Metric::L2 => "l2",
            Metric::InnerProduct => "ip",
            Metric::Cosine => "cosine",
        }
    }

    /// Returns the name of this metric over vectors of `element`. For l2 over bits it is `hamming`.
    pub const fn name_over(self, element: Element) -> &'static str {
        match (self, element) {
            (Metric::L2, Element::B1) => HAMMING,
            _ => self.name(),
        }
    }

    /// Returns a note for users of other systems about the metric that `name` stands for: its name in
    /// Bathyal, and the definition of its distances. `None` for Bathyal's own names, in any case, and for
    /// names that are not a metric.
    ///
    /// ```
    /// use bathyal_kernels::Metric;
    /// assert_eq!("Euclidean".parse(), Ok(Metric::L2));
    /// assert!(Metric::note_on("Euclidean").unwrap().contains("l2"));
    /// assert_eq!(Metric::note_on("l2"), None);
    /// ```
    pub fn note_on(name: &str) -> Option<String> {
        let normalized = normalized_name(name);
        let (_, metric) = ALIASES.iter().find(|(alias, _)| *alias == normalized)?;
        let distances = match metric {
            Metric::L2 => "distances are squared, the root is never taken",
            Metric::InnerProduct => "distances are negated inner products, so that smaller is nearer",
            Metric::Cosine => "distances are 1 - cosine, from 0 to 2",
        };
        Some(format!("the metric '{name}' is called {metric} here; its {distances}"))
    }
}

/// Names of the metrics in other systems. The order of neighbours is the same; the distances may differ.
const ALIASES: [(&str, Metric); 16] = [
    ("euclidean", Metric::L2),
    ("euclid", Metric::L2),
    ("l2sq", Metric::L2),
    ("l2_squared", Metric::L2),
    ("squared_l2", Metric::L2),
    ("sqeuclidean", Metric::L2),
    ("squared_euclidean", Metric::L2),
    ("dot", Metric::InnerProduct),
    ("dot_product", Metric::InnerProduct),
    ("dotproduct", Metric::InnerProduct),
    ("inner_product", Metric::InnerProduct),
    ("innerproduct", Metric::InnerProduct),
    ("mips", Metric::InnerProduct),
    ("cos", Metric::Cosine),
    ("angular", Metric::Cosine),
    ("cosine_similarity", Metric::Cosine),
];

/// Returns a name in lower case, with its words joined by `_`.
fn normalized_name(name: &str) -> String {
    name.trim().to_ascii_lowercase().replace(['-', ' '], "_")
}

/// Name of the squared Euclidean distance of bits.
const HAMMING: &str = "hamming";

/// A metric as the user names it, before the element of the vectors is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricName {
    /// A metric that is defined for all elements.
    Metric(Metric),
    /// Number of bits that differ: [`Metric::L2`] of vectors of bits. Other vectors have no such distance.
    Hamming,
}

impl MetricName {
    /// Returns the name of the metric, or `hamming`.
    pub const fn name(self) -> &'static str {
        match self {
            MetricName::Metric(metric) => metric.name(),
            MetricName::Hamming => HAMMING,
        }
    }
}

impl From<Metric> for MetricName {
    fn from(metric: Metric) -> MetricName {
        MetricName::Metric(metric)
    }
}

impl fmt::Display for MetricName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(self.name())
    }
}

impl FromStr for MetricName {
    type Err = UnknownMetric;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        if normalized_name(name) == HAMMING {
            Ok(MetricName::Hamming)
        } else {
            name.parse().map(MetricName::Metric)
        }
    }
}

impl fmt::Display for Metric {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(self.name())
    }
}

/// Error for a name that is not a metric.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown metric '{0}': it is one of l2, ip, cosine; or hamming, of bits")]
pub struct UnknownMetric(pub String);

impl FromStr for Metric {
    type Err = UnknownMetric;

    /// Reads Bathyal's own names and those of other systems, in any case. [`Metric::note_on`] describes the
    /// latter.
    fn from_str(name: &str) -> Result<Self, Self::Err> {
        let normalized = normalized_name(name);
        let by_name = Metric::ALL.into_iter().find(|metric| metric.name() == normalized);
        let by_alias = || ALIASES.iter().find(|(alias, _)| *alias == normalized).map(|(_, metric)| *metric);
        by_name.or_else(by_alias).ok_or_else(|| UnknownMetric(name.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip() {
        for metric in Metric::ALL {
            assert_eq!(metric.to_string().parse(), Ok(metric));
            assert_eq!(Metric::note_on(metric.name()), None);
        }
        let refused = "manhattan".parse::<Metric>().unwrap_err();
        assert!(refused.to_string().contains("manhattan"));
    }

    #[test]
    fn hamming_is_a_metric_of_bits() {
        assert_eq!("Hamming".parse(), Ok(MetricName::Hamming));
        assert_eq!("cosine".parse(), Ok(MetricName::Metric(Metric::Cosine)));
        assert_eq!(MetricName::Hamming.to_string(), Metric::L2.name_over(Element::B1));
        assert_eq!(Metric::L2.name_over(Element::U8), "l2");
        assert!("hamming".parse::<Metric>().is_err(), "not defined for all elements");
    }

    #[test]
    fn names_of_other_systems_are_read_and_have_a_note() {
        for (alias, metric) in ALIASES {
            assert_eq!(alias.parse(), Ok(metric));
            assert!(!Metric::ALL.iter().any(|metric| metric.name() == alias), "{alias} is our own name");
            let note = Metric::note_on(alias).unwrap();
            assert!(note.contains(alias) && note.contains(metric.name()), "{note}");
        }
        for (name, metric) in
            [("L2", Metric::L2), ("Inner-Product", Metric::InnerProduct), (" COS ", Metric::Cosine)]
        {
            assert_eq!(name.parse(), Ok(metric), "{name}");
        }
        assert_eq!(Metric::note_on("L2"), None);
        assert!(Metric::note_on("euclidean").unwrap().contains("squared"));
        for name in ["", "l1", "jaccard", "l2 distance", "ip2"] {
            assert!(name.parse::<Metric>().is_err(), "{name}");
            assert_eq!(Metric::note_on(name), None, "{name}");
        }
    }
}
