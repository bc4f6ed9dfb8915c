//! Errors of reading and writing files of vectors and ids.

use std::path::{Path, PathBuf};

use bathyal_kernels::Element;

/// The reason why a file of vectors or ids was refused. Every message names the file, what was found, what
/// was expected, and what to do about it.
#[derive(Debug, thiserror::Error)]
pub enum VectorError {
    /// The operating system refused: a missing file, no permission, a full disk.
    #[error("{}: cannot {action}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The attempted action, as a verb phrase ("open the file").
        action: &'static str,
        /// The system's reason; its `kind()` distinguishes a missing file from a full disk.
        source: std::io::Error,
    },
    /// The path leads to a directory, a pipe or a device.
    #[error("{}: is not a regular file; vectors are mapped into memory, which needs a regular file",
            path.display())]
    NotAFile {
        /// The path.
        path: PathBuf,
    },
    /// The extension is not one of those that this reader or writer supports.
    #[error("{}: the extension is {found:?}, expected one of {expected}; {advice}", path.display())]
    UnknownExtension {
        /// The file.
        path: PathBuf,
        /// The extension found, without its dot; empty when there is none.
        found: String,
        /// The extensions that are supported.
        expected: &'static str,
        /// Advice to the user.
        advice: &'static str,
    },
    /// The file has no bytes, or its header has a count of no rows.
    #[error("{}: holds no {what}; expected at least one, so check how the file was made", path.display())]
    Empty {
        /// The file.
        path: PathBuf,
        /// The missing things ("vectors", "ids").
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
    /// A header field has a value that no valid file has.
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
    /// The file is shorter than its header implies.
    #[error("{}: truncated: has {found} bytes, its header says {expected}; {advice}", path.display())]
    Truncated {
        /// The file.
        path: PathBuf,
        /// Bytes in the file.
        found: u64,
        /// Bytes that the header implies.
        expected: u64,
        /// Advice to the user.
        advice: String,
    },
    /// The file is longer than its header implies.
    #[error("{}: over-long: has {found} bytes, its header says {expected}; {advice}", path.display())]
    OverLong {
        /// The file.
        path: PathBuf,
        /// Bytes in the file.
        found: u64,
        /// Bytes that the header implies.
        expected: u64,
        /// Advice to the user.
        advice: String,
    },
    /// A row of `.fvecs`, `.bvecs` or `.ivecs` has another length than the first one.
    #[error("{}: row {row} has {found} elements by its prefix, row 0 has {expected}; all rows must have the \
             same length, so the file is damaged or has another element", path.display())]
    RowLength {
        /// The file.
        path: PathBuf,
        /// The row.
        row: u64,
        /// Its length in elements, from its prefix.
        found: u64,
        /// The length of row 0.
        expected: u64,
    },
    /// The `.npy` file is damaged, or valid but of a kind that is not supported.
    #[error("{}: {reason}; expected a two-dimensional C-order array of <f4, <f2, |u1 or |i1: save it with \
             numpy.save(path, numpy.ascontiguousarray(a, dtype))", path.display())]
    Npy {
        /// The file.
        path: PathBuf,
        /// The reason, as a verb phrase about the file.
        reason: String,
    },
    /// The file has another element than the one asked for.
    #[error("{}: holds {}, expected {}; convert one of the two", path.display(), found.name(),
            expected.name())]
    WrongElement {
        /// The file.
        path: PathBuf,
        /// The element of the file (when writing: of its extension).
        found: Element,
        /// The element asked for.
        expected: Element,
    },
    /// A value is NaN or infinite, so distances to its row have no meaning.
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
    /// The target element cannot hold a value: exactly, for 8-bit elements and bits, or as a finite number,
    /// for f16 and bf16.
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
        /// The target element.
        element: Element,
        /// Advice to the user.
        advice: &'static str,
    },
    /// An id is not below the number of vectors.
    #[error("{}: query {query} names id {id}, but there are only {count} vectors; these ids belong to other \
             vectors", path.display())]
    IdOutside {
        /// The file.
        path: PathBuf,
        /// The query (row).
        query: u64,
        /// The id.
        id: u32,
        /// Number of vectors.
        count: u64,
    },
    /// An id that is negative in `.ivecs`, or above its largest.
    #[error("{}: query {query} has the id {signed}, or {id} without a sign; .ivecs holds ids from 0 to \
             2147483647, and -1 for a missing one: use .ibin for larger ids", path.display())]
    IdSigned {
        /// The file.
        path: PathBuf,
        /// The query (row).
        query: u64,
        /// The id as an unsigned number.
        id: u32,
        /// The same bits as a signed number.
        signed: i32,
    },
    /// Another process changed the length of the file while it was in use.
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
    /// The given bytes are not a whole number of rows.
    #[error("{}: got {found} bytes, expected a multiple of {row_bytes}, the bytes of one row",
            path.display())]
    PartialRow {
        /// The file, or a name for data that is in no file.
        path: PathBuf,
        /// Bytes given.
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
        /// Number of rows.
        count: u64,
    },
    /// Another invalid argument, with the reason.
    #[error("{}: {reason}", path.display())]
    Argument {
        /// The file.
        path: PathBuf,
        /// The problem and the expected value.
        reason: String,
    },
    /// The progress receiver cancelled the work; partial output was removed.
    #[error("cancelled; nothing was written")]
    Cancelled,
}

impl VectorError {
    /// Returns a function that wraps a system error about `path`, met while trying to `action`.
    pub(crate) fn io(path: &Path, action: &'static str) -> impl FnOnce(std::io::Error) -> VectorError {
        let path = path.to_path_buf();
        move |source| VectorError::Io { path, action, source }
    }
}
