//! Errors of cards.

/// An error of a graphics card.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GpuError {
    /// The driver is not installed.
    #[error(
        "there is no driver for a graphics card: the library libcuda.so.1 was not found. Install NVIDIA's \
         driver, or leave --device gpu out"
    )]
    NoDriver,
    /// The program was compiled without support for cards.
    #[error(
        "this program was compiled without support for graphics cards: compile the crate with its feature \
         `gpu`, or leave --device gpu out"
    )]
    LeftOut,
    /// The driver has no card of this number.
    #[error("there is no graphics card {ordinal}; the driver has {count}")]
    NoCard {
        /// The number of the card.
        ordinal: u32,
        /// Number of cards that the driver has.
        count: u32,
    },
    /// The card has not enough free memory.
    #[error(
        "the graphics card has {free} bytes free, but {needed} are needed for {what}: build with smaller \
         codes (--code-bytes), search with fewer queries at once (--in-flight), or leave --device gpu out"
    )]
    Memory {
        /// Purpose of the memory.
        what: &'static str,
        /// Bytes that are needed.
        needed: u64,
        /// Bytes that are free.
        free: u64,
    },
    /// The card cannot do what was requested; the text says why.
    #[error("{0}")]
    Unsuited(String),
    /// An operation of the driver failed.
    #[error("the driver of the graphics card could not {operation}: {reason}")]
    Driver {
        /// The operation.
        operation: &'static str,
        /// The driver's message.
        reason: String,
    },
    /// A kernel returned an invalid result.
    #[error("the kernel {kernel}: {reason}")]
    Kernel {
        /// Name of the kernel.
        kernel: &'static str,
        /// Description of the invalid result.
        reason: String,
    },
    /// A kernel did not end in time.
    #[error(
        "the graphics card has not answered for {seconds} s and counts as lost: `nvidia-smi` may show what \
         occupies it, and a new process may be able to use it again"
    )]
    Stuck {
        /// Time that was waited, in seconds.
        seconds: u64,
    },
    /// The card failed before and is not used any more.
    #[error("the graphics card is not used any more, because it failed before: {0}")]
    Lost(String),
}
