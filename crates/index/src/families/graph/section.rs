//! The entry of a graph in a manifest.

use super::layout::GraphLayout;
use crate::calibrate::list::ListPoint;
use crate::calibrate::solve::{Question, Solved};
use crate::calibrate::{self, Calibration, Limits};
use crate::format::manifest::{CodesEntry, FileEntry, Manifest, require};
use crate::query::Effort;
use serde::{Deserialize, Serialize};

pub(crate) use crate::format::manifest::{CODEC_NAME, CODES_NAME};

/// The family's name.
pub(crate) const NAME: &str = "graph";
/// The file of the offsets of packed records.
pub(crate) const OFFSETS_NAME: &str = "offsets.bin";
/// The file of the vectors with their links.
pub(crate) const GRAPH_NAME: &str = "graph.bin";
/// The files that searches may read from a tier.
pub(crate) const STRIPED: &[&str] = &[GRAPH_NAME];

/// The parameters of a graph and of its layout.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GraphEntry {
    /// The file of vectors and links. In the manifest, it is listed among the files.
    #[serde(skip)]
    pub file: FileEntry,
    /// The file of the offsets of packed records. In the manifest, it is listed among the files.
    #[serde(skip)]
    pub offsets: Option<FileEntry>,
    /// The layout of the file: "padded", "page_local" or "csr".
    pub layout: String,
    /// Vectors of a page in the page-local layout; 0 in other layouts.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub page_vectors: u32,
    /// Bytes of a page; of packed records, bytes of a cache line.
    pub page_bytes: u32,
    /// Most links of a vector (R in DiskANN).
    pub max_degree: u32,
    /// Length of the candidate list while the graph is built (L in DiskANN).
    pub search_list: u32,
    /// The factor of robust pruning (alpha in DiskANN).
    pub alpha: f32,
    /// The place of the vector where searches begin.
    pub entry_point: u32,
    /// The codes, one for each vector.
    pub codes: CodesEntry,
    /// The recall for each length of the candidate list.
    pub calibration: Calibration<ListPoint>,
}

fn is_zero(number: &u32) -> bool {
    *number == 0
}

impl GraphEntry {
    /// Reads and checks the entry in the manifest of a graph.
    ///
    /// # Errors
    /// A sentence that names what is missing or inconsistent.
    pub fn read(manifest: &Manifest) -> Result<GraphEntry, String> {
        let mut entry: GraphEntry = manifest.structure(NAME)?;
        entry.file = manifest.file(GRAPH_NAME)?.clone();
        entry.offsets = manifest.file(OFFSETS_NAME).ok().cloned();
        entry.codes.fill(manifest)?;
        entry.check(manifest)?;
        Ok(entry)
    }

    /// Returns all files; the first is the one that searches read.
    pub fn files(&self) -> Vec<FileEntry> {
        let files = [&self.file, &self.codes.file, &self.codes.codec];
        files.into_iter().chain(&self.offsets).cloned().collect()
    }

    /// Returns the layout of the file.
    ///
    /// # Errors
    /// A sentence if the layout is unknown or a number is out of range.
    pub fn layout(&self, manifest: &Manifest) -> Result<GraphLayout, String> {
        let layout = GraphLayout::of(self, manifest.stored_element()?, manifest.dim, manifest.vectors)?;
        Ok(layout.identified(manifest.identity()?))
    }

    fn check(&self, manifest: &Manifest) -> Result<(), String> {
        manifest.check_files(&self.files())?;
        require(
            u64::from(self.entry_point) < manifest.vectors,
            "the entry point is not a vector of the index",
        )?;
        require(self.alpha.is_finite(), "alpha is not a finite number")?;
        require(
            self.layout(manifest)?.fits(manifest.vectors, self.file.bytes),
            "the length of the graph's file does not fit its layout",
        )?;
        let codes = manifest.vectors * u64::from(self.codes.code_bytes);
        require(self.codes.file.bytes == codes, "the length of the codes' file does not fit their size")?;
        // Curves of version 1 contain noise.
        let series = (manifest.format_version > 1).then_some(|_: &ListPoint| ());
        calibrate::check(&self.calibration, &Limits { vectors: manifest.vectors, probes: 0, series })
    }

    /// Returns the length of the candidate list that reaches `recall` for `k` neighbours. `None` without a
    /// calibration.
    pub(crate) fn effort(&self, k: usize, recall: f32) -> Option<Solved> {
        let question = Question::new(&self.calibration.curves, k, recall)?;
        let (search_list, reached) = match question.list() {
            Some(search_list) => (search_list, true),
            None => (f64::from(question.best()?.search_list), false),
        };
        // Rounding in the logarithms may give a result slightly above a whole number.
        let search_list = question.stretched(search_list * (1.0 - 1e-9));
        Some(Solved { effort: Effort { search_list, probes: 0, prune: 0.0 }, reached })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::calibrate::Curve;

    fn entry(curves: Vec<Curve<ListPoint>>) -> GraphEntry {
        let codes = CodesEntry {
            file: FileEntry::default(),
            codec: FileEntry::default(),
            kind: String::new(),
            code_bytes: 1,
        };
        GraphEntry {
            file: FileEntry::default(),
            offsets: None,
            layout: String::new(),
            page_vectors: 0,
            page_bytes: 0,
            max_degree: 1,
            search_list: 1,
            alpha: 1.0,
            entry_point: 0,
            codes,
            calibration: Calibration { queries: 1, source: "test".into(), curves, reach: Vec::new() },
        }
    }

    fn curve(k: u32, points: &[(u32, f32)]) -> Curve<ListPoint> {
        let points = points
            .iter()
            .map(|(search_list, recall)| ListPoint { search_list: *search_list, recall: *recall });
        Curve { k, points: points.collect() }
    }

    #[test]
    fn effort_is_read_off_the_right_curve() {
        let curves = vec![curve(1, &[(10, 0.9), (20, 0.99)]), curve(10, &[(10, 0.5), (40, 0.9), (160, 1.0)])];
        let entry = entry(curves);
        let effort =
            |k, recall| entry.effort(k, recall).map(|solved| (solved.effort.search_list, solved.reached));
        assert_eq!(effort(1, 0.5), Some((10, true)));
        assert_eq!(effort(10, 0.9), Some((40, true)));
        assert_eq!(effort(5, 0.9), Some((40, true)), "the next larger k");
        assert_eq!(effort(10, 0.95), Some((80, true)), "halfway between, in logarithms");
        assert_eq!(effort(1, 0.999), Some((20, false)), "beyond the curve");
        assert_eq!(effort(20, 0.9), Some((80, true)), "twice the largest k");
        assert_eq!(self::entry(Vec::new()).effort(1, 0.5), None);
    }
}
