//! A metric on the command line.

use std::str::FromStr;

use bathyal_kernels::metric::UnknownMetric;
use bathyal_kernels::{Metric, MetricName};

/// A metric, with a note about its name if another system's name was given.
#[derive(Clone, Debug)]
pub struct MetricArgument {
    /// The metric.
    pub name: MetricName,
    /// A note that names the metric as Bathyal does, if another system's name was given.
    pub note: Option<String>,
}

impl FromStr for MetricArgument {
    type Err = UnknownMetric;

    fn from_str(name: &str) -> Result<MetricArgument, UnknownMetric> {
        Ok(MetricArgument { name: name.parse()?, note: Metric::note_on(name) })
    }
}
