//! What goes wrong with cards.

/// Why a card does not do what it should.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GpuError {
    /// There is no driver.
    #[error(
        "no driver for a graphics card: the library libcuda.so.1 is not there. Install NVIDIA's driver, or leave --device gpu out"
    )]
    NoDriver,
    /// The program was compiled without what reaches cards.
    #[error(
        "this program was compiled without graphics cards: compile the crate with its feature `gpu`, or leave --device gpu out"
    )]
    LeftOut,
    /// There is no card of this number.
    #[error("there is no graphics card {ordinal}; the driver has {count}")]
    NoCard {
        /// Its number.
        ordinal: u32,
        /// How many there are.
        count: u32,
    },
    /// The memory of the card does not hold what it should.
    #[error(
        "the graphics card has {free} bytes free, {what} takes {needed}: take smaller codes (--code-bytes at the build), fewer queries at once (--in-flight), or leave --device gpu out"
    )]
    Memory {
        /// What should be there.
        what: &'static str,
        /// Bytes of it.
        needed: u64,
        /// Bytes that are free.
        free: u64,
    },
    /// The index is not one that a card searches.
    #[error("{0}")]
    Unsuited(String),
    /// The driver has refused.
    #[error("the driver of the graphics card could not {operation}: {reason}")]
    Driver {
        /// What it was asked for.
        operation: &'static str,
        /// What it says.
        reason: String,
    },
    /// A kernel did what it may not.
    #[error("the kernel {kernel}: {reason}")]
    Kernel {
        /// Its name.
        kernel: &'static str,
        /// What it did.
        reason: String,
    },
    /// A kernel does not end.
    #[error(
        "the graphics card has not answered for {seconds} s and is taken for lost: `nvidia-smi` may say what it is busy with, and a new \
         process may reach it again"
    )]
    Stuck {
        /// How long it was waited for.
        seconds: u64,
    },
    /// Nothing answers any more.
    #[error("the graphics card is not used any more, since it failed before: {0}")]
    Lost(String),
}
