//! Names of places in addressable memory, as users write them after `mapped:`.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// Kinds of memory that an index can be loaded into.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum MappedPlace {
    /// Anonymous memory of this process, on huge pages if the system has them. Only this place is certainly
    /// DRAM, so only this one counts towards a memory budget.
    #[default]
    Anonymous,
    /// Memory of one NUMA node, of this process. CXL memory is a node without processors.
    Node(u32),
    /// A file or folder (DAX file system, tmpfs, hugetlbfs) or a character device `/dev/daxX.Y`, shared by
    /// all processes that name it.
    Path(PathBuf),
}

/// A place and options for loading to it.
///
/// The text form is nothing or `anonymous`, `node=N`, or a path; then optionally `,verify` and `,overwrite`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MappedOptions {
    /// Memory that the bytes are loaded to.
    pub place: MappedPlace,
    /// True to compare bytes that an earlier load left there with their checksum before they are used. The
    /// header is checked in any case.
    pub verify: bool,
    /// True to allow overwriting a file or device that holds something other than an index.
    pub overwrite: bool,
}

impl MappedOptions {
    /// Makes the default options for `place`.
    pub fn at(place: MappedPlace) -> MappedOptions {
        MappedOptions { place, ..MappedOptions::default() }
    }

    /// Returns true if the bytes are this process's own DRAM.
    pub fn is_dram(&self) -> bool {
        self.place == MappedPlace::Anonymous
    }
}

impl FromStr for MappedOptions {
    type Err = String;

    fn from_str(text: &str) -> Result<MappedOptions, String> {
        let mut options = MappedOptions::default();
        let mut place = text;
        loop {
            if let Some(rest) = place.strip_suffix(",verify") {
                (options.verify, place) = (true, rest);
            } else if let Some(rest) = place.strip_suffix(",overwrite") {
                (options.overwrite, place) = (true, rest);
            } else {
                break;
            }
        }
        options.place = match place.strip_prefix("node=") {
            Some(node) => MappedPlace::Node(node.parse().map_err(|_| {
                format!("'{node}' is not the number of a NUMA node; write node=1, for example")
            })?),
            None if place.is_empty() || place == "anonymous" => MappedPlace::Anonymous,
            None => MappedPlace::Path(PathBuf::from(place)),
        };
        Ok(options)
    }
}

impl fmt::Display for MappedOptions {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.place {
            MappedPlace::Anonymous => write!(formatter, "anonymous")?,
            MappedPlace::Node(node) => write!(formatter, "node={node}")?,
            MappedPlace::Path(path) => write!(formatter, "{}", path.display())?,
        }
        if self.verify {
            write!(formatter, ",verify")?;
        }
        if self.overwrite {
            write!(formatter, ",overwrite")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_parsed_and_formatted_alike() {
        let path = |text: &str| MappedPlace::Path(text.into());
        let cases = [
            ("anonymous", MappedPlace::Anonymous),
            ("node=1", MappedPlace::Node(1)),
            ("/dev/dax0.0", path("/dev/dax0.0")),
            ("here,there", path("here,there")),
        ];
        for (text, place) in cases {
            for (suffix, verify, overwrite) in
                [("", false, false), (",verify", true, false), (",verify,overwrite", true, true)]
            {
                let options = MappedOptions { place: place.clone(), verify, overwrite };
                assert_eq!(format!("{text}{suffix}").parse(), Ok(options.clone()));
                assert_eq!(options.to_string(), format!("{text}{suffix}"));
            }
        }
        assert_eq!("".parse(), Ok(MappedOptions::default()));
        assert!("node=one".parse::<MappedOptions>().unwrap_err().contains("node=1"));
    }
}
