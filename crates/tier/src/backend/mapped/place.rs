//! Names of places in addressable memory: what users type after `mapped`.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// Kinds of memory that an index can be loaded into.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Place {
    /// Anonymous memory of this process, on huge pages where the system has them. The only place that is DRAM for
    /// sure, and so the only one that counts towards a memory budget.
    #[default]
    Anonymous,
    /// Memory of one NUMA node, of this process. CXL memory is a node without processors.
    Node(u32),
    /// A file or folder (DAX file system, tmpfs, hugetlbfs) or a character device `/dev/daxX.Y`; shared by all
    /// processes that name it.
    Path(PathBuf),
}

/// A place and how to load it.
///
/// As text: nothing or `anonymous`, `node=N`, or a path; then `,verify` and `,overwrite` as wanted.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MappedOptions {
    /// Where the bytes go.
    pub place: Place,
    /// Whether bytes that an earlier load left there are read and compared with their checksum before they are used;
    /// the header is in any case.
    pub verify: bool,
    /// Whether a file or device that holds something else than an index may be overwritten.
    pub overwrite: bool,
}

impl MappedOptions {
    /// These options for `place`.
    pub fn at(place: Place) -> MappedOptions {
        MappedOptions { place, ..MappedOptions::default() }
    }

    /// Whether the bytes are this process's own DRAM.
    pub fn is_dram(&self) -> bool {
        self.place == Place::Anonymous
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
        options.place =
            match place.strip_prefix("node=") {
                Some(node) => Place::Node(node.parse().map_err(|_| {
                    format!("'{node}' is no number of a NUMA node; write node=1, for example")
                })?),
                None if place.is_empty() || place == "anonymous" => Place::Anonymous,
                None => Place::Path(PathBuf::from(place)),
            };
        Ok(options)
    }
}

impl fmt::Display for MappedOptions {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.place {
            Place::Anonymous => write!(formatter, "anonymous")?,
            Place::Node(node) => write!(formatter, "node={node}")?,
            Place::Path(path) => write!(formatter, "{}", path.display())?,
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
    fn places_are_read_and_written_alike() {
        let path = |text: &str| Place::Path(text.into());
        let cases = [
            ("anonymous", Place::Anonymous),
            ("node=1", Place::Node(1)),
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
