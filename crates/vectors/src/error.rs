//! What can be wrong with a file of vectors or ids, said so that the reader knows what to do.

use std::path::{Path, PathBuf};

use bathyal_kernels::Element;

/// Why a file of vectors or ids was refused. Every message names the file, what was found, what was
/// expected, and what to do about it.
#[derive(Debug, thiserror::Error)]
pub enum VectorError {
    /// The operating system refused: a missing file, no permission, a full disk.
    #[error("{}: cannot {action}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What was attempted, as a verb phrase ("open the file").
        action: &'static str,
        /// The system's reason; its `kind()` tells a missing file from a full disk.
        source: std::io::Error,
    },
    /// The path leads to a directory, a pipe or a device.
    #[error("{}: is not a regular file; vectors are mapped, so they must lie in one", path.display())]
    NotAFile {
        /// The path.
        path: PathBuf,
    },
    /// The extension is not one that this reader or writer knows.
    #[error("{}: the extension is {found:?}, expected one of {expected}; {advice}", path.display())]
    UnknownExtension {
        /// The file.
        path: PathBuf,
        /// The extension found, without its dot; empty when there is none.
        found: String,
        /// The extensions that would do.
        expected: &'static str,
        /// What to do.
        advice: &'static str,
    },
    /// The file has no bytes, or its header says that it has no rows.
    #[error("{}: holds no {what}; expected at least one, so check how the file was made", path.display())]
    Empty {
        /// The file.
        path: PathBuf,
        /// What is missing ("vectors", "ids").
        what: &'static str,
    },
    /// The file ends inside its header.
    #[error("{}: has {found} bytes, its header alone takes {expected}; the file is truncated: \
             copy it again", path.display())]
    ShortHeader {
        /// The file.
        path: PathBuf,
        /// Bytes in the file.
        found: u64,
        /// Bytes of the header.
        expected: u64,
    },
    /// A header field has a value that no good file has.
    #[error("{}: the header says {field} = {found}, expected {expected}; the header is damaged or the \
             file is of another format than its extension says", path.display())]
    Header {
        /// The file.
        path: PathBuf,
        /// The field ("dim", "count", "k").
        field: &'static str,
        /// The value found.
        found: u64,
        /// The values allowed, in words.
        expected: String,
    },
    /// The sizes in the header multiply to more bytes than this machine can address.
    #[error("{}: the header says {count} rows of {row_bytes} bytes, more than this machine can address; \
             the header is damaged or the file is of another format than its extension says", path.display())]
    Overflow {
        /// The file.
        path: PathBuf,
        /// Rows.
        count: u64,
        /// Bytes of one row.
        row_bytes: u64,
    },
    /// The file is shorter than its header says.
    #[error("{}: truncated: has {found} bytes, its header says {expected}; {advice}", path.display())]
    Truncated {
        /// The file.
        path: PathBuf,
        /// Bytes in the file.
        found: u64,
        /// Bytes that the header asks for.
        expected: u64,
        /// What to do.
        advice: String,
    },
    /// The file is longer than its header says.
    #[error("{}: over-long: has {found} bytes, its header says {expected}; {advice}", path.display())]
    OverLong {
        /// The file.
        path: PathBuf,
        /// Bytes in the file.
        found: u64,
        /// Bytes that the header asks for.
        expected: u64,
        /// What to do.
        advice: String,
    },
    /// A row of `.fvecs`, `.bvecs` or `.ivecs` has another length than the first one.
    #[error("{}: row {row} says that it has {found} elements, row 0 has {expected}; all rows must be \
             equally long, so the file is damaged or of another element", path.display())]
    RowLength {
        /// The file.
        path: PathBuf,
        /// The row.
        row: u64,
        /// Its length in elements, as its prefix says.
        found: u64,
        /// The length of row 0.
        expected: u64,
    },
    /// A `.npy` file that is damaged, or good but of a kind that is not read.
    #[error("{}: {reason}; expected a two-dimensional C-order array of <f4, <f2, |u1 or |i1: save it with \
             numpy.save(path, numpy.ascontiguousarray(a, dtype))", path.display())]
    Npy {
        /// The file.
        path: PathBuf,
        /// What was found.
        reason: String,
    },
    /// The elements are not those asked for.
    #[error("{}: holds {}, expected {}; convert one of the two", path.display(), found.name(), expected.name())]
    WrongElement {
        /// The file.
        path: PathBuf,
        /// The elements of the file (or of its extension, when writing).
        found: Element,
        /// The elements asked for.
        expected: Element,
    },
    /// A value is NaN or infinite: no distance to its row has a meaning.
    #[error("{}: row {row}, dimension {dimension} is {value}; every value must be finite, so repair or \
             remove the row", path.display())]
    NotFinite {
        /// The file.
        path: PathBuf,
        /// The first such row.
        row: u64,
        /// Its first such dimension.
        dimension: usize,
        /// The value.
        value: f32,
    },
    /// A value has no exact (for 8-bit) or no finite (for f16) counterpart in the element converted to.
    #[error("{}: row {row}, dimension {dimension} is {value}, which {} cannot hold; {advice}", path.display(),
            element.name())]
    NotRepresentable {
        /// The file.
        path: PathBuf,
        /// The first such row.
        row: u64,
        /// Its first such dimension.
        dimension: usize,
        /// The value.
        value: f32,
        /// The element converted to.
        element: Element,
        /// What to do.
        advice: &'static str,
    },
    /// An id that names no vector.
    #[error("{}: query {query} names id {id}, but there are {count} vectors; these ids belong to other \
             vectors", path.display())]
    IdOutside {
        /// The file.
        path: PathBuf,
        /// The query (row).
        query: u64,
        /// The id.
        id: u32,
        /// Vectors that there are.
        count: u64,
    },
    /// An id that `.ivecs` cannot hold, or should not.
    #[error("{}: query {query} has the id {signed}, or {id} without a sign; .ivecs holds ids from 0 to 2147483647, and -1 for a \
             missing one: use .ibin for larger ids", path.display())]
    IdSigned {
        /// The file.
        path: PathBuf,
        /// The query (row).
        query: u64,
        /// The id without a sign.
        id: u32,
        /// The same bits with one.
        signed: i32,
    },
    /// The file was cut or grown by someone else while it was in use.
    #[error("{}: had {expected} bytes when it was opened and has {found} now; do not change a file while \
             it is in use: open it again", path.display())]
    Changed {
        /// The file.
        path: PathBuf,
        /// Bytes now.
        found: u64,
        /// Bytes at opening.
        expected: u64,
    },
    /// The bytes handed over are not a whole number of rows.
    #[error("{}: got {found} bytes, expected a multiple of {row_bytes}, the bytes of one row", path.display())]
    PartialRow {
        /// The file, or a name for data that is in no file.
        path: PathBuf,
        /// Bytes handed over.
        found: u64,
        /// Bytes of one row.
        row_bytes: u64,
    },
    /// The range of rows asked for is empty or ends after the last row.
    #[error("{}: rows {start}..{end} were asked for, expected a range that is not empty within 0..{count}",
            path.display())]
    Range {
        /// The file.
        path: PathBuf,
        /// First row asked for.
        start: u64,
        /// Row after the last one asked for.
        end: u64,
        /// Rows that there are.
        count: u64,
    },
    /// Another argument that cannot be right, with the reason.
    #[error("{}: {reason}", path.display())]
    Argument {
        /// The file.
        path: PathBuf,
        /// What is wrong and what would be right.
        reason: String,
    },
    /// The progress receiver asked to stop; nothing is left of what was half written.
    #[error("cancelled; nothing was written")]
    Cancelled,
}

impl VectorError {
    /// Wraps the system's error about `path` while trying to `action`.
    pub(crate) fn io(path: &Path, action: &'static str) -> impl FnOnce(std::io::Error) -> VectorError {
        let path = path.to_path_buf();
        move |source| VectorError::Io { path, action, source }
    }
}
