//! What "near" means.

use std::fmt;
use std::str::FromStr;

/// A metric, always as a distance: the smaller, the nearer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Metric {
    /// Squared Euclidean distance. The root is never taken: it does not change the order.
    L2,
    /// Inner product, negated: `-a.b`. Not a metric in the mathematical sense; may be negative.
    InnerProduct,
    /// `1 - a.b / (|a| |b|)`, from 0 to 2; 1 where either vector has no length.
    Cosine,
}

impl Metric {
    /// Every metric, in the order of their declaration.
    pub const ALL: [Metric; 3] = [Metric::L2, Metric::InnerProduct, Metric::Cosine];

    /// The name used in files, on the command line and in Python: `l2`, `ip` or `cosine`.
    pub const fn name(self) -> &'static str {
        match self {
            Metric::L2 => "l2",
            Metric::InnerProduct => "ip",
            Metric::Cosine => "cosine",
        }
    }
}

impl fmt::Display for Metric {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(self.name())
    }
}

/// A name that is no metric.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown metric '{0}': it is one of l2, ip, cosine")]
pub struct UnknownMetric(pub String);

impl FromStr for Metric {
    type Err = UnknownMetric;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        Metric::ALL
            .into_iter()
            .find(|metric| metric.name() == name)
            .ok_or_else(|| UnknownMetric(name.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip() {
        for metric in Metric::ALL {
            assert_eq!(metric.to_string().parse(), Ok(metric));
        }
        let refused = "manhattan".parse::<Metric>().unwrap_err();
        assert!(refused.to_string().contains("manhattan"));
    }
}
