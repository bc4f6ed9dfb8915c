//! Kinds of failures: maps every error of the libraries to a kind that scripts may rely on.

use std::fmt;
use std::io;
use std::path::Path;

use bathyal_collection::CollectionError;
use bathyal_gpu::GpuError;
use bathyal_index::IndexError;
use bathyal_store::StoreError;
use bathyal_tier::{FaultKind, ReadError, TierError};
use bathyal_vectors::VectorError;
use bathyal_vectors::groundtruth::GroundTruthError;
use serde::Serialize;

/// The kind of a failure. The names are stable: scripts may rely on them. `docs/errors.md` lists them all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// An argument or a combination of arguments cannot be right.
    InvalidArgument,
    /// A file of vectors, ids or rows is malformed, or holds values that cannot be used.
    InvalidData,
    /// A file, a folder, an index, a collection or a row does not exist.
    NotFound,
    /// The path of the output exists already, or the collection has a row with an id that is to be added.
    Exists,
    /// The path holds something that is not an index, or not a collection.
    NotAnIndex,
    /// The bytes of an index or a collection are not those that were written.
    Damaged,
    /// The index or the collection was written by a later version of Bathyal.
    LaterVersion,
    /// The allowed memory, or the memory of the machine, is too small.
    Memory,
    /// The system or a store denies access.
    Permission,
    /// The disk is full, or a limit on the length of files is reached.
    NoSpace,
    /// Another process is working there; the same command may succeed later.
    Busy,
    /// The system refused an operation on a file or a device for another reason.
    Io,
    /// An object store or a memory node failed at a request.
    Store,
    /// A graphics card is missing, or failed.
    Device,
    /// A time limit passed.
    Timeout,
    /// Stopped by Ctrl-C or SIGTERM.
    Cancelled,
    /// The work failed for a reason that only the message gives.
    Failed,
    /// A defect of Bathyal itself.
    Internal,
}

impl Kind {
    /// All kinds, in the order of their declaration.
    pub const ALL: [Kind; 18] = [
        Kind::InvalidArgument,
        Kind::InvalidData,
        Kind::NotFound,
        Kind::Exists,
        Kind::NotAnIndex,
        Kind::Damaged,
        Kind::LaterVersion,
        Kind::Memory,
        Kind::Permission,
        Kind::NoSpace,
        Kind::Busy,
        Kind::Io,
        Kind::Store,
        Kind::Device,
        Kind::Timeout,
        Kind::Cancelled,
        Kind::Failed,
        Kind::Internal,
    ];

    /// Returns the name in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Kind::InvalidArgument => "invalid_argument",
            Kind::InvalidData => "invalid_data",
            Kind::NotFound => "not_found",
            Kind::Exists => "exists",
            Kind::NotAnIndex => "not_an_index",
            Kind::Damaged => "damaged",
            Kind::LaterVersion => "later_version",
            Kind::Memory => "memory",
            Kind::Permission => "permission",
            Kind::NoSpace => "no_space",
            Kind::Busy => "busy",
            Kind::Io => "io",
            Kind::Store => "store",
            Kind::Device => "device",
            Kind::Timeout => "timeout",
            Kind::Cancelled => "cancelled",
            Kind::Failed => "failed",
            Kind::Internal => "internal",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(self.name())
    }
}

impl From<&io::Error> for Kind {
    fn from(error: &io::Error) -> Kind {
        match error.kind() {
            io::ErrorKind::NotFound => Kind::NotFound,
            io::ErrorKind::AlreadyExists => Kind::Exists,
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => Kind::Permission,
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge => {
                Kind::NoSpace
            }
            io::ErrorKind::OutOfMemory => Kind::Memory,
            io::ErrorKind::TimedOut => Kind::Timeout,
            _ => Kind::Io,
        }
    }
}

// No `match` below ends in `_`, so that the compiler demands a kind for every new error.

impl From<&VectorError> for Kind {
    fn from(error: &VectorError) -> Kind {
        match error {
            VectorError::Io { source, .. } => source.into(),
            VectorError::NotAFile { .. }
            | VectorError::UnknownExtension { .. }
            | VectorError::WrongElement { .. }
            | VectorError::Range { .. }
            | VectorError::Argument { .. } => Kind::InvalidArgument,
            VectorError::Empty { .. }
            | VectorError::ShortHeader { .. }
            | VectorError::Header { .. }
            | VectorError::Overflow { .. }
            | VectorError::Truncated { .. }
            | VectorError::OverLong { .. }
            | VectorError::RowLength { .. }
            | VectorError::Npy { .. }
            | VectorError::NotFinite { .. }
            | VectorError::NotRepresentable { .. }
            | VectorError::IdOutside { .. }
            | VectorError::IdSigned { .. }
            | VectorError::PartialRow { .. } => Kind::InvalidData,
            VectorError::Changed { .. } => Kind::Io,
            VectorError::Cancelled => Kind::Cancelled,
        }
    }
}

impl From<&GroundTruthError> for Kind {
    fn from(error: &GroundTruthError) -> Kind {
        match error {
            GroundTruthError::Vectors(error) => error.into(),
            GroundTruthError::KOutside { .. }
            | GroundTruthError::Dimensions { .. }
            | GroundTruthError::Elements { .. }
            | GroundTruthError::OtherQueries { .. }
            | GroundTruthError::NoNeighbors { .. }
            | GroundTruthError::FewNeighbors { .. } => Kind::InvalidArgument,
            GroundTruthError::ZeroVector { .. } => Kind::InvalidData,
            GroundTruthError::Screen(error) => {
                error.downcast_ref::<GpuError>().map_or(Kind::Internal, Kind::from)
            }
            GroundTruthError::Cancelled => Kind::Cancelled,
        }
    }
}

impl From<&GpuError> for Kind {
    fn from(error: &GpuError) -> Kind {
        match error {
            GpuError::Memory { .. } => Kind::Memory,
            GpuError::Unsuited(_) => Kind::InvalidArgument,
            GpuError::NoDriver
            | GpuError::LeftOut
            | GpuError::NoCard { .. }
            | GpuError::Driver { .. }
            | GpuError::Kernel { .. }
            | GpuError::Stuck { .. }
            | GpuError::Lost(_) => Kind::Device,
        }
    }
}

impl From<&TierError> for Kind {
    fn from(error: &TierError) -> Kind {
        match error {
            TierError::Io { source, .. } | TierError::System { source, .. } => source.into(),
            TierError::Contract(_) => Kind::Internal,
            TierError::Lost { .. } => Kind::Io,
            TierError::Checksum { .. } => Kind::Damaged,
            TierError::Cancelled => Kind::Cancelled,
            TierError::Parameter(_) => Kind::InvalidArgument,
        }
    }
}

impl From<&ReadError> for Kind {
    fn from(error: &ReadError) -> Kind {
        match error {
            ReadError::Device { kind, .. } => match kind {
                FaultKind::Denied => Kind::Permission,
                FaultKind::Throttled => Kind::Busy,
                FaultKind::Gone => Kind::NotFound,
                FaultKind::LostPeer => Kind::Store,
                FaultKind::Changed
                | FaultKind::Forgotten
                | FaultKind::Damaged
                | FaultKind::Skipped
                | FaultKind::Device => Kind::Io,
            },
            // Bytes are missing, or an address is outside the file.
            ReadError::Short { .. } | ReadError::OutOfRange { .. } => Kind::Damaged,
            ReadError::NoPlace { .. } => Kind::Internal,
            ReadError::Budget { .. } => Kind::Memory,
        }
    }
}

impl From<&StoreError> for Kind {
    fn from(error: &StoreError) -> Kind {
        match error {
            StoreError::Io { source, .. } => source.into(),
            StoreError::Missing { .. } | StoreError::PartMissing { .. } => Kind::NotFound,
            StoreError::Exists { .. } | StoreError::Irreplaceable { .. } => Kind::Exists,
            StoreError::NoGeneration { .. } => Kind::NotAnIndex,
            StoreError::Irregular { .. }
            | StoreError::Short { .. }
            | StoreError::Part { .. }
            | StoreError::Changed { .. } => Kind::Damaged,
            StoreError::Striping { .. }
            | StoreError::Name { .. }
            | StoreError::Unchangeable { .. }
            | StoreError::Address(_) => Kind::InvalidArgument,
            StoreError::Memory { .. } => Kind::Memory,
            StoreError::Replaced { .. } | StoreError::Busy { .. } => Kind::Busy,
            StoreError::Remote { .. } => Kind::Store,
            StoreError::Denied { .. } => Kind::Permission,
            StoreError::Cancelled => Kind::Cancelled,
            StoreError::Tier(error) => error.into(),
        }
    }
}

impl From<&IndexError> for Kind {
    fn from(error: &IndexError) -> Kind {
        match error {
            IndexError::Vectors(error) => error.into(),
            IndexError::Tier(error) => error.into(),
            IndexError::Gpu(error) => error.into(),
            // Of the two errors, that of the processor ended the work.
            IndexError::WithoutCard { source, .. } => source.as_ref().into(),
            IndexError::Store(error) => error.into(),
            IndexError::Read { source, .. } => source.into(),
            IndexError::Damaged { .. } => Kind::Damaged,
            // For an address, opening has found that something exists there.
            IndexError::NotAnIndex { path, .. } if is_absent(path) => Kind::NotFound,
            IndexError::NotAnIndex { .. } => Kind::NotAnIndex,
            IndexError::LaterVersion { .. } => Kind::LaterVersion,
            IndexError::Exists { .. } => Kind::Exists,
            IndexError::Memory { .. } | IndexError::NoMemory { .. } => Kind::Memory,
            IndexError::Parameter(_) | IndexError::Codes(_) => Kind::InvalidArgument,
            IndexError::ZeroVectors { .. } => Kind::InvalidData,
            IndexError::Cancelled => Kind::Cancelled,
            IndexError::Deadline => Kind::Timeout,
            IndexError::Forked { .. } | IndexError::Internal(_) => Kind::Internal,
        }
    }
}

/// Returns true if nothing exists at a path. False for an address, which only its store can look up.
fn is_absent(path: &Path) -> bool {
    !path.to_string_lossy().contains("://") && !path.exists()
}

impl From<&CollectionError> for Kind {
    fn from(error: &CollectionError) -> Kind {
        match error {
            CollectionError::Parameter(_) | CollectionError::Filter(_) => Kind::InvalidArgument,
            CollectionError::Duplicate { .. } | CollectionError::Exists { .. } => Kind::Exists,
            CollectionError::NotACollection { path, .. } if is_absent(path) => Kind::NotFound,
            CollectionError::NotACollection { .. } => Kind::NotAnIndex,
            CollectionError::LaterVersion { .. } => Kind::LaterVersion,
            CollectionError::Busy { .. } | CollectionError::Fenced { .. } => Kind::Busy,
            CollectionError::NotWritten { .. } => Kind::Io,
            CollectionError::Damaged { .. } => Kind::Damaged,
            CollectionError::Memory { .. } => Kind::Memory,
            CollectionError::Store(error) => error.into(),
            CollectionError::Index(error) => error.into(),
            CollectionError::Vectors(error) => error.into(),
            CollectionError::Arrow(_) | CollectionError::Parquet { .. } | CollectionError::File { .. } => {
                Kind::InvalidData
            }
            CollectionError::Imported { source, .. } => source.as_ref().into(),
            CollectionError::Cancelled => Kind::Cancelled,
            CollectionError::Deadline => Kind::Timeout,
            CollectionError::Internal(_) => Kind::Internal,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::sync::Arc;

    use super::*;

    fn kind_of(error: impl Into<IndexError>) -> Kind {
        Kind::from(&error.into())
    }

    #[test]
    fn names_are_unique_and_those_of_json() {
        for (i, kind) in Kind::ALL.into_iter().enumerate() {
            assert_eq!(serde_json::to_value(kind).unwrap(), kind.name());
            assert_eq!(Kind::ALL.iter().position(|other| other.name() == kind.name()), Some(i));
        }
    }

    #[test]
    fn system_errors_map_to_different_kinds() {
        let cases = [
            (io::ErrorKind::NotFound, Kind::NotFound),
            (io::ErrorKind::PermissionDenied, Kind::Permission),
            (io::ErrorKind::StorageFull, Kind::NoSpace),
            (io::ErrorKind::FileTooLarge, Kind::NoSpace),
            (io::ErrorKind::TimedOut, Kind::Timeout),
            (io::ErrorKind::OutOfMemory, Kind::Memory),
            (io::ErrorKind::InvalidInput, Kind::Io),
        ];
        for (reason, kind) in cases {
            let path = PathBuf::from("x");
            assert_eq!(kind_of(TierError::io("open", &path, reason.into())), kind, "{reason}");
            assert_eq!(kind_of(StoreError::io("open", &path, reason.into())), kind, "{reason}");
            let error = VectorError::Io { path, action: "open the file", source: reason.into() };
            assert_eq!(Kind::from(&GroundTruthError::Vectors(error)), kind, "{reason}");
        }
    }

    #[test]
    fn errors_of_collections_have_the_kind_of_their_cause() {
        let path = PathBuf::from("memory://bucket/x");
        let kind = |error: &CollectionError| Kind::from(error);
        assert_eq!(kind(&CollectionError::Fenced { path: path.clone() }), Kind::Busy);
        assert_eq!(kind(&CollectionError::Deadline), Kind::Timeout);
        let reason = String::new();
        assert_eq!(kind(&CollectionError::NotACollection { path: path.clone(), reason }), Kind::NotAnIndex);
        let full = TierError::io("write", &path, io::ErrorKind::StorageFull.into());
        let full = Box::new(CollectionError::Index(full.into()));
        let stopped = CollectionError::Imported { path, written: 3, source: full };
        assert_eq!(kind(&stopped), Kind::NoSpace);
        assert!(stopped.to_string().ends_with("the first 3 rows were written"), "{stopped}");
    }

    #[test]
    fn errors_that_no_command_test_can_cause_have_their_kinds() {
        let path = PathBuf::from("s3://bucket/x");
        assert_eq!(kind_of(IndexError::Deadline), Kind::Timeout);
        assert_eq!(kind_of(IndexError::Internal("x".into())), Kind::Internal);
        assert_eq!(kind_of(StoreError::Busy { path: path.clone() }), Kind::Busy);
        assert_eq!(kind_of(GpuError::Lost("x".into())), Kind::Device);
        assert_eq!(kind_of(GpuError::Unsuited("x".into())), Kind::InvalidArgument);
        let screen = GroundTruthError::Screen(Box::new(GpuError::NoDriver));
        assert_eq!(Kind::from(&screen), Kind::Device);
        // An address is not looked for on this machine.
        assert_eq!(
            kind_of(StoreError::NoGeneration { path: path.clone(), reason: String::new() }),
            Kind::NotAnIndex
        );
        let remote = StoreError::Remote { operation: "read", path: path.clone(), reason: String::new() };
        assert_eq!(kind_of(remote), Kind::Store);
        let denied = StoreError::Denied { operation: "read", path: path.clone(), reason: String::new() };
        assert_eq!(kind_of(denied), Kind::Permission);
        assert_eq!(kind_of(IndexError::LaterVersion { path, found: 9, known: 2 }), Kind::LaterVersion);
        let source = Arc::new(IndexError::NoMemory { what: "codes", bytes: 1 });
        assert_eq!(kind_of(IndexError::WithoutCard { card: "lost".into(), source }), Kind::Memory);
        let short = ReadError::Short { offset: 0, expected: 2, got: 1 };
        assert_eq!(kind_of(IndexError::Read { file: PathBuf::from("x"), source: short }), Kind::Damaged);
    }
}
